// A providers file with the provider `cloud`: a shell script that has no instances and makes none.
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempDirectory } from './programs.ts';

const PROGRAM = `#!/bin/sh
cat > /dev/null
[ "$1" = list ] || exit 1
echo '{"instances": []}'
`;

export function aProvidersFile(): { readonly path: string; readonly folder: string; remove(): void } {
  const directory = tempDirectory('providers');
  const folder = directory.path;
  const [path, program] = [join(folder, 'providers.json'), join(folder, 'cloud')];
  writeFileSync(program, PROGRAM);
  chmodSync(program, 0o755);
  writeFileSync(path, JSON.stringify({ providers: { cloud: { command: [program] } } }));
  return { path, folder, remove: () => directory.remove() };
}

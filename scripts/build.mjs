/**
 * `npm run build`: a self-contained release in `dist/`: the folder `dist/longshore`, its archive with a sha256, and the
 * channel file by which a scheduler serves it; and the packages of the command line and of the Python module in
 * `dist/install`. `-- --unpacked` leaves the archive out, `-- --packages` makes the packages of `dist/install`
 * alone, and `-- --console` the web console of `dist/console` alone. `-- --debian [--revision N]` makes the Debian
 * packages beside all that, in `dist/debian`. `--sign KEY` signs the archive, the
 * channel file and the checksums of the Debian packages.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { writeDebianPackages } from './build/debian.mjs';
import { writePackages } from './build/packages.mjs';
import { writeConsole } from './build/console.mjs';
import { packRelease, writeRelease } from './build/release.mjs';
import { main, stepLog } from './setup/log.mjs';
import { repositoryRoot } from './setup/paths.mjs';

await main(async () => {
  const log = stepLog();
  const flag = { type: 'boolean' };
  const text = { type: 'string' };
  const { values } = parseArgs({
    options: { packages: flag, console: flag, unpacked: flag, debian: flag, sign: text, revision: text },
  });
  const dist = join(repositoryRoot, 'dist');
  const directory = join(dist, 'longshore');
  await mkdir(dist, { recursive: true });
  if (values.console) {
    const { line } = await log.step('building the web console', () => writeConsole(dist));
    log.say(`dist/console: ${line}`);
    return;
  }
  const packages = await log.step('building the packages', () => writePackages(dist));
  log.say(`dist/install: ${packages.join(', ')}`);
  if (values.packages) return;
  await log.step('bundling the programs', () => writeRelease(directory));
  const key = values.sign ?? process.env.LS_SIGNING_KEY;
  if (key === undefined) log.say('not signed: --sign KEY, or LS_SIGNING_KEY, names a key of gpg');
  if (values.debian) {
    const options = { key, revision: values.revision };
    const debian = await log.step('building the Debian packages', () =>
      writeDebianPackages(directory, join(dist, 'debian'), options),
    );
    log.say(`dist/debian: ${debian.join(', ')}`);
  }
  if (values.unpacked) return;
  const { file, sha256, bytes } = await log.step('packing the release', () => packRelease(directory, dist, { key }));
  log.say(`dist/${file}: ${(bytes / 1e6).toFixed(1)} MB, sha256 ${sha256}`);
});

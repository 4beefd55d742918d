// Certificates for registries, as the engine has them: the system's authorities, and a directory for each registry.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createSecureContext, getCACertificates } from 'node:tls';
import type { SecureContext } from 'node:tls';

/** Where the engine looks, too. */
export const CERTS_DIR = '/etc/docker/certs.d';

let ofSystem: SecureContext | undefined;

/** @param registry - `host:port`, the name of its directory */
export async function trustFor(registry: string, certsDir: string = CERTS_DIR): Promise<SecureContext> {
  const directory = join(certsDir, registry.replaceAll('/', ''));
  const files = await readdir(directory).catch((): string[] => []);
  const read = (name: string): Promise<Buffer> => readFile(join(directory, name));
  const authorities = await Promise.all(files.filter((name) => name.endsWith('.crt')).map(read));
  const own = files.find((name) => name.endsWith('.cert'));
  // Node reads the system's authorities once, as the engine does, and that takes a while.
  if (authorities.length === 0 && own === undefined)
    return (ofSystem ??= createSecureContext({ ca: systemAuthorities() }));
  return createSecureContext({
    ca: [...systemAuthorities(), ...authorities],
    ...(own === undefined ? {} : { cert: await read(own), key: await read(own.replace(/cert$/, 'key')) }),
  });
}

function systemAuthorities(): string[] {
  const found = getCACertificates('system');
  return found.length > 0 ? found : getCACertificates('bundled');
}

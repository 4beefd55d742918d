// Credentials of image registries, in the file that Docker's own client writes. Read when a machine pulls, so that a changed file counts from the next pull on; what is in it is never logged.
import { readFile, stat } from 'node:fs/promises';
import type { RegistryAuth } from '#shared/protocol/generated/messages.ts';
import { DEFAULT_REGISTRY, registryOf } from '#shared/domain/image-reference.ts';
import type { Log } from '#shared/log.ts';

const MAX_BYTES = 1024 * 1024;

export class RegistryCredentials {
  readonly #path: string | undefined;
  readonly #log: Log;
  #known: { readonly mtimeMs: number; readonly byRegistry: ReadonlyMap<string, RegistryAuth> } | undefined;

  /** @param path - of a `config.json`; undefined: every registry is asked without credentials */
  constructor(path: string | undefined, log: Log) {
    this.#path = path;
    this.#log = log;
  }

  /** For the registry of that image; undefined: there are none. */
  async of(image: string): Promise<RegistryAuth | undefined> {
    if (this.#path === undefined) return undefined;
    try {
      const { mtimeMs, size } = await stat(this.#path);
      if (this.#known?.mtimeMs !== mtimeMs) {
        if (size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
        this.#known = { mtimeMs, byRegistry: parseDockerConfig(await readFile(this.#path, 'utf8')) };
      }
    } catch (error) {
      // The last good file counts on; the text of a parser may quote what is in it.
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'not the JSON that is expected';
      this.#log.warn({ path: this.#path, why: code }, 'LONGSHORE_REGISTRY_CONFIG could not be read');
    }
    return this.#known?.byRegistry.get(registryOf(image));
  }
}

/**
 * `{"auths": {"<registry>": {"auth": base64("user:password")}}}`, or `username` and `password`, or `identitytoken`. Helpers (`credHelpers`, `credsStore`) are programs of a person's own machine and are not run.
 * @throws Error when it is no such object
 */
export function parseDockerConfig(text: string): ReadonlyMap<string, RegistryAuth> {
  const parsed: unknown = JSON.parse(text);
  const auths: unknown = typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, 'auths') : undefined;
  const found = new Map<string, RegistryAuth>();
  if (typeof auths !== 'object' || auths === null) return found;
  for (const [key, entry] of Object.entries(auths as Record<string, unknown>)) {
    if (typeof entry !== 'object' || entry === null) continue;
    const field = (name: string): string => {
      const value: unknown = Reflect.get(entry, name);
      return typeof value === 'string' ? value : '';
    };
    const joined = Buffer.from(field('auth'), 'base64').toString('utf8');
    const colon = joined.indexOf(':');
    const registry = key.replace(/^https?:\/\//, '').replace(/\/.*$/, '');
    const own = /^(index\.)?docker\.io$/.test(registry) ? DEFAULT_REGISTRY : registry;
    found.set(own, {
      serverAddress: key,
      username: field('username') || (colon === -1 ? '' : joined.slice(0, colon)),
      password: field('password') || (colon === -1 ? '' : joined.slice(colon + 1)),
      identityToken: field('identitytoken'),
    });
  }
  return found;
}

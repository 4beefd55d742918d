// The operator's credentials of image registries, in the file that Docker's own client writes. The file is read when a
// machine pulls, so that a change counts from the next pull on. The file's contents are never logged.
import { readFile, stat } from 'node:fs/promises';
import type { RegistryAuth } from '#shared/protocol/generated/messages.ts';
import { DEFAULT_REGISTRY, pathOf, registryOf } from '#shared/domain/image-reference.ts';
import type { Log } from '#shared/log.ts';
import { isListed } from './repositories.ts';

const MAX_BYTES = 1024 * 1024;

export class RegistryCredentials {
  readonly #path: string | undefined;
  readonly #log: Log;
  #known: { readonly mtimeMs: number; readonly byRegistry: ReadonlyMap<string, SharedCredential> } | undefined;

  /** Credentials of a file. @param path - of a `config.json`; undefined: every registry is asked without credentials */
  constructor(path: string | undefined, log: Log) {
    this.#path = path;
    this.#log = log;
  }

  /** Credentials for that image and a workspace (empty: the workspace is not known); undefined: there are none. */
  async of(image: string, workspaceId: string): Promise<RegistryAuth | undefined> {
    if (this.#path === undefined) return undefined;
    try {
      const { mtimeMs, size } = await stat(this.#path);
      if (this.#known?.mtimeMs !== mtimeMs) {
        if (size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
        this.#known = { mtimeMs, byRegistry: parseDockerConfig(await readFile(this.#path, 'utf8')) };
      }
    } catch (error) {
      // The last good file stays in effect. The parser's text is left out, because it may quote the file.
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'not the JSON that is expected';
      this.#log.warn({ path: this.#path, why: code }, 'LONGSHORE_REGISTRY_CONFIG could not be read');
    }
    const found = this.#known?.byRegistry.get(registryOf(image));
    if (found === undefined || !isListed(found.repositories ?? ['*'], pathOf(image))) return undefined;
    return found.workspaces === undefined || found.workspaces.includes(workspaceId) ? found.auth : undefined;
  }
}

/** An entry of the file, with Longshore's additions. */
export interface SharedCredential {
  readonly auth: RegistryAuth;
  /** Absent: every repository of that registry. */
  readonly repositories?: readonly string[];
  /** Ids of the workspaces that may use it; absent: all. */
  readonly workspaces?: readonly string[];
}

/**
 * Reads `{"auths": {"<registry>": {"auth": base64("user:password")}}}`, or `username` and `password`, or
 * `identitytoken`. Helpers (`credHelpers`, `credsStore`) are programs of a person's own machine and are not run. Two
 * fields of ours limit an entry: `repositories` (patterns) and `workspaces` (ids).
 * @throws Error when the text has another form
 */
export function parseDockerConfig(text: string): ReadonlyMap<string, SharedCredential> {
  const parsed: unknown = JSON.parse(text);
  const auths: unknown = typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, 'auths') : undefined;
  const found = new Map<string, SharedCredential>();
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
      auth: {
        serverAddress: key,
        username: field('username') || (colon === -1 ? '' : joined.slice(0, colon)),
        password: field('password') || (colon === -1 ? '' : joined.slice(colon + 1)),
        identityToken: field('identitytoken'),
      },
      ...listed(entry, 'repositories'),
      ...listed(entry, 'workspaces'),
    });
  }
  return found;
}

/** A field's list; an unreadable list permits nothing. */
function listed(entry: object, name: 'repositories' | 'workspaces'): Partial<Record<typeof name, readonly string[]>> {
  const value: unknown = Reflect.get(entry, name);
  if (value === undefined) return {};
  return { [name]: Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [] };
}

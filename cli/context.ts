// The person's installations: a small file of named contexts (0600), and the rule that
// chooses one of them or the environment. Every command that calls a scheduler asks here;
// `up` writes the context it made. The file is replaced in one step, never half written.
import { chmod, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { CliError, errorCode, notFound, usageError } from './errors.ts';
import { EXIT } from './exit-codes.ts';

/** Where one installation is, and the credential for it. */
export interface Context {
  readonly url: string;
  readonly token: string;
  /** Empty when the token came from the environment and was not asked about yet. */
  readonly workspaceId: string;
  /** In the context file, where the URL was taken from there. */
  readonly name?: string;
  /** PEM file of certificates that an https URL may be signed by, beside those this machine trusts. */
  readonly caFile?: string;
}

/** All contexts by name, and the one that is used unless a command names another. */
export interface ContextFile {
  readonly current: string;
  readonly contexts: Readonly<Record<string, Context>>;
}

/** The flags every command knows. */
export interface GlobalOptions {
  readonly url?: string;
  readonly token?: string;
  readonly context?: string;
  readonly caFile?: string;
  readonly json?: boolean;
}

type Env = Readonly<Record<string, string | undefined>>;

/** `LONGSHORE_CONTEXT_FILE`, else `~/.config/longshore/contexts.json`. */
export function contextFilePath(env: Env): string {
  if (env['LONGSHORE_CONTEXT_FILE']) return resolve(env['LONGSHORE_CONTEXT_FILE']);
  return join(env['XDG_CONFIG_HOME'] || join(env['HOME'] || homedir(), '.config'), 'longshore', 'contexts.json');
}

/**
 * Reads the file; a missing one is empty.
 * @throws CliError when it cannot be read or is not what we write
 */
export async function readContexts(path: string): Promise<ContextFile> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return { current: '', contexts: {} };
    throw new CliError(`cannot read the context file ${path} (${messageOf(error)})`, { cause: error });
  }
  const parsed = parseContexts(text);
  if (parsed === undefined) {
    throw new CliError(`the context file ${path} is damaged: repair it, or delete it and run \`longshore up\` again`);
  }
  return parsed;
}

/**
 * Writes a temporary file, syncs and renames it: readers see the old file or the new one. Mode 0600, directory 0700.
 */
export async function writeContexts(path: string, file: ContextFile): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const handle = await open(temporary, 'w', 0o600);
    try {
      await handle.writeFile(`${JSON.stringify(file, null, 2)}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await chmod(temporary, 0o600);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw new CliError(
      `cannot write the context file ${path} (${messageOf(error)}): make its directory writable, or name another with LONGSHORE_CONTEXT_FILE`,
      { cause: error },
    );
  }
}

/** Adds or replaces one context and makes it the current one. */
export async function saveContext(path: string, name: string, context: Context): Promise<void> {
  const file = await readContexts(path);
  await writeContexts(path, { current: name, contexts: { ...file.contexts, [name]: context } });
}

/**
 * The context a command works with: flags, then `LONGSHORE_URL` and `LONGSHORE_TOKEN`, then the file. Another token can
 * be tried against the installation in the file. A token that nobody named goes to its own address alone: that of the
 * file to the URL of its context, and `LONGSHORE_TOKEN` to `LONGSHORE_URL` where both are set.
 * Source: decision 0289.
 * @throws CliError saying where a URL or a token may come from
 */
export async function resolveContext(options: GlobalOptions, env: Env): Promise<Context> {
  const path = contextFilePath(env);
  const file = await readContexts(path);
  const name = options.context ?? file.current;
  const stored = file.contexts[name];
  if (options.context !== undefined && stored === undefined) throw noSuchContext(options.context, file, path);
  const named = options.url ?? (env['LONGSHORE_URL'] || stored?.url);
  if (named === undefined) throw nothingKnown('installation', path);
  const url = checkedUrl(named);
  const kept = isSameAddress(stored?.url, url)
    ? stored
    : options.context === undefined
      ? keptFor(file, url)
      : undefined;
  const token = options.token ?? (tokenOfEnv(url, env) || kept?.token);
  if (token === undefined) throw noTokenFor(url, { file, name, path }, env);
  const caFile = options.caFile ?? (env['LONGSHORE_CA_BUNDLE'] || kept?.caFile);
  const isStored = options.url === undefined && !env['LONGSHORE_URL'];
  return {
    url,
    token,
    workspaceId: kept !== undefined && token === kept.token ? kept.workspaceId : '',
    ...(isStored ? { name } : {}),
    ...(caFile === undefined ? {} : { caFile: resolve(caFile) }),
  };
}

/** `LONGSHORE_TOKEN`, unless `LONGSHORE_URL` beside it is another address; empty: none. */
const tokenOfEnv = (url: string, env: Env): string =>
  !env['LONGSHORE_URL'] || isSameAddress(env['LONGSHORE_URL'], url) ? (env['LONGSHORE_TOKEN'] ?? '') : '';

/** The context of an address, beside the current one; undefined: none, or several. */
function keptFor(file: ContextFile, url: string): Context | undefined {
  const [found, ...others] = namesOf(file, url);
  return found === undefined || others.length > 0 ? undefined : file.contexts[found];
}

const namesOf = ({ contexts }: ContextFile, url: string): readonly string[] =>
  Object.keys(contexts).filter((name) => isSameAddress(contexts[name]?.url, url));

/** Whether two URLs are one address: case of the host, a default port and slashes at the end make no difference. */
function isSameAddress(a: string | undefined, b: string): boolean {
  const plain = (url: string): string => (URL.parse(url)?.href ?? url).replace(/\/+$/, '');
  return a !== undefined && plain(a) === plain(b);
}

function nothingKnown(what: 'installation' | 'token', path: string): CliError {
  return new CliError(
    `no ${what} is known: log in to an installation with \`longshore login URL\`, start one with \`longshore up\` (in a checkout: \`npm start\`), or set LONGSHORE_URL and LONGSHORE_TOKEN (looked in ${path})`,
    { exitCode: EXIT.refused },
  );
}

function noTokenFor(
  url: string,
  { file, name, path }: { readonly file: ContextFile; readonly name: string; readonly path: string },
  env: Env,
): CliError {
  const names = namesOf(file, url);
  const stored = file.contexts[name];
  const others = [
    ...(env['LONGSHORE_TOKEN'] ? ['LONGSHORE_TOKEN goes to LONGSHORE_URL alone'] : []),
    ...(stored === undefined ? [] : [`the token of the context ${name} goes to ${stored.url} alone`]),
  ];
  if (names.length > 1)
    return new CliError(`the contexts ${names.join(', ')} are of ${url}: choose one with --context`, {
      exitCode: EXIT.refused,
    });
  if (others.length === 0) return nothingKnown('token', path);
  return new CliError(
    `no token for ${url} is known, and ${others.join(', and ')}: \`longshore login ${url}\` keeps one, or give it with --token`,
    { exitCode: EXIT.refused },
  );
}

/** Makes a stored context the current one. @param caFile - kept with it; undefined: what it has stays */
export async function chooseContext(name: string, env: Env, caFile?: string): Promise<void> {
  const path = contextFilePath(env);
  const file = await readContexts(path);
  const stored = file.contexts[name];
  if (stored === undefined) throw noSuchContext(name, file, path);
  const context = caFile === undefined ? stored : { ...stored, caFile: resolve(caFile) };
  await writeContexts(path, { current: name, contexts: { ...file.contexts, [name]: context } });
}

/**
 * Takes a context out of the file.
 * @returns whether it was the current one: then none is
 */
export async function deleteContext(name: string, env: Env): Promise<boolean> {
  const path = contextFilePath(env);
  const file = await readContexts(path);
  if (file.contexts[name] === undefined) throw noSuchContext(name, file, path);
  const contexts = Object.fromEntries(Object.entries(file.contexts).filter(([other]) => other !== name));
  const wasCurrent = file.current === name;
  await writeContexts(path, { current: wasCurrent ? '' : file.current, contexts });
  return wasCurrent;
}

function noSuchContext(name: string, file: ContextFile, path: string): CliError {
  const known = Object.keys(file.contexts).join(', ') || 'none';
  return notFound(
    `no context is named ${name} in ${path} (there: ${known}): \`longshore login URL --context ${name}\` makes one`,
  );
}

/** The URL without a slash at the end, so that paths can be appended. @throws CliError when it is none */
export function checkedUrl(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
    throw usageError(`${url} is not a URL: it must start with http:// or https://`);
  }
  return url.replace(/\/+$/, '');
}

function parseContexts(text: string): ContextFile | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(value) || typeof value['current'] !== 'string' || !isRecord(value['contexts'])) return undefined;
  const contexts: Record<string, Context> = {};
  for (const [name, entry] of Object.entries(value['contexts'])) {
    if (!isRecord(entry)) return undefined;
    const { url, token, workspaceId } = entry;
    if (typeof url !== 'string' || typeof token !== 'string' || typeof workspaceId !== 'string') return undefined;
    const { caFile } = entry;
    contexts[name] = { url, token, workspaceId, ...(typeof caFile === 'string' ? { caFile } : {}) };
  }
  return { current: value['current'], contexts };
}

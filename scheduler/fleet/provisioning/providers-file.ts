// The file that names the providers of machines: `{"providers": {"hetzner": {"command": ["/etc/longshore/hetzner"]}}}`.
// The file is read at the start, and again when an operator asks for it. All mistakes are reported together.
import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { StartupError, messageOf } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';

export interface ProviderSettings {
  /** The program and its first arguments; the verb follows them. */
  readonly command: readonly string[];
  readonly timeoutSeconds: number;
  readonly env: Readonly<Record<string, string>>;
}

export interface ProvidersFile {
  readonly path: string;
  readonly providers: ReadonlyMap<string, ProviderSettings>;
}

const MAX_BYTES = 1024 * 1024;
const MOST_PROVIDERS = 100;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$/;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;
const FIELDS = ['command', 'timeoutSeconds', 'env'];
const TIMEOUT = { least: 1, most: 600, default: 120 } as const;

/** @throws StartupError `bad_config`, exit code 78 */
export async function readProvidersFile(named: string): Promise<ProvidersFile> {
  const path = resolve(named);
  let text: string;
  try {
    const { size } = await stat(path);
    if (size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw bad(path, [`cannot be read: ${messageOf(error)}`], error);
  }
  return { path, providers: providersIn(path, text) };
}

/** Pure. @throws StartupError as above */
export function providersIn(path: string, text: string): ReadonlyMap<string, ProviderSettings> {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch (error) {
    throw bad(path, [`is no JSON: ${messageOf(error)}`], error);
  }
  const entries = isRecord(said) ? said['providers'] : undefined;
  if (!isRecord(said) || !isRecord(entries)) throw bad(path, ['must be {"providers": {"<name>": {"command": [...]}}}']);
  const problems = Object.keys(said)
    .filter((name) => name !== 'providers')
    .map((name) => `${name.slice(0, 80)} is nothing that it may hold; there is providers`);
  const names = Object.keys(entries);
  if (names.length > MOST_PROVIDERS) problems.push(`providers: more than ${MOST_PROVIDERS}`);
  const providers = new Map<string, ProviderSettings>();
  for (const name of names.slice(0, MOST_PROVIDERS)) {
    const where = `provider ${name.slice(0, 80)}`;
    if (!NAME.test(name))
      problems.push(
        `${where}: the name must have at most 63 letters, digits, dots, dashes, plus signs and underscores`,
      );
    const settings = settingsOf(entries[name], where, problems);
    if (settings !== undefined) providers.set(name, settings);
  }
  if (problems.length > 0) throw bad(path, problems);
  return providers;
}

function settingsOf(value: unknown, where: string, problems: string[]): ProviderSettings | undefined {
  if (!isRecord(value)) {
    problems.push(`${where}: must be an object`);
    return undefined;
  }
  const { command, timeoutSeconds = TIMEOUT.default, env = {} } = value;
  const before = problems.length;
  for (const name of Object.keys(value))
    if (!FIELDS.includes(name))
      problems.push(`${where}: ${name.slice(0, 80)} is no setting; there are ${FIELDS.join(', ')}`);
  const isCommand =
    Array.isArray(command) &&
    command.length > 0 &&
    command.every((part) => typeof part === 'string' && !part.includes('\0')) &&
    String(command[0]).startsWith('/');
  if (!isCommand)
    problems.push(`${where}: command must be a list of texts that begins with the absolute path of a program`);
  const isTime =
    Number.isInteger(timeoutSeconds) &&
    Number(timeoutSeconds) >= TIMEOUT.least &&
    Number(timeoutSeconds) <= TIMEOUT.most;
  if (!isTime)
    problems.push(`${where}: timeoutSeconds must be a whole number from ${TIMEOUT.least} to ${TIMEOUT.most}`);
  const isEnv =
    isRecord(env) &&
    Object.entries(env).every(
      ([name, text]) => VARIABLE.test(name) && typeof text === 'string' && !text.includes('\0'),
    );
  if (!isEnv) problems.push(`${where}: env must be an object of texts, named as environment variables are`);
  if (problems.length > before) return undefined;
  return {
    command: command as readonly string[],
    timeoutSeconds: timeoutSeconds as number,
    env: env as Readonly<Record<string, string>>,
  };
}

const bad = (path: string, problems: readonly string[], cause?: unknown): StartupError =>
  new StartupError(
    'bad_config',
    problems.length === 1
      ? `LONGSHORE_PROVIDERS_FILE ${path}: ${problems[0]}`
      : `LONGSHORE_PROVIDERS_FILE ${path}:\n${problems.map((line) => `  ${line}`).join('\n')}`,
    { cause, exitCode: 78 },
  );

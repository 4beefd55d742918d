// Asks the person's own Python what a file defines: `python3 -m longshore.describe`. The file's imports
// run in that Python, not here. The output is one JSON object with the fields of GetOrCreateStub.
import { kindOf as kindOfType } from '#shared/domain/status.ts';
import { spawn } from 'node:child_process';
import { existsSync, realpathSync, statSync } from 'node:fs';
import { delimiter, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { messageOf } from '#shared/errors.ts';
import { exactFields } from '#shared/api/fields.ts';
import { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { isRecord } from '#shared/json.ts';
import { CliError, errorCode, notFound, usageError } from '../errors.ts';
import { objectWith, textField } from '../json.ts';

/** Fields of GetOrCreateStub, as the Python module writes them, and fields for the person alone. */
export type HandlerDefinition = Readonly<Record<string, unknown>> & {
  readonly name: string;
  readonly stubType: string;
  /** Arguments that a call must give; null: not known. */
  readonly requiredInputs: readonly string[] | null;
  /** Where its decorators begin, as `app.py:3`, by a path from here; empty or absent: not known. */
  readonly place?: string;
  /** The handler takes WebSockets alone. */
  readonly isRealtime?: boolean;
  /** When it is tried again, in words; absent: it is not, or nobody knows. */
  readonly retriedAfter?: string;
};

export interface AppDefinition {
  /** The directory to pack, from which modules are imported. */
  readonly root: string;
  readonly handler: HandlerDefinition;
  /** Names of the file's other handlers. */
  readonly others: readonly string[];
}

/** A file that was read. */
export interface FileDefinition {
  readonly root: string;
  /** The named handler alone, or all in the order of their definition. */
  readonly handlers: readonly HandlerDefinition[];
  readonly others: readonly string[];
}

type Env = Readonly<Record<string, string | undefined>>;

/** The folder with the Python module that this program came with. */
export const PYTHON_MODULES = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..', 'python');
/** Programs to try in turn. A virtual environment of Windows has `python` alone. */
const PYTHON_PROGRAMS = process.platform === 'win32' ? ['python', 'py', 'python3'] : ['python3'];
/** On Windows `python` may be a link to a shop, which ends with this code. Exit codes elsewhere are below 256. */
const STORE_ALIAS_EXIT = 9009;
const DESCRIBE_TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;

/**
 * Reads `file.py` or `file.py:handler`.
 * @param rootFlag - the directory to pack; undefined: the file's own
 * @throws CliError with the cure: no such file, one outside of the directory, no Python, an import that fails, several
 * handlers and none named
 */
export async function describeApp(target: string, rootFlag: string | undefined, env: Env): Promise<AppDefinition> {
  const { root, handlers, others } = await describeFile(target, rootFlag, env);
  return { root, handler: onlyHandler(handlers, target), others };
}

/** As `describeApp`, with every handler of a file that names none. @throws CliError, also when there is no handler */
export async function describeFile(target: string, rootFlag: string | undefined, env: Env): Promise<FileDefinition> {
  const { file, handlerName } = splitTarget(target);
  const root = appRoot(target, rootFlag);
  const path = relative(root, rootFlag === undefined ? file : realpathSync(file));
  const argument = handlerName === undefined ? path : `${path}:${handlerName}`;
  const answer = await runDescribe(argument, root, env);
  if (answer['ok'] !== true) {
    const hint = textField(answer, 'hint');
    throw new CliError(`${errorOf(answer, root) || `${target} could not be read`}${hint === '' ? '' : `. ${hint}`}`);
  }
  const others = Array.isArray(answer['others']) ? answer['others'].filter((name) => typeof name === 'string') : [];
  const handlers = handlersOf(answer['handlers'], target).map((handler) =>
    handler.place ? { ...handler, place: pathFromHere(root, handler.place) } : handler,
  );
  return { root, handlers, others };
}

/** The error, whose place is a path from the person's directory: editors and terminals open it. */
function errorOf(answer: Readonly<Record<string, unknown>>, root: string): string {
  const error = textField(answer, 'error');
  const place = textField(answer, 'file');
  if (place === '' || !error.startsWith(place)) return error;
  return `${pathFromHere(root, place)}${error.slice(place.length)}`;
}

function pathFromHere(root: string, inside: string): string {
  const path = join(root, inside);
  const fromHere = relative(process.cwd(), path);
  return fromHere.startsWith('..') ? path : fromHere;
}

/** The directory to pack, known before the file is read. @throws CliError: no such file, or one outside of it */
export function appRoot(target: string, rootFlag: string | undefined): string {
  const { file } = splitTarget(target);
  if (!existsSync(file)) throw notFound(`there is no file ${file}: name an app file, as app.py or src/app.py:handler`);
  return rootFlag === undefined ? dirname(file) : rootOf(file, rootFlag);
}

/** Checks `--root`. Links are followed, as Python does. */
function rootOf(file: string, flag: string): string {
  const root = resolve(flag);
  if (flag === '' || statSync(root, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw usageError(`--root: there is no directory ${flag === '' ? "''" : root}`);
  const real = realpathSync(root);
  const inside = relative(real, realpathSync(file));
  if (inside === '..' || inside.startsWith(`..${sep}`) || isAbsolute(inside))
    throw usageError(`--root: ${file} is outside of ${root}: name a directory that holds the file`);
  return real;
}

/** The part after the last colon is the handler, when it looks like one. */
export function splitTarget(target: string): { readonly file: string; readonly handlerName?: string } {
  const match = /^(.+\.py):([A-Za-z_]\w*)$/.exec(target);
  if (match !== null) return { file: resolve(match[1] ?? ''), handlerName: match[2] ?? '' };
  if (!target.endsWith('.py')) {
    throw usageError(`${target} is not a Python file or file.py:handler: name a file that ends in .py`);
  }
  return { file: resolve(target) };
}

function handlersOf(handlers: unknown, target: string): readonly HandlerDefinition[] {
  const found = Array.isArray(handlers) ? handlers.filter(isDefinition) : [];
  if (found.length > 0) return found;
  throw new CliError(
    `${target} defines no handler: decorate a function with @endpoint(...), @task_queue(...), @function(...), ` +
      '@schedule(...), @asgi(...) or @realtime(...), or define a Pod(...)',
  );
}

/** The handler's own name in its file. */
export const functionName = (handler: HandlerDefinition): string =>
  textField(handler, 'handler').split(':').at(-1) ?? '';

function onlyHandler(found: readonly HandlerDefinition[], target: string): HandlerDefinition {
  const [only] = found;
  if (only === undefined || found.length > 1) {
    const names = found.map(functionName);
    throw usageError(
      `${target} defines several handlers (${names.join(', ')}): name one, as in ${target}:${names[0] ?? ''}`,
    );
  }
  return only;
}

/** Fields of a stub that are its owner's JSON. */
const OF_USERS = exactFields(GetOrCreateStubRequest);

/** @throws CliError when the text is no definition */
export function givenDefinition(text: string): HandlerDefinition {
  let value: unknown;
  try {
    value = objectWith(text, OF_USERS);
  } catch {
    // Refused below.
  }
  if (!isDefinition(value)) throw usageError('stdin has no JSON object with the texts name and stubType');
  return { ...value, requiredInputs: null };
}

function isDefinition(value: unknown): value is HandlerDefinition {
  if (typeof value !== 'object' || value === null) return false;
  return 'name' in value && typeof value.name === 'string' && 'stubType' in value && typeof value.stubType === 'string';
}

async function runDescribe(argument: string, cwd: string, env: Env): Promise<Readonly<Record<string, unknown>>> {
  const pythonPath = [PYTHON_MODULES, env['PYTHONPATH'] ?? ''].filter((part) => part !== '').join(delimiter);
  for (const program of PYTHON_PROGRAMS) {
    const answer = await runPython(program, argument, cwd, { ...env, PYTHONPATH: pythonPath });
    if (answer !== undefined) return answer;
  }
  throw new CliError(
    'python3 was not found: reading an app file needs Python 3.8 or newer on this machine; install it (Debian: apt-get install python3) and repeat',
  );
}

/** @returns undefined when there is no such program */
async function runPython(
  program: string,
  argument: string,
  cwd: string,
  env: Env,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const child = spawn(program, ['-m', 'longshore.describe', argument], {
    cwd,
    env: { ...env, PYTHONDONTWRITEBYTECODE: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: DESCRIBE_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  const ended = await new Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>(
    (resolveEnd, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => resolveEnd({ code, signal }));
    },
  ).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw new CliError(`cannot run ${program} (${messageOf(error)}): it must be a Python of 3.8 or newer`, {
      cause: error,
    });
  });
  if (ended === undefined || ended.code === STORE_ALIAS_EXIT) return undefined;
  if (ended.signal === 'SIGKILL') {
    throw new CliError(
      `reading ${argument} took longer than ${DESCRIBE_TIMEOUT_MS / 1000} s: move slow work out of the top level of the file, into on_start`,
    );
  }
  const line = stdout().trimEnd().split('\n').at(-1) ?? '';
  try {
    const value: unknown = JSON.parse(line);
    if (isRecord(value)) return value;
  } catch {
    // Python itself failed, and its output is the best explanation.
  }
  const last = stderr().trimEnd().split('\n').slice(-5).join('\n');
  throw new CliError(`${program} could not read ${argument} (Python 3.8 or newer is needed):\n${last}`);
}

function collect(stream: NodeJS.ReadableStream): () => string {
  const parts: Buffer[] = [];
  let size = 0;
  stream.on('data', (part: Buffer) => {
    size += part.byteLength;
    if (size <= MAX_OUTPUT_BYTES) parts.push(part);
  });
  return () => Buffer.concat(parts).toString('utf8');
}

/** The kind of a handler, without the purpose of its stub. */
export const kindOf = (handler: HandlerDefinition): string => kindOfType(handler.stubType);

/** The fields of a stub: those for the person alone are left out. */
export function stubFields(handler: HandlerDefinition): Readonly<Record<string, unknown>> {
  const {
    requiredInputs: _inputs,
    place: _place,
    isRealtime: _isRealtime,
    retriedAfter: _retriedAfter,
    onDeployHandler: _hook,
    ...recipe
  } = handler;
  return recipe;
}

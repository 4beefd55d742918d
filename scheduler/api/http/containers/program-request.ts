// Requests for a program in a container: to start one, or to come back to one. Pure.
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import type { Terminal } from '../../../fleet/inside/messages.ts';

export interface StartedProgram {
  readonly kind: 'start';
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly terminal: Terminal | null;
  /** The caller wants to hear how much of its input was taken. */
  readonly countsInput: boolean;
}
export interface AttachedProgram {
  readonly kind: 'attach';
  readonly pid: number;
  /** Bytes that the caller has; -1: it wants only what comes from now on. */
  readonly stdout: number;
  readonly stderr: number;
  readonly countsInput: boolean;
}
export type ProgramRequest = StartedProgram | AttachedProgram;

const MOST_WORDS = 10_000;
const MOST_SIDE = 10_000;
const MOST_PID = 2 ** 31;

/** The user's shell: the one of its variable, else bash, else sh. */
const SHELL: readonly string[] = [
  'sh',
  '-c',
  'if [ -n "$SHELL" ] && [ -x "$SHELL" ]; then exec "$SHELL"; fi; if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh',
];
const DEFAULT_SIZE: Terminal = { rows: 24, columns: 80 };

/** Reads the first message of an `exec`. @throws AppError `bad_request` naming the field */
export function programRequestOf(text: string): ProgramRequest {
  const value = jsonOf(text);
  if (!isRecord(value)) throw wrong('the first message must be a JSON object');
  const { pid, command, cwd, env, terminal, input = false } = value;
  if (typeof input !== 'boolean') throw wrong('input must be true or false');
  if (pid !== undefined) {
    const places = { stdout: placeOf('stdout', value), stderr: placeOf('stderr', value) };
    return { kind: 'attach', pid: pidOf(pid), ...places, countsInput: input };
  }
  if (cwd !== undefined && cwd !== null && !isText(cwd)) throw wrong('cwd must be a text');
  const size = terminal === undefined || terminal === null ? null : sizeOf(terminal);
  if (size === undefined) throw wrong(`terminal must be null, or rows and columns from 1 to ${MOST_SIDE}`);
  const program = { command: commandOf(command), cwd: cwd ?? '', env: envOf(env), terminal: size };
  return { kind: 'start', ...program, countsInput: input };
}

/** Reads the query of a shell. @throws AppError `bad_request` naming the parameter */
export function shellRequestOf(query: Readonly<Record<string, unknown>>): ProgramRequest {
  const { pid, from, rows, columns } = query;
  if (pid !== undefined) {
    const seen = from === undefined ? -1 : wholeOf('from', from);
    return { kind: 'attach', pid: pidOf(wholeOf('pid', pid)), stdout: seen, stderr: seen, countsInput: false };
  }
  const terminal = sizeOf({
    rows: rows === undefined ? DEFAULT_SIZE.rows : wholeOf('rows', rows),
    columns: columns === undefined ? DEFAULT_SIZE.columns : wholeOf('columns', columns),
  });
  if (terminal === undefined) throw wrong(`rows and columns must be from 1 to ${MOST_SIDE}`);
  return { kind: 'start', command: SHELL, cwd: '', env: {}, terminal, countsInput: false };
}

/** A size of a terminal; undefined: it is none. */
export function sizeOf(value: unknown): Terminal | undefined {
  if (!isRecord(value)) return undefined;
  const { rows, columns } = value;
  return isSide(rows) && isSide(columns) ? { rows, columns } : undefined;
}

const isSide = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MOST_SIDE;

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const wrong = (text: string): AppError => new AppError('bad_request', text);

const isText = (value: unknown): value is string => typeof value === 'string' && !value.includes('\0');

function commandOf(value: unknown): readonly string[] {
  if (isText(value) && value.trim() !== '') return ['sh', '-c', value];
  const isList = Array.isArray(value) && value.length > 0 && value.length <= MOST_WORDS && value.every(isText);
  if (value === '' || (isList && value[0] === '')) throw wrong('command is empty: name a program');
  if (!isList) throw wrong('command must be a list of texts, or a text for a shell');
  return value;
}

function envOf(value: unknown): Readonly<Record<string, string>> {
  if (value === undefined || value === null) return {};
  const isFit = ([name, one]: [string, unknown]): boolean => name !== '' && !/[=\0]/.test(name) && isText(one);
  if (!isRecord(value) || !Object.entries(value).every(isFit)) throw wrong('env must be an object of texts');
  return value as Readonly<Record<string, string>>;
}

function pidOf(value: unknown): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MOST_PID) return value;
  throw wrong('pid must be the number of a program');
}

function placeOf(name: 'stdout' | 'stderr', value: Readonly<Record<string, unknown>>): number {
  const place = value[name] ?? -1;
  if (typeof place === 'number' && Number.isSafeInteger(place) && place >= -1) return place;
  throw wrong(`${name} must be a number of bytes, or -1`);
}

function wholeOf(name: string, value: unknown): number {
  if (typeof value === 'string' && /^\d{1,15}$/.test(value)) return Number(value);
  throw wrong(`${name} must be a whole number`);
}

// Writes a child's output to a file of bounded size, with one older file beside it; warnings and errors also go to
// the screen, shortened. Writes are synchronous and small, so a dying supervisor has written all that it received.
import { closeSync, fstatSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

const MAX_FILE_BYTES = 10 * 1024 * 1024;

/** Appends to `path`. At `maxBytes` the file becomes `path.1`, replacing the previous one, and a new one begins. */
export class BoundedLogFile {
  readonly path: string;
  readonly #maxBytes: number;
  #fd: number;
  #size: number;

  constructor(path: string, maxBytes: number = MAX_FILE_BYTES) {
    this.path = path;
    this.#maxBytes = maxBytes;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    this.#fd = openSync(path, 'a', 0o600);
    this.#size = fstatSync(this.#fd).size;
  }

  /** Writes, and never throws: a full disk must not stop the supervisor. */
  write(text: string | Uint8Array): void {
    const bytes = typeof text === 'string' ? Buffer.from(text) : text;
    try {
      if (this.#size > 0 && this.#size + bytes.byteLength > this.#maxBytes) this.#rotate();
      this.#size += writeSync(this.#fd, bytes);
    } catch {
      // No place is left to report it.
    }
  }

  close(): void {
    try {
      closeSync(this.#fd);
    } catch {
      // The file is closed already.
    }
  }

  #rotate(): void {
    closeSync(this.#fd);
    renameSync(this.path, `${this.path}.1`);
    this.#fd = openSync(this.path, 'a', 0o600);
    this.#size = 0;
  }
}

const WARN = 40;
const ERROR = 50;
const LONGEST_SCREEN_LINE = 300;

/**
 * The screen's line for a JSON log line at `warn` or above, or for one that answers an operator (`onScreen`).
 * @returns undefined for every other line
 */
export function screenLine(name: string, line: string): string | undefined {
  if (!line.startsWith('{')) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const entry = value as Readonly<Record<string, unknown>>;
  const level = entry['level'];
  if (typeof level !== 'number' || (level < WARN && entry['onScreen'] !== true)) return undefined;
  const cause = entry['err'];
  const detail =
    typeof cause === 'object' && cause !== null && 'message' in cause && typeof cause.message === 'string'
      ? ` (${cause.message})`
      : '';
  const word = level >= ERROR ? 'error: ' : level >= WARN ? 'warning: ' : '';
  const text = `${name}: ${word}${typeof entry['msg'] === 'string' ? entry['msg'] : ''}${findingOf(entry)}${whichOf(entry)}${detail}`;
  const remedy = typeof entry['remedy'] === 'string' && entry['remedy'] !== '' ? `\n  -> ${cut(entry['remedy'])}` : '';
  return `${cut(text)}${remedy}`;
}

const cut = (text: string): string =>
  text.length > LONGEST_SCREEN_LINE ? `${text.slice(0, LONGEST_SCREEN_LINE)}…` : text;

/** A check of the host, with its finding. */
function findingOf({ check, found }: Readonly<Record<string, unknown>>): string {
  return [check, found].map((one) => (typeof one === 'string' && one !== '' ? `: ${one}` : '')).join('');
}

/** Words for the log fields that name a line's subject. */
const ABOUT = {
  machineId: 'machine',
  containerId: 'container',
  deployment: 'deployment',
  queue: 'queue',
  taskId: 'task',
  pools: 'pools',
  reason: 'reason',
};

function whichOf(entry: Readonly<Record<string, unknown>>): string {
  const about = Object.entries(ABOUT).flatMap(([field, word]) => {
    const said = entry[field];
    const value = Array.isArray(said) ? said.filter((one) => typeof one === 'string').join(' ') : said;
    // The name says more than the id of the queue.
    const isNamed = field === 'queue' && typeof entry['deployment'] === 'string';
    return typeof value === 'string' && value !== '' && !isNamed ? [`${word} ${value}`] : [];
  });
  return about.length === 0 ? '' : ` (${about.join(', ')})`;
}

/** Cuts a byte stream into lines; a line longer than `maxBytes` comes in pieces. */
export class LineCutter {
  readonly #onLine: (line: string) => void;
  readonly #maxBytes: number;
  #rest = '';

  constructor(onLine: (line: string) => void, maxBytes = 64 * 1024) {
    this.#onLine = onLine;
    this.#maxBytes = maxBytes;
  }

  push(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#onLine(line);
    if (this.#rest.length > this.#maxBytes) this.end();
  }

  end(): void {
    if (this.#rest === '') return;
    const rest = this.#rest;
    this.#rest = '';
    this.#onLine(rest);
  }
}

/**
 * The files of the web console, as `scripts/build/console.mjs` writes them: names with a hash of their bytes, each with
 * copies for browsers that take compressed ones. Other names are not given out.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isRecord } from '#shared/json.ts';

/** The folder in which a checkout builds, and which a release brings. */
const BUILT = fileURLToPath(new URL('../../../dist/console', import.meta.url));
const LIST = 'files.json';

export interface ConsoleList {
  /** The first script, and the style sheet. */
  readonly entry: string;
  readonly style: string;
  /** The script of the worker that all tabs share. */
  readonly worker: string;
  /** Script and style sheet of the terminal, which is a document of its own. */
  readonly terminal: { readonly entry: string; readonly style: string };
  /** Media types by names. */
  readonly files: ReadonlyMap<string, string>;
}

export type Encoding = 'br' | 'gzip' | 'identity';
const ENDING: Readonly<Record<Encoding, string>> = { br: '.br', gzip: '.gz', identity: '' };

export class ConsoleFiles {
  readonly #folder: string;
  #list: ConsoleList | undefined;
  #listedMs = 0;
  /** Files in memory: those of one build, some hundred kilobytes. */
  readonly #kept = new Map<string, Promise<Buffer>>();

  constructor(folder: string = BUILT) {
    this.#folder = folder;
  }

  /** The list of the last build; undefined: nothing was. */
  async list(): Promise<ConsoleList | undefined> {
    const path = join(this.#folder, LIST);
    const found = await stat(path).catch(() => undefined);
    if (found === undefined) return undefined;
    if (this.#list !== undefined && found.mtimeMs === this.#listedMs) return this.#list;
    const read = readList(await readFile(path, 'utf8'));
    if (read === undefined) return undefined;
    this.#kept.clear();
    this.#listedMs = found.mtimeMs;
    this.#list = read;
    return read;
  }

  /** A file with its type; undefined: the build has none of that name. */
  async open(name: string, encoding: Encoding): Promise<{ readonly bytes: Buffer; readonly type: string } | undefined> {
    const type = (await this.list())?.files.get(name);
    if (type === undefined) return undefined;
    const file = `${name}${ENDING[encoding]}`;
    const known = this.#kept.get(file);
    if (known !== undefined) return { bytes: await known, type };
    const reading = readFile(join(this.#folder, file));
    reading.catch(() => this.#kept.delete(file));
    this.#kept.set(file, reading);
    return { bytes: await reading, type };
  }
}

function readList(text: string): ConsoleList | undefined {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value) || !isRecord(value['files'])) return undefined;
  const { entry, style, worker, terminal, files } = value;
  if (typeof entry !== 'string' || typeof style !== 'string' || typeof worker !== 'string') return undefined;
  if (!isRecord(terminal) || typeof terminal['entry'] !== 'string' || typeof terminal['style'] !== 'string')
    return undefined;
  const ofTerminal = { entry: terminal['entry'], style: terminal['style'] };
  const typed = Object.entries(files).filter((one): one is [string, string] => typeof one[1] === 'string');
  return { entry, style, worker, terminal: ofTerminal, files: new Map(typed) };
}

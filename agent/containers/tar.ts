// A tar file for the engine's builder, written as it is read: some texts of ours, then a directory. Owners are left
// out. Times are whole seconds; the builder does not compare them when it looks for a layer that it has.
import { createReadStream } from 'node:fs';
import { lstat, readFile, readdir, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const BLOCK = 512;
const MOST_NAME = 100;
/** Sizes from here on do not fit into their field. */
const LARGE = 8 ** 11;

export interface TarText {
  readonly name: string;
  readonly text: string;
}

/** The file beside a directory that has the permissions which its files and folders do not have on the disk. */
export const modesFile = (directory: string): string => `${directory}.modes`;

/** @param modes - by paths relative to the directory */
export const writeModes = (directory: string, modes: Readonly<Record<string, number>>): Promise<void> =>
  writeFile(modesFile(directory), JSON.stringify(modes), { mode: 0o600 });

async function modesOf(directory: string): Promise<ReadonlyMap<string, number>> {
  try {
    return new Map(Object.entries(JSON.parse(await readFile(modesFile(directory), 'utf8')) as Record<string, number>));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Map();
    throw error;
  }
}

/** @param directory - its files and links; special files are left out, and names that a text of ours has */
export async function* tarOf(texts: readonly TarText[], directory: string | undefined): AsyncGenerator<Buffer> {
  for (const { name, text } of texts) {
    const body = Buffer.from(text, 'utf8');
    yield* entry({ name, type: '0', mode: 0o644, size: body.length });
    yield body;
    yield padding(body.length);
  }
  const own = new Set(texts.map(({ name }) => name));
  if (directory !== undefined) yield* below(directory, '', own, await modesOf(directory));
  yield Buffer.alloc(2 * BLOCK);
}

async function* below(
  root: string,
  path: string,
  own: ReadonlySet<string>,
  modes: ReadonlyMap<string, number>,
): AsyncGenerator<Buffer> {
  for (const name of (await readdir(join(root, path))).toSorted()) {
    const at = path === '' ? name : `${path}/${name}`;
    if (own.has(at)) continue;
    const facts = await lstat(join(root, at));
    const common = { mode: modes.get(at) ?? facts.mode & 0o777, mtimeMs: facts.mtimeMs };
    if (facts.isDirectory()) {
      yield* entry({ name: `${at}/`, type: '5', ...common, size: 0 });
      yield* below(root, at, own, modes);
    } else if (facts.isSymbolicLink()) {
      yield* entry({ name: at, type: '2', ...common, size: 0, link: await readlink(join(root, at)) });
    } else if (facts.isFile()) {
      yield* entry({ name: at, type: '0', ...common, size: facts.size });
      if (facts.size > 0) yield* createReadStream(join(root, at), { end: facts.size - 1 }) as AsyncIterable<Buffer>;
      yield padding(facts.size);
    }
  }
}

interface Entry {
  readonly name: string;
  /** As in the format: 0 a file, 2 a link, 5 a directory, x further fields of the next entry. */
  readonly type: '0' | '2' | '5' | 'x';
  readonly mode: number;
  readonly size: number;
  /** Absent: the first second of 1970. */
  readonly mtimeMs?: number;
  readonly link?: string;
}

function* entry(one: Entry): Generator<Buffer> {
  const { name, link = '', size } = one;
  const fields = [
    ...(isShort(name) ? [] : [record('path', name)]),
    ...(isShort(link) ? [] : [record('linkpath', link)]),
    ...(size >= LARGE ? [record('size', String(size))] : []),
  ].join('');
  if (fields !== '') {
    const body = Buffer.from(fields, 'utf8');
    yield header({ name: 'fields', type: 'x', mode: 0o644, size: body.length });
    yield body;
    yield padding(body.length);
  }
  yield header(one);
}

const isShort = (text: string): boolean => text.length <= MOST_NAME && /^[\x20-\x7e]*$/.test(text);

/** A field as POSIX has it: its length counts its own digits. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const bytes = Buffer.byteLength(rest);
  const length = [1, 2, 3, 4, 5, 6].map((digits) => bytes + digits).find((sum, at) => String(sum).length === at + 1);
  return `${length ?? bytes}${rest}`;
}

function header({ name, type, mode, size, mtimeMs = 0, link = '' }: Entry): Buffer {
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, digits: number): string => value.toString(8).padStart(digits, '0');
  block.write(name, 0, MOST_NAME, 'utf8');
  block.write(octal(mode, 7), 100);
  block.write(octal(0, 7), 108);
  block.write(octal(0, 7), 116);
  block.write(octal(size >= LARGE ? 0 : size, 11), 124);
  block.write(octal(Math.max(0, Math.floor(mtimeMs / 1000)), 11), 136);
  block.write(' '.repeat(8), 148);
  block.write(type, 156);
  block.write(link, 157, MOST_NAME, 'utf8');
  block.write('ustar\u000000', 257, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 6)}\u0000 `, 148, 'latin1');
  return block;
}

const padding = (size: number): Buffer => Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);

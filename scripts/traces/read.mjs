/** Reads files of public traces piece by piece: rows of CSV, and objects of a JSON array. */
import { createReadStream } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';

/** A file that has not what it should have, said with its line and column. */
export class FileError extends Error {}

/** Longest line of CSV, and longest object of JSON, in characters. */
const LONGEST = 4 * 1024 * 1024;

async function* pieces(file) {
  const decoder = new StringDecoder('utf8');
  for await (const bytes of createReadStream(file, { highWaterMark: 1 << 18 })) yield decoder.write(bytes);
  yield decoder.end();
}

async function* lines(file) {
  let rest = '';
  let at = 0;
  for await (const piece of pieces(file)) {
    const some = (rest + piece).split('\n');
    rest = some.pop() ?? '';
    if (rest.length > LONGEST)
      throw new FileError(`${file} line ${at + some.length + 1} is longer than ${LONGEST} characters`);
    for (const line of some) {
      at += 1;
      yield { line: line.replace(/\r$/, ''), at };
    }
  }
  if (rest !== '') yield { line: rest.replace(/\r$/, ''), at: at + 1 };
}

/** A row of CSV, by the names of its columns. */
export class Row {
  #file;
  #at;
  #columns;
  #values;

  constructor(file, at, columns, values) {
    this.#file = file;
    this.#at = at;
    this.#columns = columns;
    this.#values = values;
  }

  refuse(column, must) {
    throw new FileError(
      `${this.#file} line ${this.#at}: ${column} must be ${must}, and is ${JSON.stringify(this.text(column).slice(0, 80))}`,
    );
  }

  /** Empty where the row ends before the column, too. */
  text(column) {
    const index = this.#columns.get(column);
    if (index === undefined) throw new FileError(`${this.#file} has no column ${column}`);
    return (this.#values[index] ?? '').trim();
  }

  isEmpty(column) {
    return ['', 'nan', 'none', 'null', 'na'].includes(this.text(column).toLowerCase());
  }

  name(column) {
    const text = this.text(column);
    return text === '' ? this.refuse(column, 'a name') : text.slice(0, 64);
  }

  number(column, otherwise) {
    if (otherwise !== undefined && this.isEmpty(column)) return otherwise;
    const value = this.isEmpty(column) ? NaN : Number(this.text(column));
    return value >= 0 && Number.isFinite(value) ? value : this.refuse(column, 'a number, 0 or more');
  }

  time(column) {
    const seconds = secondsOf(this.text(column));
    return seconds ?? this.refuse(column, 'a time such as 2020-06-09 18:41:01');
  }
}

/** Seconds of `2017-10-07 01:12:09`, which counts as UTC; undefined: no such time. */
export function secondsOf(text) {
  if (!/^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?$/.test(text)) return undefined;
  const ms = Date.parse(`${text.replace(' ', 'T')}Z`);
  return Number.isNaN(ms) ? undefined : ms / 1000;
}

/**
 * Rows of a file of CSV.
 * @param {string} file
 * @param {readonly string[]} [columns] - names of its columns, where its first line is none of them
 * @returns {AsyncGenerator<Row>}
 */
export async function* rows(file, columns) {
  let known = columns && new Map(columns.map((name, index) => [name, index]));
  let isFirst = true;
  for await (const { line, at } of lines(file)) {
    if (line.trim() === '') continue;
    if (line.includes('"')) throw new FileError(`${file} line ${at} has quotes, which these files do not have`);
    const values = line.split(',');
    // A file that has the names though it need not is read, too.
    const isHead = isFirst && (known === undefined || values[0]?.trim() === columns?.[0]);
    isFirst = false;
    if (isHead) known = new Map(values.map((name, index) => [name.trim(), index]));
    else yield new Row(file, at, known, values);
  }
}

/** Objects of a JSON array. @returns {AsyncGenerator<{ value: Record<string, unknown>, number: number }>} */
export async function* objects(file) {
  let text = '';
  let depth = 0;
  let inText = false;
  let isEscaped = false;
  let number = 0;
  for await (const piece of pieces(file)) {
    let begin = depth > 0 ? 0 : -1;
    for (let index = 0; index < piece.length; index += 1) {
      const char = piece[index];
      if (inText) {
        if (isEscaped) isEscaped = false;
        else if (char === '\\') isEscaped = true;
        else if (char === '"') inText = false;
      } else if (char === '"') inText = true;
      else if (char === '{') {
        if (depth === 0) begin = index;
        depth += 1;
      } else if (char === '}') {
        depth -= 1;
        if (depth < 0) throw new FileError(`${file} is no JSON array: a } has no {`);
        if (depth > 0) continue;
        number += 1;
        yield { value: parsed(file, number, text + piece.slice(begin, index + 1)), number };
        text = '';
        begin = -1;
      }
    }
    if (begin !== -1) text += piece.slice(begin);
    if (text.length > LONGEST) throw new FileError(`${file} entry ${number + 1} is longer than ${LONGEST} characters`);
  }
  if (depth > 0) throw new FileError(`${file} ends within entry ${number + 1}`);
}

function parsed(file, number, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FileError(`${file} entry ${number} is no JSON`, { cause: error });
  }
}

/**
 * Words of a Dockerfile in which the engine expands variables: quotes, escapes and `$NAME` as its `shell.Lex` reads
 * them. A word is read into literal text and variables, and written anew in one form. Pure.
 */

export interface Variable {
  readonly name: string;
  /** `${NAME:-word}` and `${NAME:+word}`; absent: the variable alone. */
  readonly otherwise?: { readonly kind: '-' | '+'; readonly word: Word };
}

/** Literal text, or a variable. No two texts follow each other. */
export type Word = readonly (string | Variable)[];

/** A part of a Dockerfile that no build may have. The message goes on after the name of the instruction. */
export class Refused extends Error {
  override readonly name = 'Refused';
}

const MOST_DEPTH = 4;
const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;
// Parameters of a shell, which a Dockerfile does not have. The engine would take each for an empty text.
const SHELL_PARAMETER = /[0-9@*#?!$-]/;
/** Characters that mean the same in every reader: without quotes, and in the value of a flag. */
const PLAIN = /^[A-Za-z0-9_./:+-]*$/;

/** Control characters, except for the tab, and halves of surrogate pairs. */
export const oddCharacter = (text: string): string | undefined =>
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000A-\u001F\u007F-\u009F]|\p{Surrogate}/u.exec(text)?.[0];

/** A character by its number, which a reader can look up: most of those that are refused cannot be seen. */
export const nameOf = (character: string): string =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;

interface Reader {
  readonly text: string;
  at: number;
}

/** Reads a whole word. @throws Refused */
export function readWord(text: string): Word {
  const odd = oddCharacter(text);
  if (odd !== undefined) throw new Refused(`has the character ${nameOf(odd)}`);
  return readParts({ text, at: 0 }, false, 0);
}

/** Reads to the end, or to the `}` of the variable around. */
function readParts(reader: Reader, isInner: boolean, depth: number): Word {
  const { text } = reader;
  const parts: (string | Variable)[] = [];
  while (reader.at < text.length) {
    const char = text[reader.at] ?? '';
    if (isInner && char === '}') return ended(reader, parts);
    if (char === '$') add(parts, readDollar(reader, depth));
    else if (char === "'") add(parts, readSingle(reader));
    else if (char === '"') for (const part of readDouble(reader, depth)) add(parts, part);
    else if (char === '\\') {
      const code = text.codePointAt(reader.at + 1);
      if (code === undefined) throw new Refused('has a backslash with nothing behind it');
      const next = String.fromCodePoint(code);
      reader.at += 1 + next.length;
      add(parts, next);
    } else {
      reader.at += 1;
      add(parts, char);
    }
  }
  if (isInner) throw new Refused('has a ${ without its }');
  return parts;
}

function ended(reader: Reader, parts: Word): Word {
  reader.at += 1;
  return parts;
}

function add(parts: (string | Variable)[], part: string | Variable): void {
  const last = parts.at(-1);
  if (typeof part === 'string' && typeof last === 'string') parts[parts.length - 1] = last + part;
  else if (part !== '') parts.push(part);
}

function readSingle(reader: Reader): string {
  const end = reader.text.indexOf("'", reader.at + 1);
  if (end === -1) throw new Refused('has a quote without its end');
  const part = reader.text.slice(reader.at + 1, end);
  reader.at = end + 1;
  return part;
}

function readDouble(reader: Reader, depth: number): Word {
  const { text } = reader;
  const parts: (string | Variable)[] = [];
  reader.at += 1;
  while (reader.at < text.length) {
    const char = text[reader.at] ?? '';
    if (char === '"') return ended(reader, parts);
    if (char === '$') {
      add(parts, readDollar(reader, depth));
      continue;
    }
    const next = text[reader.at + 1] ?? '';
    const isEscape = char === '\\' && ['"', '$', '\\'].includes(next);
    add(parts, isEscape ? next : char);
    reader.at += isEscape ? 2 : 1;
  }
  throw new Refused('has a quote without its end');
}

function readDollar(reader: Reader, depth: number): string | Variable {
  const { text } = reader;
  const isBraced = text[reader.at + 1] === '{';
  NAME.lastIndex = reader.at + (isBraced ? 2 : 1);
  const name = NAME.exec(text)?.[0] ?? '';
  const end = reader.at + (isBraced ? 2 : 1) + name.length;
  const next = text[end] ?? '';
  // For the engine a name may have letters of all scripts.
  if (next > '\u007F' && !isBraced) throw new Refused(`has the character ${nameOf(next)} behind a $: write \${NAME}`);
  if (!isBraced) {
    if (name === '' && SHELL_PARAMETER.test(next))
      throw new Refused(`has $${next}, which no Dockerfile has: write \\$ where a dollar sign is meant`);
    reader.at = end;
    return name === '' ? '$' : { name };
  }
  if (name !== '' && next === '}') {
    reader.at = end + 1;
    return { name };
  }
  const kind = text[end + 1];
  if (name === '' || next !== ':' || (kind !== '-' && kind !== '+'))
    throw new Refused('has a ${ that is none of ${NAME}, ${NAME:-word} and ${NAME:+word}');
  if (depth >= MOST_DEPTH) throw new Refused(`has variables in more than ${MOST_DEPTH} others`);
  reader.at = end + 2;
  return { name, otherwise: { kind, word: readParts(reader, true, depth + 1) } };
}

/** The word between double quotes, in which every reader finds the same text and the same variables. */
export const quotedWord = (word: Word): string => `"${textOfParts(word, /["\\$]/g)}"`;

/** The word without quotes; only for words that `isPlain` takes. */
export const plainWord = (word: Word): string => textOfParts(word, /[^\s\S]/g);

const textOfParts = (word: Word, escaped: RegExp): string =>
  word
    .map((part) => (typeof part === 'string' ? part.replaceAll(escaped, (one) => `\\${one}`) : textOfVariable(part)))
    .join('');

function textOfVariable({ name, otherwise }: Variable): string {
  if (otherwise === undefined) return `\${${name}}`;
  // Between ${ and } the engine reads as outside of quotes.
  return `\${${name}:${otherwise.kind}${textOfParts(otherwise.word, /["'\\$}<]/g)}}`;
}

/** Whether a word means the same without quotes. */
export const isPlain = (word: Word): boolean =>
  word.every((part) =>
    typeof part === 'string' ? PLAIN.test(part) : part.otherwise === undefined || isPlain(part.otherwise.word),
  );

/** The text of a word without variables; undefined: it has one. */
export function literalOf(word: Word): string | undefined {
  const [first = '', ...more] = word;
  return typeof first === 'string' && more.length === 0 ? first : undefined;
}

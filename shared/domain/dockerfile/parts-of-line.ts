/**
 * Parts of an instruction's line: flags, words, lists of JSON, and pairs. What parsers could take apart differently is
 * refused. Pure.
 */
import { Refused, isPlain, literalOf, nameOf, readWord } from './words.ts';
import type { Word } from './words.ts';

/** Flags at the front, each by its whole name and with a value. */
export function readFlags(
  rest: string,
  known: readonly string[],
): { readonly flags: ReadonlyMap<string, string>; readonly behind: string } {
  const flags = new Map<string, string>();
  let behind = rest;
  while (behind.startsWith('--')) {
    const [whole, name, value] = /^--([a-z-]+)=([!-~]+)(?:[ \t]+|$)/.exec(behind) ?? [];
    if (whole === undefined || name === undefined || value === undefined || /["'\\]/.test(value))
      throw new Refused(
        `has ${JSON.stringify((/^\S+/.exec(behind)?.[0] ?? '').slice(0, 60))}: a flag is --name=value in plain characters`,
      );
    if (name === 'chmod') throw new Refused('has --chmod, which the builder does not know: change the mode in a RUN');
    if (!known.includes(name))
      throw new Refused(`has the flag --${name}, which the builder does not know: leave it out`);
    if (flags.has(name)) throw new Refused(`has --${name} twice`);
    flags.set(name, value);
    behind = behind.slice(whole.length);
  }
  return { flags, behind };
}

export const withoutFlags = (rest: string): string => readFlags(rest, []).behind;

/** Words with their quotes: a space in quotes or behind a backslash does not end one. */
export function wordsOf(text: string): readonly string[] {
  const words: string[] = [];
  let word = '';
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at] ?? '';
    if (quote === '') ordinary(char);
    if (quote === '' && (char === ' ' || char === '\t')) {
      if (word !== '') words.push(word);
      word = '';
      continue;
    }
    if (quote === '' && (char === '"' || char === "'")) quote = char;
    else if (char === quote) quote = '';
    word += char;
    if (char === '\\' && quote !== "'") {
      at += 1;
      word += text[at] ?? '';
    }
  }
  if (quote !== '') throw new Refused('has a quote without its end');
  if (word !== '') words.push(word);
  return words;
}

/** Words with spaces between them, as they are. */
export const spaced = (text: string): readonly string[] =>
  ordinary(text)
    .split(/[ \t]+/)
    .filter((word) => word !== '');

/** Spaces of other scripts end a word for some parsers, and do not for others. */
export function ordinary(text: string): string {
  const odd = /[^\S \t]/.exec(text)?.[0];
  if (odd === undefined) return text;
  throw new Refused(`has the character ${nameOf(odd)}, which not every builder takes for a space: write a space`);
}

/** A word that means the same to every parser without quotes. */
export function plainWordOf(text: string): Word {
  const word = readWord(ordinary(text));
  if (word.length === 0 || !isPlain(word))
    throw new Refused(
      `has ${JSON.stringify(text.slice(0, 60))}: letters, digits, . _ / : + - and variables are possible there`,
    );
  return word;
}

/** Files in a list of JSON, or words with spaces between them. */
export function readFiles(text: string): Word[] {
  const list = text.startsWith('[') ? listOf(text) : undefined;
  if (list !== undefined) return list.map(readWord);
  // Some engines take a list and leave out what stands behind it.
  if (/^\[\s*["\]]/.test(text)) throw new Refused('has a list that is not JSON');
  return spaced(text).map(readWord);
}

export function existing(word: Word): Word {
  if (word.length === 0) throw new Refused('has an empty name');
  return word;
}

/** @returns undefined where the text is no list of JSON */
export function listOf(text: string): readonly string[] | undefined {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(list)) return undefined;
  const items: readonly unknown[] = list;
  return items.map((item) => {
    if (typeof item !== 'string') throw new Refused('has a list with something else than texts');
    if (item.includes('\0') || !item.isWellFormed()) throw new Refused('has a list with a character that is none');
    return item;
  });
}

export function splitAt(word: string): readonly [string, string] {
  const cut = word.indexOf('=');
  if (cut === -1) throw new Refused(`has ${JSON.stringify(word.slice(0, 40))} without =`);
  return [word.slice(0, cut), word.slice(cut + 1)];
}

/** A name may stand in quotes; it has no variables. */
export function nameOfPair(text: string): string {
  const name = literalOf(readWord(text));
  if (name === undefined)
    throw new Refused(`has a name with a variable, ${JSON.stringify(text.slice(0, 60))}: write it out`);
  return name;
}

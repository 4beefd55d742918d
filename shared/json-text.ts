// JSON of users as text. Parsed and written anew it would lose digits of numbers, the order of keys such as "10" and
// "9", keys that come twice, and the spelling of escapes. So it is looked at by its places here, and each piece keeps
// its characters. Pure.
// Source: rule of the interface: bytes in are bytes out.
import { randomUUID } from 'node:crypto';

/** Marks the place of a text. No text of a user has it, because it is new in each process and never leaves it. */
const MARK = `json:${randomUUID()}:`;
let collected: string[] | undefined;

/** Valid JSON that {@link stringifyExactly} writes as it is. Any other writer writes its value. */
export class JsonText {
  readonly text: string;
  #value: unknown;

  /** @param text - valid JSON: see {@link jsonTextOf} */
  constructor(text: string) {
    this.text = text;
  }

  /** The value, as far as JavaScript has it. It is read once, and must not be changed. */
  get value(): unknown {
    this.#value ??= JSON.parse(this.text) as unknown;
    return this.#value;
  }

  toJSON(): unknown {
    if (collected === undefined) return this.value;
    collected.push(this.text);
    return `${MARK}${collected.length - 1}`;
  }
}

/** The value itself, also of a {@link JsonText}. */
export const plainOf = (value: unknown): unknown => (value instanceof JsonText ? value.value : value);

/** The text, if it is JSON; undefined otherwise. */
export function jsonTextOf(text: string): JsonText | undefined {
  try {
    JSON.parse(text);
    return new JsonText(text);
  } catch {
    return undefined;
  }
}

/**
 * `JSON.stringify`, with each {@link JsonText} in the value as it is.
 * @param indent - width of a step; texts are laid out likewise, and their tokens stay as they are
 */
export function stringifyExactly(value: unknown, indent = 0): string {
  const texts: string[] = [];
  const before = collected;
  collected = texts;
  let written: string;
  try {
    written = JSON.stringify(value, null, indent);
  } finally {
    collected = before;
  }
  if (texts.length === 0) return written;
  const [first = '', ...rest] = written.split(`"${MARK}`);
  const parts = [first];
  let base = lineIndent(first);
  for (const piece of rest) {
    const end = piece.indexOf('"');
    const text = texts[Number(piece.slice(0, end))] ?? 'null';
    const behind = piece.slice(end + 1);
    parts.push(indent === 0 ? text : laidOut(text, indent, base), behind);
    if (behind.includes('\n')) base = lineIndent(behind);
  }
  return parts.join('');
}

/** Spaces at the begin of the last line. */
function lineIndent(text: string): number {
  const line = text.slice(text.lastIndexOf('\n') + 1);
  return line.length - line.trimStart().length;
}

/** A value of an object, by its place in the text. */
export interface Member {
  readonly name: string;
  /** Begin of the name. */
  readonly from: number;
  /** Begin of the value. */
  readonly valueFrom: number;
  /** End of the value. */
  readonly to: number;
}

const TAB = 0x09;
const LINE_FEED = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const LIST_END = 0x5d;
const LIST = 0x5b;
const BACKSLASH = 0x5c;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

const isBlank = (code: number): boolean => code === SPACE || code === LINE_FEED || code === RETURN || code === TAB;

/** @returns where the next token begins */
function tokenAt(text: string, at: number): number {
  let next = at;
  while (isBlank(text.charCodeAt(next))) next++;
  return next;
}

/** @returns the place behind the string that begins there */
function stringEnd(text: string, at: number): number {
  for (let end = at + 1; end < text.length; end++) {
    const code = text.charCodeAt(end);
    if (code === QUOTE) return end + 1;
    if (code === BACKSLASH) end++;
  }
  throw new SyntaxError('a string without an end');
}

/** @returns the place behind the value that begins there */
function valueEnd(text: string, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length;) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = stringEnd(text, at);
    else if (code === OBJECT || code === LIST) {
      depth++;
      at++;
      continue;
    } else if (code === OBJECT_END || code === LIST_END) {
      depth--;
      at++;
    } else if (depth > 0) {
      at++;
      continue;
    } else return literalEnd(text, at);
    if (depth === 0) return at;
  }
  throw new SyntaxError('a value without an end');
}

/** @returns the place behind a number or a word */
function literalEnd(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === COMMA || code === OBJECT_END || code === LIST_END || isBlank(code)) return at;
  }
  return text.length;
}

function nameIn(text: string, from: number, to: number): string {
  const name = text.slice(from + 1, to - 1);
  return name.includes('\\') ? (JSON.parse(text.slice(from, to)) as string) : name;
}

/** More members or items than are looked at: a text of many small ones would keep the process from other work. */
export class TooManyMembers extends RangeError {}
const MOST_MEMBERS = 10_000;

/**
 * The values of an object, in their order, each of those with the same name.
 * @param text - valid JSON whose value is an object
 * @throws TooManyMembers
 */
export function membersOf(text: string, most = MOST_MEMBERS): readonly Member[] {
  const members: Member[] = [];
  let at = tokenAt(text, 0);
  if (text.charCodeAt(at) !== OBJECT) throw new SyntaxError('no object');
  at = tokenAt(text, at + 1);
  while (text.charCodeAt(at) === QUOTE) {
    const nameEnd = stringEnd(text, at);
    const valueFrom = tokenAt(text, tokenAt(text, nameEnd) + 1);
    const to = valueEnd(text, valueFrom);
    if (members.length === most) throw new TooManyMembers(`an object has more than ${most} members`);
    members.push({ name: nameIn(text, at, nameEnd), from: at, valueFrom, to });
    at = tokenAt(text, tokenAt(text, to) + 1);
  }
  return members;
}

/** The texts of a list's items. @param text - valid JSON whose value is a list @throws TooManyMembers */
export function itemTextsOf(text: string): readonly string[] {
  const items: string[] = [];
  let at = tokenAt(text, 0);
  if (text.charCodeAt(at) !== LIST) throw new SyntaxError('no list');
  at = tokenAt(text, at + 1);
  if (text.charCodeAt(at) === LIST_END) return items;
  for (;;) {
    const to = valueEnd(text, at);
    if (items.length === MOST_MEMBERS) throw new TooManyMembers(`a list has more than ${MOST_MEMBERS} items`);
    items.push(text.slice(at, to));
    const behind = tokenAt(text, to);
    if (text.charCodeAt(behind) !== COMMA) return items;
    at = tokenAt(text, behind + 1);
  }
}

/** The text of a value of an object; of several with the name the last, as `JSON.parse` reads them. */
export function memberText(text: string, name: string): string | undefined {
  const found = membersOf(text).findLast((member) => member.name === name);
  return found === undefined ? undefined : text.slice(found.valueFrom, found.to);
}

/** Deepest level that is laid out by more spaces. */
const MOST_LEVELS = 100;

/**
 * The text with a line for each value, as `JSON.stringify` lays a value out. Each token stays as it is.
 * @param base - spaces before the line in which the text begins
 */
export function laidOut(text: string, indent: number, base = 0): string {
  const out: string[] = [];
  let depth = 0;
  const line = (): string => `\n${' '.repeat(base + indent * Math.min(depth, MOST_LEVELS))}`;
  for (let at = tokenAt(text, 0); at < text.length; at = tokenAt(text, at)) {
    const code = text.charCodeAt(at);
    const sign = text.charAt(at);
    if (code === OBJECT || code === LIST) {
      const next = tokenAt(text, at + 1);
      const close = text.charCodeAt(next);
      if (close === OBJECT_END || close === LIST_END) {
        out.push(sign, text.charAt(next));
        at = next + 1;
        continue;
      }
      depth++;
      out.push(sign, line());
    } else if (code === OBJECT_END || code === LIST_END) {
      depth--;
      out.push(line(), sign);
    } else if (code === COMMA) out.push(sign, line());
    else if (sign === ':') out.push(': ');
    else {
      const to = valueEnd(text, at);
      out.push(text.slice(at, to));
      at = to;
      continue;
    }
    at++;
  }
  return out.join('');
}

/** Changes of an object's members; the others keep their characters, and their order. */
export interface MemberChanges {
  /** Values by name, as JSON. A member that is there changes in its place, and others come last. */
  readonly set?: Readonly<Record<string, string>>;
  /** Whether a member that is not set stays. Absent: all stay. */
  readonly keeps?: (name: string) => boolean;
  /** Names that come once, beside those that are set: of several members with the name the last one stays. */
  readonly once?: ReadonlySet<string>;
}

/**
 * The object with some members changed.
 * @param text - valid JSON whose value is an object
 * @throws TooManyMembers
 */
export function withMembers(text: string, changes: MemberChanges, most?: number): string {
  const { set = {}, keeps = () => true, once } = changes;
  const members = membersOf(text, most);
  /** Last places of the names that come once. */
  const last = new Map<string, number>();
  for (const [place, { name }] of members.entries())
    if (Object.hasOwn(set, name) || once?.has(name) === true) last.set(name, place);
  const end = text.lastIndexOf('}');
  let out = text.slice(0, members[0]?.from ?? end);
  let isFirst = true;
  for (const [place, { name, from, valueFrom, to }] of members.entries()) {
    const isSet = Object.hasOwn(set, name);
    if ((!isSet && !keeps(name)) || (last.get(name) ?? place) !== place) continue;
    // White space and the comma before it.
    if (!isFirst) out += text.slice(members[place - 1]?.to, from);
    isFirst = false;
    out += isSet ? `${text.slice(from, valueFrom)}${set[name]}` : text.slice(from, to);
  }
  for (const name of Object.keys(set)) {
    if (last.has(name)) continue;
    out += `${isFirst ? '' : ','}${JSON.stringify(name)}:${set[name]}`;
    isFirst = false;
  }
  return out + text.slice(members.at(-1)?.to ?? end);
}

/**
 * A Dockerfile as lines of one instruction each: comments, continuations and directives as the engine's parser reads
 * them. Characters that parsers read differently are refused. Pure.
 */
import { nameOf, oddCharacter } from './words.ts';

export interface Line {
  readonly text: string;
  /** Where it begins in the file, from 1. */
  readonly line: number;
}

/** A line that was refused, with its number. */
export class RefusedLine extends Error {
  override readonly name = 'RefusedLine';
  readonly line: number;

  constructor(line: number, why: string) {
    super(why);
    this.line = line;
  }
}

/** A directive at the head of a file would change how the engine reads it, or who reads it. */
const DIRECTIVE = /^#\s*(?:syntax|escape|check)\s*=\s*\S/i;
// Two backslashes at the end of a line are text: only a single one goes on with the next line.
const CONTINUED = /(^|[^\\])\\[ \t]*$/;

/** @throws RefusedLine */
export function linesOf(file: string): readonly Line[] {
  const lines = file.replace(/^\uFEFF/, '').split('\n');
  const found: Line[] = [];
  let mayHaveDirectives = true;
  for (let at = 0; at < lines.length; at += 1) {
    const line = at + 1;
    const first = checked(lines[at] ?? '', line).replace(/^[ \t]+/, '');
    if (mayHaveDirectives && DIRECTIVE.test(first))
      throw new RefusedLine(line, `the directive ${first.slice(0, 40)} is not available: leave the line out`);
    mayHaveDirectives = false;
    if (first === '' || first.startsWith('#')) continue;
    let text = first.replace(CONTINUED, '$1');
    let isContinued = CONTINUED.test(first);
    while (isContinued && at + 1 < lines.length) {
      at += 1;
      const part = checked(lines[at] ?? '', at + 1);
      // Empty lines and comments inside an instruction do not end it.
      if (/^[ \t]*(?:#|$)/.test(part)) continue;
      text += part.replace(CONTINUED, '$1');
      isContinued = CONTINUED.test(part);
    }
    text = text.replace(/[ \t]+$/, '');
    if (text !== '') found.push({ text, line });
  }
  return found;
}

/** A line of the file without its end. */
function checked(line: string, number: number): string {
  const text = line.replace(/\r$/, '');
  if (/^[ \t]*#/.test(text)) return text;
  if (text.includes('\r'))
    throw new RefusedLine(number, 'has a carriage return in its middle: save the file with line ends of one kind');
  const odd = oddCharacter(text) ?? /^[ \t]*([^\S \t]|\uFEFF)/.exec(text)?.[1];
  if (odd !== undefined)
    throw new RefusedLine(number, `has the character ${nameOf(odd)}, which builders read differently: remove it`);
  return text;
}

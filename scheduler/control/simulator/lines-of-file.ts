// Reads a file of JSON lines piece by piece, so that a file of any size takes little memory.
import { createReadStream } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';

/** Longest line, in characters. */
export const LONGEST_LINE = 1_048_576;

/** A line that is longer than any can be. */
export class LongLineError extends Error {}

/** The lines of a file, some at a time. Empty lines count. @throws LongLineError; Error: the file cannot be read */
export async function* linesOf(path: string): AsyncGenerator<readonly string[]> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  let at = 0;
  for await (const bytes of createReadStream(path, { highWaterMark: 1 << 20 })) {
    const lines = (rest + decoder.write(bytes as Buffer)).split('\n');
    rest = lines.pop() ?? '';
    const long = lines.findIndex(({ length }) => length > LONGEST_LINE);
    if (long !== -1 || rest.length > LONGEST_LINE)
      throw new LongLineError(
        `line ${at + (long === -1 ? lines.length : long) + 1} has more than ${LONGEST_LINE} characters`,
      );
    at += lines.length;
    yield lines;
  }
  rest += decoder.end();
  if (rest !== '') yield [rest];
}

// Lines of a text that comes in parts.
import { StringDecoder } from 'node:string_decoder';

/**
 * The lines, each without its end. Only a line feed ends a line, perhaps with a carriage return before it. Node's
 * `readline` also splits at U+2028 and U+2029, which JSON has in its strings.
 */
export async function* linesOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new StringDecoder('utf8');
  const parts: string[] = [];
  for await (const chunk of bytes) {
    const [first = '', ...rest] = decoder.write(Buffer.from(chunk)).split('\n');
    parts.push(first);
    for (const next of rest) {
      yield withoutReturn(parts.join(''));
      parts.length = 0;
      parts.push(next);
    }
  }
  const last = `${parts.join('')}${decoder.end()}`;
  if (last !== '') yield withoutReturn(last);
}

const withoutReturn = (line: string): string => (line.endsWith('\r') ? line.slice(0, -1) : line);

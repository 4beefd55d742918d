// Lines of streams of JSON: only a line feed ends one.
import { expect, test } from 'vitest';
import { linesOf } from '#cli/lines.ts';

test('lines come whole, wherever their bytes are split', async () => {
  const bytes = Buffer.from('{"a":"\u2028é\u2029\u0085\v"}\r\n\n{"b":1}\nrest');
  for (let size = 1; size <= bytes.length; size++) {
    async function* parts(): AsyncGenerator<Uint8Array> {
      for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size));
    }
    expect(await Array.fromAsync(linesOf(parts()))).toEqual(['{"a":"\u2028é\u2029\u0085\v"}', '', '{"b":1}', 'rest']);
  }
});

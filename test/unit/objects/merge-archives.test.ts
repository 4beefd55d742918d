// Archives joined, as yauzl and yazl read and write them.
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { fromBufferPromise } from 'yauzl';
import { ZipFile } from 'yazl';
import { mergedArchive } from '../../../scheduler/stores/objects/merge-archives.ts';

async function archive(
  files: Readonly<Record<string, string>>,
  options: { readonly compress?: boolean; readonly mode?: number } = {},
): Promise<Buffer> {
  const zip = new ZipFile();
  for (const [name, text] of Object.entries(files)) zip.addBuffer(Buffer.from(text), name, options);
  zip.end();
  return buffer(zip.outputStream);
}

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function joined(base: Buffer, changed: Buffer, removed: readonly string[] = [], piece = 7): Promise<Buffer> {
  const out: Buffer[] = [];
  for await (const bytes of mergedArchive(inPieces(base, piece), inPieces(changed, piece), new Set(removed)))
    out.push(Buffer.from(bytes));
  return Buffer.concat(out);
}

async function read(bytes: Buffer): Promise<Readonly<Record<string, readonly [string, number]>>> {
  const zip = await fromBufferPromise(bytes);
  const files: Record<string, readonly [string, number]> = {};
  for await (const entry of zip.eachEntry()) {
    const text = await buffer(await zip.openReadStreamPromise(entry));
    files[entry.fileName] = [text.toString('utf8'), (entry.externalFileAttributes >>> 16) & 0o777];
  }
  return files;
}

test('changed files take the place of older ones, removed ones are left out, and the others stay as they were', async () => {
  const base = await archive(
    { 'a.txt': 'one', 'd/ü.txt': 'two', gone: 'x', run: 'y'.repeat(5000) },
    { mode: 0o100755 },
  );
  const changed = await archive({ 'a.txt': 'ONE', 'new.txt': 'n' }, { compress: false, mode: 0o100644 });
  for (const piece of [1, 7, 65_536]) {
    expect(await read(await joined(base, changed, ['gone', 'never'], piece))).toEqual({
      'a.txt': ['ONE', 0o644],
      'new.txt': ['n', 0o644],
      'd/ü.txt': ['two', 0o755],
      run: ['y'.repeat(5000), 0o755],
    });
  }
  expect(await read(await joined(base, await archive({}), ['a.txt', 'd/ü.txt', 'gone', 'run']))).toEqual({});
});

test('an archive that was joined is joined again', async () => {
  const first = await joined(await archive({ a: '1', b: '1' }), await archive({ a: '2' }));
  expect(await read(await joined(first, await archive({ b: '3' })))).toMatchObject({
    a: ['2', 0o664],
    b: ['3', 0o664],
  });
});

test('what is no archive, is cut off, or has sizes behind its files is refused', async () => {
  const good = await archive({ a: 'text that is long enough' });
  for (const bad of [Buffer.from('no archive at all'), good.subarray(0, 40), good.subarray(0, good.length - 30)])
    for (const pair of [
      [bad, good],
      [good, bad],
    ] as const)
      await expect(joined(...pair)).rejects.toMatchObject({ code: 'bad_request' });
  const streamed = Buffer.from(good);
  streamed.writeUInt16LE(streamed.readUInt16LE(6) | 8, 6);
  await expect(joined(streamed, good)).rejects.toThrow('sizes that stand behind their files');
  // A file that the directory does not name would be lost.
  const end = good.indexOf(Buffer.from([0x50, 0x4b, 5, 6]));
  const central = good.indexOf(Buffer.from([0x50, 0x4b, 1, 2]));
  const unnamed = Buffer.concat([good.subarray(0, central), good.subarray(end)]);
  await expect(joined(unnamed, await archive({ b: 'x' }))).rejects.toThrow('files that its directory does not name');
});

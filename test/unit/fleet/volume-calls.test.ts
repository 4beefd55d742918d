import { duplexPair } from 'node:stream';
import type { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import { VolumeCalls } from '#scheduler/fleet/volume-calls.ts';

const headOf = (status: number): Buffer => encodeFrame('response', {}, Buffer.from(JSON.stringify({ status }), 'utf8'));

/** @param serve - the file server; called with the request once it is whole */
function aWorld(serve: (head: Readonly<Record<string, unknown>>, end: Duplex) => void, withinMs?: number) {
  const done: string[] = [];
  const calls = new VolumeCalls(
    {
      open: async () => {
        const [own, end] = duplexPair();
        const reader = new FrameReader();
        let head: Readonly<Record<string, unknown>> = {};
        end.on('error', () => undefined);
        end.on('data', (data: Buffer) => {
          for (const { kind, body } of reader.push(data)) {
            if (kind === 'request') head = JSON.parse(body.toString('utf8')) as Readonly<Record<string, unknown>>;
            if (kind === 'end') serve(head, end);
          }
        });
        return { bytes: own, done: () => void done.push('done') };
      },
    },
    withinMs,
  );
  return { calls, done };
}

const answer = (end: Duplex, status: number, ...parts: readonly string[]): void =>
  void end.write(
    Buffer.concat([
      headOf(status),
      ...parts.map((part) => encodeFrame('data', {}, Buffer.from(part, 'utf8'))),
      encodeFrame('end', {}),
    ]),
  );

test('a call reaches the file server with its fields, and its answer is joined from its frames', async () => {
  const { calls, done } = aWorld((head, end) => answer(end, 200, '{"purpose": ', JSON.stringify(head['purpose']), '}'));
  expect(await calls.ask('v', { purpose: 'list', path: 'a', limit: 5 })).toEqual({ purpose: 'list' });
  expect(done).toEqual(['done']);
});

test('a refusal keeps its code; an answer that is none, or breaks off, is the failure of the volume', async () => {
  const refused = aWorld((_head, end) => answer(end, 404, '{"code": "volume_file_not_found", "message": "gone"}'));
  await expect(refused.calls.ask('v', { purpose: 'remove' })).rejects.toMatchObject({
    code: 'volume_file_not_found',
    message: 'gone',
  });
  const empty = aWorld((_head, end) => answer(end, 200));
  await expect(empty.calls.ask('v', { purpose: 'list' })).rejects.toMatchObject({
    code: 'volume_failed',
    message: expect.stringContaining('answered 200 without a word'),
  });
  for (const text of ['[]', 'x']) {
    const odd = aWorld((_head, end) => answer(end, 200, text));
    await expect(odd.calls.ask('v', { purpose: 'list' })).rejects.toMatchObject({ code: 'volume_failed' });
  }
  const cut = aWorld((_head, end) => void end.write(headOf(200), () => end.destroy()));
  await expect(cut.calls.ask('v', { purpose: 'list' })).rejects.toMatchObject({ code: 'volume_failed' });
  const garbage = aWorld((_head, end) => void end.write(Buffer.from([255, 255, 255, 255])));
  await expect(garbage.calls.ask('v', { purpose: 'list' })).rejects.toMatchObject({ code: 'volume_failed' });
  expect([refused, empty, cut, garbage].map(({ done }) => done)).toEqual([['done'], ['done'], ['done'], ['done']]);
});

test('a call whose answer does not come ends', async () => {
  const { calls, done } = aWorld(() => undefined, 30);
  await expect(calls.ask('v', { purpose: 'measure' })).rejects.toMatchObject({ code: 'machine_silent' });
  expect(done).toEqual(['done']);
});

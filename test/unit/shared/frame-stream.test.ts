// Frames that are written to a stream, over a real socket: pieces of bodies go out together, in order with all others.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { FrameStream, PIECE_BYTES } from '#shared/protocol/frame-stream.ts';
import { FrameReader } from '#shared/protocol/frames.ts';
import { tempDirectory, test as base, waitFor } from '../../helpers/services.ts';

const test = base.extend('ends', async ({ task: _task }, { onCleanup }) => {
  const directory = tempDirectory('frame-stream');
  const server = createServer();
  await once(server.listen(join(directory.path, 's.sock')), 'listening');
  const bytes = connect(join(directory.path, 's.sock'));
  const [peer] = (await once(server, 'connection')) as [Socket];
  onCleanup(() => {
    bytes.destroy();
    peer.destroy();
    server.close();
    directory.remove();
  });
  const frames = new FrameStream(bytes, { onFrame: () => undefined, onOver: () => undefined });
  return { frames, bytes, peer };
});

/** Kinds and bodies of what arrives, a large body by its size. */
function framesAt(peer: Socket): string[] {
  const reader = new FrameReader();
  const got: string[] = [];
  peer.on('data', (chunk: Buffer) => {
    for (const { kind, body } of reader.push(chunk))
      got.push(`${kind} ${body.length > 100 ? body.length : body.toString('latin1')}`);
  });
  return got;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('pieces of a turn are one frame, between those before and behind them', async ({ ends }) => {
  const { frames, peer } = ends;
  const got = framesAt(peer);
  frames.send('request', {}, Buffer.from('head'));
  for (const piece of ['one ', 'two ', 'three']) frames.sendPieces('data', Buffer.from(piece));
  expect(frames.waitingBytes).toBeGreaterThan('one two three'.length);
  frames.send('message', {}, Buffer.from('small'));
  frames.sendPieces('data', Buffer.alloc(1000, 'x'));
  frames.send('message', {}, Buffer.alloc(5000, 'x'));
  frames.sendPieces('data', Buffer.from('last'));
  frames.send('end');
  await waitFor(() => got.length === 7, 'all frames');
  expect(got).toEqual([
    'request head',
    'data one two three',
    'message small',
    'data 1000',
    'message 5000',
    'data last',
    'end ',
  ]);
});

test('pieces go out at the end of a turn, however few', async ({ ends }) => {
  const { frames, peer } = ends;
  const got = framesAt(peer);
  frames.sendPieces('data', Buffer.from('first'));
  await waitFor(() => got.length === 1, 'the first');
  frames.sendPieces('data', Buffer.from('second'));
  await turn();
  frames.sendPieces('data', Buffer.from('third'));
  frames.end();
  await once(peer, 'end');
  expect(got).toEqual(['data first', 'data second', 'data third']);
});

test('a frame is no larger than a piece may be, and no byte is lost when the way is full', async ({ ends }) => {
  const { frames, bytes, peer } = ends;
  peer.pause();
  let sent = 0;
  let hasRoom = true;
  for (; hasRoom; sent += 60_000) {
    hasRoom = frames.sendPieces('data', Buffer.alloc(60_000, 'x'));
    await turn();
  }
  // The kernel's share, and what the stream may hold.
  expect(sent).toBeLessThan(2 * 1024 * 1024);
  frames.sendPieces('data', Buffer.alloc(600_000, 'y'));
  sent += 600_000;
  const told = new Promise<void>((resolve) => frames.onceWritable(resolve));
  const got = framesAt(peer);
  peer.resume();
  await told;
  expect(bytes.writableLength).toBe(0);
  await waitFor(() => total(got) === sent, 'all bytes');
  expect(Math.max(...got.map((frame) => Number(frame.split(' ')[1])))).toBeLessThanOrEqual(PIECE_BYTES);
});

const total = (got: readonly string[]): number => got.reduce((sum, frame) => sum + Number(frame.split(' ')[1]), 0);

test('memory of pieces is given back when they are written', async ({ ends }) => {
  const { frames, peer } = ends;
  peer.resume();
  const pieces = [Buffer.alloc(50_000, 'x'), Buffer.alloc(50_000, 'y')];
  for (const piece of pieces) frames.sendPieces('data', piece);
  expect(pieces.map((piece) => piece.length)).toEqual([50_000, 50_000]);
  await waitFor(() => pieces.every((piece) => piece.length === 0), 'it is given back');
});

test('pieces of a stream that was closed are dropped', async ({ ends }) => {
  const { frames, bytes, peer } = ends;
  const got = framesAt(peer);
  frames.sendPieces('data', Buffer.from('dropped'));
  frames.close();
  expect(frames.sendPieces('data', Buffer.from('late'))).toBe(true);
  await once(bytes, 'close');
  await turn();
  expect(got).toEqual([]);
});

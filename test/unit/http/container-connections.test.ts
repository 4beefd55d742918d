// Connections into containers whose programs neither answer nor read: none is kept for ever.
import { EventEmitter } from 'node:events';
import { PassThrough, Readable, duplexPair } from 'node:stream';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { WebSocket } from 'ws';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import { fileQueryOf, takeFile } from '../../../scheduler/api/http/containers/files.ts';
import { serveProgram } from '../../../scheduler/api/http/containers/program-socket.ts';
import { PortConnection } from '../../../scheduler/api/http/streams/port-connection.ts';
import { Inside } from '../../../scheduler/fleet/inside/inside.ts';
import { turned } from '../../helpers/played-streams.ts';

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => vi.useRealTimers());

const container = { containerId: 'c', workspaceId: 'w', machineId: 'm' } as never;

/** A container that gives these answers to a request, and then takes nothing. */
function aContainer(answers: readonly object[]) {
  const state = { holds: 0, stream: undefined as Duplex | undefined };
  const open = (): Promise<Duplex> => {
    const [own, far] = duplexPair();
    const reader = new FrameReader();
    far.on('data', (data: Buffer) => {
      if (reader.push(data).length === 0) return;
      far.pause();
      for (const answer of answers) far.write(encodeFrame('response', {}, Buffer.from(JSON.stringify(answer))));
    });
    state.stream = own;
    return Promise.resolve(own);
  };
  const hold = () => {
    state.holds += 1;
    return () => void (state.holds -= 1);
  };
  return { state, inside: new Inside({ streams: { open }, hold }) };
}

test('a terminal that takes no hang-up keeps neither its connection nor its container', async () => {
  const { state, inside } = aContainer([{ ok: true, pid: 5, input: 0 }]);
  const played = { pause: () => undefined, resume: () => undefined, send: () => undefined, close: () => undefined };
  const webSocket = Object.assign(new EventEmitter(), played) as unknown as WebSocket;
  const terminal = { rows: 24, columns: 80 };
  const request = { kind: 'start' as const, command: ['sh'], cwd: '', env: {}, terminal, countsInput: false };
  await serveProgram(request, { webSocket, inside, container, hasStreamByte: false });
  webSocket.emit('close', 1000);
  await turned(() => state.stream?.writableEnded === true);
  expect(state.holds).toBe(1);
  vi.advanceTimersByTime(30_000);
  expect(state).toMatchObject({ holds: 0, stream: { destroyed: true } });
});

/** Ends of a connection to a port that was written to and finished. */
async function finishedPort(): Promise<ReturnType<typeof duplexPair>> {
  const [own, far] = duplexPair();
  far.write(encodeFrame('response', {}, Buffer.from('{"ok":true}')));
  const connection = new PortConnection(own, 80, 0);
  let isWritten = false;
  connection.write('head', () => (isWritten = true));
  await turned(() => isWritten);
  connection.finish();
  return [own, far];
}

test('a port that takes no end keeps no connection', async () => {
  const [own] = await finishedPort();
  await turned(() => own.writableEnded);
  expect(own.destroyed).toBe(false);
  vi.advanceTimersByTime(30_000);
  expect(own.destroyed).toBe(true);
});

test('a port that takes the end leaves no timer behind', async () => {
  const [own, far] = await finishedPort();
  expect(vi.getTimerCount()).toBe(1);
  far.resume();
  far.end();
  await turned(() => own.destroyed);
  expect(vi.getTimerCount()).toBe(0);
});

test('an upload whose bytes nobody takes ends with a refusal', async () => {
  const { state, inside } = aContainer([]);
  const raw = Object.assign(Readable.from([Buffer.alloc(8 * 1024 * 1024)]), { complete: true });
  const request = { headers: {}, raw };
  const left = new AbortController();
  const taken = takeFile(request as never, { raw: new PassThrough() } as never, fileQueryOf({ path: 'a' }), {
    inside,
    container,
    left: left.signal,
  });
  const refused = expect(taken).rejects.toThrow('did not answer in time');
  await turned(() => (state.stream?.writableLength ?? 0) > 1024 * 1024);
  vi.advanceTimersByTime(300_000);
  await refused;
  expect(state.holds).toBe(0);
});

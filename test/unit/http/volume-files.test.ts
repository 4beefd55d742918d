// The addresses of volume files over real HTTP, with a file server in this process at the other end of the stream.
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pino } from 'pino';
import { afterEach, expect, test } from 'vitest';
import { AppError } from '#shared/errors.ts';
import { Registry } from '#shared/metrics.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { VolumeFileMetrics } from '../../../scheduler/api/http/ops/volume-file-metrics.ts';
import { registerVolumeFiles } from '../../../scheduler/api/http/ops/volume-files.ts';
import { createHttpServer } from '../../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../../scheduler/api/http/server.ts';
import { VOLUME_FILES_PATH, VOLUME_PACKS_PATH } from '../../../scheduler/fleet/volume-files.ts';
import type { UploadBound } from '../../../scheduler/fleet/volume-files.ts';
import { waitFor } from '../../helpers/programs.ts';

const PACE = { windowMs: 60, bytesPerWindow: 1000 };
const servers: HttpServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop(0);
});

interface Served {
  readonly url: string;
  /** Ends of transfers: what gave their places back. */
  readonly done: readonly string[];
  readonly closed: readonly string[];
  readonly registry: Registry;
}

/** @param onFrame - the file server, for each frame of a request */
async function serve(
  onFrame: (frame: Frame, end: Duplex) => void,
  refusal?: AppError,
  bound?: UploadBound,
): Promise<Served> {
  const [done, closed]: [string[], string[]] = [[], []];
  const registry = new Registry();
  const server = createHttpServer({
    log: pino({ level: 'silent' }),
    register: (app) =>
      void app.register((scope, _options, ready) => {
        registerVolumeFiles(scope, {
          files: {
            verify: (purpose, _volumeId, { path }) => path === purpose || path === 'both',
            open: async () => {
              if (refusal !== undefined) throw refusal;
              const [own, end] = duplexPair();
              // This pair hands on the very bytes that are written, whose memory the sender takes back.
              const write = own._write.bind(own);
              own._write = (chunk: Buffer, encoding, written) => write(Buffer.from(chunk), encoding, written);
              const reader = new FrameReader();
              end.on('data', (data: Buffer) => reader.push(data).forEach((frame) => onFrame(frame, end)));
              end.on('error', () => undefined);
              own.once('close', () => closed.push('closed'));
              return { bytes: own, done: () => void done.push('done'), ...(bound === undefined ? {} : { bound }) };
            },
          },
          metrics: new VolumeFileMetrics(registry),
          log: pino({ level: 'silent' }),
          pace: PACE,
        });
        ready();
      }),
  });
  servers.push(server);
  await server.start('127.0.0.1:0');
  return { url: `http://${server.address}${VOLUME_FILES_PATH}v?path=`, done, closed, registry };
}

const headOf = (status: number, length: number): Buffer =>
  encodeFrame(
    'response',
    {},
    Buffer.from(JSON.stringify({ status, headers: [['content-length', String(length)]] }), 'utf8'),
  );
/** A whole answer without a body. */
const EMPTY = Buffer.concat([headOf(200, 0), encodeFrame('end', {})]);
const codeOf = async (answer: Response): Promise<readonly [number, unknown]> => [
  answer.status,
  ((await answer.json()) as { code: unknown }).code,
];
/** Begins an upload of so many bytes, of which those are sent. */
function begin(url: string, total: number, sent: number) {
  const request = httpRequest(url, { method: 'PUT', headers: { 'content-length': String(total) } });
  request.on('error', () => undefined);
  request.write(Buffer.alloc(sent));
  return request;
}

test('each method needs an address of its kind, and the file server hears which one it was', async () => {
  const heads: object[] = [];
  const { url, registry } = await serve(({ kind, body }, end) => {
    if (kind === 'request') heads.push(JSON.parse(body.toString('utf8')) as object);
    if (kind === 'end') end.write(EMPTY);
  });
  expect(await codeOf(await fetch(`${url}put`))).toEqual([403, 'download_refused']);
  expect(await codeOf(await fetch(`${url}get`, { method: 'PUT', body: 'x' }))).toEqual([403, 'upload_refused']);
  expect((await fetch(`${url}none`, { method: 'HEAD' })).status).toBe(403);
  expect((await fetch(`${url}get`, { headers: { range: 'bytes=1-', cookie: 'secret' } })).status).toBe(200);
  for (const path of ['get', 'put', 'both']) await fetch(url + path, { method: 'HEAD' });
  await fetch(`${url}put`, { method: 'PUT', body: 'x' });
  expect(heads).toMatchObject([
    { purpose: 'get', method: 'GET', path: 'get', headers: [['range', 'bytes=1-']] },
    { purpose: 'get', method: 'HEAD' },
    { purpose: 'put', method: 'HEAD' },
    { purpose: 'get', method: 'HEAD' },
    { purpose: 'put', method: 'PUT', headers: [['content-length', '1']] },
  ]);
  expect(await registry.metrics()).toMatch(/volume_transfers_ended_total\{purpose="put",result="whole"\} 2/);
});

test('packs are read by POST and written by PUT, each by an address of its kind', async () => {
  const heads: object[] = [];
  const { url, registry } = await serve(({ kind, body }, end) => {
    if (kind === 'request') heads.push(JSON.parse(body.toString('utf8')) as object);
    if (kind === 'end') end.write(EMPTY);
  });
  const packs = url.replace(VOLUME_FILES_PATH, VOLUME_PACKS_PATH);
  const send = (path: string, method: string) => fetch(packs + path, { method, body: 'x' });
  expect(await codeOf(await send('unpack', 'POST'))).toEqual([403, 'download_refused']);
  expect(await codeOf(await send('pack', 'PUT'))).toEqual([403, 'upload_refused']);
  for (const path of ['get', 'put']) expect((await send(path, 'PUT')).status).toBe(403);
  expect(await codeOf(await fetch(`${url}pack`))).toEqual([403, 'download_refused']);
  expect((await fetch(`${packs}pack`)).status).toBe(404);
  expect([(await send('pack', 'POST')).status, (await send('unpack', 'PUT')).status]).toEqual([200, 200]);
  expect(heads).toMatchObject([
    { purpose: 'pack', method: 'POST', path: 'pack' },
    { purpose: 'unpack', method: 'PUT', path: 'unpack' },
  ]);
  const metrics = await registry.metrics();
  expect(metrics).toMatch(/volume_transfers_ended_total\{purpose="get",result="whole"\} 1/);
  expect(metrics).toMatch(/volume_transfers_ended_total\{purpose="put",result="whole"\} 1/);
});

test('a refusal before the stream, and a stream that breaks before its answer', async () => {
  const refused = await serve(() => undefined, new AppError('machine_away', 'not connected'));
  expect(await codeOf(await fetch(`${refused.url}get`))).toEqual([502, 'machine_away']);
  const broken = await serve((_frame, end) => void end.destroy());
  expect(await codeOf(await fetch(`${broken.url}get`))).toEqual([502, 'volume_failed']);
  expect(await codeOf(await fetch(`${broken.url}put`, { method: 'PUT', body: 'x'.repeat(100_000) }))).toEqual([
    502,
    'volume_failed',
  ]);
  await waitFor(() => broken.done.length === 2, 'both gave their places back');
});

test('an upload that brings more than its bound ends with the reason, and passes no more on', async () => {
  let passed = 0;
  const bound = { bytes: 100_000, exceeded: () => new AppError('volume_quota_reached', 'no more room') };
  const { url, done } = await serve(
    ({ kind, body }, end) => {
      if (kind === 'data') passed += body.length;
      if (kind === 'end') end.write(EMPTY);
    },
    undefined,
    bound,
  );
  // Chunks, whose sum nobody says.
  const pieces = (count: number) => ReadableStream.from(Array.from({ length: count }, () => new Uint8Array(10_000)));
  const put = (count: number) => fetch(`${url}put`, { method: 'PUT', body: pieces(count), duplex: 'half' });
  expect((await put(10)).status).toBe(200);
  expect(passed).toBe(100_000);
  expect(await codeOf(await put(30))).toEqual([507, 'volume_quota_reached']);
  await waitFor(() => done.length === 2, 'both gave their places back');
  expect(passed).toBeLessThan(100_000 + 200_000);
});

test('the file server hears how much a pack may bring', async () => {
  const heads: object[] = [];
  const bound = { bytes: 5, exceeded: () => new AppError('volume_quota_reached', 'no more room') };
  const { url } = await serve(
    ({ kind, body }, end) => {
      if (kind === 'request') heads.push(JSON.parse(body.toString('utf8')) as object);
      if (kind === 'end') end.write(EMPTY);
    },
    undefined,
    bound,
  );
  const pack = `${url.replace(VOLUME_FILES_PATH, VOLUME_PACKS_PATH)}unpack`;
  expect((await fetch(pack, { method: 'PUT', body: 'a line that has more bytes' })).status).toBe(200);
  expect(heads).toMatchObject([{ purpose: 'unpack', room: 5 }]);
});

test('a machine of the workspace itself sends no page for the scheduler’s origin', async () => {
  const { url } = await serve(({ kind }, end) => {
    if (kind !== 'end') return;
    const headers = [
      ['content-type', 'text/html'],
      ['service-worker-allowed', '/'],
      ['set-cookie', 'a=1; Path=/'],
      ['content-length', '0'],
    ];
    const head = Buffer.from(JSON.stringify({ status: 200, headers }), 'utf8');
    end.write(Buffer.concat([encodeFrame('response', {}, head), encodeFrame('end', {})]));
  });
  const { headers } = await fetch(`${url}get`);
  expect(headers.get('content-security-policy')).toMatch(/^sandbox /);
  expect(headers.get('service-worker-allowed')).toBeNull();
  expect(headers.get('set-cookie')).toBe(`a=1; Path=${VOLUME_FILES_PATH}`);
});

test('a download that ends early breaks its connection', async () => {
  const { url } = await serve(({ kind }, end) => {
    if (kind !== 'end') return;
    end.write(Buffer.concat([headOf(200, 100), encodeFrame('data', {}, Buffer.alloc(50))]));
    end.end();
  });
  const answer = await fetch(`${url}get`);
  expect(answer.status).toBe(200);
  await expect(answer.arrayBuffer()).rejects.toThrow();
});

test('an upload that comes too slowly ends with 408; one that is being written does not', async () => {
  const slow = await serve(() => undefined);
  const request = begin(`${slow.url}put`, 100_000, 10);
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  expect([answer.statusCode, await text(answer)]).toEqual([408, expect.stringContaining('body_too_slow')]);
  expect(slow.closed).toEqual(['closed']);

  const patient = await serve(({ kind }, end) => {
    if (kind === 'end')
      setTimeout(() => end.write(Buffer.concat([headOf(200, 0), encodeFrame('end', {})])), 5 * PACE.windowMs);
  });
  expect((await fetch(`${patient.url}put`, { method: 'PUT', body: 'x'.repeat(10) })).status).toBe(200);
});

test('a download that brings nothing, or that nobody reads, is ended', async () => {
  const silent = await serve(() => undefined);
  expect(await codeOf(await fetch(`${silent.url}get`))).toEqual([502, 'volume_failed']);

  const piece = encodeFrame('data', {}, Buffer.alloc(256 * 1024));
  const endless = await serve(({ kind }, end) => {
    if (kind !== 'end') return;
    end.write(headOf(200, 1024 ** 4));
    const more = (): void => {
      while (!end.destroyed && end.write(piece));
    };
    end.on('drain', more);
    more();
  });
  const request = httpRequest(`${endless.url}get`);
  request.on('error', () => undefined);
  request.end();
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  answer.on('error', () => undefined);
  await waitFor(() => endless.closed.length === 1, 'the stream is closed');
  expect(endless.done).toEqual(['done']);
  answer.destroy();
});

test('a caller who leaves an upload ends its stream', async () => {
  let bytes = 0;
  const { url, closed, done } = await serve(({ kind, body }) => {
    if (kind === 'data') bytes += body.length;
  });
  const request = begin(`${url}put`, 100_000, 5000);
  await waitFor(() => bytes === 5000, 'its bytes came');
  request.destroy();
  await waitFor(() => closed.length === 1 && done.length === 1, 'the stream is closed');
});

test('a question for a file ends its connection, since the published client forks behind it', async () => {
  const { url } = await serve(({ kind }, end) => {
    if (kind === 'end') end.write(EMPTY);
  });
  expect((await fetch(`${url}get`, { method: 'HEAD' })).headers.get('connection')).toBe('close');
  expect((await fetch(`${url}get`)).headers.get('connection')).not.toBe('close');
});

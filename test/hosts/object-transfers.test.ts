// Signed downloads with ranges and conditions, and uploads that go on after a cut, over sockets on a real scheduler
// that keeps files.
import { execFile } from 'node:child_process';
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  readFileSync,
  readdirSync,
  renameSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { giveBack } from '#shared/pass-on.ts';
import { waitFor } from '../helpers/programs.ts';
import { tempDirectory } from '../helpers/services.ts';
import { NOBODY, aPlatform } from '../integration/verbs-fixture.ts';
import type { Platform } from '../integration/verbs-fixture.ts';

const directory = tempDirectory('transfers');
const dataDir = join(directory.path, 'data');
let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform({ LONGSHORE_DATA_DIR: dataDir });
});
afterAll(async () => {
  await platform.stop();
  directory.remove();
});

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
type Headers = Readonly<Record<string, string>>;
interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  readonly code: unknown;
  readonly message: string;
}
async function send(method: string, url: string, headers: Headers = {}, body?: Uint8Array | Readable): Promise<Reply> {
  const answer = await request(url, {
    method: method as 'GET',
    headers,
    ...(body === undefined ? {} : { body: body instanceof Readable ? body : Buffer.from(body) }),
  });
  const bytes = Buffer.from(await answer.body.arrayBuffer());
  const isJson = bytes.length > 0 && String(answer.headers['content-type']).includes('json');
  const json = (isJson ? JSON.parse(bytes.toString()) : {}) as { readonly code?: unknown; readonly message?: string };
  return {
    status: answer.statusCode,
    headers: answer.headers,
    body: bytes,
    code: json.code,
    message: json.message ?? '',
  };
}
let made = 0;
interface Announced {
  readonly id: string;
  readonly url: string;
  readonly hash: string;
}
async function announce(size: number, { token } = platform.own, hash = `transfer-${++made}`): Promise<Announced> {
  const { json } = await platform.gateway('POST /objects', { hash, size, overwrite: true }, { token });
  expect(json).toMatchObject({ ok: true });
  return { id: String(json['objectId']), url: String(json['presignedUrl']), hash };
}
async function uploaded(bytes: Uint8Array): Promise<Announced> {
  const object = await announce(bytes.length);
  expect(await send('PUT', object.url, {}, bytes)).toMatchObject({ status: 200 });
  return object;
}
const urlPath = (id: string, workspaceId = platform.own.workspaceId) =>
  `GET /api/v1/object/${workspaceId}/${id}/download-url`;
async function downloadUrl(id: string): Promise<string> {
  const { status, json } = await platform.call(urlPath(id));
  expect(status).toBe(200);
  return String(json['url']);
}
const part = (first: number, end: number, total: number): Headers => ({
  'content-range': `bytes ${first}-${end - 1}/${total}`,
});
const offsetOf = async (url: string): Promise<number> => Number((await send('HEAD', url)).headers['upload-offset']);
/** Files of an object: the final one, and those of uploads under way. */
const finalOf = (id: string): string => join(dataDir, 'objects', id.slice(-2).toLowerCase(), id);
const incomingOf = (id: string): readonly string[] =>
  readdirSync(join(dataDir, 'objects', 'incoming')).filter((name) => name.startsWith(id));
/** Sends the first `cut` bytes of a PUT that announces `length`, and breaks the connection once they have arrived. */
async function cutPut(object: Announced, bytes: Uint8Array, cut: number, headers: Headers = {}): Promise<void> {
  const length = String(bytes.length);
  const sending = httpRequest(object.url, { method: 'PUT', headers: { 'content-length': length, ...headers } });
  sending.on('error', () => undefined);
  const before = await offsetOf(object.url);
  sending.write(bytes.subarray(0, cut));
  await waitFor(async () => (await offsetOf(object.url)) === before + cut, 'the bytes have arrived');
  sending.destroy();
  await waitFor(() => incomingOf(object.id).some((name) => name.endsWith('.part')), 'the cut upload rests');
}

describe('a download', () => {
  const bytes = randomBytes(100_000);
  let url = '';
  const etag = `"${sha256(bytes)}"`;
  const size = bytes.length;
  beforeAll(async () => {
    url = await downloadUrl((await uploaded(bytes)).id);
  });

  test('gives the whole object, its size and its strong ETag, to GET and to HEAD', async () => {
    const get = await send('GET', url);
    expect(get.status).toBe(200);
    expect(get.body.equals(bytes)).toBe(true);
    const headers = { etag, 'accept-ranges': 'bytes', 'content-length': String(size) };
    expect(get.headers).toMatchObject(headers);
    const head = await send('HEAD', url, { range: 'bytes=0-0' });
    expect([head.status, head.body.length]).toEqual([200, 0]);
    expect(head.headers).toMatchObject(headers);
  });

  const stale = `"${'0'.repeat(64)}"`;
  test.each<[string, Headers, number, [number, number]?]>([
    ['a range', { range: 'bytes=0-0' }, 206, [0, 0]],
    ['a range inside', { range: 'bytes=17-4242' }, 206, [17, 4242]],
    ['an open range', { range: 'bytes=99999-' }, 206, [99_999, 99_999]],
    ['a range past the end', { range: 'bytes=5-9999999999999999999999' }, 206, [5, size - 1]],
    ['a suffix', { range: 'bytes=-10' }, 206, [size - 10, size - 1]],
    ['a suffix longer than the object', { range: 'bytes=-100001' }, 206, [0, size - 1]],
    ['an empty suffix', { range: 'bytes=-0' }, 416],
    ['a range behind the end', { range: 'bytes=100000-' }, 416],
    ['a range behind the end that ends, too', { range: 'bytes=100000-100001' }, 416],
    ['several ranges: whole', { range: 'bytes=0-1,3-4' }, 200],
    ['a range in reverse: whole', { range: 'bytes=5-4' }, 200],
    ['an empty range: whole', { range: 'bytes=-' }, 200],
    ['a negative range: whole', { range: 'bytes=--5' }, 200],
    ['a range in words: whole', { range: 'bytes=a-b' }, 200],
    ['another unit: whole', { range: 'lines=0-1' }, 200],
    ['If-Range with the ETag', { range: 'bytes=1-2', 'if-range': etag }, 206, [1, 2]],
    ['If-Range with another ETag: whole', { range: 'bytes=1-2', 'if-range': stale }, 200],
    ['If-Range with a weak ETag: whole', { range: 'bytes=1-2', 'if-range': `W/${etag}` }, 200],
    ['If-Range with a date: whole', { range: 'bytes=1-2', 'if-range': 'Tue, 24 Nov 2026 04:00:00 GMT' }, 200],
    ['If-Range with another ETag, unsatisfiable', { range: 'bytes=100000-', 'if-range': stale }, 200],
    ['If-None-Match with the ETag', { 'if-none-match': etag }, 304],
    ['If-None-Match with a weak ETag among others', { 'if-none-match': `${stale}, W/${etag}` }, 304],
    ['If-None-Match with all', { 'if-none-match': '*' }, 304],
    ['If-None-Match before a range', { 'if-none-match': etag, range: 'bytes=0-0' }, 304],
    ['If-None-Match with another', { 'if-none-match': stale }, 200],
    ['If-Match with the ETag', { 'if-match': etag, range: 'bytes=0-0' }, 206, [0, 0]],
    ['If-Match with another', { 'if-match': stale }, 412],
    ['If-Match with a weak ETag', { 'if-match': `W/${etag}` }, 412],
  ])('%s', async (_what, headers, status, range) => {
    const answer = await send('GET', url, headers);
    expect(answer.status, answer.body.subarray(0, 200).toString()).toBe(status);
    if (status === 412) return;
    expect(answer.headers['etag']).toBe(etag);
    if (status === 200) expect(answer.body.equals(bytes)).toBe(true);
    if (status === 304) expect(answer.body).toHaveLength(0);
    if (status === 416) {
      expect(answer.headers['content-range']).toBe(`bytes */${size}`);
      expect([answer.code, answer.message]).toEqual(['range_not_satisfiable', expect.stringContaining('Range')]);
    }
    if (range === undefined) return expect(status === 416 || !('content-range' in answer.headers)).toBe(true);
    const [first, last] = range;
    expect(answer.headers['content-range']).toBe(`bytes ${first}-${last}/${size}`);
    expect(answer.headers['content-length']).toBe(String(last - first + 1));
    expect(answer.body.equals(bytes.subarray(first, last + 1))).toBe(true);
  });

  test('of an empty object is empty, and no range of it can be satisfied', async () => {
    const empty = await downloadUrl((await uploaded(new Uint8Array())).id);
    expect(await send('GET', empty)).toMatchObject({ status: 200, headers: { 'content-length': '0' } });
    expect(await send('GET', empty, { range: 'bytes=-5' })).toMatchObject({ status: 200 });
    expect((await send('GET', empty, { range: 'bytes=0-' })).headers['content-range']).toBe('bytes */0');
  });

  test('that goes on after the object was replaced gets the new bytes whole', async () => {
    const object = await uploaded(Buffer.from('the old bytes'));
    const address = await downloadUrl(object.id);
    const first = await send('GET', address, { range: 'bytes=0-2' });
    expect((await send('PUT', object.url, {}, Buffer.from('the newer bytes'))).status).toBe(200);
    const rest = await send('GET', address, { range: 'bytes=3-', 'if-range': String(first.headers['etag']) });
    expect([rest.status, rest.body.toString()]).toEqual([200, 'the newer bytes']);
  });

  test('has the ETag of exactly its bytes while the object is replaced again and again', async () => {
    const versions = [randomBytes(2_000), randomBytes(2_000)];
    const object = await uploaded(versions[0]!);
    const address = await downloadUrl(object.id);
    let isOver = false;
    const replacing = (async () => {
      for (let at = 1; at <= 40; at += 1) {
        expect((await send('PUT', object.url, {}, versions[at % 2])).status).toBe(200);
      }
      isOver = true;
    })();
    while (!isOver) {
      const { status, headers, body } = await send('GET', address);
      expect([status, headers['etag']]).toEqual([200, `"${sha256(body)}"`]);
    }
    await replacing;
  });

  test('of bytes that are fewer than recorded is no success, and one that is cut ends with an error', async () => {
    const large = randomBytes(32 * 1024 * 1024);
    const object = await uploaded(large);
    const address = await downloadUrl(object.id);
    const answer = await request(address);
    const reading = answer.body[Symbol.asyncIterator]();
    await reading.next();
    truncateSync(finalOf(object.id), 20_000_000);
    await expect(
      (async () => {
        for (;;) if ((await reading.next()).done === true) return;
      })(),
    ).rejects.toThrow();
    expect((await send('GET', address)).status).toBe(500);
  });
});

describe('an address', () => {
  test('of a download is for callers of the workspace alone', async () => {
    const { id } = await uploaded(Buffer.from('mine'));
    const { own, other, admin, restricted, revoked } = platform;
    expect((await platform.call(urlPath(id))).json).toEqual({
      id,
      url: expect.stringContaining(`/objects/download/${id}?`),
      expires_at: expect.stringMatching(/Z$/),
      size: 4,
      sha256: sha256(Buffer.from('mine')),
    });
    const statusOf = async (path: string, token: string) => (await platform.call(path, undefined, { token })).status;
    expect(await statusOf(urlPath(id), '')).toBe(401);
    expect(await statusOf(urlPath(id), revoked)).toBe(401);
    expect(await statusOf(urlPath(id), other.token)).toBe(401);
    expect(await statusOf(urlPath(id, other.workspaceId), other.token)).toBe(404);
    expect(await statusOf(urlPath(id, other.workspaceId), own.token)).toBe(401);
    expect(await statusOf(urlPath(id, other.workspaceId), admin.token)).toBe(404);
    expect(await statusOf(urlPath(id), admin.token)).toBe(200);
    expect(await statusOf(urlPath(id), restricted)).toBe(200);
    for (const unknown of [NOBODY, 'x', '..%2f..%2fetc']) expect(await statusOf(urlPath(unknown), own.token)).toBe(404);
    // The bytes of an announced object are not there yet.
    expect(await statusOf(urlPath((await announce(1)).id), own.token)).toBe(404);
  });

  test('that was changed, has expired or is for something else is refused, and nothing is stored', async () => {
    const bytes = Buffer.from('abc');
    const object = await uploaded(bytes);
    const another = await uploaded(Buffer.from('def'));
    const download = new URL(await downloadUrl(object.id));
    const upload = new URL(object.url);
    const changed = (url: URL, change: (copy: URL) => void): string => {
      const copy = new URL(url);
      change(copy);
      return copy.href;
    };
    const bad = (url: URL): readonly string[] => [
      changed(url, (copy) => copy.searchParams.set('expires', '1000000000')),
      changed(url, (copy) => copy.searchParams.set('expires', String(Number(copy.searchParams.get('expires')) + 1))),
      changed(url, (copy) => copy.searchParams.set('signature', 'f'.repeat(64))),
      changed(url, (copy) => copy.searchParams.append('signature', 'f'.repeat(64))),
      changed(url, (copy) => copy.searchParams.delete('signature')),
      changed(url, (copy) => copy.searchParams.delete('expires')),
      changed(url, (copy) => (copy.pathname = copy.pathname.replace(object.id, another.id))),
      changed(url, (copy) => (copy.search = (url === download ? upload : download).search)),
    ];
    for (const url of bad(download)) {
      expect(await send('GET', url), url).toMatchObject({ status: 403, code: 'download_refused' });
      expect((await send('HEAD', url)).status, url).toBe(403);
    }
    for (const url of bad(upload)) {
      expect(await send('PUT', url, {}, Buffer.from('xyz')), url).toMatchObject({
        status: 403,
        code: 'upload_refused',
      });
      expect((await send('PUT', url, part(0, 2, 3), Buffer.from('xy'))).status, url).toBe(403);
      expect((await send('HEAD', url)).status, url).toBe(403);
    }
    // Methods that an address is not for.
    for (const method of ['PUT', 'POST', 'DELETE']) {
      expect((await send(method, download.href, {}, bytes)).status).toBeGreaterThanOrEqual(400);
    }
    expect((await send('GET', upload.href)).status).toBeGreaterThanOrEqual(400);
    expect((await send('GET', download.href)).body.equals(bytes)).toBe(true);
    expect(incomingOf(object.id)).toEqual([]);
  });
});

describe('an upload that was cut off', () => {
  test('goes on at any byte, however often it is cut, and is the same object in the end', async () => {
    const bytes = randomBytes(3_000_000);
    const object = await announce(bytes.length);
    expect(await offsetOf(object.url)).toBe(0);
    // The first request is a plain PUT, as `curl -T` sends it.
    const cuts = [randomInt(1, 1_000_000), randomInt(1_000_001, 2_000_000), randomInt(2_000_001, 2_999_999)];
    let at = 0;
    for (const cut of cuts) {
      await cutPut(object, bytes.subarray(at), cut - at, at === 0 ? {} : part(at, bytes.length, bytes.length));
      const head = await send('HEAD', object.url);
      expect(head.headers, `cuts ${cuts.join()}`).toMatchObject({
        'upload-offset': String(cut),
        'upload-length': String(bytes.length),
      });
      expect(existsSync(finalOf(object.id))).toBe(false);
      expect((await platform.gateway(`GET /objects/${object.hash}`)).json['exists']).toBe(false);
      at = cut;
    }
    const last = await send('PUT', object.url, part(at, bytes.length, bytes.length), bytes.subarray(at));
    expect(last.status, last.message).toBe(200);
    expect(JSON.parse(last.body.toString())).toEqual({ size: bytes.length, sha256: sha256(bytes) });
    expect(await send('HEAD', object.url)).toMatchObject({
      headers: { etag: `"${sha256(bytes)}"`, 'upload-offset': '0' },
    });
    expect((await send('GET', await downloadUrl(object.id))).body.equals(bytes)).toBe(true);
    expect(incomingOf(object.id)).toEqual([]);
  });

  test('goes on by `curl -C`, and so does a download', async () => {
    const bytes = randomBytes(400_000);
    const object = await announce(bytes.length);
    await cutPut(object, bytes, 150_000);
    const file = join(directory.path, 'file');
    writeFileSync(file, bytes);
    const curl = async (...args: readonly string[]) => (await promisify(execFile)('curl', ['-fsS', ...args])).stdout;
    expect(await curl('-I', object.url)).toMatch(/upload-offset: 150000\r/i);
    expect(JSON.parse(await curl('-C', '150000', '-T', file, object.url))).toMatchObject({ sha256: sha256(bytes) });
    const copy = join(directory.path, 'copy');
    writeFileSync(copy, bytes.subarray(0, 1_234));
    await curl('-C', '-', '-o', copy, await downloadUrl(object.id));
    expect(readFileSync(copy).equals(bytes)).toBe(true);
  });

  test('may come in parts, each told by 202 how many bytes have arrived', async () => {
    const object = await announce(10);
    const first = await send('PUT', object.url, part(0, 4, 10), Buffer.from('abcd'));
    expect(first).toMatchObject({ status: 202, headers: { 'upload-offset': '4', 'upload-length': '10' } });
    const asked = await send('PUT', object.url, { 'content-range': 'bytes */10' });
    expect(asked).toMatchObject({ status: 202, headers: { 'upload-offset': '4', 'upload-length': '10' } });
    expect((await send('PUT', object.url, part(4, 6, 10), Buffer.from('ef'))).status).toBe(202);
    // A part whose length is unknown in advance is measured by its Content-Range.
    const streamed = Readable.from([Buffer.from('gh'), Buffer.from('ij')]);
    expect((await send('PUT', object.url, part(6, 10, 10), streamed)).status).toBe(200);
    expect((await send('GET', await downloadUrl(object.id))).body.toString()).toBe('abcdefghij');
  });

  test.each<[string, Headers, number, string]>([
    ['a later byte', part(5, 10, 10), 409, 'upload_offset_mismatch'],
    ['an earlier byte', part(3, 8, 10), 409, 'upload_offset_mismatch'],
    ['another size', part(4, 9, 11), 409, 'upload_offset_mismatch'],
    ['a length that differs', part(4, 10, 10), 400, 'invalid_content_range'],
    ['a range in reverse', { 'content-range': 'bytes 8-4/10' }, 400, 'invalid_content_range'],
    ['a range past the size', { 'content-range': 'bytes 6-10/10' }, 400, 'invalid_content_range'],
    ['no size', { 'content-range': 'bytes 4-8/*' }, 400, 'invalid_content_range'],
    ['another unit', { 'content-range': 'lines 4-8/10' }, 400, 'invalid_content_range'],
    ['a question with a body', { 'content-range': 'bytes */10' }, 400, 'invalid_content_range'],
    ['no number', { 'content-range': 'bytes -1-3/10' }, 400, 'invalid_content_range'],
  ])('is refused at %s, by the name of the field, and stays as it was', async (_what, headers, status, code) => {
    const object = await announce(10);
    await send('PUT', object.url, part(0, 4, 10), Buffer.from('abcd'));
    const refused = await send('PUT', object.url, headers, Buffer.from('efghi'));
    expect(refused).toMatchObject({ status, code, message: expect.stringContaining('Content-Range') });
    if (status === 409) expect(refused.headers['upload-offset']).toBe('4');
    expect(await offsetOf(object.url)).toBe(4);
    expect((await send('PUT', object.url, part(4, 10, 10), Buffer.from('efghij'))).status).toBe(200);
  });

  test('is sent by one request at a time', async () => {
    const bytes = randomBytes(200_000);
    const object = await announce(bytes.length);
    await send('PUT', object.url, part(0, 50_000, bytes.length), bytes.subarray(0, 50_000));
    const rest = part(50_000, bytes.length, bytes.length);
    const slow = httpRequest(object.url, { method: 'PUT', headers: { ...rest, 'content-length': '150000' } });
    const answered = once(slow, 'response');
    slow.write(bytes.subarray(50_000, 60_000));
    await waitFor(async () => (await offsetOf(object.url)) === 60_000, 'the second request is under way');
    for (const headers of [rest, part(60_000, 60_001, bytes.length), part(0, 1, bytes.length)]) {
      const body = bytes.subarray(0, headers === rest ? 150_000 : 1);
      const refused = await send('PUT', object.url, headers, body);
      expect(refused).toMatchObject({ status: 409, code: 'upload_in_progress', headers: { 'retry-after': '5' } });
    }
    slow.end(bytes.subarray(60_000));
    const [answer] = (await answered) as [{ statusCode: number; resume(): void }];
    answer.resume();
    expect(answer.statusCode).toBe(200);
    const both = await announce(bytes.length);
    await send('PUT', both.url, part(0, 50_000, bytes.length), bytes.subarray(0, 50_000));
    const racing = await Promise.all(
      Array.from({ length: 6 }, () => send('PUT', both.url, rest, bytes.subarray(50_000))),
    );
    expect(racing.filter(({ status }) => status === 200)).toHaveLength(1);
    expect((await send('GET', await downloadUrl(both.id))).body.equals(bytes)).toBe(true);
  });

  test('is replaced by a whole upload, or by one that begins anew at 0', async () => {
    const object = await announce(10);
    await send('PUT', object.url, part(0, 4, 10), Buffer.from('abcd'));
    expect((await send('PUT', object.url, {}, Buffer.from('0123456789'))).status).toBe(200);
    expect(incomingOf(object.id)).toEqual([]);
    await send('PUT', object.url, part(0, 4, 10), Buffer.from('abcd'));
    await send('PUT', object.url, part(0, 2, 6), Buffer.from('uv'));
    expect(incomingOf(object.id)).toHaveLength(1);
    // The object has its earlier bytes until the last part.
    const url = await downloadUrl(object.id);
    expect((await send('GET', url)).body.toString()).toBe('0123456789');
    expect((await send('PUT', object.url, part(2, 6, 6), Buffer.from('wxyz'))).status).toBe(200);
    expect((await send('GET', url)).body.toString()).toBe('uvwxyz');
  });

  test('goes on after the scheduler was killed, once its file has lost its writer', async () => {
    const bytes = randomBytes(5_000);
    const object = await announce(bytes.length);
    // A killed scheduler leaves this file behind.
    const left = join(dataDir, 'objects', 'incoming', `${object.id}.5000.0123456789abcdef.writing`);
    writeFileSync(left, bytes.subarray(0, 2_000));
    const rest = () => send('PUT', object.url, part(2_000, 5_000, 5_000), bytes.subarray(2_000));
    expect((await rest()).code).toBe('upload_in_progress');
    const past = new Date(Date.now() - 121_000);
    utimesSync(left, past, past);
    expect(existsSync(finalOf(object.id))).toBe(false);
    expect(await offsetOf(object.url)).toBe(2_000);
    const done = await rest();
    expect(JSON.parse(done.body.toString())).toEqual({ size: 5_000, sha256: sha256(bytes) });
    // Other bytes on the disk than those in memory are read again for their hash.
    const other = await announce(4);
    await send('PUT', other.url, part(0, 2, 4), Buffer.from('ab'));
    const [name = ''] = incomingOf(other.id);
    const path = join(dataDir, 'objects', 'incoming', name);
    renameSync(path, `${path}.away`);
    writeFileSync(path, 'xyz');
    const last = await send('PUT', other.url, part(3, 4, 4), Buffer.from('!'));
    expect(JSON.parse(last.body.toString())).toEqual({ size: 4, sha256: sha256(Buffer.from('xyz!')) });
  });
});

describe('bounds', () => {
  const limits = () => `PUT /api/v1/workspace/${platform.own.workspaceId}/limits`;
  const set = (bytes: number | null) =>
    platform.call(limits(), { bytes: { objects: bytes } }, { token: platform.admin.token });

  test('of bytes hold for parts as for whole uploads', async () => {
    const { json } = await platform.call(`GET /api/v1/workspace/${platform.own.workspaceId}/limits`);
    const { used } = (json['bytes'] as Record<string, { used: number }>)['objects']!;
    await set(used + 1_000);
    const object = await announce(600);
    const over = await send('PUT', object.url, part(0, 1, 1_001), Buffer.from('a'));
    expect(over).toMatchObject({ status: 507, code: 'object_quota_reached' });
    expect((await send('PUT', object.url, {}, Buffer.alloc(1_001))).code).toBe('object_quota_reached');
    expect((await send('PUT', object.url, part(0, 1, 1_000), Buffer.from('a'))).status).toBe(202);
    // A limit that is lowered meanwhile holds at the next part.
    await set(used + 900);
    expect((await send('PUT', object.url, part(1, 1_000, 1_000), Buffer.alloc(999))).code).toBe('object_quota_reached');
    await set(null);
    expect((await send('PUT', object.url, part(1, 1_000, 1_000), Buffer.alloc(999))).status).toBe(200);
    const huge = await send('PUT', object.url, part(0, 1, 5 * 1024 ** 3), Buffer.from('a'));
    expect(huge).toMatchObject({ status: 413, code: 'body_too_large' });
  });

  test('of unfinished uploads refuse the seventeenth, of that workspace alone; finished ones make room', async () => {
    const begin = async (object: Announced) => (await send('PUT', object.url, part(0, 1, 2), Buffer.from('a'))).status;
    const own: Announced[] = [];
    for (let at = 0; at < 16; at += 1) own.push(await announce(2, platform.other));
    for (const object of own) expect(await begin(object)).toBe(202);
    const more = await announce(2, platform.other);
    expect(await send('PUT', more.url, part(0, 1, 2), Buffer.from('a'))).toMatchObject({
      status: 429,
      code: 'too_many_unfinished_uploads',
    });
    expect(await begin(own[0]!)).toBe(202);
    expect(await begin(await announce(2))).toBe(202);
    expect((await send('PUT', more.url, {}, Buffer.from('ab'))).status).toBe(200);
    expect((await send('PUT', own[0]!.url, part(1, 2, 2), Buffer.from('b'))).status).toBe(200);
    expect(await begin(more)).toBe(202);
  });

  test('a transfer of 256 MiB each way leaves memory flat', async () => {
    const [chunks, size] = [1024, 256 * 1024];
    const chunk = randomBytes(size);
    const object = await announce(chunks * size);
    const before = process.memoryUsage().rss;
    let peak = before;
    const look = setInterval(() => (peak = Math.max(peak, process.memoryUsage().rss)), 20);
    const digest = createHash('sha256');
    const source = Readable.from(
      Array.from({ length: chunks }, () => chunk),
      { objectMode: false },
    );
    const put = await send('PUT', object.url, { 'content-length': String(chunks * size) }, source);
    expect(put.status).toBe(200);
    const { body } = await request(await downloadUrl(object.id));
    for await (const bytes of body) {
      digest.update(bytes as Buffer);
      giveBack(bytes as Buffer);
    }
    clearInterval(look);
    expect(digest.digest('hex')).toBe((JSON.parse(put.body.toString()) as { readonly sha256: string }).sha256);
    expect(statSync(finalOf(object.id)).size).toBe(chunks * size);
    // The client and the scheduler share this process.
    expect(peak - before).toBeLessThan(160 * 1024 * 1024);
  });
});

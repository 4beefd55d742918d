// Files of a volume by signed addresses, through a whole installation: a container writes and reads the files, callers
// download and upload them over the link of the volume's machine.
import { createHash, randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { describe, expect } from 'vitest';
import { jsonOf, test as base } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const MIB = 1024 * 1024;

interface Files {
  /** Works in the container. */
  readonly inside: <T = string>(work: Readonly<Record<string, unknown>>) => Promise<T>;
  /** A signed address. */
  readonly address: (path: string, method?: 'GET' | 'PUT') => Promise<string>;
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const urlOf = (platform: Platform, volume: string, path: string, method = 'GET'): string =>
  `/api/v1/volume/${platform.workspaceId}/${volume}/file-url?path=${encodeURIComponent(path)}&method=${method}`;

const test = base.extend('files', { scope: 'file' }, async ({ platform }): Promise<Files> => {
  const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', { name: 'data' });
  const early = await platform.call(urlOf(platform, 'data', 'a.bin'));
  expect(jsonOf(early)).toMatchObject({ code: 'volume_without_home' });
  expect(early.status).toBe(409);
  const app = await platform.deploy({
    app: 'files.py',
    handler: 'handler',
    name: 'files',
    keepWarmSeconds: 300,
    volumes: [{ id: volume.id, mountPath: 'data' }],
  });
  const inside = async <T>(work: Readonly<Record<string, unknown>>): Promise<T> => {
    const answer = await platform.invoke(app, work);
    if (answer.status !== 200) throw new Error(`${JSON.stringify(work)} was answered ${answer.text}`);
    return jsonOf<T>(answer);
  };
  await inside({ do: 'list' });
  return {
    inside,
    address: async (path, method = 'GET') => {
      const answer = await platform.call(urlOf(platform, 'data', path, method));
      if (answer.status !== 200) throw new Error(`an address was refused: ${answer.text}`);
      return jsonOf<{ url: string }>(answer).url;
    },
  };
});

interface Got {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
}

async function ask(url: string, options: RequestInit = {}): Promise<Got> {
  const answer = await fetch(url, { ...options, signal: AbortSignal.timeout(60_000) });
  return { status: answer.status, headers: answer.headers, bytes: Buffer.from(await answer.arrayBuffer()) };
}
const get = (url: string, headers: Record<string, string> = {}): Promise<Got> => ask(url, { headers });
const put = (url: string, body: Buffer, headers: Record<string, string> = {}): Promise<Got> =>
  ask(url, { method: 'PUT', body: new Uint8Array(body), headers });
const codeOf = ({ bytes }: Got): unknown => (JSON.parse(bytes.toString('utf8')) as { code: unknown }).code;

/** Sends the beginning of an upload, then breaks the connection off. */
async function cutUpload(url: string, begin: Buffer, total: number): Promise<void> {
  const request = httpRequest(url, { method: 'PUT', headers: { 'content-length': String(total) } });
  request.on('error', () => undefined);
  await new Promise<void>((resolve) => request.write(begin, () => resolve()));
  request.destroy();
}

const received = async (url: string): Promise<number> => {
  const { status, headers } = await ask(url, { method: 'HEAD' });
  expect(status).toBe(200);
  return Number(headers.get('upload-offset'));
};

describe('download', () => {
  test('a file that only the container may read comes whole, in ranges, and after a cut', async ({ files }) => {
    const hash = await files.inside({ do: 'write', path: 'out/big.bin', size: 24 * MIB });
    const url = await files.address('out/big.bin');
    const whole = await get(url);
    expect(whole.status).toBe(200);
    expect(whole.headers.get('accept-ranges')).toBe('bytes');
    expect(sha256(whole.bytes)).toBe(hash);
    const etag = whole.headers.get('etag') ?? '';

    const middle = await get(url, { range: 'bytes=1000-2999', 'if-range': etag });
    expect([middle.status, middle.headers.get('content-range')]).toEqual([206, `bytes 1000-2999/${24 * MIB}`]);
    expect(middle.bytes.equals(whole.bytes.subarray(1000, 3000))).toBe(true);
    const last = await get(url, { range: 'bytes=-7' });
    expect(last.bytes.equals(whole.bytes.subarray(-7))).toBe(true);
    const behind = await get(url, { range: `bytes=${24 * MIB}-` });
    expect([behind.status, behind.headers.get('content-range')]).toEqual([416, `bytes */${24 * MIB}`]);
    expect(codeOf(behind)).toBe('range_not_satisfiable');
    expect((await get(url, { 'if-none-match': etag })).status).toBe(304);
    expect((await get(url, { 'if-match': '"other"' })).status).toBe(412);
    expect((await get(url, { range: 'bytes=5-', 'if-range': '"other"' })).status).toBe(200);
    const head = await ask(url, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length'), head.bytes.length]).toEqual([200, String(24 * MIB), 0]);

    // A reader that leaves after a part goes on where it stopped.
    const reader = httpRequest(url);
    reader.end();
    const [answer] = (await once(reader, 'response')) as [NodeJS.ReadableStream & { destroy(): void }];
    const [first] = (await once(answer, 'data')) as [Buffer];
    answer.destroy();
    const rest = await get(url, { range: `bytes=${first.length}-`, 'if-range': etag });
    expect(sha256(Buffer.concat([first, rest.bytes]))).toBe(hash);
  });

  test('an empty file, and one that is not there', async ({ files }) => {
    await files.inside({ do: 'write', path: 'empty' });
    const empty = await get(await files.address('empty'));
    expect([empty.status, empty.headers.get('content-length')]).toEqual([200, '0']);
    const absent = await get(await files.address('out/absent'));
    expect([absent.status, codeOf(absent)]).toEqual([404, 'volume_file_not_found']);
    expect(codeOf(await get(await files.address('nowhere/absent')))).toBe('volume_file_not_found');
  });

  test('names with spaces, other scripts, percent signs and leading dashes', async ({ files }) => {
    for (const path of ['a b/ü 漢字.txt', '-rf', 'with%2Fpercent', 'a+b&c=d?e#f', 'line\nbreak', '"quoted"\\']) {
      await files.inside({ do: 'write', path, text: path });
      expect((await get(await files.address(path))).bytes.toString('utf8'), path).toBe(path);
      const body = Buffer.from(`new ${path}`);
      expect((await put(await files.address(`up/${path}`, 'PUT'), body)).status, path).toBe(200);
      expect(await files.inside({ do: 'read', path: `up/${path}` }), path).toMatchObject({ sha256: sha256(body) });
    }
  });
});

describe('links', () => {
  test('links, folders and pipes are neither read nor written, and nothing behind them is', async ({ files }) => {
    await files.inside({ do: 'link', path: 'passwd', to: '/etc/passwd' });
    await files.inside({ do: 'link', path: 'etc', to: '/etc' });
    await files.inside({ do: 'link', path: 'loop', to: 'loop' });
    await files.inside({ do: 'write', path: 'inner/file', text: 'x' });
    await files.inside({ do: 'link', path: 'to-inner', to: 'inner' });
    await files.inside({ do: 'fifo', path: 'pipe' });
    for (const path of ['passwd', 'etc/passwd', 'loop', 'to-inner/file', 'inner', 'pipe', 'inner/file/below']) {
      const read = await get(await files.address(path));
      expect([read.status, codeOf(read)], path).toEqual([409, 'volume_file_irregular']);
      const written = await put(await files.address(path, 'PUT'), Buffer.from('evil'));
      expect([written.status, codeOf(written)], path).toEqual([409, 'volume_file_irregular']);
    }
    expect((await get(await files.address('inner/file'))).bytes.toString()).toBe('x');
  });
});

describe('upload', () => {
  test('64 MiB, cut off, go on where they stopped; the container reads them', async ({ files }) => {
    const bytes = randomBytes(64 * MIB);
    const url = await files.address('models/new/weights.bin', 'PUT');
    expect(await received(url)).toBe(0);
    await cutUpload(url, bytes.subarray(0, 20 * MIB), bytes.length);
    // Until its server has seen the cut, the upload counts as under way; before its first bytes, there is none.
    const wrong = await waitFor(
      async () => {
        const range = `bytes ${60 * MIB}-${60 * MIB + 9}/${bytes.length}`;
        const answer = await put(url, bytes.subarray(0, 10), { 'content-range': range });
        return codeOf(answer) !== 'upload_in_progress' && answer.headers.get('upload-offset') !== '0' && answer;
      },
      'the cut upload has ended',
      20_000,
    );
    expect([wrong.status, codeOf(wrong)]).toEqual([409, 'upload_offset_mismatch']);
    const offset = Number(wrong.headers.get('upload-offset'));
    expect(offset).toBe(await received(url));
    expect(offset).toBeLessThanOrEqual(20 * MIB);
    expect((await get(await files.address('models/new/weights.bin'))).status).toBe(404);

    const half = 40 * MIB;
    const part = await put(url, bytes.subarray(offset, half), {
      'content-range': `bytes ${offset}-${half - 1}/${bytes.length}`,
    });
    expect([part.status, part.headers.get('upload-offset')]).toEqual([202, String(half)]);
    const asked = await ask(url, { method: 'PUT', headers: { 'content-range': `bytes */${bytes.length}` } });
    expect([asked.status, asked.headers.get('upload-length')]).toEqual([202, String(bytes.length)]);
    const rest = await put(url, bytes.subarray(half), {
      'content-range': `bytes ${half}-${bytes.length - 1}/${bytes.length}`,
    });
    expect([rest.status, rest.bytes.toString()]).toEqual([
      200,
      JSON.stringify({ size: bytes.length }).replace(':', ': '),
    ]);

    const seen = await files.inside<{ uid: number; root: number }>({ do: 'read', path: 'models/new/weights.bin' });
    expect(seen).toMatchObject({ sha256: sha256(bytes), mode: '0o644' });
    expect(seen.uid).toBe(seen.root);
    expect(await files.inside({ do: 'list' })).not.toContainEqual(expect.stringContaining('.longshore-upload'));
  });

  test('a file is replaced, made empty, and sent without a length', async ({ files }) => {
    const url = await files.address('replaced', 'PUT');
    for (const body of [Buffer.from('first'), Buffer.alloc(0), randomBytes(3 * MIB)]) {
      expect((await put(url, body)).status).toBe(200);
      expect(await files.inside({ do: 'read', path: 'replaced' })).toMatchObject({ sha256: sha256(body) });
    }
    const request = httpRequest(url, { method: 'PUT', headers: { expect: '100-continue' } });
    request.flushHeaders();
    await once(request, 'continue');
    request.end('in chunks');
    const [answer] = (await once(request, 'response')) as [{ statusCode: number; resume(): void }];
    answer.resume();
    expect(answer.statusCode).toBe(200);
    expect((await get(await files.address('replaced'))).bytes.toString()).toBe('in chunks');
  });

  test('two requests do not send one upload; a whole one takes its place', async ({ files }) => {
    const url = await files.address('contested', 'PUT');
    const slow = httpRequest(url, { method: 'PUT', headers: { 'content-length': String(MIB) } });
    slow.on('error', () => undefined);
    slow.write(Buffer.alloc(1000));
    await waitFor(async () => (await received(url)) === 1000, 'its beginning has arrived', 20_000);
    const part = await put(url, Buffer.alloc(1000), { 'content-range': `bytes 1000-1999/${MIB}` });
    expect([part.status, codeOf(part)]).toEqual([409, 'upload_in_progress']);
    expect((await put(url, Buffer.from('whole'))).status).toBe(200);
    slow.end(Buffer.alloc(MIB - 1000));
    const [late] = (await once(slow, 'response')) as [{ statusCode: number; resume(): void }];
    late.resume();
    expect(late.statusCode).toBe(409);
    expect((await get(await files.address('contested'))).bytes.toString()).toBe('whole');
  });
});

test("curl's own resumption, both ways", async ({ platform, files }) => {
  const [source, target] = [join(platform.directory, 'source'), join(platform.directory, 'target')];
  const bytes = randomBytes(5 * MIB);
  writeFileSync(source, bytes);
  const up = await files.address('curl/file', 'PUT');
  await cutUpload(up, bytes.subarray(0, 2 * MIB), bytes.length);
  const offset = await waitFor(async () => {
    const at = await received(up);
    return at > 0 && at === (await received(up)) && at;
  }, 'the cut upload has arrived');
  await execa('curl', ['-fsS', '-C', String(offset), '-T', source, up]);
  expect(await files.inside({ do: 'read', path: 'curl/file' })).toMatchObject({ sha256: sha256(bytes) });
  const down = await files.address('curl/file');
  writeFileSync(target, bytes.subarray(0, MIB));
  await execa('curl', ['-fsS', '-C', '-', '-o', target, down]);
  expect(sha256(readFileSync(target))).toBe(sha256(bytes));
  await execa('curl', ['-fsS', '-T', source, up]);
});

describe('who may', () => {
  test('addresses that were changed, that expired, or that are for the other direction', async ({ files }) => {
    const url = await files.address('who');
    await put(await files.address('who', 'PUT'), Buffer.from('mine'));
    const changed = [
      url.replace('path=who', 'path=other'),
      url.replace(/expires=\d+/, 'expires=1'),
      url.replace(/expires=\d+/, 'expires=99999999999'),
      url.replace(/signature=./, 'signature=z'),
      url.replace(/files\/[0-9a-f]{8}/, 'files/00000000'),
      url.replace('path=who', 'path=..%2Fwho'),
      `${url}&path=who`,
    ];
    for (const one of changed) {
      const refused = await get(one);
      expect([refused.status, codeOf(refused)], one).toEqual([403, 'download_refused']);
    }
    const written = await put(url, Buffer.from('evil'));
    expect([written.status, codeOf(written)]).toEqual([403, 'upload_refused']);
    expect((await get(await files.address('who', 'PUT'))).status).toBe(403);
    expect((await ask(url, { method: 'POST' })).status).toBe(404);
    expect((await get(url)).bytes.toString()).toBe('mine');
  });

  test('another workspace, no token, a revoked token, and paths that no file has', async ({ platform, files }) => {
    await files.inside({ do: 'list' });
    const other = await platform.call('/api/v1/workspace', { body: { name: 'other' } });
    expect(other.status, other.text).toBe(201);
    const { id, token } = jsonOf<{ id: string; token: string }>(other);
    const path = urlOf(platform, 'data', 'who');
    expect((await platform.call(path, { token: '' })).status).toBe(401);
    const { token: made } = await platform.gateway<{ token: { key: string; tokenId: string } }>('/tokens', {});
    expect((await platform.call(path, { token: made.key })).status).toBe(200);
    await platform.gateway(`/tokens/${made.tokenId}/toggle`, {});
    expect((await platform.call(path, { token: made.key })).status).toBe(401);
    expect((await platform.call(path, { token })).status).toBe(401);
    const foreign = await platform.call(path.replace(platform.workspaceId, id), { token });
    expect([foreign.status, jsonOf(foreign)['code']]).toEqual([404, 'volume_not_found']);
    const bad = ['', '/etc/passwd', 'a//b', 'a/', '.', '..', 'a/../b', './a', 'x'.repeat(256), 'a/'.repeat(2048) + 'a'];
    for (const one of [...bad, '.longshore-upload-x/y']) {
      const refused = await platform.call(urlOf(platform, 'data', one));
      expect([refused.status, jsonOf(refused)['code']], one).toEqual([400, 'invalid_query']);
    }
    expect((await platform.call(urlOf(platform, 'data', 'a\0b'))).status).toBe(400);
    expect((await platform.call(urlOf(platform, 'data', 'a', 'DELETE'))).status).toBe(400);
  });
});

test(
  'an agent killed in an upload leaves no half file, and the upload goes on',
  { timeout: 120_000 },
  async ({ platform, files }) => {
    const bytes = randomBytes(8 * MIB);
    const url = await files.address('killed.bin', 'PUT');
    const request = httpRequest(url, { method: 'PUT', headers: { 'content-length': String(bytes.length) } });
    request.on('error', () => undefined);
    request.write(bytes.subarray(0, 3 * MIB));
    await waitFor(async () => (await received(url)) === 3 * MIB, 'the first part has arrived', 20_000);
    await platform.agent.kill();
    request.destroy();
    await platform.agent.start();
    const offset = await waitFor(
      async () => {
        const { status, headers } = await ask(url, { method: 'HEAD' });
        return status === 200 && Number(headers.get('upload-offset'));
      },
      'the upload is known again',
      60_000,
    );
    expect((await get(await files.address('killed.bin'))).status).toBe(404);
    const rest = await put(url, bytes.subarray(offset), {
      'content-range': `bytes ${offset}-${bytes.length - 1}/${bytes.length}`,
    });
    expect(rest.status).toBe(200);
    expect(await files.inside({ do: 'read', path: 'killed.bin' })).toMatchObject({ sha256: sha256(bytes) });
  },
);

test('the helper of a volume has no network and no other mounts, and ends when nobody uses it', async ({
  platform,
  files,
}) => {
  const url = await files.address('helper', 'PUT');
  expect((await put(url, Buffer.from('x'))).status).toBe(200);
  const helpers = async () => (await platform.containers()).filter(({ Names: [name] }) => name?.includes('c-helper-'));
  const [helper] = await helpers();
  if (helper === undefined) throw new Error('no helper runs');
  const { HostConfig, Mounts } = await platform.engine.client.getContainer(helper.Id).inspect();
  expect(HostConfig).toMatchObject({
    NetworkMode: 'none',
    CapDrop: ['ALL'],
    ReadonlyRootfs: true,
    Privileged: false,
    SecurityOpt: expect.arrayContaining(['no-new-privileges']),
  });
  expect(
    (HostConfig.CapAdd as readonly string[] | undefined)?.map((name) => name.replace('CAP_', '')).toSorted(),
  ).toEqual(['CHOWN', 'DAC_OVERRIDE', 'FOWNER']);
  expect(Mounts.filter(({ RW }) => RW).map(({ Destination }) => Destination)).toEqual(['/volume']);
  await waitFor(async () => (await helpers()).length === 0, 'the helper has ended', 30_000);
});

// Request bodies of a real scheduler. No body is read before its sender is
// known. Clients that are still sending can read why theirs was refused.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig } from '#shared/config.ts';
import { SchedulerSettings } from '#scheduler/config.ts';
import { startScheduler } from '#scheduler/main.ts';
import type { Scheduler } from '#scheduler/main.ts';
import { aRedis, tempDirectory } from '../helpers/services.ts';

const run = promisify(execFile);
const directory = tempDirectory('bodies');
const stopping: (() => Promise<unknown>)[] = [];
const LIMIT = 1024 * 1024;
const SENT = 8 * LIMIT;
let scheduler: Scheduler;
let token = '';
let publicStub = '';
const file = join(directory.path, 'body');

beforeAll(async () => {
  writeFileSync(file, Buffer.alloc(SENT, 0x20));
  const redis = await aRedis();
  stopping.push(() => redis.stop());
  const settings = loadConfig(
    SchedulerSettings,
    {
      LONGSHORE_DATA_DIR: join(directory.path, 'data'),
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      LONGSHORE_RATE_LIMITS: 'off',
      LONGSHORE_MAX_INVOKE_BODY_BYTES: String(LIMIT),
      REDIS_URL: redis.url,
    },
    { known: [] },
  );
  scheduler = await startScheduler(settings, pino({ level: 'silent' }));
  stopping.unshift(() => scheduler.stop());
  token = (await scheduler.ensureFirstWorkspace()).token ?? '';
  publicStub = await deploy('open', { authorized: false });
  await deploy('closed', { authorized: true });
});
afterAll(async () => {
  for (const stop of stopping) await stop();
  directory.remove();
});

async function deploy(name: string, said: Readonly<Record<string, unknown>>): Promise<string> {
  const post = async (path: string, body: unknown) => {
    const answer = await request(`http://${scheduler.httpAddress}/api/v1/gateway${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    });
    return (await answer.body.json()) as Record<string, unknown>;
  };
  const stub = {
    stub_type: 'endpoint/deployment',
    name: `endpoint/${name}:f`,
    handler: `${name}:f`,
    cpu: 100,
    memory: '128',
  };
  const { stubId } = await post('/stubs', { ...stub, ...said });
  expect(await post('/stubs/deploy', { stub_id: stubId, name })).toMatchObject({ ok: true });
  return String(stubId);
}

/** Sends a request's head and no byte of its body. Returns everything that the server answers. */
function headOnly(method: string, path: string, headers: Readonly<Record<string, string>>): Promise<string> {
  const [host = '', port = ''] = scheduler.httpAddress.split(':');
  const lines = Object.entries({ host: 'x', 'content-length': String(SENT), ...headers }).map(([k, v]) => `${k}: ${v}`);
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(Number(port), host);
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.on('error', reject).on('end', () => resolve(text));
    socket.write(`${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  });
}

describe('without reading a byte of the body', () => {
  const none = '00000000-0000-4000-8000-000000000000';
  test.each([
    ['POST', '/endpoint/closed', 401],
    ['POST', '/api/v1/gateway/stubs', 401],
    ['POST', '/api/v1/workspace', 401],
    ['POST', `/api/v1/secret/${none}`, 401],
    ['PUT', `/api/v1/gateway/objects/upload/${none}?signature=x&expires=9999999999`, 403],
    ['POST', '/nowhere', 404],
    ['POST', '/api/v1/gateway/nowhere', 404],
    ['POST', '/api/v1/health', 404],
    ['PUT', '/endpoint/closed', 405],
  ])('%s %s with a bad token is %i and the connection closed', async (method, path, status) => {
    const answer = await headOnly(method, path, { authorization: 'Bearer bad', 'content-type': 'application/json' });
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toMatch(/\r\nconnection: close\r\n/i);
  });

  test('a body that is too large is 413 where its length is said', async () => {
    const answer = await headOnly('POST', '/endpoint/closed', { authorization: `Bearer ${token}` });
    expect(answer).toMatch(/^HTTP\/1\.1 413 .*request body is larger than 1048576 bytes/s);
  });

  test('the client that waits for 100 Continue hears it for a good token alone', async () => {
    const headers = { expect: '100-continue', 'content-length': '2' };
    const path = '/endpoint/closed';
    expect(await headOnly('POST', path, { ...headers, authorization: 'Bearer bad' })).toMatch(/^HTTP\/1\.1 401 /);
    const { stdout } = await run('curl', [
      '-sv',
      '-o',
      '/dev/null',
      '-H',
      'Expect: 100-continue',
      '-H',
      `Authorization: Bearer ${token}`,
      '-d',
      '{"name":"x"}',
      `http://${scheduler.httpAddress}/api/v1/workspace`,
      '--stderr',
      '-',
    ]);
    expect(stdout).toMatch(/< HTTP\/1\.1 100 Continue(.|\r|\n)*< HTTP\/1\.1 201 Created/);
  });
});

type Client = (path: string, token: string) => Promise<{ readonly status: number; readonly text: string }>;

const clients: Readonly<Record<string, Client>> = {
  undici: async (path, bearer) => {
    const answer = await request(`http://${scheduler.httpAddress}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${bearer}` },
      body: Buffer.alloc(SENT, 0x20),
    });
    return { status: answer.statusCode, text: await answer.body.text() };
  },
  fetch: async (path, bearer) => {
    const answer = await fetch(`http://${scheduler.httpAddress}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${bearer}` },
      body: Buffer.alloc(SENT, 0x20),
    });
    return { status: answer.status, text: await answer.text() };
  },
  'node http': (path, bearer) =>
    new Promise((resolve, reject) => {
      const sending = httpRequest(`http://${scheduler.httpAddress}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${bearer}`, 'content-length': SENT },
      });
      sending.on('error', reject).on('response', (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
        answer.on('error', reject).on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
      });
      sending.end(Buffer.alloc(SENT, 0x20));
    }),
  curl: async (path, bearer) => {
    const { stdout } = await run('curl', [
      '-sS',
      '-w',
      '\n%{http_code}',
      '-H',
      'Expect:',
      '-H',
      `Authorization: Bearer ${bearer}`,
      '--data-binary',
      `@${file}`,
      `http://${scheduler.httpAddress}${path}`,
    ]);
    const [text = '', status] = stdout.split('\n');
    return { status: Number(status), text };
  },
  // Sends everything before it reads.
  python: async (path, bearer) => {
    const program = [
      'import sys, http.client',
      `c = http.client.HTTPConnection(sys.argv[1], timeout=20)`,
      `c.request("POST", sys.argv[2], open(sys.argv[4], "rb").read(), {"Authorization": "Bearer " + sys.argv[3]})`,
      'r = c.getresponse()',
      'print(r.status, r.read().decode())',
    ].join('\n');
    const { stdout } = await run('python3', ['-c', program, scheduler.httpAddress, path, bearer, file]);
    return { status: Number(stdout.slice(0, 3)), text: stdout.slice(4).trim() };
  },
};

describe('a client that is still sending', () => {
  test.each(Object.keys(clients))('reads 413 of its body that is too large: %s', async (name) => {
    const answer = await clients[name]?.('/endpoint/closed', token);
    expect(answer).toEqual({
      status: 413,
      text: '{"error":"request body is larger than 1048576 bytes","code":"body_too_large"}',
    });
    const open = await clients[name]?.(`/endpoint/public/${publicStub}`, token);
    expect(open?.status).toBe(413);
  });

  test.each(['undici', 'fetch', 'node http', 'curl'])('reads 401 of its bad token: %s', async (name) => {
    expect(await clients[name]?.('/endpoint/closed', 'bad')).toEqual({
      status: 401,
      text: '{"message":"Unauthorized"}',
    });
  });
});

// Pods and sandboxes through a whole installation: a program of its own in each container, called by path and by host.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, expect } from 'vitest';
import { test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

/** Answers with what it was asked, echoes bodies, and speaks a protocol of its own after an upgrade. */
const PROGRAM = `
import http.client, json, os, socket, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_args):
        pass
    def do_GET(self):
        if self.headers.get('upgrade'):
            self.wfile.write(b'HTTP/1.1 101 Switching Protocols\\r\\nConnection: upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n')
            while True:
                data = self.rfile.read1(65536)
                if not data:
                    break
                self.wfile.write(data)
            self.close_connection = True
            return
        if self.path == '/exit':
            os._exit(3)
        if self.path == '/half':
            self.protocol_version = 'HTTP/1.0'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'half of it')
            self.wfile.flush()
            os._exit(3)
        if self.path == '/unframed':
            self.protocol_version = 'HTTP/1.0'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'all of it')
            self.close_connection = True
            return
        if self.path.startswith('/through/'):
            through = http.client.HTTPConnection('gateway')
            through.sock = socket.socket(socket.AF_UNIX)
            through.sock.connect(os.environ['LONGSHORE_GATEWAY_SOCKET'])
            through.request('GET', self.path[len('/through'):])
            answer = through.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            self.send_header('content-length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        body = json.dumps({'path': self.path, 'headers': dict(self.headers), 'kind': os.environ.get('KIND')}).encode()
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        left = int(self.headers['content-length'])
        self.send_response(200)
        self.send_header('content-length', str(left))
        self.end_headers()
        while left:
            data = self.rfile.read1(min(left, 65536))
            left -= len(data)
            self.wfile.write(data)

print('port', sys.argv[1])
ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
`;

const STUB = { handler: '', cpu: 250, memory: 128, keepWarmSeconds: 30, ports: [8000, 8001], env: ['KIND=own'] };
const ENTRYPOINT = ['python3', '-c', PROGRAM, '8000'];

const stubOf = async (platform: Platform, said: object): Promise<string> =>
  String((await platform.gateway('/stubs', { ...STUB, entrypoint: ENTRYPOINT, ...said }))['stubId']);
const made = async (platform: Platform, stubId: string): Promise<string> => {
  const answer = await platform.gateway<{ ok: boolean; containerId: string; errorMsg: string }>('/pods', { stubId });
  expect(answer).toMatchObject({ ok: true, errorMsg: '' });
  return answer.containerId;
};
const listed = async (platform: Platform): Promise<readonly { containerId: string; status: string }[]> =>
  (await platform.gateway<{ containers: { containerId: string; status: string }[] }>('/containers')).containers;

interface Told {
  readonly path: string;
  readonly kind: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Sends bytes through an upgraded connection, and gives what comes back. */
async function upgraded(platform: Platform, path: string, bytes: Buffer): Promise<Buffer> {
  const [host = '', port = ''] = platform.httpAddress.split(':');
  const socket = connect(Number(port), host);
  const got: Buffer[] = [];
  let size = 0;
  socket.on('data', (chunk: Buffer) => {
    got.push(chunk);
    size += chunk.length;
  });
  socket.write(
    `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${platform.token}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n`,
  );
  await waitFor(() => Buffer.concat(got).includes('\r\n\r\n'), 'the program agrees', 60_000);
  expect(Buffer.concat(got).toString('latin1')).toMatch(/^HTTP\/1\.1 101 /);
  const head = Buffer.concat(got).indexOf('\r\n\r\n') + 4;
  socket.write(bytes);
  await waitFor(() => size >= head + bytes.length, 'all bytes come back', 30_000);
  const closed = once(socket, 'close');
  socket.end();
  await closed;
  return Buffer.concat(got).subarray(head);
}

describe('a pod', () => {
  test('that is deployed starts for a call, and takes requests and bytes at its port', async ({ platform }) => {
    const stubId = await stubOf(platform, { stubType: 'pod/deployment', name: 'own' });
    const { invokeUrl, deploymentId } = await platform.gateway('/stubs/deploy', { stubId, name: 'own' });
    expect(invokeUrl).toBe(`${platform.url}/pod/own/v1/<PORT>`);
    const first = await platform.call('/pod/own/v1/8000/a%20b?c=1');
    expect(first.status).toBe(200);
    // A print of a program that runs on, without a flush.
    await platform.logSays(`object_type=deployment&object_id=${String(deploymentId)}`, 'port 8000');
    const told = JSON.parse(first.text) as Told;
    expect(told).toMatchObject({ path: '/a%20b?c=1', kind: 'own' });
    expect(JSON.stringify(told.headers)).not.toContain(platform.token);
    expect(
      Object.fromEntries(Object.entries(told.headers).map(([name, value]) => [name.toLowerCase(), value])),
    ).toMatchObject({
      'x-forwarded-prefix': '/pod/own/v1/8000',
    });
    const body = randomBytes(5 * 1024 * 1024);
    const echoed = await fetch(`${platform.url}/pod/own/8000/`, {
      method: 'POST',
      headers: { authorization: `Bearer ${platform.token}` },
      body,
    });
    expect(Buffer.from(await echoed.arrayBuffer()).equals(body)).toBe(true);
    await platform.taskIs(String(echoed.headers.get('x-task-id')), 'COMPLETE');
    const bytes = randomBytes(1024 * 1024);
    expect((await upgraded(platform, '/pod/own/v1/8000/', bytes)).equals(bytes)).toBe(true);
    const silent = await platform.call('/pod/own/v1/8001/');
    expect([silent.status, silent.text]).toEqual([502, '{"error":"nothing listens on port 8001"}']);
    const unlisted = await platform.call('/pod/own/v1/8002/');
    expect([unlisted.status, unlisted.text]).toEqual([
      404,
      '{"error":"port 8002 is not a port of this stub: it has 8000, 8001"}',
    ]);
    for (const token of ['', 'nonsense'])
      expect((await platform.call('/pod/own/v1/8000/', { token })).status).toBe(401);
  });

  test('is called by a container of its workspace through its gateway socket, and a sandbox is not', async ({
    platform,
  }) => {
    const called = await platform.call('/pod/own/v1/8000/through/pod/own/v1/8000/inner?a=1');
    expect([called.status, (JSON.parse(called.text) as Told).path]).toEqual([200, '/inner?a=1']);
    const refused = await platform.call('/pod/own/v1/8000/through/sandbox/container/a/b/8000/');
    expect([refused.status, refused.text]).toEqual([403, expect.stringContaining('not_allowed')]);
  });

  test('whose program ends in the middle of a call is told so, and another container serves the next', async ({
    platform,
  }) => {
    const headers = { authorization: `Bearer ${platform.token}` };
    const broken = await fetch(`${platform.url}/pod/own/8000/exit`, { headers });
    expect([broken.status, await broken.text()]).toEqual([500, expect.stringContaining('process exited (code 3)')]);
    // The end of the program is the reason, and no caller who left.
    await platform.taskIs(String(broken.headers.get('x-task-id')), 'ERROR');
    await waitFor(async () => (await platform.call('/pod/own/v1/8000/')).status === 200, 'it serves again', 60_000);
  });

  test('whose program ends in the middle of an answer without a length never looks whole', async ({ platform }) => {
    const headers = { authorization: `Bearer ${platform.token}` };
    const whole = await fetch(`${platform.url}/pod/own/8000/unframed`, { headers });
    expect(await whole.text()).toBe('all of it');
    const half = await fetch(`${platform.url}/pod/own/8000/half`, { headers });
    expect(half.status).toBe(200);
    await expect(half.text()).rejects.toThrow();
    await platform.taskIs(String(half.headers.get('x-task-id')), 'ERROR');
    await waitFor(async () => (await platform.call('/pod/own/v1/8000/')).status === 200, 'it serves again', 60_000);
  });
});

describe('a container made by hand', () => {
  test('is called at its stub, is not added to, and ends after its time to live', async ({ platform }) => {
    const stubId = await stubOf(platform, { stubType: 'pod/run', name: 'run', keepWarmSeconds: 3, authorized: false });
    expect((await platform.call(`/pod/public/${stubId}/8000/`, { token: '' })).status).toBe(503);
    const containerId = await made(platform, stubId);
    const answer = await platform.call(`/pod/public/${stubId}/8000/a`, { token: '' });
    expect([answer.status, (JSON.parse(answer.text) as Told).path]).toEqual([200, '/a']);
    expect((await listed(platform)).filter((one) => one.containerId.includes(stubId))).toHaveLength(1);
    // An open connection is a use.
    const [host = '', port = ''] = platform.httpAddress.split(':');
    const held = connect(Number(port), host);
    held.on('error', () => undefined);
    held.write(`GET /pod/id/${stubId}/8000/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n`);
    await once(held, 'data');
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    expect((await listed(platform)).find((one) => one.containerId === containerId)?.status).toBe('RUNNING');
    held.destroy();
    await waitFor(
      async () => !(await listed(platform)).some((one) => one.containerId === containerId),
      'it ends, and nothing takes its place',
      45_000,
    );
    const { status, text } = await platform.call(`/pod/public/${stubId}/8000/`, { token: '' });
    expect([status, text]).toEqual([503, '{"error":"no container of this pod runs: CreatePod makes one"}']);
  });

  test('a sandbox is reached at a listed port by its id', async ({ platform }) => {
    const stubId = await stubOf(platform, { stubType: 'sandbox', name: 'box', ports: [8000] });
    const containerId = await made(platform, stubId);
    const path = `/sandbox/container/${stubId}/${containerId}/8000/b`;
    // A sandbox takes operations before its entrypoint listens.
    const answer = await waitFor(
      async () => {
        const one = await platform.call(path);
        return one.status === 200 && one;
      },
      'its program listens',
      30_000,
    );
    expect(answer).toMatchObject({ status: 200, text: expect.stringContaining('"path": "/b"') as unknown });
    const bytes = randomBytes(300_000);
    expect((await upgraded(platform, path, bytes)).equals(bytes)).toBe(true);
    expect((await platform.call(path.replace('8000', '8001'))).status).toBe(404);
    expect((await platform.call(path, { token: '' })).status).toBe(401);
    expect((await platform.gateway(`/containers/${containerId}/stop`, {}))['ok']).toBe(true);
    await waitFor(
      async () => !(await listed(platform)).some((one) => one.containerId === containerId),
      'it is gone',
      45_000,
    );
    expect((await platform.call(path)).status).toBe(502);
  });

  test('that cannot start says why to who waits for it', async ({ platform }) => {
    const stubId = await stubOf(platform, { stubType: 'sandbox', name: 'bad', entrypoint: ['/no/such/program'] });
    const containerId = await made(platform, stubId);
    const answer = await platform.call(`/sandbox/container/${stubId}/${containerId}/8000/`);
    expect(answer.status).toBe(502);
    expect(answer.text).toContain('/no/such/program');
  });
});

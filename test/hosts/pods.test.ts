// Servers as people have them, in pods: uvicorn with FastAPI, deployed by the command line; Node; a static file server
// of an image without Python. Callers are plain ones, and Chromium on hosts of their own.
import { once } from 'node:events';
import { describe, expect } from 'vitest';
import type { Page } from 'playwright-core';
import { WebSocket } from 'ws';
import { PAUSE_IMAGE } from '#agent/containers/pause-image.ts';
import { test as base } from '../helpers/browser.ts';
import { deployFile } from '../helpers/frameworks.ts';
import { nodeImage } from '../helpers/node-image.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { upload } from '../helpers/transfers.ts';

const MIB = 1024 * 1024;

interface Pod {
  readonly stubId: string;
  readonly deploymentId: string;
  /** URL of a port in the path form, without a slash at its end. */
  readonly at: (port: number) => string;
  /** The same on a host of its own, below a domain. */
  readonly hostOf: (port: number, domain?: string) => string;
}

async function podOf(platform: Platform, stubId: string, deploymentId: string, name: string): Promise<Pod> {
  const asked = await platform.gateway(`/stubs/${stubId}/url?deploymentId=${deploymentId}&urlType=host`);
  return {
    stubId,
    deploymentId,
    at: (port) => `${platform.url}/pod/${name}/v1/${port}`,
    hostOf: (port, domain = 'localhost') =>
      String(asked['url'])
        .replace('<PORT>', String(port))
        .replace(/\.localhost\b/, `.${domain}`)
        .replace(/\/$/, ''),
  };
}

/** Deploys a pod by the gateway. */
async function deployPod(platform: Platform, stub: Readonly<Record<string, unknown>> & { name: string }): Promise<Pod> {
  const made = await platform.gateway('/stubs', {
    stubType: 'pod/deployment',
    cpu: 250,
    memory: 128,
    keepWarmSeconds: 120,
    ...stub,
  });
  const stubId = String(made['stubId']);
  const deployed = await platform.gateway('/stubs/deploy', { stubId, name: stub.name });
  return podOf(platform, stubId, String(deployed['deploymentId']), stub.name);
}

/** Two ports; the second listens late. */
const NODE_PROGRAM = `
const { createServer } = require('node:http')
let isLate = true
createServer(async (request, response) => {
  let size = 0
  for await (const piece of request) size += piece.length
  response.setHeader('trailer', 'x-size')
  response.write(JSON.stringify({ port: 8000, isLate, path: request.url, version: process.version, size }))
  response.addTrailers({ 'x-size': String(size) })
  response.end()
}).listen(8000)
setTimeout(() => createServer((request, response) => {
  response.end(JSON.stringify({ port: 9000 }))
}).listen(9000, () => { isLate = false }), 1500)
`;

const test = base
  .extend('uvicorn', { scope: 'file' }, async ({ platform }): Promise<Pod> => {
    const file = 'test/fixtures/apps/uvicorn_pod.py';
    const { stubId, deploymentId } = await deployFile(platform, file, ['uvicorn_site.py']);
    return podOf(platform, stubId, deploymentId, 'uvicorn');
  })
  .extend('node', { scope: 'file' }, async ({ platform }): Promise<Pod> =>
    deployPod(platform, {
      name: 'node',
      imageId: await nodeImage(platform.engine),
      entrypoint: ['node', '-e', NODE_PROGRAM],
      ports: [8000, 9000],
      readinessProbe: { type: 'tcp', port: 9000, intervalSeconds: 0.2 },
      authorized: false,
      memory: 256,
    }),
  );

async function open(platform: Platform, url: string): Promise<WebSocket> {
  const socket = new WebSocket(url.replace('http', 'ws'), { headers: { authorization: `Bearer ${platform.token}` } });
  await once(socket, 'open');
  return socket;
}

async function echoOf(socket: WebSocket, message: string | Buffer): Promise<string | Buffer> {
  const answered = once(socket, 'message') as Promise<[Buffer, boolean]>;
  socket.send(message);
  const [data, isBinary] = await answered;
  return isBinary ? data : data.toString();
}

describe('uvicorn', () => {
  test('takes calls once its probe by HTTP succeeds', async ({ platform, uvicorn }) => {
    const healths = jsonOf<readonly number[]>(await platform.call(`${uvicorn.at(8000)}/healths`));
    expect(healths.length).toBeGreaterThan(1);
    expect(healths.indexOf(200)).toBe(healths.length - 1);
  });

  test('serves JSON, refusals, bodies and streamed answers', async ({ platform, uvicorn }) => {
    const url = uvicorn.at(8000);
    expect(jsonOf(await platform.call(`${url}/hello?name=Ada`))).toEqual({ greeting: 'Hello, Ada!' });
    expect(await platform.call(`${url}/hello`)).toMatchObject({ status: 422 });
    expect(await platform.call(`${url}/nowhere`)).toMatchObject({ status: 404, text: '{"detail":"Not Found"}' });
    const sent = await upload({ url: `${url}/sum`, token: platform.token }, 32 * MIB);
    expect(sent.answer).toEqual({ size: 32 * MIB, sha256: sent.sha256 });
    const numbers = await platform.call(`${url}/numbers?count=50000`);
    expect(numbers.text.length).toBe(288_890);
    const headers = await platform.call(`${url}/headers`);
    expect(headers.text).not.toContain(platform.token);
    expect(headers.text).toContain('["x-forwarded-prefix","/pod/uvicorn/v1/8000"]');
  });

  test('speaks over a WebSocket, and both sides tell why they close', async ({ platform, uvicorn }) => {
    const socket = await open(platform, `${uvicorn.at(8000)}/echo`);
    expect(await echoOf(socket, 'κόσμε 😀')).toBe('κόσμε 😀');
    const long = Buffer.alloc(2 * MIB, 'long ');
    expect(long.equals((await echoOf(socket, long)) as Buffer)).toBe(true);
    const closed = once(socket, 'close') as Promise<[number, Buffer]>;
    socket.send('bye');
    expect(await closed.then(([code, reason]) => [code, reason.toString()])).toEqual([4000, 'bye']);
    await expect(open(platform, `${uvicorn.at(8000)}/nowhere`)).rejects.toThrow('403');
  });
});

test('Node takes calls at both ports once its probe by TCP succeeds', async ({ platform, node }) => {
  const none = { token: '' };
  const { stubId } = node;
  const url = `${platform.url}/pod/public/${stubId}`;
  const first = jsonOf(await platform.call(`${url}/8000/a%20b?c=d`, none));
  expect(first).toEqual({ port: 8000, isLate: false, path: '/a%20b?c=d', version: process.version, size: 0 });
  expect(jsonOf(await platform.call(`${url}/9000/`, none))).toEqual({ port: 9000 });
  expect(jsonOf(await platform.call(node.at(8000), { method: 'PUT', body: Buffer.alloc(MIB) }))).toMatchObject({
    size: MIB,
  });
  expect(await platform.call(`${url}/9001/`, none)).toMatchObject({ status: 404 });
});

test('a static file server of an image without Python takes calls once its command succeeds', async ({ platform }) => {
  const script = [
    'mkdir /tmp/www && cd /tmp/www && echo static > page.txt && busybox httpd -p 8080 -h /tmp/www',
    'sleep 1.5 && touch late.txt && exec sleep 600',
  ].join('\n');
  const { at } = await deployPod(platform, {
    name: 'static',
    imageId: PAUSE_IMAGE,
    entrypoint: ['sh', '-ec', script],
    ports: [8080],
    readinessProbe: { type: 'command', command: ['busybox', 'test', '-e', '/tmp/www/late.txt'], intervalSeconds: 0.2 },
  });
  expect(await platform.call(`${at(8080)}/late.txt`)).toMatchObject({ status: 200, text: '' });
  expect(await platform.call(`${at(8080)}/page.txt`)).toMatchObject({ status: 200, text: 'static\n' });
  expect(await platform.call(`${platform.url}/pod/static/page.txt`)).toMatchObject({ status: 200, text: 'static\n' });
  expect(await platform.call(`${at(8080)}/none.txt`)).toMatchObject({ status: 404 });
  const headers = { authorization: `Bearer ${platform.token}`, range: 'bytes=2-4' };
  const part = await fetch(`${at(8080)}/page.txt`, { headers });
  expect([part.status, await part.text()]).toEqual([206, 'ati']);
});

describe('Chromium', () => {
  const says = async (page: Page, text: string): Promise<void> =>
    page.locator('li', { hasText: text }).first().waitFor({ timeout: 20_000 });

  test('logs in to a private pod, and its page fetches and opens a WebSocket', async ({ platform, uvicorn, page }) => {
    const url = uvicorn.hostOf(8000);
    expect((await page.goto(`${url}/`))?.status()).toBe(401);
    expect((await page.goto(`${url}/?auth_token=${platform.token}`))?.status()).toBe(200);
    expect(await page.evaluate<string>('location.href')).toBe(`${url}/`);
    expect(await page.title()).toBe('Pod');
    await says(page, 'Hello, Chromium!');
    await says(page, 'again: over a socket');
    expect(await page.evaluate<string>('document.cookie')).toBe('');
    const seen = await page.evaluate<string>(`fetch('/headers').then((answer) => answer.text())`);
    expect(seen).toContain('["host",');
    expect(seen).not.toContain(platform.token);
    expect(seen).not.toContain('x-forwarded-prefix');
  });

  test('keeps pages of other pods out of a private one', async ({ platform, uvicorn, node, page }) => {
    const [own, foreign] = [uvicorn.hostOf(8000, 'apps.localhost'), node.hostOf(8000, 'apps.localhost')];
    expect((await page.goto(`${own}/?auth_token=${platform.token}`))?.status()).toBe(200);
    const socketTo = `new Promise((resolve) => {
      const socket = new WebSocket(${JSON.stringify(`${own.replace('http', 'ws')}/echo`)})
      socket.onopen = () => resolve('open')
      socket.onerror = () => resolve('refused')
    })`;
    expect(await page.evaluate(socketTo)).toBe('open');
    expect((await page.goto(`${foreign}/`))?.status()).toBe(200);
    expect(await page.textContent('body')).toContain('"port":8000');
    expect(await page.evaluate(socketTo)).toBe('refused');
    const fetched = `fetch(${JSON.stringify(`${own}/headers`)}, { credentials: 'include' }).then(() => 1, () => 0)`;
    expect(await page.evaluate(fetched)).toBe(0);
  });

  test('sees the page of a public sandbox on the host of its container, after its port was exposed', async ({
    platform,
    page,
  }) => {
    const said = { stubType: 'sandbox', name: 'box', authorized: false, cpu: 250, memory: 128, keepWarmSeconds: 120 };
    const { stubId } = await platform.gateway('/stubs', said);
    const { containerId } = await platform.gateway('/pods', { stubId });
    const server = 'import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8080)';
    await platform.gateway(`/pods/${containerId}/files/upload`, {
      containerPath: '/tmp/index.html',
      mode: 0o644,
      data: Buffer.from('<title>Box</title><p id="text">from a sandbox</p>').toString('base64'),
    });
    await platform.gateway(`/pods/${containerId}/exec`, { command: `python3 -c '${server}'`, cwd: '/tmp' });
    const { port } = new URL(platform.url);
    const url = `http://${containerId}-8080.localhost:${port}/`;
    expect((await page.goto(url))?.status()).toBe(404);
    await platform.gateway(`/pods/${containerId}/ports/expose`, { stubId, port: 8080 });
    expect((await page.goto(url))?.status()).toBe(200);
    expect([await page.title(), await page.textContent('#text')]).toEqual(['Box', 'from a sandbox']);
    await platform.gateway(`/containers/${containerId}/stop`, {});
  });

  test('is shut out at once when its token is revoked', async ({ platform, uvicorn, page }) => {
    const made = await platform.gateway<{ token: { tokenId: string; key: string } }>('/tokens', {
      tokenType: 'workspace',
    });
    const url = uvicorn.hostOf(8000);
    expect((await page.goto(`${url}/?auth_token=${made.token.key}`))?.status()).toBe(200);
    await says(page, 'again: over a socket');
    await platform.call(`/api/v1/gateway/tokens/${made.token.tokenId}`, { method: 'DELETE' });
    expect((await page.reload())?.status()).toBe(401);
  });
});

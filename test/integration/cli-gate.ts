// A small real HTTP server that answers commands as the gateway does. It shows behaviour that a healthy scheduler does
// not: refusals, odd answers, silence. The good path, against the real one, is in test/e2e/up.test.ts.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server } from 'node:http';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { tempDirectory } from '../helpers/programs.ts';

export const MAIN = resolve(import.meta.dirname, '..', '..', 'cli', 'main.ts');
export const TOKEN = 'eyJ.test';
export const SANDBOX = 'sandbox-0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11-abcdef01';

interface Seen {
  readonly route: string;
  readonly authorization: string | undefined;
  readonly body: Buffer;
}
export type Reply =
  | {
      readonly status?: number;
      readonly body: unknown;
      readonly isNoTask?: true;
      readonly isReplay?: true;
      readonly type?: string;
    }
  | 'silence'
  | undefined;

/** The server of the present test. */
export const gate = {
  url: '',
  /** Requests so far. */
  seen: [] as Seen[],
  /** Answer to a request; undefined: 404. Tests set it. */
  reply: (_route: string, _request: IncomingMessage): Reply => undefined,
  /** Directory of the test. */
  directory: '',
};
let server: Server;
let directory: ReturnType<typeof tempDirectory>;

/** Starts a server for each test of the file. */
export function useGate(): void {
  beforeEach(async () => {
    directory = tempDirectory('cli');
    server = createServer((request, response) => {
      void buffer(request).then((body) => {
        const route = `${request.method ?? ''} ${(request.url ?? '').split('?')[0] ?? ''}`;
        gate.seen.push({ route, authorization: request.headers.authorization, body });
        const answer = gate.reply(route, request);
        if (answer === 'silence') return;
        if (answer === undefined) {
          response.writeHead(404, { 'content-type': 'application/json' });
          response.end('{"code":5,"message":"Not Found","details":[]}');
          return;
        }
        response.writeHead(answer.status ?? 200, {
          'content-type': answer.type ?? 'application/json',
          ...(answer.isNoTask === true ? {} : { 'x-task-id': 't-1' }),
          ...(answer.isReplay === true ? { 'idempotency-replayed': 'true' } : {}),
        });
        response.end(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body));
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    Object.assign(gate, {
      url: `http://127.0.0.1:${port}`,
      seen: [],
      reply: () => undefined,
      directory: directory.path,
    });
  });
  afterEach(() => {
    server.closeAllConnections();
    server.close();
    directory.remove();
  });
}

export const environment = () => ({
  LONGSHORE_URL: gate.url,
  LONGSHORE_TOKEN: TOKEN,
  LONGSHORE_CONTEXT_FILE: join(gate.directory, 'contexts.json'),
});

export function start(args: readonly string[], stdin = '', cwd = process.cwd()) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd,
    env: { ...process.env, ...environment() },
    stdio: 'pipe',
  });
  child.stdin.end(stdin);
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
  return { child, ended, stdout: () => stdout };
}
/** In this process, except where the command reads stdin or has a directory of its own. */
export const run = (args: readonly string[], stdin = '', cwd?: string) =>
  stdin === '' && cwd === undefined ? runCommand(args, environment()) : start(args, stdin, cwd).ended;

/** A gateway that answers every route well, except for the answers in `special`. */
export function gateway(special: Readonly<Record<string, Reply>> = {}) {
  return (route: string): Reply => {
    if (route in special) return special[route];
    if (route.startsWith('GET /api/v1/gateway/objects/')) return { body: { ok: true, exists: false } };
    if (route === 'POST /api/v1/gateway/objects')
      return { body: { ok: true, objectId: 'o-1', presignedUrl: `${gate.url}/put/o-1?signature=x`, errorMsg: '' } };
    if (route === 'PUT /put/o-1') return { body: '' };
    if (route === 'POST /api/v1/gateway/stubs') return { body: { ok: true, stubId: 's-1', errMsg: '', warnMsg: '' } };
    if (route === 'POST /api/v1/gateway/stubs/deploy')
      return { body: { ok: true, deploymentId: 'd-1', version: 3, invokeUrl: `${gate.url}/endpoint/sum/v3` } };
    return undefined;
  };
}

export function anApp(
  text = 'from longshore import endpoint\n\n@endpoint(name="sum", cpu=2, memory="1Gi", gpu_count=8)\ndef add(a, b):\n    return a + b\n',
) {
  const file = join(gate.directory, 'app.py');
  writeFileSync(file, text);
  return file;
}

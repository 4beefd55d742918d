// Streamed calls over real HTTP, with a queue and runner processes that a test plays.
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { duplexPair } from 'node:stream';
import { pino } from 'pino';
import { vi } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import type { FrameKind } from '#shared/protocol/frames.ts';
import type { Target } from '../../scheduler/domain/stub-config.ts';
import { hostRewriter } from '../../scheduler/api/http/invoke/host-form.ts';
import { registerInvoke } from '../../scheduler/api/http/invoke/invoke.ts';
import type { HostParts } from '../../scheduler/api/http/invoke/own-host.ts';
import { originReader } from '../../scheduler/api/http/origin.ts';
import type { InvokeParts } from '../../scheduler/api/http/invoke/invoke.ts';
import type { Certificate, CertificateWatch } from '../../scheduler/api/http/certificate.ts';
import { createHttpServer } from '../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../scheduler/api/http/server.ts';
import { StreamMetrics } from '../../scheduler/api/http/streams/metrics.ts';
import { OpenCalls } from '../../scheduler/api/http/streams/open-calls.ts';
import { StreamRoom } from '../../scheduler/api/http/streams/room.ts';
import { WebSockets } from '../../scheduler/api/http/streams/websockets.ts';
import type { Finished } from '../../scheduler/tasks/dispatch/replies.ts';
import type { TakeBytes } from '../../scheduler/tasks/streams/streams.ts';

export const PATH = '/asgi/public/00000000-0000-4000-8000-000000000000';
export const TOKEN = 'eyJtoken';
const TARGET = {
  workspaceId: 'w' as WorkspaceId,
  stubId: '00000000-0000-4000-8000-000000000000',
  subdomain: 'site-0123456789abcdef',
  kind: 'asgi',
  active: true,
  config: { timeoutSeconds: 0, authorized: false },
} as unknown as Target;

/** Hosts of applications as an installation without settings has them. */
export function playedHosts(over: { invokeDomain?: string; externalUrl?: string } = {}): HostParts {
  const { invokeDomain = null, externalUrl = null } = over;
  const originOf = originReader({ externalUrl, listenUrl: () => null, scheme: 'http', trustsLoopback: false });
  return { invokeDomain, isExternal: externalUrl !== null, baseUrlOf: (request) => originOf(request).baseUrl };
}

const servers: HttpServer[] = [];
const sockets: Socket[] = [];
/** For `afterEach` of each test file: a hook of this module would run for one file alone. */
export async function cleanUp(): Promise<void> {
  vi.useRealTimers();
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await server.stop(0);
}

type Keys = Pick<Certificate, 'cert' | 'key'>;

const watchOf = (current: Keys): CertificateWatch =>
  ({
    current,
    problem: null,
    onReplaced: () => undefined,
    start: () => undefined,
    stop: () => undefined,
  }) as unknown as CertificateWatch;

/** A task, and the runner process that may serve it. */
export interface Played {
  readonly taskId: TaskId;
  /** Kinds of frames that the runner process has got. */
  readonly got: string[];
  /** The head of the request, as the runner process has got it. */
  head: string;
  hasLeft: boolean;
  isOver: boolean;
  begin(): void;
  send(kind: FrameKind, header?: object, body?: object | string): void;
  finish(finished: Finished): void;
  readonly runner: Duplex;
}

/**
 * Plays an application.
 * @param target - fields of the application that is called
 * @param isServed - whether a container of it runs
 */
export async function serve(certificate?: Keys, hosts = playedHosts(), target: Partial<Target> = {}, isServed = true) {
  const tasks: Played[] = [];
  const registry = new Registry();
  const parts = {
    log: pino({ level: 'silent' }),
    maxBodyBytes: 1000,
    cancel: () => Promise.resolve(),
    webSockets: new WebSockets(),
    room: new StreamRoom(),
    openCalls: new OpenCalls(),
    streamMetrics: new StreamMetrics(registry),
    hosts,
    targets: { byStub: () => ({ ...TARGET, ...target }), byName: () => ({ ...TARGET, ...target }) },
    containers: { warmUp: () => Promise.resolve() },
    isServed: () => isServed,
    authenticator: { authenticate: (token: string) => (token === TOKEN ? { workspaceId: 'w' } : null) },
    streams: {
      expect: (taskId: TaskId, take: TakeBytes) => {
        const task = tasks.find((one) => one.taskId === taskId);
        if (task !== undefined) task.begin = () => take((task as unknown as { own: Duplex }).own);
        return () => undefined;
      },
    },
    submissions: {
      submit: (_target: Target, call: { readonly onStreamed?: (taskId: TaskId) => void }) => {
        const taskId = `task-${tasks.length + 1}` as TaskId;
        const { promise, resolve } = Promise.withResolvers<Finished>();
        const [own, runner] = duplexPair();
        const reader = new FrameReader();
        const task: Played & { readonly own: Duplex } = {
          taskId,
          got: [],
          head: '',
          hasLeft: false,
          isOver: false,
          begin: () => undefined,
          send: (kind, header = {}, body = '') => {
            const text = typeof body === 'string' ? body : JSON.stringify(body);
            runner.write(encodeFrame(kind, header, Buffer.from(text, 'latin1')));
          },
          finish: resolve,
          own,
          runner,
        };
        runner.on('error', () => undefined);
        runner.on('data', (data: Buffer) =>
          reader.push(data).forEach(({ kind, body }) => {
            task.got.push(kind ?? '');
            if (kind === 'request') task.head = body.toString('utf8');
          }),
        );
        own.on('close', () => (task.isOver = true));
        tasks.push(task);
        call.onStreamed?.(taskId);
        return Promise.resolve({
          kind: 'accepted' as const,
          taskId,
          finished: promise,
          callerLeft: () => void (task.hasLeft = true),
        });
      },
    },
  };
  const server = createHttpServer({
    log: parts.log,
    ...(certificate === undefined ? {} : { certificate: watchOf(certificate) }),
    onStop: () => {
      parts.webSockets.closeAll();
      parts.openCalls.refuseWebSockets();
    },
    onLast: () => parts.openCalls.refuseAll(),
    onCut: () => parts.openCalls.cutAll(),
    rewriteUrl: hostRewriter([]),
    register: (app) =>
      void app.register((scope, _options, ready) => {
        registerInvoke(scope, parts as unknown as InvokeParts);
        ready();
      }),
  });
  servers.push(server);
  await server.start('127.0.0.1:0');
  return {
    address: server.address,
    server,
    tasks,
    active: async () => /streams_active\{protocol="http"\} (\d+)/.exec(await registry.metrics())?.[1],
    task: async (number: number) => {
      await turned(() => tasks[number - 1] !== undefined);
      return tasks[number - 1] as Played;
    },
  };
}

/** Waits by turns of the event loop: timers may be faked. */
export async function turned(isSo: () => boolean | Promise<boolean>): Promise<void> {
  const untilMs = performance.now() + 20_000;
  while (!(await isSo())) {
    if (performance.now() > untilMs) throw new Error('it did not become so');
    await new Promise((resolve) => setImmediate(resolve));
  }
}

export function connected(address: string): { socket: Socket; text: () => string; isClosed: () => boolean } {
  const [host = '', port = ''] = address.split(':');
  const socket = connect(Number(port), host);
  sockets.push(socket);
  let text = '';
  let isClosed = false;
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.on('close', () => (isClosed = true));
  return { socket, text: () => text, isClosed: () => isClosed };
}

export const OK = { status: 200, headers: [] };
export const GET = `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`;

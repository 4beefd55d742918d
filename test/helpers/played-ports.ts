// Calls to ports of pods and sandboxes over real HTTP and real connections to programs of a test. The queue and the
// supervisors of the containers are played.
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { duplexPair } from 'node:stream';
import { pino } from 'pino';
import { Registry } from '#shared/metrics.ts';
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import { hostRewriter } from '../../scheduler/api/http/invoke/host-form.ts';
import { registerInvoke } from '../../scheduler/api/http/invoke/invoke.ts';
import type { InvokeParts } from '../../scheduler/api/http/invoke/invoke.ts';
import { createHttpServer } from '../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../scheduler/api/http/server.ts';
import { Places } from '#shared/places.ts';
import { StreamMetrics } from '../../scheduler/api/http/streams/metrics.ts';
import { OpenCalls } from '../../scheduler/api/http/streams/open-calls.ts';
import { StreamRoom } from '../../scheduler/api/http/streams/room.ts';
import { WebSockets } from '../../scheduler/api/http/streams/websockets.ts';
import type { Target } from '../../scheduler/domain/stub-config.ts';
import type { Finished } from '../../scheduler/tasks/dispatch/replies.ts';
import { playedHosts } from './played-streams.ts';
import type { TakeBytes } from '../../scheduler/tasks/streams/streams.ts';

export const STUB = '00000000-0000-4000-8000-000000000000';
export const SANDBOX = `sandbox-${STUB}-0123abcd`;
export const TOKEN = 'eyJtoken';
export const OTHER_TOKEN = 'eyJother';

const ending: (() => Promise<void> | void)[] = [];
export async function cleanUp(): Promise<void> {
  for (const end of ending.splice(0).toReversed()) await end();
}

/** A program that listens on a port of its own. @param serve - speaks on each connection */
export async function aProgram(serve: (socket: Socket) => void): Promise<{ readonly port: number }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ending.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as { readonly port: number }).port };
}

/** Plays the supervisor of a container on a stream of frames. */
function supervise(bytes: Duplex, onOver: () => void): void {
  const reader = new FrameReader();
  let socket: Socket | undefined;
  const answer = (body: object): void =>
    void bytes.write(encodeFrame('response', {}, Buffer.from(JSON.stringify(body), 'utf8')));
  bytes.on('error', () => undefined);
  bytes.on('end', () => bytes.destroy());
  bytes.on('close', () => {
    socket?.destroy();
    onOver();
  });
  bytes.on('data', (data: Buffer) => {
    for (const { kind, body } of reader.push(data)) {
      if (kind === 'request') {
        const { port } = JSON.parse(body.toString('utf8')) as { readonly port: number };
        const program = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
        socket = program;
        program.on('connect', () => answer({ ok: true }));
        program.on('error', (error: Error & { readonly code?: string }) => {
          if (error.code === 'ECONNREFUSED') answer({ ok: false, code: 'refused', error: 'Connection refused' });
          else bytes.destroy();
        });
        program.on('data', (chunk: Buffer) => {
          if (bytes.write(encodeFrame('data', {}, chunk))) return;
          program.pause();
          bytes.once('drain', () => program.resume());
        });
        program.on('end', () => bytes.write(encodeFrame('end', {})));
      } else if (kind === 'data' && socket?.write(body) === false) {
        bytes.pause();
        socket.once('drain', () => bytes.resume());
      } else if (kind === 'end') socket?.end();
    }
  });
}

export interface ServedOptions {
  readonly ports: readonly number[];
  readonly kind?: 'pod' | 'sandbox';
  readonly stubType?: string;
  readonly isPublic?: boolean;
  readonly hasContainers?: boolean;
  readonly mostConnections?: number;
  readonly hosts?: ReturnType<typeof playedHosts>;
  readonly exposedPorts?: readonly number[];
}

export async function serve(options: ServedOptions) {
  const { ports, kind = 'pod', isPublic = true, stubType = kind === 'pod' ? 'pod/deployment' : kind } = options;
  const target = {
    workspaceId: 'w' as WorkspaceId,
    stubId: STUB,
    subdomain: 'site-0123456789abcdef',
    kind,
    active: true,
    queue: 'q',
    config: { stubType, timeoutSeconds: 0, authorized: !isPublic, pod: { entrypoint: [], ports } },
  } as unknown as Target;
  const state = { open: 0, calls: 0, holds: 0, left: 0, bytes: [] as Duplex[], versions: [] as (number | null)[] };
  const takers = new Map<TaskId, TakeBytes>();
  const stream = (onOver: () => void = () => undefined): Duplex => {
    const [own, supervisor] = duplexPair();
    // As a connection does: else both ends share memory that the sender gives back.
    const write = own._write.bind(own);
    own._write = (chunk: Buffer, encoding, done) => write(Buffer.from(chunk), encoding, done);
    state.open += 1;
    state.bytes.push(own);
    supervise(supervisor, () => {
      state.open -= 1;
      onOver();
    });
    own.on('close', () => supervisor.destroy());
    supervisor.on('close', () => own.destroy());
    return own;
  };
  const openCalls = new OpenCalls();
  const parts = {
    log: pino({ level: 'silent' }),
    hosts: options.hosts ?? playedHosts(),
    maxBodyBytes: 1000,
    cancel: () => Promise.resolve(),
    webSockets: new WebSockets(),
    room: new StreamRoom(),
    connections: new Places<WorkspaceId>(options.mostConnections ?? 256),
    openCalls,
    streamMetrics: new StreamMetrics(new Registry()),
    targets: {
      byStub: (stubId: string) => (stubId === STUB ? target : Promise.resolve(undefined)),
      byName: (workspaceId: string, asked: string, _name: string, version: number | null) => {
        state.versions.push(version);
        return workspaceId === 'w' && asked === kind ? target : Promise.resolve(undefined);
      },
      bySubdomain: () => target,
    },
    hasContainers: () => options.hasContainers ?? true,
    containers: { warmUp: () => Promise.resolve() },
    authenticator: {
      authenticate: (token: string) =>
        token === TOKEN ? { workspaceId: 'w' } : token === OTHER_TOKEN ? { workspaceId: 'other' } : null,
    },
    streams: {
      expect: (taskId: TaskId, take: TakeBytes) => {
        takers.set(taskId, take);
        return () => takers.delete(taskId);
      },
    },
    submissions: {
      submit: (_target: Target, call: { readonly onStreamed?: (taskId: TaskId) => void }) => {
        state.calls += 1;
        const taskId = `task-${state.calls}` as TaskId;
        const { promise, resolve } = Promise.withResolvers<Finished>();
        call.onStreamed?.(taskId);
        const own = stream(() => resolve({ status: 'COMPLETE', reason: 'completed', body: 'null' }));
        setImmediate(() => takers.get(taskId)?.(own));
        return Promise.resolve({
          kind: 'accepted' as const,
          taskId,
          finished: promise,
          callerLeft: () => void (state.left += 1),
        });
      },
    },
    containerWaits: {
      find: (id: string, workspaceId: string) =>
        Promise.resolve(
          id === SANDBOX && workspaceId === 'w'
            ? { id, stubId: STUB, machineId: 'm', exposedPorts: options.exposedPorts ?? [] }
            : undefined,
        ),
      waitUntilRunning: () => Promise.resolve({ ok: true, row: { machineId: 'm' } }),
    },
    containerUses: {
      hold: () => {
        state.holds += 1;
        return () => void (state.holds -= 1);
      },
    },
    containerStreams: { open: () => Promise.resolve(stream()) },
  };
  const server: HttpServer = createHttpServer({
    log: parts.log,
    onStop: () => openCalls.refuseWebSockets(),
    onLast: () => openCalls.refuseAll(),
    onCut: () => openCalls.cutAll(),
    rewriteUrl: hostRewriter([]),
    register: (app) =>
      void app.register((scope, _options, ready) => {
        registerInvoke(scope, parts as unknown as InvokeParts);
        ready();
      }),
  });
  await server.start('127.0.0.1:0');
  ending.push(() => server.stop(0));
  return { address: server.address, server, state };
}

export function connected(address: string): { socket: Socket; text: () => string; isClosed: () => boolean } {
  const [host = '', port = ''] = address.split(':');
  const socket = connect(Number(port), host);
  ending.push(() => void socket.destroy());
  let text = '';
  let isClosed = false;
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.on('close', () => (isClosed = true));
  return { socket, text: () => text, isClosed: () => isClosed };
}

// The routes into containers on a real HTTP server, with containers whose supervisors are real processes.
import { registerContainers } from '#scheduler/api/http/containers/routes.ts';
import { ContainerSockets } from '#scheduler/api/http/containers/sockets.ts';
import { bindOperations, GATEWAY_BASE } from '#scheduler/api/http/bind.ts';
import { createHttpServer } from '#scheduler/api/http/server.ts';
import type { Authenticator } from '#scheduler/api/http/auth.ts';
import { podOperations } from '#scheduler/api/operations/pods.ts';
import type { PodOperationParts } from '#scheduler/api/operations/pods.ts';
import { Access } from '#scheduler/fleet/inside/access.ts';
import type { Change } from '#scheduler/fleet/inside/changes.ts';
import type { StoredSpec } from '#scheduler/fleet/containers/spec.ts';
import { Inside } from '#scheduler/fleet/inside/inside.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import type { Caller, TokenType } from '#scheduler/workspaces/identity/caller.ts';
import type { ContainerId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { pino } from 'pino';
import { aSupervisor } from './supervisor-process.ts';
import type { Supervised } from './supervisor-process.ts';

export const POD = 'sandbox-1';
export const HANDLER = 'endpoint-1';

export interface ContainerWorld {
  readonly url: string;
  readonly supervisor: Supervised;
  /** Tokens by what they are; `revoke` switches the first off. */
  readonly tokens: Readonly<Record<'own' | 'other' | 'admin' | 'restricted' | 'container', string>>;
  readonly revoke: () => void;
  readonly changes: Change[];
  readonly uses: string[];
  readonly inside: Inside;
  /** The operations of pods, and who calls them, for other transports. */
  readonly pods: PodOperationParts;
  readonly authenticator: Authenticator;
  readonly logLines: { seq: number; line: string }[];
  /** Containers by their ids, as their rows are. */
  readonly rows: Map<string, ContainerRow>;
  call(line: string, body?: unknown, token?: string): Promise<{ status: number; json: Record<string, unknown> }>;
  stopServer(): Promise<void>;
  stop(): Promise<void>;
}

const callerOf = (type: TokenType, workspaceId: string): Caller =>
  ({ workspaceId, type, isAdmin: type === 'admin', workspaceDbId: 1, tokenId: type }) as unknown as Caller;

const rowOf = (id: string, kind: string, over: Partial<ContainerRow> = {}): ContainerRow =>
  ({
    id: id as ContainerId,
    workspaceId: 'ws-1' as WorkspaceId,
    stubId: 'stub-1' as StubId,
    machineId: 'machine-1' as MachineId,
    state: 'RUNNING',
    exitCode: null,
    exposedPorts: [],
    spec: { kind, wire: { ports: [8000] } },
    ...over,
  }) as unknown as ContainerRow;

export async function aContainerWorld(
  options: { readonly mostOfWorkspace?: number; readonly settings?: Readonly<Record<string, unknown>> } = {},
): Promise<ContainerWorld> {
  const supervisor = await aSupervisor(options.settings ?? { entrypoint: ['sleep', '1000'] });
  const tokens = { own: 'own', other: 'other', admin: 'admin', restricted: 'restricted', container: 'container' };
  const callers = new Map<string, Caller>([
    ['own', callerOf('workspace_primary', 'ws-1')],
    ['other', callerOf('workspace_primary', 'ws-2')],
    ['admin', callerOf('admin', 'ws-9')],
    ['restricted', callerOf('workspace_restricted', 'ws-1')],
    ['container', callerOf('container', 'ws-1')],
  ]);
  const rows = new Map([
    [POD, rowOf(POD, 'sandbox')],
    [HANDLER, rowOf(HANDLER, 'endpoint')],
  ]);
  const access = new Access({
    waits: {
      find: async (id, workspaceId) => {
        const row = rows.get(id);
        return row !== undefined && (workspaceId === null || row.workspaceId === workspaceId) ? row : undefined;
      },
      waitUntilRunning: async (id) => {
        const row = rows.get(id);
        return row?.state === 'RUNNING'
          ? { ok: true as const, row }
          : { ok: false as const, why: 'ended' as const, reason: 'the container has ended' };
      },
    },
  });
  const uses: string[] = [];
  const inside = new Inside({
    streams: { open: () => supervisor.open() },
    hold: () => () => undefined,
    ...(options.mostOfWorkspace === undefined ? {} : { mostOfWorkspace: options.mostOfWorkspace }),
  });
  const changes: Change[] = [];
  const logLines: { seq: number; line: string }[] = [];
  const authenticator = { authenticate: (token: string) => callers.get(token) ?? null };
  const log = pino({ level: 'silent' });
  const pods: PodOperationParts = {
    access,
    inside,
    used: (id) => void uses.push(id),
    setTtl: async () => true,
    exposePort: async (id, port) => {
      const row = rows.get(id) as ContainerRow;
      rows.set(id, { ...row, exposedPorts: [...row.exposedPorts, port] });
      return true;
    },
    portsOf: ({ row }) => [...((row.spec as { wire: { ports: number[] } }).wire.ports ?? []), ...row.exposedPorts],
    urlOf: (base, { stubId, containerId }, port) => `${base}/sandbox/container/${stubId}/${containerId}/${port}`,
    keepNetwork: async (id, network) => {
      const row = rows.get(id) as ContainerRow;
      const spec = row.spec as StoredSpec;
      const networkVersion = (spec.wire.networkVersion ?? 0) + 1;
      rows.set(id, { ...row, spec: { ...spec, wire: { ...spec.wire, ...network, networkVersion } } });
      return true;
    },
    changes: {
      change: async (_container, change) => {
        changes.push(change);
        return 0;
      },
    },
    snapshots: { take: async () => 'longshore-built/1' },
  };
  const sockets = new ContainerSockets({ pingMs: 30_000, lookMs: 100 });
  const server = createHttpServer({
    log,
    largestBodyBytes: 64 * 1024 * 1024,
    onStop: () => sockets.closeAll(),
    register: (app) => {
      void app.register(
        (scope, _options, ready) => {
          const operations = podOperations(pods);
          const originOf = (request: { headers: { authorization?: string | undefined } }) => ({
            baseUrl: 'http://here',
            loopback: true,
            bearer: request.headers.authorization?.replace('Bearer ', '') ?? null,
            from: { remoteAddress: '127.0.0.1', userAgent: '', requestId: '' },
          });
          scope.get('/containers', (_request, reply) =>
            reply.send({
              ok: true,
              containers: [...rows.values()].map((row) => ({ containerId: row.id, stubId: row.stubId })),
            }),
          );
          bindOperations(scope, operations, { authenticator, originOf, log });
          ready();
        },
        { prefix: GATEWAY_BASE },
      );
      void app.register((scope, _options, ready) => {
        const logs = {
          read: async (_workspace: WorkspaceId, { afterSeq = 0 }: { readonly afterSeq?: number }) => ({
            lines: logLines.filter(({ seq }) => seq > afterSeq) as never,
            isFull: false,
            nextSeq: undefined,
            lastSeq: undefined,
          }),
        };
        registerContainers(scope, { authenticator, access, inside, logs, sockets, log });
        ready();
      });
    },
  });
  const address = await server.start('127.0.0.1:0');
  const url = `http://${address}`;
  return {
    url,
    supervisor,
    tokens,
    revoke: () => void callers.delete('own'),
    changes,
    uses,
    inside,
    pods,
    authenticator,
    logLines,
    rows,
    call: async (line, body, token = 'own') => {
      const [method = '', path = ''] = line.split(' ');
      const hasBody = method !== 'GET' && body !== undefined;
      const answer = await fetch(`${url}${GATEWAY_BASE}${path}`, {
        method,
        headers: {
          ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
          ...(hasBody ? { 'content-type': 'application/json' } : {}),
        },
        ...(hasBody ? { body: JSON.stringify(body) } : {}),
      });
      const text = await answer.text();
      return { status: answer.status, json: (text === '' ? {} : JSON.parse(text)) as Record<string, unknown> };
    },
    stopServer: () => server.stop(500),
    stop: async () => {
      await server.stop(0);
      await supervisor.stop();
    },
  };
}

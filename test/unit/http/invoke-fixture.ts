// Calls of deployments by HTTP, to a task service that the test plays.
import { pino } from 'pino';
import { afterEach, beforeEach } from 'vitest';
import type { AppId, TaskId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, StubId } from '#shared/domain/ids.ts';
import { COMPLETED } from '../../../scheduler/domain/endings.ts';
import type { StubConfig, Target } from '../../../scheduler/domain/stub-config.ts';
import { hostRewriter } from '../../../scheduler/api/http/invoke/host-form.ts';
import { StreamMetrics } from '../../../scheduler/api/http/streams/metrics.ts';
import { OpenCalls } from '../../../scheduler/api/http/streams/open-calls.ts';
import { Places } from '#shared/places.ts';
import { StreamRoom } from '../../../scheduler/api/http/streams/room.ts';
import { WebSockets } from '../../../scheduler/api/http/streams/websockets.ts';
import { Registry } from '../../../shared/metrics.ts';
import { registerInvoke } from '../../../scheduler/api/http/invoke/invoke.ts';
import { createHttpServer } from '../../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../../scheduler/api/http/server.ts';
import type { Caller } from '../../../scheduler/workspaces/identity/caller.ts';
import type { Call, Submission } from '../../../scheduler/tasks/admission/calls.ts';
import type { Finished } from '../../../scheduler/tasks/dispatch/replies.ts';
import { playedHosts } from '../../helpers/played-streams.ts';

const log = pino({ level: 'silent' });
/** A workspace by its id. */
export const OWNER = '11111111-2222-4333-8444-555555555555';
export const STUB = '05ed1b36-2098-4790-99eb-732099e99ca6';
const caller = (workspaceId: string): Caller => ({
  workspaceId: workspaceId as WorkspaceId,
  workspaceDbId: 1,
  tokenId: 't' as TokenId,
  type: 'workspace_restricted',
  isAdmin: false,
});
export const aTarget = (
  said: { readonly active?: boolean; readonly authorized?: boolean; readonly kind?: string } = {},
): Target => ({
  workspaceId: 'w' as WorkspaceId,
  appId: 'a' as AppId,
  stubId: STUB as StubId,
  deploymentId: 'd' as DeploymentId,
  deploymentName: 'hello',
  subdomain: 'hello-1a2b3c4d5e6f7081',
  version: 1,
  kind: said.kind ?? 'endpoint',
  sync: (said.kind ?? 'endpoint') === 'endpoint',
  active: said.active ?? true,
  queue: queueNameOf('d' as DeploymentId, STUB as StubId),
  code: null,
  config: { authorized: said.authorized ?? true } as StubConfig,
  scale: null,
  supersededBy: null,
  rollout: null,
  imageDigest: '',
});

/** Plays the task service: hands every call to `answer`, which a test sets. */
export const tasks = {
  calls: [] as Call[],
  left: 0,
  answer: (): Promise<Submission> => Promise.reject(new Error('no answer set')),
  submit(_target: Target, call: Call): Promise<Submission> {
    const { onItem: _, ...given } = call;
    this.calls.push(given);
    return this.answer();
  },
};
export const accepted = (finished: Promise<Finished>): Submission => ({
  kind: 'accepted',
  taskId: 'task-1' as TaskId,
  finished,
  callerLeft: () => void tasks.left++,
});
export const done = (body = '{"ok":true}', how: Pick<Finished, 'status' | 'reason'> = COMPLETED): Promise<Submission> =>
  Promise.resolve(accepted(Promise.resolve({ status: how.status, reason: how.reason, body })));

/** The part of the fixture that a test reads or sets; each test begins with it anew. */
export const played = {
  warmed: 0,
  isServed: false,
  /** Name of the deployment. */
  name: 'hello',
  target: undefined as Target | undefined,
  server: undefined as unknown as HttpServer,
};
/** Has each test of a file begin with a server of its own. */
export function playCalls(): void {
  beforeEach(() => {
    tasks.calls = [];
    tasks.left = 0;
    played.warmed = 0;
    played.isServed = false;
    played.name = 'hello';
    tasks.answer = () => done();
    played.target = aTarget();
    played.server = createHttpServer({
      log,
      rewriteUrl: hostRewriter(['localhost']),
      register: (app) => {
        void app.register((scope, _options, next) => {
          registerInvoke(scope, {
            authenticator: {
              authenticate: (token) =>
                token === 'late' ? Promise.resolve(caller('w')) : token === 'bad' ? null : caller(token),
            },
            targets: {
              byName: (workspaceId, kind, name, version) =>
                (workspaceId === 'w' || workspaceId === OWNER) &&
                kind === played.target?.kind &&
                name === played.name &&
                (version ?? 1) === 1 &&
                played.target !== undefined
                  ? played.target
                  : Promise.resolve(undefined),
              bySubdomain: (subdomain, version) =>
                subdomain === 'hello-1a2b3c4d5e6f7081' && (version ?? 1) === 1 && played.target !== undefined
                  ? played.target
                  : Promise.resolve(undefined),
              byStub: (stubId) =>
                stubId === STUB && played.target !== undefined ? played.target : Promise.resolve(undefined),
            },
            hosts: playedHosts(),
            submissions: tasks,
            containers: { warmUp: async () => void played.warmed++ },
            callbackProblem: (url) => (url.startsWith('https://') ? undefined : 'must be better'),
            mayTakeCode: async () => false,
            log,
            maxBodyBytes: 1000,
            release: () => undefined,
            hasContainers: () => true,
            isServed: () => played.isServed,
            containerStreams: { open: () => Promise.reject(new Error('no container')) },
            containerUses: { hold: () => () => undefined },
            containerWaits: {
              find: () => Promise.resolve(undefined),
              waitUntilRunning: () => Promise.reject(new Error('no container')),
            },
            connections: new Places<WorkspaceId>(256),
            streams: { expect: () => () => undefined },
            cancel: () => Promise.resolve(),
            webSockets: new WebSockets(),
            room: new StreamRoom(),
            openCalls: new OpenCalls(),
            streamMetrics: new StreamMetrics(new Registry()),
          });
          next();
        });
      },
    });
  });
  afterEach(() => played.server.stop(0));
}

export async function call(
  path: string,
  body: string | Buffer = '{}',
  token = 'w',
  method: 'POST' | 'GET' | 'PUT' = 'POST',
  host = 'localhost:1994',
  headers: Readonly<Record<string, string | string[]>> = {},
) {
  const answer = await played.server.app.inject({
    method,
    url: path,
    headers: { host, ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...headers },
    ...(method === 'GET' ? {} : { payload: body }),
  });
  return { status: answer.statusCode, text: answer.body, headers: answer.headers };
}

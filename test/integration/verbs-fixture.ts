/**
 * A scheduler on real stores with three callers (the administrator,
 * a workspace, another workspace), and the calls for tests of verbs.
 */
import { join } from 'node:path';
import { pino } from 'pino';
import { request } from 'undici';
import { expect } from 'vitest';
import { loadConfig } from '#shared/config.ts';
import { SchedulerSettings } from '../../scheduler/config.ts';
import { startScheduler } from '../../scheduler/main.ts';
import type { PrivatePostgres } from '../helpers/postgres.ts';
import type { PrivateRedis } from '../helpers/redis.ts';
import { aPostgres, aRedis, tempDirectory } from '../helpers/services.ts';

export type Json = Record<string, unknown>;

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly json: Json;
}

export interface Sent {
  /** Empty: none. */
  readonly token?: string;
  readonly host?: string;
  /** Client address that a proxy reports; without it, the caller is on the scheduler's own host. */
  readonly forwardedFor?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Asks for the fields beyond the interface document, as our own clients do. */
export const WITH_FIELDS: Sent = { headers: { 'x-longshore-fields': '1' } };

export interface Person {
  readonly workspaceId: string;
  readonly token: string;
}

export interface Platform {
  readonly admin: Person;
  readonly own: Person;
  readonly other: Person;
  /** Token of the own workspace, switched off. */
  readonly revoked: string;
  readonly restricted: string;
  readonly address: string;
  readonly agentAddress: string;
  readonly grpcAddress: string;
  /** Calls as the own workspace, unless `sent` names another token. A body of text or bytes is sent unchanged. */
  call(line: string, body?: unknown, sent?: Sent): Promise<Answer>;
  gateway(line: string, body?: unknown, sent?: Sent): Promise<Answer>;
  /** A stub of the own workspace; the same for the same request. */
  stub(said?: Json): Promise<string>;
  deploy(
    name: string,
    said?: Json,
    token?: string,
  ): Promise<{ readonly id: string; readonly stubId: string; readonly version: number }>;
  /** Absent with embedded stores. */
  readonly servers: { readonly postgres: PrivatePostgres; readonly redis: PrivateRedis } | undefined;
  /** As at SIGHUP. */
  readFilesAgain(): Promise<void>;
  stop(): Promise<void>;
}

/** An id of the right form that nothing has. */
export const NOBODY = '00000000-0000-4000-8000-000000000000';

/** `servers`: a Postgres and a Redis of their own; `embedded`: the scheduler's own stores. */
export type StoreKind = 'servers' | 'embedded';

export async function aPlatform(
  env: Readonly<Record<string, string>> = {},
  stores: StoreKind = 'servers',
): Promise<Platform> {
  const directory = tempDirectory('verbs');
  const servers = stores === 'servers' ? await Promise.all([aPostgres(), aRedis()]) : undefined;
  const settings = loadConfig(
    SchedulerSettings,
    {
      LONGSHORE_DATA_DIR: join(directory.path, 'data'),
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_DRAIN_SECONDS: '10',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      LONGSHORE_GRPC_ADDRESS: '127.0.0.1:0',
      // Rate limits are off, because many tests send bad tokens.
      LONGSHORE_RATE_LIMITS: 'off',
      // Releases that this checkout may have built must not be used.
      LONGSHORE_RELEASES_DIR: join(directory.path, 'releases'),
      ...(servers === undefined ? {} : { DATABASE_URL: servers[0].url, REDIS_URL: servers[1].url }),
      ...env,
    },
    { known: [] },
  );
  const scheduler = await startScheduler(settings, pino({ level: 'silent' }));
  const address = scheduler.httpAddress;
  const first = await scheduler.ensureFirstWorkspace();
  if (first?.token === undefined) throw new Error('the installation is not fresh');
  const admin: Person = { workspaceId: first.workspaceId, token: first.token };

  const send = async (line: string, body: unknown, { token, host, forwardedFor, headers }: Sent): Promise<Answer> => {
    const [method = 'GET', path = '/'] = line.split(' ');
    const answer = await request(`http://${address}${path}`, {
      method: method as 'GET',
      headers: {
        ...(token === undefined || token === '' ? {} : { authorization: `Bearer ${token}` }),
        ...(host === undefined ? {} : { host }),
        ...(forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor }),
        ...headers,
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    return { status: answer.statusCode, text, json: parsed(text) };
  };
  const workspace = async (name: string): Promise<Person> => {
    const made = await send('POST /api/v1/workspace', { name }, { token: admin.token });
    expect(made.status).toBe(201);
    return { workspaceId: String(made.json['id']), token: String(made.json['token']) };
  };
  const own: Person = await workspace('own');
  const other: Person = await workspace('other');
  const gateway = (line: string, body?: unknown, sent?: Sent): Promise<Answer> =>
    send(line.replace(' ', ' /api/v1/gateway'), body, { token: own.token, ...sent });
  const token = async (query = ''): Promise<Json> => (await gateway(`POST /tokens${query}`)).json['token'] as Json;
  const switchedOff = await token();
  await gateway(`POST /tokens/${String(switchedOff['tokenId'])}/toggle`);
  const stub = async (said: Json = {}, by: string = own.token): Promise<string> => {
    const { stubType: kind = 'endpoint/deployment' } = said as { readonly stubType?: string };
    const made = await gateway(
      'POST /stubs',
      { stubType: kind, name: `${kind}/app:handler`, handler: 'app:handler', cpu: 100, memory: 64, ...said },
      { token: by },
    );
    expect(made.json).toMatchObject({ ok: true, errMsg: '' });
    return String(made.json['stubId']);
  };
  return {
    admin,
    own,
    other,
    revoked: String(switchedOff['key']),
    restricted: String((await token('?tokenType=workspace_restricted'))['key']),
    address,
    agentAddress: scheduler.agentAddress,
    grpcAddress: scheduler.grpcAddress,
    call: (line, body, sent) => send(line, body, { token: own.token, ...sent }),
    gateway,
    stub: (said) => stub(said),
    deploy: async (name, said, by) => {
      const stubId = await stub(said, by);
      const made = await gateway('POST /stubs/deploy', { stubId, name }, { token: by ?? own.token });
      expect(made.json['ok']).toBe(true);
      return { id: String(made.json['deploymentId']), stubId, version: Number(made.json['version']) };
    },
    readFilesAgain: () => scheduler.readFilesAgain(),
    servers: servers === undefined ? undefined : { postgres: servers[0], redis: servers[1] },
    stop: async () => {
      await scheduler.stop();
      await Promise.all((servers ?? []).map((server) => server.stop()));
      directory.remove();
    },
  };
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return {};
  }
}

// Rows of the lists of the workspace REST API for contract.test.ts: how a row is made, and what each filter finds.
import { Client } from 'pg';
import { expect } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import type { Kit } from './verbs-kit.ts';

export interface List {
  /** Makes a row in the own workspace; returns its id as `idOf` reads it. Absent: the list has no pages. */
  readonly add?: (platform: Platform, kit: Kit) => Promise<string>;
  readonly idOf: (row: Json) => string;
  /** Field of the answer that has the rows; `data` when absent. */
  readonly field?: string;
  /** Whether there are rows in every workspace. */
  readonly isNeverEmpty?: boolean;
  readonly filters?: {
    /** Makes what the filters are tried on: ids by labels. */
    readonly make: (platform: Platform, kit: Kit) => Promise<Readonly<Record<string, string>>>;
    /** Query of every request, which keeps rows of other tests out. */
    readonly always?: string;
    /** File that tries the parameters without a case, by their names. */
    readonly elsewhere?: string;
    /**
     * By parameter: queries, with `<label>` for an id or a value of the world (`<label^>`: in upper case), and the
     * labels that they find.
     */
    readonly cases: Readonly<Record<string, readonly (readonly [string, string])[]>>;
  };
}

const idOf = (row: Json): string => String(row['id']);
const rest = async (platform: Platform, line: string, body?: unknown): Promise<Json> => {
  const path = line.replace(' ', ' /api/v1').replace('{ws}', platform.own.workspaceId);
  const answer = await platform.call(path, body, path.includes('/workspace') ? { token: platform.admin.token } : {});
  expect([line, answer.status < 300]).toEqual([line, true]);
  return answer.json;
};

/** Rows that only machines make are written as they would be. */
export async function withSql(platform: Platform, write: (sql: Client) => Promise<unknown>): Promise<void> {
  const sql = new Client({ connectionString: platform.servers?.postgres.url ?? '' });
  await sql.connect();
  await write(sql).finally(() => sql.end());
}

const APPS: Omit<List, 'filters'> = {
  idOf,
  add: async (platform, kit) => {
    const name = kit.unique('listed');
    await platform.stub({ stubType: 'function/serve', appName: name });
    const { data } = await rest(platform, `GET /app/{ws}?name=${name}&limit=1000`);
    return idOf((data as Json[]).find((row) => row['name'] === name) ?? {});
  },
};
const APP_FILTERS: NonNullable<List['filters']> = {
  make: async (platform) => {
    const ids: Record<string, string> = {};
    for (const name of ['Filter-North', 'filter-south']) {
      await platform.stub({ stubType: 'function/serve', appName: name });
      const { data } = await rest(platform, `GET /app/{ws}?name=${name}`);
      ids[name.slice(7).toLowerCase()] = idOf((data as Json[])[0] ?? {});
    }
    return ids;
  },
  cases: {
    name: [
      ['name=filter-', 'north south'],
      ['name=FILTER-N', 'north'],
      ['name=', 'north south'],
      ['name=nothing-is-called-so', ''],
    ],
  },
};

/** A container whose deployment needs it no more. */
async function anEndedContainer(platform: Platform, kit: Kit): Promise<string> {
  const id = await kit.aContainer();
  const { deploymentId } = (await kit.containerIs(id)) ?? {};
  await platform.gateway(`POST /deployments/${String(deploymentId)}/scale`, { containers: 0 });
  const path = `GET /ended-container/{ws}?deployment_ids=${String(deploymentId)}`;
  await waitFor(async () => ((await rest(platform, path))['data'] as Json[])[0], 'the container has ended');
  return id;
}

/** Tasks by which both lists of tasks are filtered. */
const TASK_FILTERS: NonNullable<List['filters']> = {
  always: 'limit=1000&task_ids=<waits>,<runs>,<ended>,nonsense&',
  make: async (platform, kit) => {
    const queue = await platform.deploy('filtered', { stubType: 'taskqueue/deployment', appName: 'filtered' });
    const put = async (path: string): Promise<string> =>
      String((await platform.call(`POST ${path}`, {})).json['task_id']);
    const waits = await put('/taskqueue/filtered');
    const runs = await put('/taskqueue/filtered');
    const other = await platform.deploy('filtered', { stubType: 'function/deployment', appName: 'other' });
    const ended = await put(`/function/id/${other.stubId}`);
    await platform.gateway('POST /tasks/start', { taskId: runs, containerId: 'a-container' });
    await rest(platform, 'DELETE /task/{ws}', { ids: [ended] });
    await platform.deploy('filtered-less', { stubType: 'taskqueue/deployment', appName: 'filtered' });
    const row = (id: string) => rest(platform, `GET /task/{ws}/${id}`);
    await waitFor(async () => (await row(ended))['status'] === 'CANCELLED' || undefined, 'the task is cancelled');
    const stub = (await row(waits))['stub'] as Json;
    const { app_id: app } = await rest(platform, `GET /deployment/{ws}/${queue.id}`);
    kit.unique('tasks');
    return {
      waits,
      runs,
      ended,
      stub: queue.stubId,
      deployment: queue.id,
      stubName: String(stub['name']),
      app: String(app),
    };
  },
  cases: {
    status: [
      ['status=pending', 'waits'],
      ['status=PENDING,RUNNING', 'waits runs'],
      ['status=nothing', ''],
    ],
    task_ids: [['', 'waits runs ended']],
    stub_ids: [
      ['stub_ids=<stub>', 'waits runs'],
      ['stub_ids=<stub^>', 'waits runs'],
      ['stub_ids=nobody', ''],
    ],
    stub_names: [
      ['stub_names=<stubName>', 'waits runs'],
      ['stub_names=nobody', ''],
    ],
    stub_types: [
      ['stub_types=function%2Fdeployment', 'ended'],
      ['stub_types=nothing', ''],
    ],
    deployment_ids: [
      ['deployment_ids=<deployment>', 'waits runs'],
      ['deployment_ids=<deployment^>', 'waits runs'],
      ['deployment_ids=nobody', ''],
    ],
    // A part of a name is no name.
    deployment_name: [
      ['deployment_name=filtered', 'waits runs ended'],
      ['deployment_name=filtered-less', ''],
    ],
    failure_reasons: [
      ['failure_reasons=request_cancelled,other', 'ended'],
      ['failure_reasons=other', ''],
    ],
    container_ids: [
      ['container_ids=a-container,b', 'runs'],
      ['container_ids=b', ''],
    ],
    app_id: [
      ['app_id=<app>', 'waits runs'],
      ['app_id=<app^>', 'waits runs'],
      ['app_id=nobody', ''],
    ],
    created_at_start: [
      ['created_at_start=2020-01-01T00:00:00Z', 'waits runs ended'],
      ['created_at_start=2999-01-01', ''],
    ],
    created_at_end: [
      ['created_at_end=2999-01-01T00:00:00%2B02:00', 'waits runs ended'],
      ['created_at_end=2020-01-01', ''],
    ],
    // Nothing of these has run to its end.
    min_duration: [['min_duration=0', '']],
    max_duration: [['max_duration=1000', '']],
  },
};

export const LISTS: Readonly<Record<string, List>> = {
  'GET /app/{ws}': { ...APPS, filters: { ...APP_FILTERS, always: 'limit=1000&' } },
  'GET /app/{ws}/latest': { ...APPS, filters: { ...APP_FILTERS, always: 'limit=1000&' } },
  'GET /workspace': {
    idOf,
    isNeverEmpty: true,
    add: async (platform, kit) => idOf(await rest(platform, 'POST /workspace', { name: kit.unique('paged') })),
  },
  'GET /stack/{ws}': {
    idOf,
    add: async (platform, kit) => idOf(await rest(platform, 'POST /stack/{ws}', { name: kit.unique('paged') })),
  },
  'GET /volume/{ws}': {
    idOf,
    add: async (platform, kit) => idOf(await rest(platform, 'POST /volume/{ws}', { name: kit.unique('paged') })),
  },
  'GET /map/{ws}/names': {
    idOf: (row) => String(row['name']),
    add: async (platform, kit) => {
      const name = kit.unique('paged');
      await rest(platform, 'PUT /map/{ws}/entry', { name, key: 'k', encoding: 'json', value: '1' });
      return name;
    },
  },
  'GET /queue/{ws}/names': {
    idOf: (row) => String(row['name']),
    add: async (platform, kit) => {
      const name = kit.unique('paged');
      await rest(platform, 'POST /queue/{ws}', { name, encoding: 'json', value: '1' });
      return name;
    },
  },
  'GET /deployment/{ws}': {
    idOf,
    add: (_platform, kit) => kit.aDeployment(),
    filters: {
      always: 'limit=1000&created_at_start=<since>&',
      make: async (platform) => {
        const since = new Date().toISOString();
        const one = { stubType: 'endpoint/deployment', appName: 'one' };
        const first = await platform.deploy('Alpha-one', one);
        const autoscaler = { type: 'queue_depth', minContainers: 2, maxContainers: 3, tasksPerContainer: 1 };
        const second = await platform.deploy('Alpha-one', { ...one, autoscaler });
        const queue = await platform.deploy('beta', { stubType: 'taskqueue/deployment', appName: 'two' });
        const gone = await platform.deploy('gone', { ...one, env: ['GONE=1'] });
        await rest(platform, `DELETE /deployment/{ws}/${gone.id}`);
        await rest(platform, `POST /deployment/{ws}/stop/${first.id}`);
        const record = await rest(platform, `GET /deployment/{ws}/${queue.id}`);
        return {
          first: first.id,
          second: second.id,
          queue: queue.id,
          gone: gone.id,
          since,
          firstStub: first.stubId,
          queueStub: queue.stubId,
          queueApp: String(record['app_id']),
          queueHost: String(record['subdomain']),
          queueTime: String(record['created_at']),
          aBefore: new Date(Date.parse(String(record['created_at'])) - 1).toISOString(),
        };
      },
      cases: {
        name: [
          ['name=pha-o', 'first second'],
          ['name=ALPHA', ''],
          ['name=%25', ''],
        ],
        search_query: [
          ['search_query=<queue>', 'queue'],
          ['search_query=<queue^>', 'queue'],
          ['search_query=bet', 'queue'],
          ['search_query=00000000-0000-4000-8000-000000000000', ''],
        ],
        active: [
          ['active=true', 'second queue'],
          ['active=F', 'first'],
        ],
        version: [
          ['version=2', 'second'],
          ['version=v1', 'first queue'],
          ['version=0', 'first second queue'],
          ['version=latest', 'first second queue'],
          ['version=undefined', 'first second queue'],
          ['version=', 'first second queue'],
        ],
        stub_type: [
          ['stub_type=taskqueue%2Fdeployment', 'queue'],
          ['stub_type=endpoint', 'first second'],
          ['stub_type=endpoint,taskqueue', 'first second queue'],
          ['stub_type=nothing', ''],
        ],
        stub_ids: [
          ['stub_ids=<firstStub>,<queueStub>', 'first queue'],
          ['stub_ids=<firstStub^>', 'first'],
          ['stub_ids=nobody', ''],
        ],
        app_id: [
          ['app_id=<queueApp>', 'queue'],
          ['app_id=<queueApp^>', 'queue'],
          ['app_id=nobody', ''],
        ],
        subdomain: [
          ['subdomain=<queueHost>', 'queue'],
          ['subdomain=beta', ''],
        ],
        min_containers: [
          ['min_containers=1', 'second'],
          ['min_containers=2', 'second'],
          ['min_containers=3', ''],
          ['min_containers=0', 'first second queue'],
        ],
        created_at_start: [['', 'first second queue']],
        created_at_end: [
          // Inclusive: the newest of them was made at that very time, as its record shows it.
          ['created_at_end=<queueTime>', 'first second queue'],
          ['created_at_end=<aBefore>', 'first second'],
          ['created_at_end=2020-01-01', ''],
        ],
        show_deleted: [
          ['show_deleted=true', 'first second queue gone'],
          ['show_deleted=false', 'first second queue'],
        ],
      },
    },
  },
  'GET /deployment-health/{ws}': {
    idOf,
    add: async (platform, kit) =>
      (await platform.deploy(kit.unique('healthy'), { stubType: 'function/deployment' })).id,
    filters: {
      make: async (platform) => {
        const idle = await platform.deploy('well-idle', { stubType: 'function/deployment' });
        const stopped = await platform.deploy('well-stopped', { stubType: 'function/deployment' });
        await rest(platform, `POST /deployment/{ws}/stop/${stopped.id}`);
        return { idle: idle.id, stopped: stopped.id };
      },
      always: 'limit=1000&',
      cases: {
        name: [
          ['name=well-', 'idle stopped'],
          ['name=WELL-', ''],
        ],
        state: [
          ['name=well-&state=STOPPED', 'stopped'],
          ['name=well-&state=idle,stopped', 'idle stopped'],
          ['name=well-&state=FAILING', ''],
        ],
      },
    },
  },
  'GET /task/{ws}': {
    idOf,
    add: (_platform, kit) => kit.aTask(),
    filters: {
      ...TASK_FILTERS,
      // `dead`
      elsewhere: 'test/integration/dead-letters.test.ts',
      cases: {
        ...TASK_FILTERS.cases,
        skip_details: [['skip_details=true', 'waits runs ended']],
        public: [
          ['public=true', ''],
          ['public=false', 'waits runs ended'],
        ],
        all: [['all=true', 'waits runs ended']],
      },
    },
  },
  'GET /task-summary/{ws}': { idOf, add: (_platform, kit) => kit.aTask(), filters: TASK_FILTERS },
  'GET /container/{ws}': {
    idOf: (row) => String(row['container_id']),
    filters: {
      make: async (platform, kit) => {
        const container = await kit.aContainer();
        const { stubId } = (await kit.containerIs(container)) ?? {};
        const all = (await rest(platform, 'GET /container/{ws}')) as unknown as Json[];
        const row = all.find((one) => one['container_id'] === container);
        return { container, stub: String(stubId), app: String(row?.['app_id']) };
      },
      cases: {
        stub_id: [
          ['stub_id=<stub>', 'container'],
          ['stub_id=<stub^>', 'container'],
          ['stub_id=nobody', ''],
        ],
        app_id: [
          ['app_id=<app>', 'container'],
          ['app_id=<app^>', 'container'],
          ['app_id=nobody', ''],
        ],
        status: [
          ['status=pending,STOPPING', 'container'],
          ['status=RUNNING', ''],
        ],
      },
    },
  },
  'GET /ended-container/{ws}': {
    idOf: (row) => String(row['container_id']),
    add: anEndedContainer,
    filters: {
      always: 'limit=1000&deployment_ids=<deployment>&',
      make: async (platform, kit) => {
        const container = await anEndedContainer(platform, kit);
        const { data } = await rest(platform, 'GET /ended-container/{ws}?limit=1000');
        const row = (data as Json[]).find((one) => one['container_id'] === container) ?? {};
        const text = (name: string): string => String(row[name]);
        const ids = { deployment: text('deployment_id'), stub: text('stub_id'), app: text('app_id') };
        return { container, ...ids, reason: text('reason') };
      },
      cases: {
        stub_ids: [
          ['stub_ids=<stub>', 'container'],
          ['stub_ids=<stub^>', 'container'],
          ['stub_ids=nobody', ''],
        ],
        deployment_ids: [['', 'container']],
        reasons: [
          ['reasons=<reason>,other', 'container'],
          ['reasons=other', ''],
        ],
        app_id: [
          ['app_id=<app>', 'container'],
          ['app_id=<app^>', 'container'],
          ['app_id=nobody', ''],
        ],
      },
    },
  },
  'GET /logs/{ws}': {
    field: 'logs',
    idOf: (row) => String(row['message']),
    filters: {
      always: 'container_id=a-container-that-printed&',
      elsewhere: 'test/integration/rest-records.test.ts',
      make: async (platform) => {
        const { stubId } = await platform.deploy('printing', { env: ['PRINTS=1'] });
        await withSql(platform, (sql) =>
          sql.query(
            `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
             select $1, $2, 'a-container-that-printed', 'stdout', 'Line ' || n,
               '2030-01-01T00:00:00Z'::timestamptz + n * interval '1 minute'
             from generate_series(1, 3) as n`,
            [platform.own.workspaceId, stubId],
          ),
        );
        const { logs } = await rest(platform, 'GET /logs/{ws}?container_id=a-container-that-printed');
        const middle = String((logs as Json[])[1]?.['seq_num']);
        return { one: 'Line 1', two: 'Line 2', three: 'Line 3', middle };
      },
      cases: {
        query: [
          ['query=lINE', 'one two three'],
          ['query=2', 'two'],
          ['query=%25', ''],
        ],
        size: [
          ['size=1', 'three'],
          ['size=1&limit=2', 'two three'],
        ],
        page: [
          ['limit=2&page=0', 'two three'],
          ['limit=2&page=1', 'one'],
        ],
        after_seq: [['after_seq=<middle>', 'three']],
        before_seq: [['before_seq=<middle>', 'one']],
        start_time: [
          ['start_time=2030-01-01T00:02:00Z', 'two three'],
          ['start_time=2031-01-01', ''],
        ],
        end_time: [
          ['end_time=2030-01-01T00:02:00Z', 'one'],
          ['start_time=2030-01-01T00:02:00%2B00:00&end_time=2030-01-01T00:03:00Z', 'two'],
        ],
      },
    },
  },
  'GET /events/{ws}/history': {
    field: 'events',
    idOf: (row) => String((row['data'] as Json)['action']),
    filters: {
      always: 'event_types=compute.machine&',
      elsewhere: 'test/integration/event-streams.test.ts',
      make: async (platform) => {
        const world = { made: 'listed', deleted: 'unlisted' };
        await withSql(platform, async (sql) => {
          for (const [at, action] of Object.values(world).entries()) {
            await sql.query(
              `insert into events (workspace_id, seq, id, type, at, data)
               values ($1, $2, $3, 'compute.machine', now(), json_build_object('action', $4::text))`,
              [platform.own.workspaceId, 1_000_000 + at, `${at}`.padStart(24, '0'), action],
            );
          }
        });
        return world;
      },
      cases: {
        exclude_actions: [
          ['', 'made deleted'],
          ['exclude_actions=<made>', 'deleted'],
          ['exclude_actions=<made>,<deleted>,other', ''],
        ],
      },
    },
  },
};

/** Lists that another file pages to their end. */
export const PAGED_ELSEWHERE: Readonly<Record<string, string>> = {
  'GET /gpu': 'test/integration/gpu-map.test.ts',
  'GET /gpu-map': 'test/integration/gpu-map.test.ts',
  'GET /credit/{ws}/ledger': 'test/integration/credit-routes.test.ts',
  'GET /volume/{ws}/{volumeName}/files': 'test/hosts/volumes.test.ts',
  'GET /volume/{ws}/{volumeName}/size': 'test/hosts/volumes.test.ts',
  'GET /model/{ws}': 'test/integration/models.test.ts',
  'GET /webhook/{ws}': 'test/integration/webhook-routes.test.ts',
  'GET /webhook/{ws}/{webhookId}/deliveries': 'test/integration/webhook-routes.test.ts',
};

const SHARED_VERBS = 'test/integration/rest-verbs/shared-state.ts';
const VOLUME_VERBS = 'test/integration/rest-verbs/volumes.ts';
const METRICS = 'test/integration/metric-routes.test.ts';
const SHARES = 'test/integration/shares.test.ts';
const SHARED_STATE = 'test/integration/shared-state.test.ts';

/** Routes whose parameters another file tries, each by its name. */
export const READ_ELSEWHERE: Readonly<Record<string, string>> = {
  'GET /gpu': 'test/integration/gpu-map.test.ts',
  'GET /gpu-map': 'test/integration/gpu-map.test.ts',
  'DELETE /task/{ws}': 'test/integration/rest-records.test.ts',
  'POST /task/{ws}/rerun': 'test/integration/task-bulk.test.ts',
  'POST /task/{ws}/cancel': 'test/integration/task-bulk.test.ts',
  'GET /events/{ws}/stream': 'test/integration/event-streams.test.ts',
  'GET /live/{ws}': 'test/integration/live.test.ts',
  'GET /task/{ws}/{taskId}': 'test/integration/live.test.ts',
  'GET /search/{ws}': 'test/integration/task-stats.test.ts',
  'GET /task-stats/{ws}': 'test/integration/task-stats.test.ts',
  'GET /overview/{ws}': 'test/integration/task-stats.test.ts',
  'GET /logs/{ws}/stream': 'test/integration/log-stream.test.ts',
  'GET /share': SHARES,
  'GET /workspace/{ws}/markets': SHARES,
  'GET /map/{ws}/keys': SHARED_STATE,
  'GET /map/{ws}/entry': SHARED_VERBS,
  'DELETE /map/{ws}/entry': SHARED_VERBS,
  'DELETE /map/{ws}': SHARED_VERBS,
  'DELETE /queue/{ws}': SHARED_VERBS,
  'GET /queue/{ws}': SHARED_VERBS,
  'GET /signal/{ws}': SHARED_VERBS,
  'DELETE /signal/{ws}': SHARED_VERBS,
  'GET /output/{ws}/{outputId}/url': SHARED_VERBS,
  'GET /volume/{ws}/{volumeName}/files': VOLUME_VERBS,
  'DELETE /volume/{ws}/{volumeName}/files': 'test/hosts/volumes.test.ts',
  'GET /volume/{ws}/{volumeName}/size': VOLUME_VERBS,
  'GET /volume/{ws}/{volumeName}/upload': VOLUME_VERBS,
  'GET /volume/{ws}/{volumeName}/file-url': VOLUME_VERBS,
  'GET /volume/{ws}/{volumeName}/pack-url': VOLUME_VERBS,
  'GET /webhook/{ws}/{webhookId}/deliveries': 'test/integration/webhook-routes.test.ts',
  'GET /usage/{ws}': 'test/integration/credit-routes.test.ts',
  'GET /credit/{ws}/ledger': 'test/integration/credit-routes.test.ts',
  'GET /metrics/{ws}/stub-timeseries': METRICS,
  'GET /metrics/{ws}/workspace-timeseries': METRICS,
  'GET /metrics/{ws}/pool-timeseries': METRICS,
  'GET /deployment/{deploymentId}/url': 'test/integration/http.test.ts',
  'GET /stub/{stubId}/url': 'test/integration/http.test.ts',
};

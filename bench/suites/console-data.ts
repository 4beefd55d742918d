// A scheduler with the data of the console's benchmark. Deployments, containers and machines are made as always; tasks,
// sums, events and lines are rows as weeks of work leave them.
import { Agent, request } from 'node:http';
import { createLog } from '#shared/log.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import { ControlPlane, until } from '../control-plane.ts';
import type { IdleApp } from '../control-plane.ts';
import type { SimulatedFleet } from '../simulated/fleet.ts';
import type { SuiteContext } from './suite.ts';

export interface ConsoleSize {
  readonly tasks: number;
  readonly deployments: number;
  readonly containers: number;
  readonly machines: number;
}

export type StoreKind = 'embedded' | 'postgres';

export interface ConsolePlane {
  readonly plane: ControlPlane;
  readonly fleet: SimulatedFleet;
  readonly ids: {
    readonly workspaceId: string;
    readonly name: string;
    readonly deploymentId: string;
    readonly stubId: string;
    readonly taskId: string;
  };
  /** Deployments without containers, for calls. */
  readonly idle: readonly IdleApp[];
  /** Reads with the administrator's token. @throws Error naming the path unless it is a 200 */
  readonly read: (path: string) => Promise<Answer>;
}

export interface Answer {
  readonly ms: number;
  readonly body: Buffer;
}

/** A container of either kind takes a hundredth of a machine; a quarter of all hold a GPU each. */
const CONTAINERS_OF_APP = 100;
const GPUS_OF_MACHINE = 8;
/** Deployments whose containers wait for a machine: one of ten, and twenty at most. */
const WAITING = { oneOf: 10, most: 20 };
const RUNNING_MS = 240_000;
const GPU = 'H100';
/** Model that no machine has. */
const MISSING_GPU = 'B200';
const SETTINGS = { LONGSHORE_MAX_CONTAINERS: '100000' };

export async function startConsolePlane(
  { place, postgres, say }: Pick<SuiteContext, 'place' | 'postgres' | 'say'>,
  kind: StoreKind,
  { tasks, deployments, containers, machines }: ConsoleSize,
): Promise<ConsolePlane> {
  const beganMs = performance.now();
  const told = (what: string): void =>
    say(`  ${kind}, ${tasks} tasks: ${what} after ${((performance.now() - beganMs) / 1000).toFixed(0)} s`);
  const server = kind === 'postgres' ? await postgres() : undefined;
  const plane = await ControlPlane.start(place, server, `console_${kind}_${tasks}`, SETTINGS);
  const autoscaler = { type: 'queue_depth', tasksPerContainer: 1, minContainers: 0, maxContainers: 1000 };
  const fields = { keepWarmSeconds: 3600, autoscaler };
  const busy = Math.ceil(containers / CONTAINERS_OF_APP);
  const onGpus = Math.ceil(busy / 4);
  const stuck = Math.min(WAITING.most, Math.ceil(deployments / WAITING.oneOf));
  const gpuApps = await plane.deploy(onGpus, 'gpu', { ...fields, gpu: GPU, gpuCount: 1 });
  const cpuApps = await plane.deploy(busy - onGpus, 'cpu', fields);
  const waiting = await plane.deploy(stuck, 'waits', { ...fields, gpu: MISSING_GPU, gpuCount: 1 });
  const idle = await plane.deploy(deployments - busy - stuck, 'idle', {
    ...fields,
    concurrentRequests: 64,
    autoscaler: { ...autoscaler, tasksPerContainer: 64, maxContainers: 1 },
  });
  told('deployed');
  const { workspaceId } = plane.client.context;
  await plane.restart(() => fill(plane, workspaceId, tasks));
  told('filled');
  const fleet = await plane.machines(machines, { gpus: { count: GPUS_OF_MACHINE, model: GPU } });
  told('machines joined');
  for (const app of waiting) await plane.scale(app, 5);
  for (const app of [...gpuApps, ...cpuApps]) await plane.scale(app, Math.min(CONTAINERS_OF_APP, containers));
  const running = Math.min(CONTAINERS_OF_APP, containers) * busy;
  await until(
    () => `${fleet.containers} of ${running} run`,
    () => fleet.containers >= running,
    RUNNING_MS,
    place.signal,
  );
  told('containers run');
  const { token, url } = plane.client.context;
  const read = reader(url, token, (work) => place.later(work));
  const name = 'gpu-0';
  const deploymentId = gpuApps[0]?.deploymentId ?? '';
  const ofRow = async (path: string): Promise<Readonly<Record<string, string>>> => {
    const { data } = JSON.parse((await read(path)).body.toString('utf8')) as { readonly data: readonly never[] };
    return data[0] ?? {};
  };
  const version = await ofRow(`/api/v1/deployment/${workspaceId}?name=${name}&limit=1`);
  const task = await ofRow(`/api/v1/task-summary/${workspaceId}?deployment_name=${name}&limit=1`);
  const ids = { workspaceId, name, deploymentId, stubId: version['stub_id'] ?? '', taskId: task['id'] ?? '' };
  for (const [field, id] of Object.entries(ids)) if (id === '') throw new Error(`${field} was not found`);
  return { plane, fleet, ids, idle, read };
}

/** Requests on connections that are kept, as a browser's are. */
function reader(
  url: string,
  token: string,
  later: (work: () => Promise<void>) => void,
): (path: string) => Promise<Answer> {
  const agent = new Agent({ keepAlive: true, maxSockets: 6 });
  later(async () => agent.destroy());
  const headers = { authorization: `Bearer ${token}` };
  return (path) =>
    new Promise((resolve, reject) => {
      const beganMs = performance.now();
      const asked = request(`${url}${path}`, { agent, headers }, (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.on('error', reject);
        answer.on('end', () => {
          const ms = performance.now() - beganMs;
          const body = Buffer.concat(chunks);
          if (answer.statusCode === 200) resolve({ ms, body });
          else
            reject(new Error(`${path} answered ${String(answer.statusCode)}: ${body.toString('utf8').slice(0, 300)}`));
        });
      });
      asked.on('error', reject);
      asked.end();
    });
}

const AT_ONCE = 50_000;

/** Writes the rows while no scheduler has the database. */
async function fill(plane: ControlPlane, workspaceId: string, rows: number): Promise<void> {
  const databaseUrl = plane.databaseUrl === '' ? undefined : plane.databaseUrl;
  const log = createLog({ name: 'bench', level: 'silent' });
  const db = await openDb({ databaseUrl, dataDir: plane.dataDir, log });
  try {
    await db.query(
      `insert into event_counters (workspace_id, last_seq) values ($1, 10000000 + $2::integer)
       on conflict (workspace_id) do update set last_seq = excluded.last_seq`,
      [workspaceId, rows],
    );
    for (let from = 1; from <= rows; from += AT_ONCE)
      for (const sql of FILL) await db.query(sql, [workspaceId, from, Math.min(rows, from + AT_ONCE - 1), rows]);
    await db.query(SUMS, [workspaceId]);
    await db.query('analyze');
  } finally {
    await db.close();
  }
}

/** Tasks lie over the last day; each 50th failed. */
const AT = "now() - ($4::integer - n) * (interval '1 day' / $4::integer)";
const OWNERS = `owners as (
  select id as deployment_id, stub_id, row_number() over (order by id) - 1 as place, count(*) over () as owners
  from deployments where workspace_id = $1)`;
const OF_ROW = `from generate_series($2::integer, $3::integer) n join owners on owners.place = n % owners.owners`;
const FILL = [
  `with ${OWNERS} insert into tasks (id, workspace_id, stub_id, deployment_id, queue, kind, sync, status, attempt, rank,
     container_id, failure_reason, result, created_at, started_at, ended_at, duration_ms)
   select gen_random_uuid()::text, $1, stub_id, deployment_id, 'tq-' || deployment_id, 'endpoint', true,
     case when n % 50 = 0 then 'ERROR' else 'COMPLETE' end, 1, 3, 'endpoint-' || stub_id || '-00000001',
     case when n % 50 = 0 then 'user_code' else '' end, '{"greeting": "Hello, bench!", "row": ' || n || '}',
     ${AT}, ${AT} + interval '5 ms', ${AT} + interval '45 ms', 40 ${OF_ROW}`,
  `with ${OWNERS} insert into events (workspace_id, seq, id, type, at, stored_at, stub_id, deployment_id, data)
   select $1, 10000000 + n, lpad(to_hex(n), 24, '0'), case when n % 20 = 0 then 'container.lifecycle'
     when n % 100 = 7 then 'audit.deployment.scale' else 'task.updated' end, ${AT}, ${AT}, stub_id, deployment_id,
     json_build_object('status', 'COMPLETE') ${OF_ROW}`,
  `with ${OWNERS} insert into log_lines (workspace_id, stub_id, deployment_id, container_id, stream, line, at)
   select $1, stub_id, deployment_id, 'endpoint-' || stub_id || '-00000001', 'stdout', 'a line of a handler, number ' || n,
     ${AT} ${OF_ROW}`,
];
/** Waits of 4 to 8 ms, runs of 32 to 64 ms (domain/task-histogram.ts). */
const SUMS = `insert into task_stats (workspace_id, bucket, stub_id, deployment_id, status, calls, counts)
  select workspace_id, to_timestamp(floor(extract(epoch from ended_at) / 300) * 300), stub_id, coalesce(deployment_id, ''),
    status, count(*), count(*) * (('1' || repeat('0', 12 * 3))::numeric + ('1' || repeat('0', 12 * 30))::numeric)
  from tasks where workspace_id = $1 and rank >= 3 group by 1, 2, 3, 4, 5 on conflict do nothing`;

// `events`: live streams, and lists over many rows. Memory of idle streams; the time from a stored event to its arrival
// at every one of them; processor time of a call with a webhook and without one. Lists of tasks, events and log lines
// of a workspace with many rows, beside one with few.
import { Agent, request } from 'node:http';
import type { ClientRequest } from 'node:http';
import { createLog } from '#shared/log.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { COLLECTING, ControlPlane, until } from '../control-plane.ts';
import type { IdleApp } from '../control-plane.ts';
import { load } from '../load.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { percentile } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';
import { webhookCost } from './webhook-cost.ts';

const FULL = { streams: 1_000, events: 50, few: 10_000, many: 5_000_000, seconds: 3 } as const;
const QUICK = { streams: 200, events: 10, few: 1_000, many: 20_000, seconds: 1 } as const;
const ARRIVE_MS = 60_000;
/** Events that are not measured. */
const WARM_UP = 3;
const INSERTED_AT_ONCE = 250_000;
const LISTS = { tasks: 'task/{ws}?limit=100', events: 'events/{ws}/history?limit=100', logs: 'logs/{ws}?limit=100' };

export async function events(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack, isQuick } = context;
  const size = isQuick ? QUICK : FULL;
  const plane = await ControlPlane.start(place, await context.postgres(), 'events', COLLECTING);
  const [app] = await plane.deploy(1, 'told', { stubType: 'taskqueue/deployment', maxPendingTasks: 100_000 });
  if (app === undefined) throw new Error('nothing was deployed');
  const live = await context.runRounds('events', async () => {
    place.signal.throwIfAborted();
    return { baseline: undefined, product: await streams(plane, app, size, place.signal) };
  });
  const calls = await webhookCost(context);
  const log = createLog({ name: 'bench', level: 'silent' });
  const db = await openDb({ databaseUrl: plane.databaseUrl, dataDir: place.directory, log });
  place.later(() => db.close());
  const [few, many] = [await aWorkspace(plane, 'few'), await aWorkspace(plane, 'many')];
  for (const [{ id }, rows] of [[few, size.few] as const, [many, size.many] as const]) await fill(db, id, rows);
  await db.query('analyze');
  const listed = async ({ id, token }: Workspace): Promise<Readonly<Record<string, number>>> => {
    const times: Record<string, number> = {};
    for (const [name, path] of Object.entries(LISTS)) {
      place.signal.throwIfAborted();
      const url = `${plane.client.context.url}/api/v1/${path.replace('{ws}', id)}`;
      const headers = { authorization: `Bearer ${token}` };
      const expected = await (await fetch(url, { headers })).text();
      const target = { method: 'GET', url, headers, expected } as const;
      times[name] = (await load(target, 1, { seconds: size.seconds })).figures['p50'] ?? Number.NaN;
    }
    return times;
  };
  const lists = await context.runRounds(
    'events',
    inTurn(
      () => listed(few),
      () => listed(many),
    ),
  );
  return {
    measures: [
      measureOf('events', 'stream', 'KiB', live, slack),
      measureOf('events', 'arrival p50', 'ms', live, slack),
      measureOf('events', 'arrival p99', 'ms', live, slack),
      measureOf('events', 'call', 'us', calls, slack),
      ...Object.keys(LISTS).map((name) => measureOf('events', name, 'ms', lists, slack)),
    ],
    rounds: [...live, ...calls, ...lists],
  };
}

/** Opens streams, measures what they cost while nothing happens, and when events reach them. */
async function streams(
  plane: ControlPlane,
  app: IdleApp,
  { streams: count, events: told }: { readonly streams: number; readonly events: number },
  signal: AbortSignal,
): Promise<Readonly<Record<string, number>>> {
  const { url, token, workspaceId } = plane.client.context;
  const address = `${url}/api/v1/events/${workspaceId}/stream?event_types=task.created`;
  const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  const arrivals: number[] = [];
  const open: ClientRequest[] = [];
  const dial = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const one = request(address, { agent, headers: { authorization: `Bearer ${token}` } }, (response) => {
        response.setEncoding('utf8');
        response.on('error', () => undefined);
        response.on('data', (text: string) => {
          const nowMs = Date.now();
          for (const [, ns] of text.matchAll(/"stored_at_ns":(\d+)/g)) arrivals.push(nowMs - Number(ns) / 1e6);
        });
        response.once('data', () => resolve());
      });
      one.once('error', reject);
      one.end();
      open.push(one);
    });
  try {
    await dial();
    const held = async (): Promise<number> => {
      await plane.collect();
      return (await plane.usage()).rssMib;
    };
    const before = await held();
    for (let n = 1; n < count; n += 1) await dial();
    const kib = (((await held()) - before) * 1024) / (count - 1);
    // The first events come right after a full collection of garbage, with code that has yet to be compiled.
    const first = WARM_UP * count;
    for (let n = 1; n <= WARM_UP + told; n += 1) {
      await plane.put(app, { n });
      await until('an event is everywhere', () => arrivals.length >= n * count, ARRIVE_MS, signal);
    }
    arrivals.splice(0, first);
    return { stream: kib, 'arrival p50': percentile(arrivals, 50), 'arrival p99': percentile(arrivals, 99) };
  } finally {
    for (const one of open) one.destroy();
    agent.destroy();
  }
}

interface Workspace {
  readonly id: string;
  readonly token: string;
}

async function aWorkspace(plane: ControlPlane, name: string): Promise<Workspace> {
  const made = await plane.client.restCall('POST', '/workspace', { name });
  return { id: String(made['id']), token: String(made['token']) };
}

/** Rows of a workspace as months of work leave them, a second apart. */
async function fill(db: Db, workspaceId: string, rows: number): Promise<void> {
  await db.query('insert into event_counters (workspace_id, last_seq) values ($1, $2)', [workspaceId, rows]);
  for (let from = 1; from <= rows; from += INSERTED_AT_ONCE) {
    const params = [workspaceId, from, Math.min(rows, from + INSERTED_AT_ONCE - 1), rows];
    for (const sql of FILL) await db.query(sql, params);
  }
}

const AT = "now() - ($4::int - n) * interval '1 second'";
const FILL = [
  `insert into tasks (id, workspace_id, stub_id, queue, kind, sync, status, attempt, rank, created_at, ended_at)
   select gen_random_uuid()::text, $1, 'stub-' || n % 50, 'tq-s', 'endpoint', true, 'COMPLETE', 1, 4, ${AT}, ${AT}
   from generate_series($2::int, $3::int) n`,
  `insert into events (workspace_id, seq, id, type, at, stored_at, stub_id, task_id, data)
   select $1, n, lpad(to_hex(n), 24, '0'), 'task.updated', ${AT}, ${AT}, 'stub-' || n % 50, gen_random_uuid()::text,
     json_build_object('status', 'COMPLETE') from generate_series($2::int, $3::int) n`,
  `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
   select $1, 'stub-' || n % 50, 'container-' || n % 500, 'stdout', 'a line of a handler', ${AT}
   from generate_series($2::int, $3::int) n where $4::int > 0`,
];

// Three scheduler processes and twenty simulated agents under load, and the leader killed in the middle of it.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import type { Answer } from '../helpers/platform.ts';
import type { Replica, SimulatedDeployment } from '../helpers/replicas.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const AGENTS = 20;
/** Calls that every caller makes while the new leader leads. */
const CALLS_AFTER = 20;

const test = base.extend('set', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<ReplicaSet> => {
  const set = new ReplicaSet(postgres, redis);
  onCleanup(() => set.stop());
  for (let n = 0; n < 3; n += 1) await set.add();
  for (let n = 0; n < AGENTS; n += 1) await set.agent({ cpuMillicores: 2000 });
  return set;
});

/** The answer to one call; undefined: the connection broke with the process that was called. */
interface Called {
  readonly at: Replica;
  readonly answer: Answer | undefined;
}

/** A caller at work, and its calls so far. */
interface Load {
  readonly at: Replica;
  readonly calls: readonly Called[];
  readonly over: Promise<void>;
}

const isLinkedAgain = (set: ReplicaSet): boolean =>
  set.agents.every((agent) => set.running.some((one) => one.agentAddress === agent.linkedTo));

/** Calls one after another until `isOver`, at one replica as long as it runs. */
async function caller(
  set: ReplicaSet,
  at: Replica,
  path: string,
  isOver: () => boolean,
  calls: Called[],
): Promise<void> {
  while (!isOver() && at.daemon.isRunning) {
    const answer = await set.call(at, path, { body: { sleepMs: 20 + (calls.length % 5) * 20 } }).catch(() => undefined);
    calls.push({ at, answer });
  }
}

test(
  'Leader dies / two leaders: another leads within 15 s of a kill under load, no container is there twice, no task is lost, no caller hangs',
  { timeout: 180_000 },
  async ({ set }) => {
    const leader = await waitFor(() => set.leader(), 'somebody leads');
    const [helper] = set.replicas.filter((replica) => replica !== leader);
    if (helper === undefined) throw new Error('there is no other replica');
    const autoscaler = { type: 'queue_depth', tasksPerContainer: 2, maxContainers: 6, minContainers: 0 };
    const app = await set.deploy(helper, 'endpoint', { autoscaler });
    const queue = await set.deploy(helper, 'queue', {
      stubType: 'taskqueue/deployment',
      autoscaler,
      keepWarmSeconds: 10,
    });
    let over = false;
    const isOver = (): boolean => over;
    const load = (at: Replica, path: string): Load => {
      const calls: Called[] = [];
      return { at, calls, over: caller(set, at, path, isOver, calls) };
    };
    const callers = set.replicas.flatMap((at) => [load(at, app.path), load(at, app.path)]);
    const putters = set.replicas.map((at) => load(at, queue.path));
    await waitFor(
      () => new Set(set.agents.flatMap(({ runs }) => runs.map((run) => run.containerId))).size >= 2,
      'several containers work',
      30_000,
    );

    const killedAtMs = performance.now();
    await leader.daemon.kill();
    const next = await waitFor(async () => (await set.leader()) ?? false, 'another replica leads', 15_000);
    expect(performance.now() - killedAtMs).toBeLessThan(15_000);
    expect(next).not.toBe(leader);
    // The new leader decides: a deployment without containers gets one.
    const fresh = await set.deploy(helper, 'fresh');
    expect((await set.call(helper, fresh.path, { body: {} })).status).toBe(200);
    await waitFor(() => isLinkedAgain(set), 'every agent is linked again', 30_000);
    const living = [...callers, ...putters].filter(({ at }) => at !== leader);
    const before = living.map(({ calls }) => calls.length);
    await waitFor(
      () => living.every(({ calls }, n) => calls.length >= (before[n] ?? 0) + CALLS_AFTER),
      'every caller of a living replica was answered again and again',
      60_000,
    );
    over = true;

    await Promise.all([...callers, ...putters].map((each) => each.over));
    const called = callers.flatMap(({ calls }) => calls);
    const put = putters.flatMap(({ calls }) => calls);
    expect(called.length).toBeGreaterThan(100);
    // An order that was on its way to a killed replica may have been sent: its call ends, and does not run again.
    const lost = called.filter(({ at, answer }) => at !== leader && answer?.status === 502);
    expect(lost.length).toBeLessThanOrEqual(callers.length / 2);
    for (const { at, answer } of called) {
      if (at === leader ? answer === undefined : answer?.status === 502) continue;
      expect(answer?.status, `at ${at.name}: ${answer?.text}`).toBe(200);
    }
    await everyTaskEnded(set, helper, put, queue);
    // No synchronous task ran twice, and no container was made twice.
    const asynchronous = new Set(put.map(({ answer }) => idOf(answer)));
    const runs = set.agents
      .flatMap((agent) => agent.runs.map((run) => run.taskId))
      .filter((id) => !asynchronous.has(id));
    expect(twice(runs)).toEqual([]);
    expect(twice(set.agents.flatMap((agent) => agent.creations.map(({ containerId }) => containerId)))).toEqual([]);
    for (const one of [app, queue]) {
      const present = (): string[] =>
        set.agents.flatMap((agent) => agent.present).filter((id) => id.includes(one.stubId));
      // A draining container does not count as live, and stays until its own replica has seen it idle.
      await waitFor(() => present().length <= autoscaler.maxContainers, 'no more containers than the bound', 10_000);
    }
    expect(isLinkedAgain(set)).toBe(true);
  },
);

test(
  'a leader that stood still while another began to lead only follows when it goes on, and serves as before',
  { timeout: 120_000 },
  async ({ set }) => {
    const frozen = await waitFor(() => set.leader(), 'somebody leads');
    frozen.daemon.freeze();
    const next = await waitFor(
      async () => {
        const leader = await set.leader();
        return leader !== undefined && leader !== frozen && leader;
      },
      'another replica leads',
      20_000,
    ).finally(() => frozen.daemon.thaw());
    const leads = async (at: Replica): Promise<boolean> =>
      (await set.call(at, '/metrics', { token: '' })).text.includes('longshore_scheduler_leader{shard="0"} 1');
    await waitFor(async () => !(await leads(frozen)), 'the one that stood still follows');
    await waitFor(() => leads(next), 'the other one says that it leads');
    const app = await set.deploy(frozen, 'after');
    for (const at of set.running) expect((await set.call(at, app.path, { body: {} })).status).toBe(200);
    expect(twice(set.agents.flatMap((agent) => agent.creations.map(({ containerId }) => containerId)))).toEqual([]);
  },
);

const idOf = (answer: Answer | undefined): string | undefined =>
  answer === undefined ? undefined : jsonOf<{ task_id?: string }>(answer).task_id;

/**
 * Every accepted asynchronous task is COMPLETE. Tasks whose putter's
 * connection broke are known to no caller, and end all the same.
 */
async function everyTaskEnded(
  set: ReplicaSet,
  at: Replica,
  put: readonly Called[],
  queue: SimulatedDeployment,
): Promise<void> {
  const ids = put.map(({ answer }) => idOf(answer)).filter((id) => id !== undefined);
  expect(ids.length).toBeGreaterThan(20);
  for (const { answer } of put) if (answer !== undefined) expect([200, 429], answer.text).toContain(answer.status);
  const statuses = new Map<string, string>();
  await waitFor(
    async () => {
      for (const id of ids) {
        if (statuses.get(id) === 'COMPLETE') continue;
        statuses.set(id, String(jsonOf(await set.call(at, `/api/v1/task/${set.workspaceId}/${id}`))['status']));
      }
      return [...statuses.values()].every((status) => status === 'COMPLETE');
    },
    'every accepted task is COMPLETE',
    60_000,
  ).catch((error: unknown) => {
    throw new Error(
      `tasks of ${queue.deploymentId} did not end: ${JSON.stringify([...statuses].filter(([, status]) => status !== 'COMPLETE').slice(0, 10))}`,
      { cause: error },
    );
  });
}

function twice(values: readonly string[]): string[] {
  const seen = new Set<string>();
  return values.filter((value) => seen.has(value) || !seen.add(value));
}

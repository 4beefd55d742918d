// Several scheduler processes on one Postgres and one Redis: answers, decisions, caches and recovery after a death,
// with agents that speak the real protocol.
/* oxlint-disable no-empty-pattern */
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect } from 'vitest';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Replica } from '../helpers/replicas.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface Two {
  readonly set: ReplicaSet;
  /** Pools file, which declares nothing at the start. */
  readonly poolsFile: string;
  /** No machine is linked to it. */
  readonly far: Replica;
  /** The replica that all machines are linked to. */
  readonly near: Replica;
}

const test = base.extend('two', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<Two> => {
  const directory = tempDirectory('pools');
  const poolsFile = join(directory.path, 'pools.json');
  writeFileSync(poolsFile, '{"pools": {}}');
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_POOLS_FILE: poolsFile });
  onCleanup(async () => {
    await set.stop();
    directory.remove();
  });
  const far = await set.add();
  const near = await set.add();
  for (let n = 0; n < 2; n += 1) await set.agent({ addresses: () => [near.agentAddress] });
  return { set, poolsFile, far, near };
});

test('a call at one replica runs on a machine linked to another, and is answered', async ({ two }) => {
  const { set, far, near } = two;
  const app = await set.deploy(far, 'crossing');
  const answer = await set.call(far, app.path, { body: { n: 1 } });
  expect(answer.status, answer.text).toBe(200);
  expect(jsonOf(answer)).toMatchObject({ n: 1, machineId: expect.any(String) });
  const local = await set.call(near, app.path, { body: { n: 2 } });
  expect(jsonOf(local)).toMatchObject({ n: 2 });
  await waitFor(async () => {
    const task = await set.call(far, `/api/v1/task/${set.workspaceId}/${answer.taskId}`);
    return jsonOf(task)['status'] === 'COMPLETE';
  }, 'the task is COMPLETE in the records');
});

test('a list directly after an answer has its task, at either replica, through the gateway and the REST API', async ({
  two,
}) => {
  const { set, far, near } = two;
  const app = await set.deploy(far, 'listed');
  await set.call(far, app.path, { body: {} });
  for (const at of [far, near]) {
    const { taskId } = await set.call(at, app.path, { body: {} });
    const [gateway, rest] = await Promise.all([
      set.call(at, `/api/v1/gateway/tasks?filters=stub-id=${app.stubId}&limit=1000`),
      set.call(at, `/api/v1/task/${set.workspaceId}?stub_ids=${app.stubId}&skip_details=true`),
    ]);
    for (const list of [jsonOf(gateway)['tasks'], jsonOf(rest)['data']]) {
      expect(list).toContainEqual(expect.objectContaining({ id: taskId, status: 'COMPLETE' }));
    }
  }
});

test('what a generator yields crosses replicas as it comes, all of it, and a caller who hangs up ends it', async ({
  two,
}) => {
  const { set, far } = two;
  const app = await set.deploy(far, 'yielding');
  const whole = await set.call(far, app.path, { body: { items: 3 } });
  expect(whole).toMatchObject({ status: 200, text: 'data: {"n":0}\n\ndata: {"n":1}\n\ndata: {"n":2}\n\n' });
  const task = jsonOf(await set.call(far, `/api/v1/task/${set.workspaceId}/${whole.taskId}`));
  expect(task).toMatchObject({ status: 'COMPLETE', result: [{ n: 0 }, { n: 1 }, { n: 2 }] });

  const leaving = new AbortController();
  const begun = await fetch(`${far.url}${app.path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${set.token}` },
    body: JSON.stringify({ items: 1, sleepMs: 60_000 }),
    signal: leaving.signal,
  });
  const first = await begun.body?.getReader().read();
  expect(Buffer.from(first?.value ?? []).toString()).toBe('data: {"n":0}\n\n');
  leaving.abort();
  const taskId = begun.headers.get('x-task-id') ?? '';
  await waitFor(async () => {
    const read = await set.call(far, `/api/v1/task/${set.workspaceId}/${taskId}`);
    return jsonOf(read)['status'] === 'CANCELLED';
  }, 'the generator nobody reads is CANCELLED');
});

test('a schedule that is deployed again ends what it runs and serves what waits, each in one attempt', async ({
  two,
}) => {
  const { set, far, near } = two;
  const autoscaler = { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 1 };
  const yearly = { stubType: 'schedule/deployment', extra: '{"when": "@yearly"}', autoscaler };
  const first = await set.deploy(far, 'nightly', yearly);
  const read = async (taskId: string) =>
    jsonOf<{ readonly status: string }>(await set.call(far, `/api/v1/task/${set.workspaceId}/${taskId}`));
  const put = async (sleepMs: number): Promise<string> =>
    (await set.call(far, first.path, { body: { sleepMs } })).taskId;
  const running = await put(3_000);
  await waitFor(async () => (await read(running)).status === 'RUNNING', 'one runs');
  const waiting = await put(0);
  expect((await read(waiting)).status).toBe('PENDING');
  await set.deploy(near, 'nightly', { ...yearly, env: ['V=2'] });
  expect((await set.call(far, `${first.path}/v1`, { body: {} })).status).toBe(400);
  for (const taskId of [running, waiting]) {
    await waitFor(async () => (await read(taskId)).status === 'COMPLETE', 'it is COMPLETE');
    expect(set.agents.flatMap((agent) => agent.runs).filter((run) => run.taskId === taskId)).toHaveLength(1);
  }
  await waitFor(async () => {
    const { containers } = await set.gateway<{ readonly containers: { readonly stubId: string }[] }>(
      far,
      '/containers',
    );
    return containers.every(({ stubId }) => stubId !== first.stubId);
  }, 'its container is not kept warm for anybody');
});

test('a container’s credential is good at every replica, and at none as soon as its end is ordered at any', async ({
  two,
}) => {
  const { set, far, near } = two;
  for (const [replica, other] of [
    [far, near],
    [near, far],
  ] as const) {
    const app = await set.deploy(replica, `credential-${replica.name}`);
    const answer = await set.call(replica, app.path, { body: {} });
    const { containerId } = jsonOf<{ readonly containerId: string }>(answer);
    const token = set.agents.map((agent) => agent.tokens.get(containerId)).find((one) => one !== undefined) ?? '';
    const ask = async (at: Replica): Promise<number> =>
      (await set.call(at, '/api/v1/workspace/current', { token })).status;
    // The row decides while the other replica has not heard of the container yet.
    expect([await ask(other), await ask(replica)]).toEqual([200, 200]);
    await set.gateway(replica, `/containers/${containerId}/stop`, {});
    expect([await ask(other), await ask(replica)]).toEqual([401, 401]);
  }
});

/**
 * Redis commands that carry one of these texts, or go to a replica's own channel, while `work` runs. Read over a plain
 * connection: when a command arrives together with the answer to MONITOR, a client takes it for another answer.
 */
async function commandsDuring(
  set: ReplicaSet,
  about: readonly string[],
  work: (seen: readonly string[]) => Promise<void>,
): Promise<string[]> {
  const socket = connect(set.redis.options.path ?? '');
  const seen: string[] = [];
  const { promise: watching, resolve, reject } = Promise.withResolvers<void>();
  socket.once('error', reject);
  createInterface({ input: socket }).on('line', (line) => {
    if (line === '+OK') return resolve();
    const [, source = '', command = ''] = /^\+[\d.]+ \[\d+ ([^\]]*)\] (.*)$/.exec(line) ?? [];
    // Commands inside a script count as part of the script.
    if (source === 'lua') return;
    const text = [...command.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, one = '']) => one).join(' ');
    if (about.some((one) => text.includes(one)) || /^publish ls:(replies|links|lines):/i.test(text)) seen.push(text);
  });
  socket.write('MONITOR\r\n');
  try {
    await watching;
    await work(seen);
    return seen;
  } finally {
    socket.destroy();
  }
}

/** Waits until a task of the deployment runs, as any replica lists it. @returns its id */
const runningOf = (set: ReplicaSet, at: Replica, stubId: string): Promise<string> =>
  waitFor(
    async () => {
      const { tasks } = await set.gateway<{ tasks: { id: string; status: string; stubId: string }[] }>(
        at,
        '/tasks?limit=100',
      );
      return tasks.find((task) => task.stubId === stubId && task.status === 'RUNNING')?.id;
    },
    'the task runs',
    15_000,
  );

test('a warm call costs no command of Redis; one that crosses replicas costs an offer and an answer', async ({
  two,
}) => {
  const { set, far, near } = two;
  const app = await set.deploy(far, 'counted');
  const queue = `tq-${app.deploymentId}`;
  // Warm on both: caches are filled, and each knows the free slots of the other.
  for (const replica of [far, near, far]) expect((await set.call(replica, app.path, { body: {} })).status).toBe(200);
  const calls = 20;
  const countAt = async (replica: Replica): Promise<readonly string[]> => {
    const taskIds: string[] = [];
    const tellsCounts = (text: string): boolean => /^publish ls:line-counts/i.test(text);
    const seen = await commandsDuring(set, [queue, app.stubId, 'ls:line-counts'], async (commands) => {
      for (let n = 0; n < calls; n += 1) taskIds.push((await set.call(replica, app.path, { body: { n } })).taskId);
      const before = commands.length;
      // Each replica tells something at least once a second.
      const isLater = (text: string): boolean => tellsCounts(text) && text.includes(replica.instance);
      await waitFor(() => commands.slice(before).some(isLater), 'the replica has told its counts after the last call');
    });
    expect(new Set(taskIds).size).toBe(calls);
    // Counts of lines and loads of containers are told a few times a second, and so often the scaling loop looks at the
    // queue, however many calls there are.
    const isPeriodic = (text: string): boolean =>
      tellsCounts(text) || /^publish ls:decide .*loads/i.test(text) || /:wait \S+:active \S+:delayed/.test(text);
    return seen.filter((text) => !isPeriodic(text));
  };
  expect(await countAt(near)).toEqual([]);
  const crossing = await countAt(far);
  // The first call may have to wait until this replica hears of a free slot there. The other one is told of it, and
  // keeps a slot (`room`). Where the offer left before this replica heard so, it answers `none`.
  const isOfKeeping = (text: string): boolean => /^publish ls:lines:\S+ \[\[\\"(room|none)\\"/i.test(text);
  const kinds = crossing
    .filter((text) => !isOfKeeping(text))
    .map((text) => /^publish ls:(lines|replies):/i.exec(text)?.[1] ?? text);
  expect(kinds.toSorted()).toEqual([...Array<string>(calls).fill('lines'), ...Array<string>(calls).fill('replies')]);
  expect(crossing.filter(isOfKeeping).length).toBeLessThanOrEqual(calls * 0.2);
}, 60_000);

test('a task stopped at one replica ends at the other, where its handler runs and its caller waits', async ({
  two,
}) => {
  const { set, far, near } = two;
  const app = await set.deploy(far, 'stoppable');
  const call = set.call(far, app.path, { body: { sleepMs: 30_000 } });
  const taskId = await runningOf(set, near, app.stubId);
  await set.gateway(far, '/tasks/stop', { taskIds: [taskId] });
  expect((await call).status).toBe(503);
  // The slot is free at once: nothing waits for the thirty seconds.
  const next = await set.call(far, app.path, { body: { n: 2 } });
  expect(jsonOf(next)).toMatchObject({ n: 2 });
});

test('a deployment stopped at one replica: callers at the other are answered at once, and the very next request there is refused', async ({
  two,
}) => {
  const { set, far, near } = two;
  const app = await set.deploy(near, 'stopped');
  expect((await set.call(far, app.path, { body: {} })).status).toBe(200);
  const startedAt = performance.now();
  const cutOff = set.call(far, app.path, { body: { sleepMs: 30_000 } });
  await runningOf(set, near, app.stubId);
  await set.gateway(near, `/deployments/${app.deploymentId}/stop`, {});
  const refused = await set.call(far, app.path, { body: {} });
  const there = await set.call(near, app.path, { body: {} });
  expect(refused.status).not.toBe(200);
  expect([refused.status, refused.text]).toEqual([there.status, there.text]);
  const answer = await cutOff;
  expect([answer.status, answer.text]).toEqual([503, '{"error":"deployment stopped"}']);
  expect(performance.now() - startedAt).toBeLessThan(20_000);
});

test('a token switched off at one replica is refused by the very next request at the other', async ({ two }) => {
  const { set, far, near } = two;
  for (let round = 0; round < 10; round += 1) {
    const made = await set.gateway<{ token: { tokenId: string; key: string } }>(far, '/tokens', {});
    const { tokenId, key } = made.token;
    expect((await set.call(near, '/api/v1/gateway/tasks?limit=1', { token: key })).status).toBe(200);
    await set.gateway(far, `/tokens/${tokenId}/toggle`, {});
    expect((await set.call(near, '/api/v1/gateway/tasks?limit=1', { token: key })).status).not.toBe(200);
  }
});

test('a container linked to another replica than the leader is let go when it is idle, and not before', async ({
  two,
}) => {
  const { set, far, near } = two;
  expect(await set.leader()).toBe(far);
  const app = await set.deploy(near, 'leaving', { keepWarmSeconds: 1 });
  const first = jsonOf<{ containerId: string }>(await set.call(near, app.path, { body: {} }));
  // The container works for longer than its keep-warm, and is never idle for as long.
  for (let n = 0; n < 6; n += 1) {
    const answer = jsonOf<{ containerId: string }>(await set.call(near, app.path, { body: { sleepMs: 400 } }));
    expect(answer.containerId).toBe(first.containerId);
  }
  const isThere = (): boolean => set.agents.some((agent) => agent.present.includes(first.containerId));
  expect(isThere()).toBe(true);
  await waitFor(() => !isThere(), 'the idle container is gone', 20_000);
});

test('Replica dies: what it had fetched and not sent is back in its queue within seconds; what it had sent is not', async ({
  two,
}) => {
  const { set, far } = two;
  const queues = await openTaskQueues({
    client: set.redis,
    log: createLog({ name: 'test', level: 'silent' }),
    prefix: set.prefix,
  });
  try {
    // The request exceeds any machine, so no replica fetches the tasks.
    const app = await set.deploy(far, 'abandoned', { stubType: 'taskqueue/deployment', memory: 30_000 });
    const queue = `tq-${app.deploymentId}` as QueueName;
    const put = async (): Promise<TaskId> =>
      jsonOf<{ task_id: TaskId }>(await set.call(far, app.path, { body: {} })).task_id;
    const [fetchedOnly, sent, sentBefore] = [await put(), await put(), await put()];
    const dead = newInstanceId();
    const lockOf = new Map<TaskId, string>();
    for (const taskId of [fetchedOnly, sent, sentBefore]) {
      const lock = lockTokenOf(dead, newAttemptToken());
      const { job } = await queues.fetch(queue, lock);
      expect(job?.taskId).toBe(taskId);
      lockOf.set(taskId, lock);
    }
    await set.redis.set(`ls:lease:${sent}`, JSON.stringify({ lock: lockOf.get(sent) }), 'EX', 100);
    // An earlier attempt of this task was sent, and asked for a retry; the current one was never sent.
    const earlier = lockTokenOf(newInstanceId(), newAttemptToken());
    await set.redis.set(`ls:lease:${sentBefore}`, JSON.stringify({ lock: earlier }), 'EX', 100);
    await set.redis.sadd('ls:instances', dead);
    await waitFor(async () => (await queues.lockOf(queue, fetchedOnly)) === undefined, 'the job is given back', 20_000);
    await waitFor(async () => (await queues.depth(queue)).waiting === 2, 'the other one, too', 20_000);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 2, active: 1 });
    expect(await queues.lockOf(queue, sent)).toBeDefined();
    await waitFor(async () => !(await set.redis.smembers('ls:instances')).includes(dead), 'the dead one is forgotten');
  } finally {
    await queues.close();
  }
});

test('a drain of a machine linked to another replica waits for what runs there', async ({ two }) => {
  const { set, far, near } = two;
  expect(await set.leader()).toBe(far);
  const app = await set.deploy(near, 'drained');
  const warm = jsonOf<{ machineId: string }>(await set.call(near, app.path, { body: {} }));
  const running = set.call(near, app.path, { body: { sleepMs: 3_000 } });
  await runningOf(set, near, app.stubId);
  await set.gateway(near, `/workers/${warm.machineId}/drain`, {});
  expect((await running).status).toBe(200);
  const agent = set.agents.find(({ machineId }) => machineId === warm.machineId);
  await waitFor(() => agent?.present.length === 0, 'the machine is empty', 20_000);
  await set.gateway(near, `/workers/${warm.machineId}/uncordon`, {});
  expect((await set.call(far, app.path, { body: {} })).status).toBe(200);
});

test('a machine that dials another replica in the middle of a task takes it along: nothing of it stays where it was, and its caller there is answered', async ({
  two,
}) => {
  const { set, far, near } = two;
  let dials = near;
  // Only this machine is large enough.
  const agent = await set.agent({ addresses: () => [dials.agentAddress], memoryBytes: 24 * 2 ** 30 });
  const app = await set.deploy(near, 'moving', { memory: 20_000 });
  const runningAt = async (replica: Replica): Promise<number> => {
    const page = (await set.call(replica, '/metrics')).text;
    return Number(/^longshore_task_running_attempts (\d+)$/m.exec(page)?.[1] ?? Number.NaN);
  };
  const answering = set.call(near, app.path, { body: { sleepMs: 4_000 } });
  await waitFor(() => agent.runs.length === 1, 'its handler runs', 20_000);
  dials = far;
  agent.hangUp();
  await waitFor(() => agent.linkedTo === far.agentAddress, 'it dials the other one');
  await waitFor(async () => (await runningAt(near)) === 0, 'the first one has let go of it');
  const answer = await answering;
  expect(answer.status, answer.text).toBe(200);
  expect(agent.runs).toHaveLength(1);
  expect(await runningAt(far)).toBe(0);
  await agent.stop();
});

test('settings of a pool, changed at one replica or by a file that one of them is told to read, hold at all of them', async ({
  two,
}) => {
  const { set, poolsFile, far, near } = two;
  interface Offered {
    readonly workers: readonly { readonly totalCpu: string; readonly priority: number }[];
  }
  const offered = async (replica: Replica) => {
    const { workers } = await set.gateway<Offered>(replica, '/workers');
    return workers.map((worker) => [Number(worker.totalCpu), worker.priority]);
  };
  const [[before = 0] = []] = await offered(near);
  // The pool of `longshore up` offers each core 8 times.
  const cores = before / 8;
  const areOffered = (times: number, priority: number) =>
    waitFor(async () => {
      for (const replica of [near, far])
        if ((await offered(replica)).some(([cpu, of]) => cpu !== cores * times || of !== priority)) return false;
      return true;
    }, `all machines are offered ${times} times at both`);
  const patch = async (replica: Replica, settings: object) =>
    jsonOf(await set.call(replica, '/api/v1/gateway/pools/default', { method: 'PATCH', body: { settings } }));

  expect(await patch(far, { cpuOvercommit: 2, priority: 3 })).toMatchObject({
    ok: true,
    pool: { settings: { cpuOvercommit: 2, priority: 3 }, declaredIn: '' },
  });
  await areOffered(2, 3);

  writeFileSync(poolsFile, '{"pools": {"default": {"cpuOvercommit": 4}}}');
  near.daemon.hangUp();
  await areOffered(4, 0);
  expect(await patch(far, { cpuOvercommit: 1 })).toMatchObject({
    ok: false,
    errMsg: expect.stringContaining(`the pool is declared in ${poolsFile}`) as string,
  });

  writeFileSync(poolsFile, '{"pools": {"default": {"cpuOvercommit": 400}}}');
  near.daemon.hangUp();
  await waitFor(() => near.daemon.log().includes('pools file not taken'), 'the bad file is said');
  expect(near.daemon.log()).toContain('pool default: cpuOvercommit must be a number from 1 to 64');
  await areOffered(4, 0);

  writeFileSync(poolsFile, '{"pools": {}}');
  near.daemon.hangUp();
  await waitFor(async () => (await patch(far, { cpuOvercommit: 8 }))['ok'] === true, 'operations change it again');
  await areOffered(8, 0);
});

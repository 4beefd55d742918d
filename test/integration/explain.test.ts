// Explanations of tasks, containers and deployments by real schedulers: the leader, and a follower. There is no
// machine, so the wanted containers stay without a place.
import { join } from 'node:path';
import { pino } from 'pino';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Value } from 'typebox/value';
import { Explanation } from '#shared/api/explain.ts';
import { HealthList } from '#shared/api/rest/deployment-health.ts';
import { loadConfig } from '#shared/config.ts';
import { SchedulerSettings } from '#scheduler/config.ts';
import { startScheduler } from '#scheduler/main.ts';
import type { Scheduler } from '#scheduler/main.ts';
import { aPostgres, aRedis, tempDirectory, waitFor } from '../helpers/services.ts';
import { NOBODY } from './verbs-fixture.ts';

type Json = Record<string, unknown>;
interface Person {
  readonly workspaceId: string;
  readonly token: string;
}

const directory = tempDirectory('explain');
const stopping: (() => Promise<unknown>)[] = [];
const schedulers: Scheduler[] = [];
let own: Person;
let other: Person;

beforeAll(async () => {
  const [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
  stopping.push(
    () => postgres.stop(),
    () => redis.stop(),
  );
  for (const name of ['leads', 'follows']) {
    const settings = loadConfig(
      SchedulerSettings,
      {
        LONGSHORE_DATA_DIR: join(directory.path, 'data'),
        LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
        LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
        DATABASE_URL: postgres.url,
        REDIS_URL: redis.url,
      },
      { known: [] },
    );
    const scheduler = await startScheduler(settings, pino({ level: 'silent', name }));
    schedulers.push(scheduler);
    stopping.unshift(() => scheduler.stop());
  }
  const first = await schedulers[0]?.ensureFirstWorkspace();
  const workspace = async (name: string): Promise<Person> => {
    const made = (await send(0, 'POST /api/v1/workspace', first?.token ?? '', { name })).json;
    return { workspaceId: String(made['id']), token: String(made['token']) };
  };
  own = await workspace('own');
  other = await workspace('other');
});
afterAll(async () => {
  for (const stop of stopping) await stop();
  directory.remove();
});

async function send(replica: number, line: string, token: string, body?: unknown) {
  const [method = 'GET', path = '/'] = line.split(' ');
  const answer = await request(`http://${schedulers[replica]?.httpAddress ?? ''}${path}`, {
    method: method as 'GET',
    headers: {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.statusCode, json: (await answer.body.json()) as Json };
}

const explained = (id: string, replica = 0, by = own) =>
  send(replica, `GET /api/v1/explain/${by.workspaceId}/${encodeURIComponent(id)}`, by.token);

async function explain(id: string, replica = 0): Promise<Explanation> {
  const { status, json } = await explained(id, replica);
  expect(status).toBe(200);
  expect([...Value.Errors(Explanation, json)]).toEqual([]);
  return json as unknown as Explanation;
}

async function deploy(name: string, said: Json = {}): Promise<string> {
  const gateway = '/api/v1/gateway';
  const autoscaler = { type: 'queue_depth', minContainers: 0, maxContainers: 5, tasksPerContainer: 3 };
  const stub = { stubType: 'taskqueue/deployment', name, handler: 'app:handler', cpu: 100, memory: 64, autoscaler };
  const made = await send(0, `POST ${gateway}/stubs`, own.token, { ...stub, env: [`N=${name}`], ...said });
  const deployed = await send(0, `POST ${gateway}/stubs/deploy`, own.token, { stubId: made.json['stubId'], name });
  expect(deployed.json['ok']).toBe(true);
  return String(deployed.json['deploymentId']);
}
const put = async (name: string): Promise<string> =>
  String((await send(0, `POST /taskqueue/${name}`, own.token, {})).json['task_id']);

test('a deleted deployment says when it was deleted, and not what ran under its name before', async () => {
  const gateway = '/api/v1/gateway';
  const stub = { stubType: 'sandbox', name: 'gone', cpu: 100, memory: 64 };
  const { stubId } = (await send(0, `POST ${gateway}/stubs`, own.token, stub)).json;
  const create = async (): Promise<string> =>
    String((await send(0, `POST ${gateway}/pods`, own.token, { stubId })).json['containerId']);
  const stop = (id: string) => send(0, `POST ${gateway}/containers/${id}/stop`, own.token, {});
  const before = await create();
  await stop(before);
  const ids = [await deploy('gone'), await deploy('gone', { env: ['V=2'] })];
  for (const id of ids) await send(0, `DELETE ${gateway}/deployments/${id}`, own.token);
  const deleted = await explain('gone');
  expect(deleted).toMatchObject({ kind: 'deployment', id: ids[1], state: 'DELETED', deployment: { version: 2 } });
  expect(deleted.summary).toBe(`gone v2 is DELETED: it was deleted at ${deleted.since}`);
  expect(await explain('gone/v1', 1)).toMatchObject({ id: ids[0], state: 'DELETED' });
  expect(await explain(ids[0] ?? '')).toMatchObject({ id: ids[0], state: 'DELETED' });
  expect((await explained(ids[0] ?? '', 0, other)).status).toBe(404);
  expect((await explained('gone', 0, other)).status).toBe(404);
  // A container that lives, or came later, is what somebody asks for.
  const later = await create();
  expect(await explain('gone')).toMatchObject({ kind: 'container', id: later });
  await stop(later);
  expect(await explain('gone')).toMatchObject({ kind: 'container', id: later });
  const again = await deploy('gone');
  expect(await explain('gone')).toMatchObject({ kind: 'deployment', id: again });
});

test('the name of a sandbox’s stub means its newest container, one that lives first', async () => {
  const gateway = '/api/v1/gateway';
  // A stub that names no cores and memory has those that clients send.
  const made = await send(0, `POST ${gateway}/stubs`, own.token, { stubType: 'sandbox', name: 'Box' });
  expect(made.json).toMatchObject({ ok: true });
  const { stubId } = made.json;
  const create = async (): Promise<string> =>
    String((await send(0, `POST ${gateway}/pods`, own.token, { stubId })).json['containerId']);
  const [first, second] = [await create(), await create()];
  expect(await explain('Box')).toMatchObject({ kind: 'container', id: second });
  await send(0, `POST ${gateway}/containers/${second}/stop`, own.token, {});
  expect(await explain('Box', 1)).toMatchObject({ id: first });
  await send(0, `POST ${gateway}/containers/${first}/stop`, own.token, {});
  expect(await explain('Box')).toMatchObject({ id: second, state: 'STOPPED' });
  expect((await explained('Box', 0, other)).status).toBe(404);
});

describe('a deployment', () => {
  test('for which no machine exists says that its calls are refused', async () => {
    const stub = { stubType: 'taskqueue/deployment', handler: 'app:handler', cpu: 100, memory: 64, gpu: 'H100' };
    expect((await send(0, 'POST /api/v1/gateway/stubs', own.token, stub)).json).toMatchObject({
      ok: true,
      warnMsg: expect.stringMatching(
        /^No machine .* has GPU H100; calls are refused until one does; ask for/,
      ) as string,
    });
    const found = await explain(await deploy('racing', { gpu: 'H100', gpuCount: 1 }));
    expect(found.details).toContain('calls are refused: no machine that this workspace may use has GPU H100');
    const { status, json } = await send(0, 'POST /taskqueue/racing', own.token, {});
    expect([status, JSON.stringify(json)]).toEqual([503, expect.stringContaining('has GPU H100')]);
  });

  test('whose pool there is not, has no machine, or none that came is deployed with a warning, and says which', async () => {
    const gateway = '/api/v1/gateway';
    const pool = { name: 'quarry' };
    const stub = {
      stubType: 'taskqueue/deployment',
      name: 'mining',
      handler: 'app:handler',
      cpu: 100,
      memory: 64,
      pool,
    };
    const warning = async () => String((await send(0, `POST ${gateway}/stubs`, own.token, stub)).json['warnMsg']);
    const admit = { poolName: 'quarry' };
    // The other workspace's pool of this name must not show.
    expect((await send(0, `POST ${gateway}/machines`, other.token, admit)).json['ok']).toBe(true);
    await deploy('mining', { pool });
    const none = await explain('mining');
    expect(none.summary).toContain('calls are refused: there is no pool quarry');
    expect(none.details).toContain('calls are refused: there is no pool quarry that this workspace may use');
    expect(none.next_steps).toEqual([expect.stringContaining('`longshore machine create --pool quarry`')]);
    expect(await warning()).toMatch(/^There is no pool quarry that this workspace may use; /);

    await send(0, `POST ${gateway}/pools`, own.token, pool);
    expect((await explain('mining')).details).toContain('calls are refused: pool quarry has no machine');
    expect(await warning()).toMatch(/^Pool quarry has no machine; /);

    const made = (await send(0, `POST ${gateway}/machines`, own.token, admit)).json['machine'] as Json;
    const id = String(made['id']);
    const coming = await explain('mining');
    expect(coming.summary).not.toContain('refused');
    expect(coming.details).toContain(`no machine of pool quarry has joined yet, though ${id} was admitted`);
    expect(await warning()).toContain(id);
    expect((await send(0, `DELETE ${gateway}/machines/${id}`, own.token)).json['ok']).toBe(true);
  });

  test('says from which numbers it wants how many containers, and why none of them has a place', async () => {
    const id = await deploy('crowded');
    for (let count = 0; count < 7; count += 1) await put('crowded');
    const found = await waitFor(async () => {
      const one = await explain(id);
      return one.scaling?.live === 3 && one.scaling.containers.every((c) => c.main_rejection !== '') && one;
    }, 'three containers are wanted, and were tried');
    expect(found).toMatchObject({
      kind: 'deployment',
      state: 'SCALING',
      leader_answered: true,
      summary:
        'crowded v1 is SCALING: 0 of 3 wanted containers are ready; 3 containers without a place: there is no machine',
      waits_for: 'a machine for 3 containers',
      scaling: {
        in_flight: 7,
        waiting: 7,
        tasks_per_container: 3,
        wanted: 3,
        ready: 0,
        bounds_from: 'stub',
        formula: '7 tasks / 3 per container = 3, between 0 and 5: 3 wanted',
        decision: { decision: 'hold', why: 'at_target' },
      },
    });
    expect(Date.parse(found.until ?? '')).toBeGreaterThan(Date.now() + 19 * 60_000);
    expect(found.details).toContain('3 containers without a place: there is no machine');
    expect(found.next_steps).toEqual(['admit a machine: `longshore machine create`']);
    const starts = found.scaling?.decisions.filter((made) => made.decision === 'start') ?? [];
    expect(starts.reduce((sum, made) => sum + made.containers, 0)).toBe(3);
  });

  test('is found by its name, and by its name and version', async () => {
    const first = await deploy('twice');
    const second = await deploy('twice', { env: ['N=second'] });
    expect((await explain('twice')).id).toBe(second);
    expect((await explain('twice/v1')).id).toBe(first);
    expect((await explained('twice/v3')).status).toBe(404);
  });

  test('shows bounds that a person set, and that it is stopped', async () => {
    const id = await deploy('bounded', { stubType: 'endpoint/deployment' });
    await send(0, `POST /api/v1/gateway/deployments/${id}/scale`, own.token, { containers: 2 });
    await waitFor(async () => (await explain(id)).scaling?.wanted === 2, 'two are wanted');
    expect((await explain(id)).scaling).toMatchObject({ bounds_from: 'scale', min_containers: 2, max_containers: 2 });
    await send(0, `POST /api/v1/gateway/deployments/${id}/stop`, own.token);
    const stopped = await waitFor(async () => {
      const one = await explain(id);
      return one.state === 'STOPPED' && one;
    }, 'it is stopped');
    expect(stopped.next_steps[0]).toContain('longshore deployment start bounded');
  });
});

test('the list of deployments by health says of each name what its explanation says, on every scheduler', async () => {
  await deploy('crowd-health');
  for (let count = 0; count < 4; count += 1) await put('crowd-health');
  await deploy('refused-health', { gpu: 'H100', gpuCount: 1 });
  await deploy('idle-health');
  const newest = await deploy('idle-health', { env: ['N=newer'] });
  const health = (replica: number, query: string, by = own) =>
    send(replica, `GET /api/v1/deployment-health/${by.workspaceId}?${query}`, by.token);
  await waitFor(
    async () => (await explain('crowd-health')).scaling?.containers.every((one) => one.main_rejection !== ''),
    'they were tried',
  );
  const seen = ({ data }: Json) =>
    (data as Json[]).map((row) => [row['name'], row['state'], row['needs_attention'], row['next_step']]);
  const said = ['crowd-health', 'refused-health', 'idle-health'].map(async (name) => {
    const { state, next_steps: steps } = await explain(name);
    return [name, state, name !== 'idle-health', steps[0] ?? ''];
  });
  const expected = await Promise.all(said);
  for (const replica of [0, 1])
    // An answer serves its readers for some seconds.
    await waitFor(async () => {
      const { json } = await health(replica, 'name=-health&limit=1000');
      expect([...Value.Errors(HealthList, json)]).toEqual([]);
      return JSON.stringify(seen(json)) === JSON.stringify(expected) && json['leader_answered'] === true;
    }, 'the rows say the same');
  const { json } = await health(1, 'name=idle-health');
  expect(json['data']).toMatchObject([
    { id: newest, version: 2, ready: 0, waiting: 0, summary: (await explain('idle-health')).summary },
  ]);
  const first = (await health(1, 'name=-health&limit=2')).json;
  const second = (await health(1, `name=-health&limit=2&cursor=${String(first['next'])}`)).json;
  expect([...seen(first), ...seen(second), second['next']]).toEqual([...expected, '']);
  expect((await health(0, 'limit=1000', other)).json).toMatchObject({ data: [], total: 0, states: {} });
  expect((await health(0, 'limit=1000', { ...own, token: other.token })).status).toBe(401);
  for (const [query, name] of [
    ['state=SLEEPY', 'state'],
    ['cursor=WzFd', 'cursor'],
  ] as const) {
    const refused = await health(0, query);
    expect([refused.status, refused.json['message']]).toEqual([400, expect.stringContaining(`parameter ${name} `)]);
  }
});

test('a container says which machines said no, until when it waits, and what may be done', async () => {
  await deploy('placeless');
  await put('placeless');
  const { scaling } = await waitFor(async () => {
    const one = await explain('placeless');
    return one.scaling?.containers[0]?.main_rejection === 'no_machine' && one;
  }, 'it was tried');
  const id = scaling?.containers[0]?.container_id ?? '';
  const found = await explain(id);
  expect(found).toMatchObject({
    kind: 'container',
    state: 'PENDING',
    summary: `container ${id} of placeless/v1 has no machine yet`,
    waits_for: 'a machine that takes it; then it gives up',
    next_steps: ['admit a machine: `longshore machine create`'],
    container: { status: 'PENDING', epoch: 0, machine_id: '', rejections: {} },
  });
  expect(found.until).not.toBeNull();
});

test('a task says its place in the queue, who cannot take it and why, and what its containers wait for', async () => {
  await deploy('lined');
  const ids = [await put('lined'), await put('lined'), await put('lined')];
  const found = await waitFor(async () => {
    const one = await explain(ids[2] ?? '');
    return one.task?.containers.length === 1 && one;
  }, 'a container was asked for');
  expect(found).toMatchObject({
    kind: 'task',
    state: 'PENDING',
    summary: `task ${ids[2]} of lined/v1 is number 3 in its queue; no container can take it now`,
    waits_for: 'a machine for 1 container',
    task: { position: 3, queue_depth: 3, synchronous: false, attempts: [], next_retry_at: null },
  });
  expect((await explain(ids[0] ?? '')).task?.position).toBe(1);
  expect(found.details).toContain('1 container cannot take it: it has no machine yet');
  expect(Date.parse(found.task?.deadline ?? '')).toBeGreaterThan(Date.now());

  await send(0, 'POST /api/v1/gateway/tasks/stop', own.token, { taskIds: [ids[1]] });
  const over = await explain(ids[1] ?? '');
  expect(over).toMatchObject({ state: 'CANCELLED', waits_for: '', task: { position: null, containers: [] } });
});

test('a replica that does not lead asks the one that does', async () => {
  const id = await deploy('elsewhere');
  await put('elsewhere');
  await waitFor(async () => (await explain(id)).scaling?.live === 1, 'a container is asked for');
  const [here, there] = [await explain(id, 0), await explain(id, 1)];
  expect(there.leader_answered).toBe(true);
  expect({ ...there.scaling, decision: null }).toMatchObject({
    wanted: here.scaling?.wanted,
    live: 1,
    decisions: here.scaling?.decisions.map(({ at, text }) => ({ at, text })),
  });
});

test('what belongs to nobody or to another workspace is not found', async () => {
  const id = await deploy('private');
  const taskId = await put('private');
  const container = await waitFor(
    async () => (await explain(id)).scaling?.containers[0]?.container_id,
    'a container is asked for',
  );
  for (const one of [id, taskId, container, container.slice(-8), container.slice(-4), 'private', 'private/v1']) {
    expect((await explained(one)).status).toBe(200);
    expect(await explained(one, 0, other)).toMatchObject({ status: 404, json: { code: 'not_found' } });
  }
  for (const one of [NOBODY, 'nothing', 'ffffffff', container.slice(-3), `endpoint-${NOBODY}-12345678`]) {
    expect((await explained(one)).status).toBe(404);
  }
  expect((await explained('a\0b')).status).toBe(400);
});

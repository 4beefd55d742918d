// The records of the workspace REST API, with every field that the interface lists and no other, and what a query of
// logs says of objects that a workspace has not. There is no machine: rows that only a machine makes are written here.
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

let platform: Platform;
let sql: Client;
beforeAll(async () => {
  platform = await aPlatform();
  sql = new Client({ connectionString: platform.servers?.postgres.url ?? '' });
  await sql.connect();
});
afterAll(async () => {
  await sql?.end();
  await platform.stop();
});

const { unique, aContainer, anObject } = kitOf(() => platform);
const rest = (line: string): string => line.replace(' ', ' /api/v1').replace('{ws}', platform.own.workspaceId);
const call = async (line: string, body?: unknown, token: string = platform.own.token): Promise<Json> => {
  const answer = await platform.call(rest(line), body, { token });
  expect([line, answer.status]).toEqual([line, answer.status < 300 ? answer.status : 200]);
  return answer.json;
};
const first = async (line: string, token?: string): Promise<Json> =>
  ((await call(line, undefined, token))['data'] as Json[])[0] ?? {};
const keys = (value: unknown): string =>
  Object.keys(value as Json)
    .toSorted()
    .join(' ');
const sorted = (names: string): string => names.split(/\s+/).toSorted().join(' ');

const ID = 'id external_id name created_at updated_at';
const WORKSPACE = sorted(`${ID} signing_key volume_cache_enabled multi_gpu_enabled`);
const APP = sorted(`${ID} description deleted_at`);
const STUB = sorted(`${ID} type config config_version public`);
const DEPLOYMENT = sorted(`${ID} active subdomain stub_type version deleted_at stub_id app_id workspace_id stub app
  workspace stub_name workspace_name url invoke_url
  stubId stubType stubName workspaceId workspaceName createdAt updatedAt appId rollout object_id`);
const TASK = sorted(`id external_id status failure_reason container_id started_at ended_at created_at updated_at
  deployment stub app workspace external_workspace outputs stats attempts input rerun_of redriven_from result handler stub_id stub_name workspace_id workspace_name
  containerId startedAt endedAt createdAt updatedAt stubId stubName workspaceId workspaceName`);
const LATEST = sorted(`${APP} deployment stub url invoke_url pool_name running_containers is_service serving`);
const CONTAINER = sorted(`container_id stub_id workspace_id app_id deployment_id worker_id machine_id status
  scheduled_at started_at gpu gpu_count cpu memory`);
const LINE = sorted(`seq_num stored_at_ns timestamp message stream container_id stub_id stub_type deployment_id task_id
  workspace_id app_id machine_id worker_id`);
const CONFIG = sorted(`runtime handler on_start on_deploy python_version keep_warm_seconds max_pending_tasks
  callback_url task_policy workers concurrent_requests authorized volumes secrets env autoscaler extra
  checkpoint_enabled work_dir entry_point ports pricing inputs outputs tcp block_network allow_list is_service serving
  pool disks`);
const LIMITS: Readonly<Record<string, string>> = {
  workspace_id: '',
  concurrency: 'gpu_limit cpu_millicore_limit memory_mib_limit container_limit',
  usage: 'gpu cpu_millicores memory_mib containers volume_bytes',
  stub: 'cpu_millicores memory_mib max_replicas max_gpu_count',
  tasks: 'max_pending_tasks_default max_pending_tasks max_retries max_ttl_seconds',
  timeouts: 'endpoint_seconds task_seconds container_start_seconds',
  requests: 'max_body_bytes max_invoke_body_bytes',
  rate: 'rest_per_minute state_per_minute invoke_per_minute inference_per_minute inference_tokens_per_minute',
  counts:
    'tokens webhooks databases stacks volumes deployments stubs objects pools unjoined_machines shared_entries sandboxes',
  bytes: 'logs_per_day objects queue shared images volumes',
  retention: 'logs_days events_days tasks_days',
  billing: 'mode credits_cents',
};

/** Nested records have the fields of records, and never the key that signs in the workspace's name. */
function hasWholeRecords(record: Json, names: readonly string[]): void {
  const whole: Readonly<Record<string, string>> = { stub: STUB, app: APP, workspace: WORKSPACE };
  for (const name of names) expect([name, keys(record[name])]).toEqual([name, whole[name]]);
  expect((record['workspace'] as Json)['signing_key']).toBeNull();
}

describe('every field of', () => {
  test('workspaces', async () => {
    const current = await call('GET /workspace/current');
    expect(keys(current)).toBe(WORKSPACE);
    expect(current).toMatchObject({ id: platform.own.workspaceId, external_id: current['id'], name: 'own' });
    expect(current['signing_key']).toEqual(expect.any(String));
    const restricted = await call('GET /workspace/current', undefined, platform.restricted);
    expect(restricted).toEqual({ ...current, signing_key: null });
    const admin = platform.admin.token;
    await call('PUT /workspace/{ws}/limits', { concurrency: { gpu_limit: 3 } }, admin);
    const bounded = await call('GET /workspace/current');
    expect(bounded['concurrency_limit']).toEqual({ gpu_limit: 3, cpu_millicore_limit: null });
    await call('PUT /workspace/{ws}/limits', { concurrency: { gpu_limit: null } }, admin);
    expect(keys(await call('GET /workspace/current'))).toBe(WORKSPACE);
  });

  test('deployments, in lists and one by one', async () => {
    const name = unique('Whole');
    await call('POST /secret/{ws}', { name: 'API_KEY', value: 'a-secret-value' });
    const { id, stubId } = await platform.deploy(name, { secrets: [{ name: 'API_KEY' }], env: ['WHOLE=1'] });
    const one = await call(`GET /deployment/{ws}/${id}`);
    expect(keys(one)).toBe(DEPLOYMENT);
    hasWholeRecords(one, ['stub', 'app', 'workspace']);
    expect(one).toMatchObject({
      id,
      external_id: id,
      name,
      active: true,
      version: 1,
      stub_type: 'endpoint/deployment',
      deleted_at: null,
      stub_id: stubId,
      workspace_name: 'own',
      stubId,
      stubType: one['stub_type'],
      stubName: one['stub_name'],
      workspaceId: one['workspace_id'],
      workspaceName: 'own',
      createdAt: one['created_at'],
      updatedAt: one['updated_at'],
      appId: one['app_id'],
      url: one['invoke_url'],
    });
    expect((one['app'] as Json)['id']).toBe(one['app_id']);
    expect(await first(`GET /deployment/{ws}?name=${name}`)).toEqual(one);
    const bare = (await platform.call(rest(`GET /deployment/{ws}?name=${name}&pagination=false`))).json;
    expect(bare).toEqual([one]);
    const { id: newer } = await platform.deploy(name, { env: ['WHOLE=2'] });
    const bareList = async (query: string) => {
      const [, path] = rest(`GET /deployment/{ws}?name=${name}&pagination=false&limit=1${query}`).split(' ');
      const headers = { authorization: `Bearer ${platform.own.token}` };
      const answer = await fetch(`http://${platform.address}${path}`, { headers });
      const rows = (await answer.json()) as Json[];
      return { ids: rows.map((row) => row['id']), next: answer.headers.get('x-next-cursor') };
    };
    const { ids, next } = await bareList('');
    expect(ids).toEqual([newer]);
    expect(await bareList(`&cursor=${next ?? ''}`)).toEqual({ ids: [id], next: null });
    await call(`DELETE /deployment/{ws}/${newer}`);

    const { config } = one['stub'] as Json;
    const read = JSON.parse(String(config)) as Json;
    expect(keys(read)).toBe(CONFIG);
    expect(keys(read['runtime'])).toBe(sorted('cpu memory gpu gpus gpu_count image_id'));
    expect(keys(read['task_policy'])).toBe(sorted('max_retries timeout expires ttl'));
    expect(keys(read['autoscaler'])).toBe(sorted('type max_containers tasks_per_container min_containers'));
    expect(read['secrets']).toEqual([{ name: 'API_KEY' }]);
    expect(JSON.stringify(one)).not.toContain('a-secret-value');

    await call(`DELETE /deployment/{ws}/${id}`);
    expect((await call(`GET /deployment/{ws}?name=${name}`))['data']).toEqual([]);
    const deleted = await first(`GET /deployment/{ws}?name=${name}&version=1&show_deleted=true`);
    expect(deleted).toMatchObject({ id, active: false, deleted_at: expect.any(String) });
    hasWholeRecords(deleted, ['stub', 'app', 'workspace']);
  });

  test('apps, in both lists and one by one', async () => {
    const name = unique('Appful');
    const { id } = await platform.deploy(name, { appName: name, env: ['APPS=1'] });
    const listed = await first(`GET /app/{ws}?name=${name.toLowerCase()}`);
    expect(keys(listed)).toBe(APP);
    const one = await call(`GET /app/{ws}/${String(listed['id'])}`);
    expect(keys(one)).toBe(LATEST);
    expect(one).toMatchObject({
      name,
      stub: null,
      serving: null,
      is_service: false,
      pool_name: '',
      running_containers: 0,
    });
    const deployment = one['deployment'] as Json;
    expect([deployment['id'], keys(deployment), one['url']]).toEqual([id, DEPLOYMENT, deployment['invoke_url']]);
    hasWholeRecords(deployment, ['stub', 'app', 'workspace']);
    expect(one['invoke_url']).toBe(one['url']);
    expect(await first(`GET /app/{ws}/latest?name=${name}`)).toEqual(one);

    // Without a deployment the newest stub stands in its place.
    const serving = unique('served');
    await platform.stub({ stubType: 'endpoint/serve', appName: serving, pool: { name: 'blue' } });
    const undeployed = await first(`GET /app/{ws}/latest?name=${serving}`);
    expect([keys(undeployed), undeployed['deployment'], keys(undeployed['stub'])]).toEqual([LATEST, null, STUB]);
    expect(undeployed['pool_name']).toBe('blue');
  });

  test('model servers, in the records of their apps and stubs', async () => {
    const llm = { modelId: 'acme/small', contextLength: 8192, secret: 'hidden' };
    const sent = { appKind: 'llm', servingProtocol: 'openai', llm, secretName: 'hidden' };
    const serving = {
      app_kind: 'llm',
      serving_protocol: 'openai',
      llm: { model_id: 'acme/small', context_length: 8192, metrics_path: '/metrics' },
    };
    for (const [said, shown] of [
      [sent, serving],
      [{ serving_protocol: 'grpc', llm: { engine: 'other' } }, { serving_protocol: 'grpc' }],
      [{ llm: {} }, null],
    ] as const) {
      const appName = unique('serves');
      await platform.stub({ stubType: 'endpoint/serve', appName, serving: said });
      const listed = await first(`GET /app/{ws}/latest?name=${appName}`);
      expect(listed['serving']).toEqual(shown);
      const { config } = listed['stub'] as Json;
      expect((JSON.parse(String(config)) as Json)['serving']).toEqual(shown);
      expect((await call(`GET /app/{ws}/${String(listed['id'])}`))['serving']).toEqual(shown);
      expect(JSON.stringify(listed)).not.toContain('hidden');
    }
  });

  test('tasks, in lists and one by one', async () => {
    const name = unique('worked');
    const { id, stubId } = await platform.deploy(name, { stubType: 'taskqueue/deployment', env: ['TASKS=1'] });
    const taskId = String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
    await platform.gateway('POST /tasks/start', { taskId, containerId: '' });
    const { objectId } = await anObject('bytes');
    await call('POST /output/{ws}', { task_id: taskId, object_id: objectId, name: 'a.txt' });
    const one = await call(`GET /task/{ws}/${taskId}`);
    expect(keys(one)).toBe(TASK);
    hasWholeRecords(one, ['stub', 'app', 'workspace']);
    expect(one).toMatchObject({
      id: taskId,
      external_id: taskId,
      status: 'RUNNING',
      failure_reason: '',
      ended_at: null,
      deployment: { id, name, version: 1 },
      external_workspace: null,
      outputs: [{ name: 'a.txt', url: expect.stringMatching(/^http/), expires_in: 3600 }],
      stats: { active_containers: 0, queue_depth: expect.any(Number) },
      result: null,
      stub_id: stubId,
      stubId,
      workspace_name: 'own',
      startedAt: one['started_at'],
    });
    const listed = await first(`GET /task/{ws}?task_ids=${taskId}`);
    expect(keys(listed)).toBe(TASK);
    expect(listed).toMatchObject({ app: null, result: null, outputs: [{ name: 'a.txt' }], deployment: { id } });
    const brief = await first(`GET /task/{ws}?task_ids=${taskId}&skip_details=true`);
    expect(brief).toMatchObject({ outputs: [], stats: null });
    await call(`DELETE /task/{ws}?task_ids=${taskId},nonsense`);
    expect(await call(`GET /task/{ws}/${taskId}`)).toMatchObject({ status: 'CANCELLED' });
  });

  test('tasks in short, with the error line of those that failed', async () => {
    const name = unique('short');
    const { id, stubId } = await platform.deploy(name, { stubType: 'taskqueue/deployment', env: ['SHORT=1'] });
    const put = async (): Promise<string> =>
      String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
    const end = async (error: string): Promise<string> => {
      const taskId = await put();
      await platform.gateway('POST /tasks/start', { taskId, containerId: 'c1' });
      const result = Buffer.from(JSON.stringify({ error })).toString('base64');
      await platform.gateway('POST /tasks/end', { taskId, containerId: 'c1', taskStatus: 'ERROR', result });
      return taskId;
    };
    const waits = await put();
    const failed = await end('KeyError: 1\nTraceback');
    // The line of a long result would cost the read of all of it.
    const long = await end(`KeyError: 2\n${'x'.repeat(20_000)}`);
    const summaries = async (query: string): Promise<Json[]> =>
      (await call(`GET /task-summary/{ws}?deployment_ids=${id}&${query}`))['data'] as Json[];
    const found = await summaries('');
    expect(found.map((row) => row['id'])).toEqual([long, failed, waits]);
    const of = { stub_id: stubId, stub_type: 'taskqueue/deployment', deployment_id: id, deployment_name: name };
    expect(found).toMatchObject([
      { ...of, status: 'ERROR', error: '' },
      { ...of, status: 'ERROR', error: 'KeyError: 1', attempt: 1, container_id: 'c1', deployment_version: 1 },
      { ...of, status: 'PENDING', error: '', failure_reason: '', started_at: null, waited_ms: null, duration_ms: null },
    ]);
    expect(found[1]).toMatchObject({ waited_ms: expect.any(Number), duration_ms: expect.any(Number), sync: false });
    expect(Buffer.byteLength(JSON.stringify(found[1]))).toBeLessThan(800);
    const reason = String(found[1]?.['failure_reason']);
    expect(reason).not.toBe('');
    const ids = async (query: string) => (await summaries(query)).map((row) => row['id']);
    expect(await ids(`failure_reasons=${reason}`)).toEqual([long, failed]);
    expect(await ids('failure_reasons=lost')).toEqual([]);
    expect(await ids('status=ERROR&limit=1')).toEqual([long]);
    // A read by id says the same.
    expect(await summaries(`task_ids=${failed}`)).toEqual([found[1]]);
    const all = await call(`GET /task/{ws}?deployment_ids=${id}&failure_reasons=${reason}&skip_details=true`);
    expect((all['data'] as Json[]).map((row) => [row['id'], row['result']])).toEqual([
      [long, null],
      [failed, null],
    ]);
    expect(
      JSON.stringify(
        await platform.call(`GET /api/v1/task-summary/${platform.other.workspaceId}`, undefined, {
          token: platform.other.token,
        }),
      ),
    ).not.toContain(failed);
  });

  test('calls of public deployments of other workspaces, as both see them', async () => {
    const taskPolicy = { ttl: 1, timeout: 1, maxRetries: 0 };
    const { stubId } = await platform.deploy(unique('open'), { authorized: false, taskPolicy });
    const { token } = platform.other;
    const called = await platform.call(`POST /endpoint/public/${stubId}`, {}, { token });
    expect(called.status).toBe(504);
    const tasksOf = async (query: string): Promise<Json[]> =>
      (await platform.call(`GET /api/v1/task/${platform.other.workspaceId}?${query}`, undefined, { token })).json[
        'data'
      ] as Json[];
    expect(await tasksOf('public=false')).toEqual([]);
    const [seen, ...others] = await tasksOf('public=true');
    expect(others).toEqual([]);
    expect(keys(seen)).toBe(TASK);
    expect(seen).toMatchObject({
      status: 'TIMEOUT',
      stub: null,
      app: null,
      workspace: null,
      deployment: { id: null, name: null, version: null },
      external_workspace: { id: platform.other.workspaceId, name: 'other', signing_key: null },
      stub_id: stubId,
      stub_name: '',
      stats: null,
    });
    expect(await tasksOf('all=true')).toEqual([seen]);
    expect(await tasksOf(`all=true&task_ids=${String(seen?.['id'])}`)).toEqual([seen]);
    expect(await tasksOf(`task_ids=${String(seen?.['id'])}`)).toEqual([]);
    // A caller learns nothing of the other's stub by filters.
    for (const filter of ['stub_names=endpoint%2Fapp%3Ahandler', 'stub_types=endpoint%2Fdeployment']) {
      expect(await tasksOf(`public=true&${filter}`)).toEqual([]);
      expect(await tasksOf(`public=true&${filter}&task_ids=${String(seen?.['id'])}`)).toEqual([]);
    }
    const owners = await first(`GET /task/{ws}?stub_ids=${stubId}`);
    expect(owners).toMatchObject({ id: seen?.['id'], external_workspace: { id: platform.other.workspaceId } });
    expect(keys(owners['external_workspace'])).toBe(WORKSPACE);
    expect((await call('GET /task/{ws}?public=true'))['data']).toEqual([]);
    // Pages of both kinds are put together in the order of time.
    const mine = await platform.deploy(unique('mine'), { stubType: 'taskqueue/deployment' }, token);
    const id = String((await platform.call(`POST /taskqueue/id/${mine.stubId}`, {}, { token })).json['task_id']);
    const ids = async (query: string) => (await tasksOf(query)).map((task) => task['id']);
    expect(await ids('all=true')).toEqual([id, seen?.['id']]);
    expect(await ids('all=true&limit=1')).toEqual([id]);
    expect(await ids('all=true&limit=1&offset=1')).toEqual([seen?.['id']]);
  });

  test('containers', async () => {
    const id = await aContainer();
    const listed = (await platform.call(rest('GET /container/{ws}'))).json as unknown as Json[];
    const one = listed.find((row) => row['container_id'] === id);
    expect(keys(one)).toBe(CONTAINER);
    expect(one).toMatchObject({
      status: 'PENDING',
      scheduled_at: 0,
      started_at: 0,
      worker_id: '',
      cpu: 100,
      memory: 64,
    });
  });

  test('limits, with the values in effect', async () => {
    const limits = await call('GET /workspace/{ws}/limits');
    expect(keys(limits)).toBe(sorted(Object.keys(LIMITS).join(' ')));
    for (const [group, names] of Object.entries(LIMITS)) {
      if (names !== '') expect([group, keys(limits[group])]).toEqual([group, sorted(names)]);
    }
    for (const counted of Object.values({ ...(limits['counts'] as Json), ...(limits['bytes'] as Json) })) {
      expect(keys(counted)).toBe('limit used');
    }
    expect(limits).toMatchObject({
      workspace_id: platform.own.workspaceId,
      stub: { cpu_millicores: 128000, memory_mib: 32768, max_replicas: 100, max_gpu_count: 2 },
      tasks: { max_pending_tasks_default: 100, max_retries: 5, max_ttl_seconds: 86400 },
      requests: { max_body_bytes: 1024 * 1024, max_invoke_body_bytes: 16 * 1024 * 1024 },
      rate: { rest_per_minute: 600, invoke_per_minute: null, inference_per_minute: 600 },
      retention: { logs_days: 30, events_days: 30, tasks_days: 30 },
      billing: { mode: 'postpaid', credits_cents: null },
    });
  });
});

describe('log lines', () => {
  /** A line of a task in a container on a machine, as if an agent had sent it. */
  async function aLine(): Promise<
    Readonly<Record<'deployment' | 'stub' | 'app' | 'task' | 'machine' | 'container', string>>
  > {
    const name = unique('logged');
    const { id: deployment, stubId: stub } = await platform.deploy(name, {
      stubType: 'taskqueue/deployment',
      appName: name,
    });
    const task = String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
    const app = String((await call(`GET /deployment/{ws}/${deployment}`))['app_id']);
    const made = await platform.gateway('POST /machines', { poolName: 'mine' });
    const machine = String((made.json['machine'] as Json)['id']);
    const container = `taskqueue-${stub}-${task.slice(0, 8)}`;
    const { workspaceId } = platform.own;
    await sql.query(
      `insert into containers (id, workspace_id, stub_id, deployment_id, state, machine_id, spec, slots, ended_at)
       values ($1, $2, $3, $4, 'STOPPED', $5, '{}', 1, now())`,
      [container, workspaceId, stub, deployment, machine],
    );
    await sql.query(
      `insert into log_lines (workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at)
       values ($1, $2, $3, $4, $5, 'stdout', $6, now())`,
      [workspaceId, stub, deployment, container, task, `said by ${name}`],
    );
    return { deployment, stub, app, task, machine, container };
  }

  test('have every field, and are found by each of their objects, under every spelling of its type', async () => {
    const ids = await aLine();
    const [line] = (await call(`GET /logs/{ws}?task_id=${ids.task}`))['logs'] as Json[];
    expect(keys(line)).toBe(LINE);
    expect(line).toMatchObject({
      container_id: ids.container,
      stub_id: ids.stub,
      stub_type: 'taskqueue/deployment',
      task_id: ids.task,
      app_id: ids.app,
      machine_id: ids.machine,
      worker_id: ids.machine,
      workspace_id: platform.own.workspaceId,
    });
    for (const [type, id] of Object.entries(ids)) {
      for (const spelled of [type, type.toUpperCase(), `BETA9_${type.toUpperCase()}`, `beta9_${type}`]) {
        const page = await call(`GET /logs/{ws}?object_type=${spelled}&object_id=${id}`);
        expect([spelled, page['object_id'], page['logs']]).toEqual([spelled, id, [line]]);
      }
      const page = await call(`GET /logs/{ws}?${type}_id=${id}`);
      expect([type, page['object_id'], page['logs']]).toEqual([type, id, [line]]);
      if (type === 'machine' || type === 'container') continue;
      for (const query of [`${type}_id=`, `object_type=${type}&object_id=`]) {
        const upper = await call(`GET /logs/{ws}?${query}${id.toUpperCase()}`);
        expect([query, upper['object_id'], upper['logs']]).toEqual([query, id, [line]]);
      }
    }
    expect(await call(`GET /logs/{ws}?worker_id=${ids.machine}`)).toMatchObject({ logs: [line] });
    // Without the container's row the machine is not known any more.
    await sql.query('delete from containers where id = $1', [ids.container]);
    const { machine_id: _machine, worker_id: _worker, ...left } = line ?? {};
    expect((await call(`GET /logs/{ws}?task_id=${ids.task}`))['logs']).toEqual([left]);
    // Lines of a deleted deployment stay readable.
    await call(`DELETE /deployment/{ws}/${ids.deployment}`);
    const { logs } = await call(`GET /logs/{ws}?deployment_id=${ids.deployment}`);
    // The end of the task that waits with it is told, too.
    expect((logs as Json[]).filter((one) => one['container_id'] !== '')).toEqual([left]);
  });

  test('of an object that the workspace has not are refused, and so are those of another workspace', async () => {
    const ids = await aLine();
    const code = { task: 'task', deployment: 'deployment', machine: 'machine', stub: '', app: '' } as const;
    for (const [type, named] of Object.entries(code)) {
      const refused = { code: named === '' ? 'not_found' : `${named}_not_found`, message: `${type} not found` };
      const line = (workspaceId: string, query: string) => `GET /api/v1/logs/${workspaceId}?${query}`;
      for (const id of [NOBODY, 'nothing', '%00']) {
        for (const query of [`${type}_id=${id}`, `object_type=${type}&object_id=${id}`]) {
          const answer = await platform.call(line(platform.own.workspaceId, query));
          const text = id === '%00' ? [400, 'invalid_query'] : [404, refused.code];
          expect([query, answer.status, answer.json['code']]).toEqual([query, ...text]);
        }
      }
      const foreign = await platform.call(
        line(platform.other.workspaceId, `${type}_id=${ids[type as keyof typeof code]}`),
        undefined,
        { token: platform.other.token },
      );
      expect([type, foreign.status, foreign.json]).toEqual([type, 404, expect.objectContaining(refused)]);
    }
    // Without a type the object is a workspace.
    const { own, other } = platform;
    for (const query of [`object_id=${ids.task}`, `object_type=workspace&object_id=${other.workspaceId}`]) {
      for (const path of ['', '/stream']) {
        const answer = await platform.call(rest(`GET /logs/{ws}${path}?${query}`));
        expect([query, answer.status, answer.json['message']]).toEqual([query, 404, 'workspace not found']);
      }
    }
    const whole = await call(`GET /logs/{ws}?object_id=${own.workspaceId.toUpperCase()}&task_id=${ids.task}`);
    expect(whole).toMatchObject({
      object_type: 'workspace',
      object_id: own.workspaceId,
      logs: [{ task_id: ids.task }],
    });
    // A container's lines outlive its row, so an unknown one has none.
    expect((await call(`GET /logs/{ws}?container_id=nothing`))['logs']).toEqual([]);
    const unheardOf = await platform.call(rest('GET /logs/{ws}?object_type=volume&object_id=1'));
    expect([unheardOf.status, unheardOf.json['code']]).toEqual([400, 'invalid_query']);
  });
});

import { randomBytes } from 'node:crypto';
import { START_PHASES } from '../../agent/reconcile/start-clock.ts';
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { until } from '../helpers/fake-scheduler.ts';
import { HELLO, test } from './agent-started.ts';

test('an assignment becomes a ready container that answers tasks, and nothing is left of it', async ({
  started,
  docker,
}) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const assignment = await deploy(HELLO);
  scheduler.desire([assignment]);
  const ready = await scheduler.phase(assignment.containerId, 'running');
  expect(ready).toMatchObject({ slots: 1, mode: 'single', epoch: 1, assignmentId: assignment.assignmentId });
  // The steps of the start, in their order, with their times.
  const names = ready.startPhases.map(({ name }) => name);
  expect(names).toEqual(START_PHASES.filter((name) => names.includes(name)));
  expect(names).toEqual(expect.arrayContaining(['prepare', 'mounts', 'create', 'start', 'hello', 'on_start']));
  expect(ready.startPhases.reduce((sum, { durationMs }) => sum + durationMs, 0)).toBeGreaterThan(0);
  scheduler.run('t1', assignment.containerId, '{"name":"Ada"}', { query: '{"q":["1"]}' });
  const result = await scheduler.resultOf('t1');
  expect(result.outcome).toBe('ok');
  expect(JSON.parse(result.whole.toString())).toMatchObject({ hello: 'Ada', rest: { q: 1 } });
  await until('the log line', () =>
    scheduler.records.some((record) => record.line === 'greeting Ada' && record.taskId === 't1'),
  );

  const [container] = await docker.client.listContainers({
    filters: { label: [`io.longshore.container=${assignment.containerId}`] },
  });
  const facts = await docker.client.getContainer(container?.Id ?? '').inspect();
  expect(facts.HostConfig).toMatchObject({ CapDrop: ['ALL'], PidsLimit: 2049, Init: true });
  expect(facts.Config.Labels).toMatchObject({ 'io.longshore.machine': scheduler.machineId, ...docker.labels });

  scheduler.desire([{ ...assignment, stop: true, graceMs: 5000, stopReason: 'scaled_in' }]);
  const removed = await scheduler.phase(assignment.containerId, 'removed');
  expect(removed.reason).toBe('scaled_in');
  scheduler.desire([], { confirmEmpty: true });
  const label = `io.longshore.container=${assignment.containerId}`;
  expect(await docker.client.listContainers({ all: true, filters: { label: [label] } })).toEqual([]);
  const { Volumes: volumes } = await docker.client.listVolumes({ filters: { name: [assignment.containerId] } });
  expect(volumes ?? []).toEqual([]);
  expect(await readdir(join(world.dataDir, 'agent', 'views'))).toEqual([]);
  expect(await readdir(join(world.dataDir, 'agent', 's'))).toEqual([]);
});

test('on_start runs once, and its value is shared by every runner process', async ({ started }) => {
  const { world, deploy } = started;
  const source = `
import os, uuid, time
def start():
    with open("started", "a") as file:
        file.write("x")
    return str(uuid.uuid4())
def handler(context):
    time.sleep(0.2)
    return {"uuid": context.on_start_value, "pid": os.getpid(), "starts": open("started").read()}
`;
  const assignment = await deploy(source, { onStart: 'app:start', workers: 3 });
  world.scheduler.desire([assignment]);
  const ready = await world.scheduler.phase(assignment.containerId, 'running');
  expect(ready).toMatchObject({ slots: 3, mode: 'fork' });
  for (let at = 0; at < 3; at += 1) world.scheduler.run(`t${at}`, assignment.containerId, '');
  const answers: { uuid: string; pid: number; starts: string }[] = [];
  for (let at = 0; at < 3; at += 1)
    answers.push(JSON.parse((await world.scheduler.resultOf(`t${at}`)).whole.toString()) as (typeof answers)[number]);
  expect(new Set(answers.map((answer) => answer.pid)).size).toBe(3);
  expect(new Set(answers.map((answer) => answer.uuid)).size).toBe(1);
  expect(answers.every((answer) => answer.starts === 'x')).toBe(true);
});

test('a container calls the platform through its socket with no network, under no other name than its own, and again when another agent has adopted it', async ({
  started,
}) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const source = `
import http.client, os, socket
def handler(method, path, headers={}, size=0):
    call = http.client.HTTPConnection('x', timeout=30)
    call.sock = socket.socket(socket.AF_UNIX)
    call.sock.connect(os.environ['LONGSHORE_GATEWAY_SOCKET'])
    call.request(method, path, body=b'x' * size, headers=headers)
    answer = call.getresponse()
    body = answer.read()
    return [answer.status, body.decode() if len(body) < 1000 else len(body), os.listdir('/sys/class/net')]
`;
  const assignment = await deploy(source, { blockNetwork: true });
  const { containerId } = assignment;
  scheduler.desire([assignment]);
  await scheduler.phase(containerId, 'running');
  let count = 0;
  const ask = async (input: object): Promise<readonly [number, string | number, readonly string[]]> => {
    const taskId = `ask-${(count += 1)}`;
    scheduler.run(taskId, containerId, JSON.stringify(input));
    return JSON.parse((await scheduler.resultOf(taskId)).whole.toString()) as [number, string | number, string[]];
  };
  const put = { method: 'POST', path: '/taskqueue/later?n=1' };
  expect(
    await ask({ ...put, size: 3, headers: { Host: 'elsewhere', 'X-Forwarded-For': '127.0.0.1', X: 'y' } }),
  ).toEqual([200, 'xxx', ['lo']]);
  const { head } = scheduler.calls[0] ?? { head: undefined };
  expect(head).toMatchObject({ containerId, epoch: 1, method: 'POST', path: '/taskqueue/later?n=1' });
  const names = head?.headers.map(({ name }) => name) ?? [];
  expect(names).toContain('X');
  const lowered = names.map((name) => name.toLowerCase());
  expect(lowered).not.toContain('host');
  expect(lowered).not.toContain('x-forwarded-for');
  // The body exceeds a message of the link, and the buffers of the sockets.
  expect((await ask({ ...put, size: 5_000_000 })).slice(0, 2)).toEqual([200, 5_000_000]);
  const before = scheduler.calls.length;
  const refused = await ask({ method: 'POST', path: '/api/v1/gateway/tokens' });
  expect([refused[0], JSON.parse(String(refused[1]))]).toEqual([
    403,
    expect.objectContaining({ ok: false, code: 'not_allowed', errMsg: 'Unauthorized Access' }),
  ]);
  expect(scheduler.calls).toHaveLength(before);

  await world.agent.stop();
  await world.restart();
  scheduler.desire([assignment]);
  await until('the second report', () => scheduler.reports[1]);
  expect((await ask(put)).slice(0, 2)).toEqual([200, '']);
  expect(scheduler.calls.at(-1)?.head).toMatchObject({ containerId, epoch: 1 });
});

test('an agent that is started again adopts what runs: the same container answers, and a task in hand is not lost', async ({
  started,
}) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const source = `
import time
CALLS = []
def handler(seconds=0):
    time.sleep(seconds)
    CALLS.append(seconds)
    return len(CALLS)
`;
  const assignment = await deploy(source);
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running');
  scheduler.run('t1', assignment.containerId, '{"seconds":0}');
  expect((await scheduler.resultOf('t1')).whole.toString()).toBe('1');
  // Longer than the agent is away, on a busy machine too.
  scheduler.run('t2', assignment.containerId, '{"seconds":6}');
  await until('t2 to start', () => scheduler.started.includes('t2'));
  await world.agent.stop();
  await until('the goodbye', () => scheduler.heard.some((message) => message.goodbye?.reason === 'restarting'));
  await world.restart();
  expect(scheduler.hellos.at(-1)?.observed).toMatchObject([{ containerId: assignment.containerId, phase: 'running' }]);
  scheduler.desire([assignment]);
  const report = await until('the second report', () => scheduler.reports[1]);
  expect(report.running.map((attempt) => attempt.taskId)).toEqual(['t2']);
  expect((await scheduler.resultOf('t2')).whole.toString()).toBe('2');
  scheduler.run('t3', assignment.containerId, '{"seconds":0}');
  expect((await scheduler.resultOf('t3')).whole.toString()).toBe('3');
  expect(scheduler.results.filter((result) => result.taskId === 't2')).toHaveLength(1);
});

test('the scheduler going away ends nothing: the result is kept, and given once it is back', async ({ started }) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const assignment = await deploy('import time\ndef handler(s):\n    time.sleep(s)\n    return "kept"\n');
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running');
  scheduler.run('t1', assignment.containerId, '{"s":0.5}');
  await until('t1 to start', () => scheduler.started.includes('t1'));
  scheduler.down();
  await scheduler.listen();
  expect((await scheduler.resultOf('t1')).whole.toString()).toBe('"kept"');
  expect(scheduler.observed.get(assignment.containerId)?.phase).toBe('running');
});

test('a scheduler that is heard no more is dialled anew', async ({ started }) => {
  const { scheduler } = started.world;
  scheduler.pings = false;
  await until('a second hello', () => scheduler.hellos.length > 1);
  scheduler.pings = true;
});

test('a handler that exits its process is the user’s error, with the code', async ({ started }) => {
  const { world, deploy } = started;
  const assignment = await deploy('import os\ndef handler(code):\n    os._exit(code)\n');
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  world.scheduler.run('t1', assignment.containerId, '{"code":3}');
  const result = await world.scheduler.resultOf('t1');
  expect(result).toMatchObject({ outcome: 'exited', started: true });
  expect(result.whole.toString()).toBe('{"error":"process exited (code 3)"}');
  const removed = await world.scheduler.phase(assignment.containerId, 'removed');
  expect(removed).toMatchObject({ exitCode: 3, reason: 'user_error' });
});

test('one of several processes exits: the others serve on, and it is replaced', async ({ started }) => {
  const { world, deploy } = started;
  const source =
    'import os\ndef handler(code=None):\n    if code is not None: os._exit(code)\n    return os.getpid()\n';
  const assignment = await deploy(source, { workers: 2 });
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  world.scheduler.run('t1', assignment.containerId, '{"code":5}');
  expect((await world.scheduler.resultOf('t1')).whole.toString()).toBe('{"error":"process exited (code 5)"}');
  for (let at = 0; at < 4; at += 1) {
    world.scheduler.run(`n${at}`, assignment.containerId, '');
    expect((await world.scheduler.resultOf(`n${at}`)).outcome).toBe('ok');
  }
  expect(world.scheduler.observed.get(assignment.containerId)?.phase).toBe('running');
});

test('a spawned worker that starts again has no slot until its on_start has returned', async ({ started }) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const source = `
import os, time
def start():
    while os.path.exists("broken") and not os.path.exists("mended"):
        time.sleep(0.01)
def handler(make, code=None):
    open(make, "x").close()
    if code is not None:
        os._exit(code)
`;
  const assignment = await deploy(source, { onStart: 'app:start', workers: 2, workerMode: 'spawn' });
  scheduler.desire([assignment]);
  const ready = await scheduler.phase(assignment.containerId, 'running');
  expect(ready).toMatchObject({ slots: 2, restartingSlots: 0, mode: 'spawn' });
  const restarting = (slots: number): Promise<unknown> =>
    until(
      `${slots} slots of processes that start`,
      () => scheduler.observed.get(assignment.containerId)?.restartingSlots === slots,
    );
  scheduler.run('t1', assignment.containerId, '{"make":"broken","code":5}');
  await restarting(1);
  expect(scheduler.observed.get(assignment.containerId)).toMatchObject({ phase: 'running', slots: 2 });
  // The other runner process serves the task, as the only one left.
  scheduler.run('t2', assignment.containerId, '{"make":"mended"}');
  expect((await scheduler.resultOf('t2')).outcome).toBe('ok');
  await restarting(0);
});

test('memory that runs out is named', async ({ started }) => {
  const { world, deploy } = started;
  const assignment = await deploy('def handler():\n    return len(bytearray(400_000_000))\n', {
    memoryBytes: 64 << 20,
  });
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  world.scheduler.run('t1', assignment.containerId, '');
  const result = await world.scheduler.resultOf('t1');
  expect(result.outcome).toBe('exited');
  expect(result.whole.toString()).toBe('{"error":"process ran out of memory"}');
  expect(await world.scheduler.phase(assignment.containerId, 'removed')).toMatchObject({
    oomKilled: true,
    reason: 'oom',
  });
});

test('absence from a snapshot stops a container, an unconfirmed empty snapshot does not', async ({ started }) => {
  const { world, deploy } = started;
  const [first, second] = [await deploy(HELLO), await deploy(HELLO)];
  world.scheduler.desire([first, second]);
  await Promise.all([first, second].map((one) => world.scheduler.phase(one.containerId, 'running')));
  world.scheduler.desire([first]);
  await world.scheduler.phase(second.containerId, 'removed');
  world.scheduler.desire([]);
  await until('the refusal to be reported', () =>
    world.scheduler.heard.some((message) => message.heartbeat?.conditions.includes('EmptySnapshotRefused')),
  );
  world.scheduler.run('t1', first.containerId, '');
  expect((await world.scheduler.resultOf('t1')).outcome).toBe('ok');
});

test('each container writes its own view of the code', async ({ started }) => {
  const { world, deploy } = started;
  const source = `
import os
def handler(write=None):
    if write: open("note.txt", "w").write(write)
    return sorted(os.listdir(".")) if not os.path.exists("note.txt") else open("note.txt").read()
`;
  const [first, second] = [await deploy(source), await deploy(source)];
  world.scheduler.desire([first, second]);
  await Promise.all([first, second].map((one) => world.scheduler.phase(one.containerId, 'running')));
  world.scheduler.run('w', first.containerId, '{"write":"mine"}');
  expect((await world.scheduler.resultOf('w')).whole.toString()).toBe('"mine"');
  world.scheduler.run('r', second.containerId, '');
  expect((await world.scheduler.resultOf('r')).whole.toString()).toBe('["app.py"]');
  expect(world.scheduler.archiveFetches).toHaveLength(1);
  const archive =
    (await readdir(join(world.dataDir, 'agent', 'code'))).find((name) => /^[0-9a-f]{64}$/.test(name)) ?? '';
  expect(await readdir(join(world.dataDir, 'agent', 'code', archive))).toEqual(['app.py']);
});

test('the journal holds neither environment values nor credentials, and machine.json is ours alone; a secret that came with the permission is in the container', async ({
  started,
  docker,
}) => {
  const { world, deploy } = started;
  world.scheduler.autoProceed = false;
  const assignment = await deploy(HELLO, {
    env: { PASSWORD: 'hush-hush', API_KEY: 'the stub’s own' },
    secretNames: ['API_KEY'],
  });
  world.scheduler.desire([assignment]);
  await until('the ack', () => world.scheduler.heard.some((message) => message.ack));
  const { assignmentId, containerId } = assignment;
  const secrets = { API_KEY: 'most-secret', HANDLER: 'of another' };
  const containerToken = 'very-secret';
  world.scheduler.control?.write({ proceed: { assignmentId, containerId, epoch: 1, secrets, containerToken } });
  await world.scheduler.phase(containerId, 'running');
  const label = `io.longshore.container=${containerId}`;
  const [listed] = await docker.client.listContainers({ filters: { label: [label] } });
  const { Config } = await docker.client.getContainer(listed?.Id ?? '').inspect();
  expect(Config.Env).toEqual(expect.arrayContaining(['API_KEY=most-secret', 'LONGSHORE_TOKEN=very-secret']));
  expect(Config.Env).not.toContain('HANDLER=of another');
  expect(JSON.stringify([Config.Labels, Config.Cmd, Config.Entrypoint])).not.toMatch(/hush-hush|-secret/);
  const state = join(world.dataDir, 'agent');
  expect(await readFile(join(state, 'journal.json'), 'utf8')).not.toMatch(/hush-hush|very-secret|most-secret/);
  expect((await stat(join(state, 'machine.json'))).mode & 0o777).toBe(0o600);
});

test('an image that a stub names is never let write the runner, which everybody’s containers run', async ({
  started,
  docker,
}) => {
  const { world, deploy } = started;
  const runners = join(world.dataDir, 'agent', 'runner');
  /** Images that compiled the runner. */
  const marks = async (): Promise<readonly string[]> => {
    const folders = (await readdir(runners)).filter((name) => name.endsWith('.compiled'));
    const paths = folders.map(async (folder) =>
      (await readdir(join(runners, folder))).map((name) => join(runners, folder, name)),
    );
    return Promise.all((await Promise.all(paths)).flat().map((path) => readFile(path, 'utf8')));
  };
  await expect.poll(marks, { timeout: 60_000 }).toEqual(['longshore-python:3.11']);
  const repo = `ls-test-${randomBytes(6).toString('hex')}`;
  await docker.client.getImage(docker.baseImage).tag({ repo, tag: '1' });
  try {
    const assignment = await deploy(HELLO, { image: `${repo}:1` });
    world.scheduler.desire([assignment]);
    await world.scheduler.phase(assignment.containerId, 'running');
    // The agent finishes there what it has begun.
    await world.agent.stop();
    expect(await marks()).toEqual(['longshore-python:3.11']);
    await world.restart();
  } finally {
    await docker.client.getImage(`${repo}:1`).remove({ force: true });
  }
});

test('the metrics page tells of connection, containers and starts', async ({ started }) => {
  const { world, deploy } = started;
  const assignment = await deploy(HELLO);
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  const page = await (await fetch(`http://${world.agent.metricsAddress}/metrics`)).text();
  expect(page).toMatch(/^longshore_agent_connected 1$/m);
  expect(page).toMatch(/^longshore_agent_docker_up 1$/m);
  expect(page).toMatch(/^longshore_agent_containers\{state="(running|starting)"\} 1$/m);
  expect(page).toMatch(/longshore_agent_container_start_duration_seconds_count\{phase="ready",cache="hit"\} 1/);
  expect(page).not.toContain(assignment.containerId);
});

test('a container that says hello twice ends as protocol_violation, and the one beside it goes on', async ({
  started,
}) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const hostile = await deploy(`
import json, os, socket, struct, time
def handler():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect('/run/longshore/agent.sock')
    head = json.dumps({"version": 1, "containerId": os.environ["CONTAINER_ID"], "process": 0, "slots": 1}).encode()
    for _ in range(2):
        connection.sendall(struct.pack('>IBH', 3 + len(head), 1, len(head)) + head)
    time.sleep(60)
`);
  const neighbour = await deploy(HELLO);
  scheduler.desire([hostile, neighbour]);
  for (const { containerId } of [hostile, neighbour]) await scheduler.phase(containerId, 'running');
  const sessions = scheduler.hellos.length;
  scheduler.run('attack', hostile.containerId, '{}');
  const result = await scheduler.resultOf('attack');
  expect(result.outcome).toBe('exited');
  expect(result.whole.toString()).toContain('a second hello on one connection');
  const removed = await scheduler.phase(hostile.containerId, 'removed');
  expect(removed.reason).toBe('protocol_violation');
  expect(removed.message).toContain('a second hello on one connection');
  scheduler.run('beside', neighbour.containerId, '{}');
  expect((await scheduler.resultOf('beside')).outcome).toBe('ok');
  expect(scheduler.hellos).toHaveLength(sessions);
  await until('the line', () =>
    scheduler.records.some(({ line }) => line.startsWith('longshore: the container broke the rules')),
  );
});

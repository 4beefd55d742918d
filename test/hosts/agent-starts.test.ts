// Starts of containers that fail, and stops.
import { expect } from 'vitest';
import type { Assignment } from '#shared/protocol/generated/messages.ts';
import { zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { HELLO, test } from '../integration/agent-started.ts';
import type { Started } from '../integration/agent-started.ts';

test('an on_start that raises is a failed start with its last lines', async ({ started }) => {
  const { world, deploy } = started;
  const source = 'def start():\n    raise ValueError("no model here")\ndef handler():\n    return 1\n';
  const assignment = await deploy(source, { onStart: 'app:start' });
  world.scheduler.desire([assignment]);
  const removed = await world.scheduler.phase(assignment.containerId, 'removed');
  expect(removed.reason).toBe('user_error');
  expect(removed.message).toMatch(/ValueError: no model here/);
  expect(removed.message).toMatch(/line 2, in start/);
  expect(world.scheduler.phases.get(assignment.containerId)).not.toContain('running');
});

test('a start that takes too long is ended and named', async ({ started }) => {
  const { world, deploy } = started;
  const source = 'import time\ndef start():\n    time.sleep(60)\ndef handler():\n    return 1\n';
  const assignment = await deploy(source, { onStart: 'app:start', startTimeoutMs: 700 });
  world.scheduler.desire([assignment]);
  expect((await world.scheduler.phase(assignment.containerId, 'removed')).reason).toBe('start_timeout');
});

test('a task past its limit is ended, and its container serves on', async ({ started }) => {
  const { world, deploy } = started;
  const source =
    'import time\ndef handler(s=0):\n    end = time.time() + s\n    while time.time() < end: time.sleep(0.01)\n    return 1\n';
  const assignment = await deploy(source);
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  world.scheduler.run('t1', assignment.containerId, '{"s":30}', { timeoutMs: 300 });
  expect((await world.scheduler.resultOf('t1')).outcome).toBe('timeout');
  world.scheduler.run('t2', assignment.containerId, '');
  expect((await world.scheduler.resultOf('t2')).outcome).toBe('ok');
});

test('a container that ignores TERM is killed after its grace, and its task is given back', async ({ started }) => {
  const { world, deploy } = started;
  const source = `
import signal, time
def handler():
    print("in it", flush=True)
    while True: time.sleep(1)
`;
  const assignment = await deploy(source);
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  world.scheduler.run('t1', assignment.containerId, '');
  await until('t1 to start', () => world.scheduler.started.includes('t1'));
  const from = performance.now();
  world.scheduler.desire([{ ...assignment, stop: true, graceMs: 800, stopReason: 'user_stop' }]);
  expect((await world.scheduler.resultOf('t1')).outcome).toBe('lost');
  const removed = await world.scheduler.phase(assignment.containerId, 'removed');
  expect(removed).toMatchObject({ reason: 'user_stop', exitCode: 137 });
  expect(performance.now() - from).toBeGreaterThan(700);
});

/** Stops a container with a long grace while its `on_start` runs. @returns the agent's report of its end */
async function stoppedInItsStart({ world, deploy }: Started, source: string) {
  const assignment = await deploy(source, { onStart: 'app:start' });
  world.scheduler.desire([assignment]);
  await until('on_start to run', () => world.scheduler.records.some(({ line }) => line === 'on_start runs'));
  world.scheduler.desire([{ ...assignment, stop: true, graceMs: 60_000, stopReason: 'user_stop' }]);
  return await world.scheduler.phase(assignment.containerId, 'removed');
}

test('a container that is only starting hears a TERM that follows one it lost', async ({ started }) => {
  // The kernel drops a signal that comes before the container's init
  // is ready. The handler imitates that: it ignores the first TERM.
  const source = `
import os, signal, time
def second(*_):
    os._exit(3)
def start():
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, second))
    print("on_start runs")
    while True: time.sleep(0.01)
def handler():
    return 1
`;
  expect(await stoppedInItsStart(started, source)).toMatchObject({ reason: 'user_stop', exitCode: 3 });
});

test('a container that is only starting and ignores TERM is killed long before its grace is over', async ({
  started,
}) => {
  const source = `
import signal, time
def start():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("on_start runs")
    time.sleep(300)
def handler():
    return 1
`;
  expect(await stoppedInItsStart(started, source)).toMatchObject({ reason: 'user_stop', exitCode: 137 });
});

test('a start that is taken back at any moment leaves nothing behind for its whole grace', async ({
  started,
  docker,
}) => {
  const { world, deploy } = started;
  const assignments = await Promise.all(Array.from({ length: 8 }, () => deploy(HELLO)));
  let wanted: Assignment[] = [];
  for (const [index, assignment] of assignments.entries()) {
    wanted = [...wanted, assignment];
    world.scheduler.desire(wanted);
    const phase = ['creating', 'starting'][index % 2] ?? '';
    await until(`phase ${phase}`, () => world.scheduler.phases.get(assignment.containerId)?.includes(phase));
    wanted = wanted.map((one) =>
      one === assignment ? { ...assignment, stop: true, graceMs: 60_000, stopReason: 'user_stop' } : one,
    );
    world.scheduler.desire(wanted);
  }
  for (const { containerId } of assignments)
    expect(await world.scheduler.phase(containerId, 'removed')).toMatchObject({ reason: 'user_stop' });
  for (const { containerId } of assignments) {
    const filters = { label: [`io.longshore.container=${containerId}`] };
    expect(await docker.client.listContainers({ all: true, filters })).toEqual([]);
  }
});

test('an agent that ends with its containers takes nothing new meanwhile, and says so first', async ({
  started,
  docker,
}) => {
  const { world, deploy } = started;
  const { scheduler } = world;
  const slow = await deploy('import time\ndef handler():\n    time.sleep(1.5)\n    return 1\n');
  scheduler.desire([slow]);
  await scheduler.phase(slow.containerId, 'running');
  scheduler.run('t1', slow.containerId, '');
  await until('the task to run', () => scheduler.started.includes('t1'));
  const stopped = world.agent.stop('stop');
  await until('the word', () => scheduler.heard.some((message) => message.hostDrain?.on));
  // The scheduler places another container here for the waiting queue.
  const next = await deploy(HELLO);
  scheduler.desire([slow, next]);
  const refusal = await until('the refusal', () => scheduler.heard.find((message) => message.refuse)?.refuse);
  expect(refusal).toMatchObject({ containerId: next.containerId, reason: 'stopping' });
  await stopped;
  const labels = [`io.longshore.machine=${scheduler.machineId}`];
  expect(await docker.client.listContainers({ all: true, filters: { label: labels } })).toEqual([]);
});

test('an image that is nowhere, and one without Python, fail by their name', async ({ started, docker }) => {
  const { world, deploy } = started;
  const missing = await deploy(HELLO, { image: '127.0.0.1:9/longshore/none:1' });
  world.scheduler.desire([missing]);
  const first = await world.scheduler.phase(missing.containerId, 'removed', 30_000);
  expect(first.reason).toBe('registry_unreachable');
  expect(first.message).toMatch(/127\.0\.0\.1:9\/longshore\/none:1/);

  // The base image with its Python taken away.
  const shaved = await docker.client.createContainer({
    Image: docker.baseImage,
    Cmd: ['sh', '-c', 'rm -f /usr/bin/python3* /usr/local/bin/python3*'],
    Labels: { ...docker.labels },
  });
  await shaved.start();
  await shaved.wait();
  const image = `longshore-test-no-python:${world.scheduler.machineId}`;
  await shaved.commit({ repo: 'longshore-test-no-python', tag: world.scheduler.machineId });
  await shaved.remove();
  try {
    const pythonless = await deploy(HELLO, { image });
    world.scheduler.desire([pythonless]);
    const second = await world.scheduler.phase(pythonless.containerId, 'removed');
    expect(second.reason).toBe('image_error');
    expect(second.message).toContain(image);
  } finally {
    await docker.client.getImage(image).remove({ force: true });
  }
});

test('a damaged archive and one that is no zip do not start', async ({ started }) => {
  const { world } = started;
  const good = world.scheduler.addArchive(await zip({ 'app.py': HELLO }));
  world.scheduler.archives.set('damaged', Buffer.from('x'.repeat(good.size)));
  const damaged = anAssignment({ code: { ...good, objectId: 'damaged' } });
  const notZip = anAssignment({ code: world.scheduler.addArchive(Buffer.from('not a zip at all')) });
  world.scheduler.desire([damaged, notZip]);
  const [one, two] = await Promise.all([damaged, notZip].map((a) => world.scheduler.phase(a.containerId, 'removed')));
  expect(one).toMatchObject({ reason: 'start_failed' });
  expect(one?.message).toMatch(/sha256/);
  expect(two).toMatchObject({ reason: 'user_error', message: 'the code archive is not a zip file' });
});

test('a spec that cannot be run is refused by name, and nothing is created', async ({ started, docker }) => {
  const { world, deploy } = started;
  const assignment = await deploy(HELLO, { memoryBytes: 0 });
  world.scheduler.desire([assignment]);
  const refusal = await until('the refusal', () => world.scheduler.heard.find((message) => message.refuse)?.refuse);
  expect(refusal).toMatchObject({ containerId: assignment.containerId, reason: 'invalid_spec' });
  expect(refusal?.message).toMatch(/memory_bytes/);
  const label = `io.longshore.container=${assignment.containerId}`;
  expect(await docker.client.listContainers({ all: true, filters: { label: [label] } })).toEqual([]);
});

test('nothing is created before the scheduler lets it proceed', async ({ started, docker }) => {
  const { world, deploy } = started;
  world.scheduler.autoProceed = false;
  const assignment = await deploy(HELLO);
  world.scheduler.desire([assignment]);
  await until('the ack', () => world.scheduler.heard.some((message) => message.ack));
  world.scheduler.desire([assignment]);
  await until('the ack again', () => world.scheduler.heard.filter((message) => message.ack).length > 1);
  const label = `io.longshore.container=${assignment.containerId}`;
  expect(await docker.client.listContainers({ all: true, filters: { label: [label] } })).toEqual([]);
  world.scheduler.control?.write({
    proceed: { assignmentId: assignment.assignmentId, containerId: assignment.containerId, epoch: 1 },
  });
  await world.scheduler.phase(assignment.containerId, 'running');
});

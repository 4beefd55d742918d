// Budgets of a container on its agent socket. An offender loses
// its socket; its neighbours keep their sockets and their tasks.
import { join } from 'node:path';
import { expect } from 'vitest';
import { FakeRunner } from '../helpers/fake-runner.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { ID, Sink, named, test } from '../helpers/slot-world.ts';
import type { World } from '../helpers/slot-world.ts';

const READY = { mode: 'single', slots: 1, onStartMs: 5 } as const;
const invented = (count: number, from = 0): { taskId: string; token: string }[] =>
  Array.from({ length: count }, (_, at) => named(`invented-${from + at}`));
const control = { containerId: ID, process: 0, slots: 0 };

/** Another container of the same machine has a task answered. */
async function neighbourWorks(world: World): Promise<void> {
  const path = join(world.path, '..', '..', 'neighbour', 'agent.sock');
  await world.table.add({
    containerId: 'neighbour',
    workers: 1,
    concurrentRequests: 1,
    timeoutMs: 0,
    socketPath: path,
    ready: undefined,
  });
  const readies = world.readies.length;
  const runner = await FakeRunner.process(path, { containerId: 'neighbour', process: 0, slots: 0 });
  runner.send('ready', { mode: 'single', slots: 1, onStartMs: 1 });
  await until('the neighbour is ready', () => world.readies.length > readies);
  world.run('theirs', { containerId: 'neighbour' });
  await runner.next('run');
  runner.send('result', { ...named('theirs'), outcome: 'ok' }, '1');
  expect((await world.sink.result('theirs')).outcome).toBe('ok');
}

test('a second hello on one connection ends the container’s socket, and no other', async ({ world }) => {
  await world.add();
  const runner = await FakeRunner.process(world.path, control);
  runner.send('hello', { version: 1, pid: 1, python: '3.11', ...control });
  await until('the connection to end', () => runner.closed);
  expect(world.violations).toEqual(['second_hello']);
  await expect(FakeRunner.dial(world.path)).rejects.toThrow();
  await neighbourWorks(world);
});

test('a hello that names more attempts than a runner can is a violation, and nothing of it is kept', async ({
  world,
}) => {
  await world.add({ ready: READY });
  const runner = await FakeRunner.dial(world.path);
  runner.send('hello', { version: 1, pid: 1, ...control, holding: invented(700) });
  await until('the connection to end', () => runner.closed);
  expect(world.violations).toEqual(['holding']);
  expect(world.table.liveAttempts()).toEqual([]);
});

test('a hello that names attempts by names of any length is a violation', async ({ world }) => {
  await world.add({ ready: READY });
  const runner = await FakeRunner.dial(world.path);
  runner.send('hello', { version: 1, pid: 1, ...control, holding: [{ taskId: 't', token: 'x'.repeat(10_000) }] });
  await until('the connection to end', () => runner.closed);
  expect(world.violations).toEqual(['holding']);
});

test('an agent that started the container itself takes no attempt that it does not know', async ({ world }) => {
  await world.add();
  const runner = await FakeRunner.process(world.path, { ...control, holding: invented(400) });
  await until('each to be told', () => runner.frames.filter(({ kind }) => kind === 'acked').length === 400);
  expect(world.table.liveAttempts()).toEqual([]);
  expect(world.violations).toEqual([]);
});

test('an adopted container brings along as many running attempts as it has slots, and results that follow', async ({
  world,
}) => {
  await world.add({ ready: READY });
  const runner = await FakeRunner.process(world.path, { ...control, holding: invented(400) });
  expect(world.table.liveAttempts()).toEqual([{ ...named('invented-0'), containerId: ID }]);
  expect(runner.frames.some(({ kind }) => kind === 'acked')).toBe(false);
  // Another connection in its name brings no more attempts.
  await FakeRunner.process(world.path, { ...control, holding: invented(400, 1000) });
  expect(world.table.liveAttempts()).toHaveLength(1);
});

test('the results that an adopted container’s processes still keep arrive, large ones in their parts', async ({
  world,
}) => {
  await world.add({ ready: READY });
  const runner = await FakeRunner.process(world.path, {
    ...control,
    holding: ['runs', 'small', 'large'].map(named),
  });
  runner.send('result', { ...named('small'), outcome: 'ok' }, '"small"');
  runner.send('chunk', { ...named('large'), seq: 0 }, Buffer.alloc(300_000, 'x'));
  runner.send('result', { ...named('large'), outcome: 'ok', chunks: 1 }, '');
  expect(String((await world.sink.result('small')).body)).toBe('"small"');
  expect(await world.sink.result('large')).toMatchObject({ outcome: 'ok', chunks: 1 });
  runner.send('result', { ...named('runs'), outcome: 'ok' }, '1');
  expect((await world.sink.result('runs')).outcome).toBe('ok');
});

test('an adopted container brings along as many results as its runners keep, and no others', async ({ world }) => {
  await world.add({ ready: READY });
  const runner = await FakeRunner.process(world.path, control);
  // No attempt has such names, and nobody answers to them.
  runner.send('result', { taskId: 't', token: 'x'.repeat(60_000), outcome: 'ok' });
  runner.send('chunk', { taskId: 'x'.repeat(60_000), token: 't', seq: 0 }, 'x');
  // A start adopts nothing.
  runner.send('started', named('started'));
  const kept = 8192;
  for (const name of invented(kept + 1000)) runner.send('result', { ...name, outcome: 'ok' }, '1');
  const acked = () => runner.frames.filter(({ kind }) => kind === 'acked').map(({ header }) => header);
  await until('the others are refused', () => acked().length >= 1000);
  expect(acked()).toEqual(invented(1000, kept));
  expect(world.sink.sent.filter(({ result }) => result)).toHaveLength(kept);
  expect(world.table.liveAttempts()).toEqual(invented(kept).map((name) => ({ ...name, containerId: ID })));
  expect(world.violations).toEqual([]);
});

test('an adopted container begins few results that it does not end, since each heartbeat would name them', async ({
  world,
}) => {
  await world.add({ ready: READY });
  const runner = await FakeRunner.process(world.path, control);
  for (const name of invented(3000)) runner.send('chunk', { ...name, seq: 0 }, 'x');
  const large = named('large');
  runner.send('result', { ...named('small'), outcome: 'ok' }, '1');
  await world.sink.result('small');
  expect(world.table.liveAttempts()).toHaveLength(400 + 1);
  // A part beyond them is dropped, and the end of its result shows the gap.
  runner.send('chunk', { ...large, seq: 0 }, 'x');
  runner.send('result', { ...large, outcome: 'ok', chunks: 1 });
  expect((await world.sink.result('large')).outcome).toBe('error');
});

test('a container that reads no acknowledgement has few of them wait', async ({ world }) => {
  await world.add({ workers: 16 });
  const runner = await FakeRunner.process(world.path, control);
  runner.reads(false);
  const result = { taskId: 't'.repeat(128), token: 'x'.repeat(128), outcome: 'ok' };
  for (let sent = 0; sent < 40_000; sent += 1) runner.send('result', result);
  runner.send('log', { taskId: 't', stream: 'stdout' }, 'behind them');
  await until('all are taken in', () => world.log.length > 0);
  runner.reads(true);
  runner.send('failed', { error: 'E' });
  await until('the last answer', () => runner.frames.some(({ header }) => header['taskId'] === undefined));
  expect(runner.frames.length).toBeGreaterThan(10_000);
  expect(runner.frames.length).toBeLessThan(25_000);
});

test('a process that claims more slots than it has gets no more tasks', async ({ world }) => {
  await world.add({ workers: 2 });
  const first = await FakeRunner.process(world.path, control);
  await FakeRunner.process(world.path, { containerId: ID, process: 1, slots: 1_000_000 });
  first.send('ready', { mode: 'fork', slots: 1_000_000, onStartMs: 1 });
  await until('ready', () => world.readies.length > 0);
  expect(world.readies[0]?.slots).toBe(2);
  world.run('a');
  world.run('b');
  expect(world.sink.sent.at(-1)?.refused).toMatchObject({ taskId: 'b', reason: 'no_free_slot' });
});

test('a process that the container does not have is refused', async ({ world }) => {
  await world.add();
  for (const process of [1, -1, 0.5, 1e9]) {
    const runner = await FakeRunner.dial(world.path);
    runner.send('hello', { version: 1, pid: 1, containerId: ID, process, slots: 1 });
    await until('the connection to end', () => runner.closed);
  }
});

test('connections without end are a violation', async ({ world }) => {
  await world.add();
  for (let dialled = 0; world.violations.length === 0; dialled += 1) {
    expect(dialled).toBeLessThan(5000);
    const runner = await FakeRunner.dial(world.path).catch(() => undefined);
    runner?.hangUp();
  }
  expect(world.violations).toEqual(['rare_frames']);
  await neighbourWorks(world);
});

for (const [what, kind, header, count] of [
  // A runner may repeat all results that it keeps, at once.
  ['results of tasks that nobody gave', 'result', { ...named('none'), outcome: 'ok' }, 40_000],
  ['failures', 'failed', { error: 'E: x' }, 1200],
  ['starts', 'starting', { phase: 'import' }, 1200],
  ['ends of processes', 'exited', { process: 0, pid: 1, code: 1 }, 1200],
] as const)
  test(`${what} without end are a violation`, async ({ world }) => {
    await world.add();
    const runner = await world.single();
    for (let sent = 0; sent < count; sent += 1) runner.send(kind, header);
    await until('the connection to end', () => runner.closed);
    expect(world.violations).toEqual(['rare_frames']);
    await neighbourWorks(world);
  });

test('frames that cannot be read, again and again, are a violation; one is not', async ({ world }) => {
  await world.add();
  for (let sent = 0; world.violations.length === 0; sent += 1) {
    expect(sent).toBeLessThan(200);
    const runner = await FakeRunner.dial(world.path);
    runner.raw(Buffer.from([255, 255, 255, 255, 0, 0, 0]));
    await until('the connection to end', () => runner.closed);
    if (sent === 0) expect(world.violations).toEqual([]);
  }
  expect(world.violations).toEqual(['bad_frames']);
});

test('output that is only fast is slowed, and all of it arrives', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  const lines = 60_000;
  for (let line = 0; line < lines; line += 1) runner.send('log', { taskId: 't', stream: 'stdout' }, `line ${line}`);
  await until('every line', () => world.log.length === lines);
  // The log buffer counts each line, and accepts far fewer.
  expect(world.log[9999]?.line).toBe('line 9999');
  expect(world.log.some(({ line }) => line === undefined)).toBe(true);
  expect(world.log.filter(({ line }) => line === '')).toEqual([]);
  expect(world.violations).toEqual([]);
});

test('texts have a size: of a failed start, of a line, of the names in them', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  runner.send('failed', { error: 'ValueError' }, `ValueError: ${'x'.repeat(1_000_000)}`);
  await runner.next('acked');
  expect(world.failures[0]?.length).toBeLessThanOrEqual(64 * 1024);
  expect(world.failures[0]).toMatch(/^ValueError/);
  runner.send('log', { taskId: 't'.repeat(60_000), stream: 'stdout' }, Buffer.alloc(900_000, 0xff));
  const line = await until('the line', () => world.log[0]);
  expect(line.taskId).toBe('');
  expect(Buffer.byteLength(line.line ?? '')).toBeLessThanOrEqual(3 * 64 * 1024);
});

test('a report of many attempts comes in several messages', async ({ world }) => {
  const many = 6000;
  await world.add({ concurrentRequests: many, ready: { mode: 'single', slots: many, onStartMs: 1 } });
  const runner = await FakeRunner.process(world.path, control);
  for (let at = 0; at < many; at += 1) world.run(`task-${at}-${'i'.repeat(40)}`);
  await until('all to be handed over', () => runner.frames.filter(({ kind }) => kind === 'run').length === many);
  const sink = new Sink();
  world.table.connect(sink);
  const parts = sink.sent.flatMap(({ report }) => (report ? [report] : []));
  expect(parts.length).toBeGreaterThan(1);
  expect(parts.map(({ more }) => more)).toEqual(parts.map((_part, index) => index < parts.length - 1));
  for (const part of parts) expect(JSON.stringify(part).length).toBeLessThan(1024 * 1024);
  expect(parts.flatMap(({ running }) => running)).toHaveLength(many);
});

import { Socket } from 'node:net';
import { expect, vi } from 'vitest';
import { encodeFrame } from '../../shared/protocol/frames.ts';
import { FakeRunner } from '../helpers/fake-runner.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { ID, Sink, named, test } from '../helpers/slot-world.ts';

/** The line by which a task's log says how its process ended. */
const aLine = (taskId: string, text: string) => ({
  containerId: ID,
  taskId,
  stream: 'stderr',
  line: `longshore: ${text}`,
});

test('a task goes to the runner as it came, and its result back as it came', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  expect(world.readies[0]).toEqual({ mode: 'single', slots: 1, onStartMs: 12 });
  world.run('t1', { query: '{"q":["1"]}', timeoutMs: 5000 });
  const run = await runner.next('run');
  expect(run.header).toMatchObject({ ...named('t1'), timeoutMs: 5000, query: { q: ['1'] }, last: true });
  expect(run.body.toString()).toBe('{"a":1}');
  runner.send('started', named('t1'));
  // A start is reported only for a task that has not ended a moment later.
  await until('the start is reported', () => world.sink.sent.some((message) => message.started?.taskId === 't1'));
  runner.send('log', { taskId: 't1', stream: 'stdout', seq: 1 }, 'a line');
  runner.send('result', { ...named('t1'), outcome: 'ok', durationMs: 7, chunks: 0 }, '{ "x" : 1 }');
  const result = await world.sink.result('t1');
  expect(result).toMatchObject({ outcome: 'ok', durationMs: 7, chunks: 0, started: true, containerId: ID });
  expect(Buffer.from(result.body as Buffer).toString()).toBe('{ "x" : 1 }');
  expect(world.log).toEqual([{ containerId: ID, taskId: 't1', stream: 'stdout', line: 'a line' }]);
});

test('an agent that stops reads what the processes have printed, and lets them go', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  for (let at = 0; at < 300; at += 1) runner.send('log', { taskId: 't1', stream: 'stdout', seq: at }, `line ${at}`);
  await world.table.leave();
  expect(world.log.map(({ line }) => line)).toEqual(Array.from({ length: 300 }, (_, at) => `line ${at}`));
  await until('the process is let go', () => runner.closed);
  await expect(FakeRunner.dial(world.path)).rejects.toThrow();
  // The attempt lives on, for the next agent.
  expect([world.table.liveAttempts().length, world.failures, world.stops]).toEqual([1, [], []]);
});

test('a result is kept until it is acknowledged, and then the runner hears so', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.send('result', { ...named('t1'), outcome: 'ok' }, '1');
  await world.sink.result('t1');
  world.table.disconnect(world.sink);
  const second = new Sink();
  world.table.connect(second);
  // The report names the attempt before its result, which may come late; heartbeats name it until then.
  const held = [{ ...named('t1'), containerId: ID }];
  expect(second.sent[0]).toMatchObject({ report: { running: [], finished: held } });
  expect(world.table.liveAttempts()).toEqual(held);
  expect((await second.result('t1')).outcome).toBe('ok');
  expect(runner.frames.some((frame) => frame.kind === 'acked')).toBe(false);
  world.table.acked('t1', 'token-t1');
  expect((await runner.next('acked')).header).toEqual(named('t1'));
  const third = new Sink();
  world.table.connect(third);
  expect(third.sent).toEqual([{ report: { running: [], finished: [] } }]);
  expect(world.table.liveAttempts()).toEqual([]);
});

test('reports return the facts of an order as they came, and heartbeats do without', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  const facts = Buffer.from([0, 255, 1]);
  world.run('t1', { facts });
  await runner.next('run');
  const attempt = { ...named('t1'), containerId: ID };
  const whileItRuns = new Sink();
  world.table.connect(whileItRuns);
  expect(whileItRuns.sent[0]).toEqual({ report: { running: [{ ...attempt, facts }], finished: [] } });
  expect(world.table.liveAttempts()).toEqual([attempt]);
  runner.send('result', { ...named('t1'), outcome: 'ok' }, '1');
  await whileItRuns.result('t1');
  const afterwards = new Sink();
  world.table.connect(afterwards);
  expect(afterwards.sent[0]).toEqual({ report: { running: [], finished: [{ ...attempt, facts }] } });
});

test('a result that is repeated after its acknowledgement changes nothing', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.send('result', { ...named('t1'), outcome: 'ok' }, '1');
  await world.sink.result('t1');
  world.table.acked('t1', 'token-t1');
  await runner.next('acked');
  const before = world.sink.sent.length;
  runner.send('result', { ...named('t1'), outcome: 'error' }, '2');
  await runner.next('acked');
  expect(world.sink.sent).toHaveLength(before);
});

test('the same attempt sent twice runs once', async ({ world }) => {
  await world.add({ concurrentRequests: 2 });
  const runner = await world.single(2);
  world.run('t1');
  world.run('t1');
  world.run('t2');
  await runner.next('run');
  expect((await runner.next('run')).header['taskId']).toBe('t2');
});

test('a frame with another token than the attempt has is refused', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.send('result', { taskId: 't1', token: 'stolen', outcome: 'ok' }, '1');
  await runner.next('acked');
  runner.send('result', { ...named('t1'), outcome: 'error' }, '2');
  expect((await world.sink.result('t1')).outcome).toBe('error');
});

test('no container gets more than its slots, and the emptiest process is next', async ({ world }) => {
  await world.add({ workers: 2, concurrentRequests: 2 });
  const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const first = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 2 });
  const second = await FakeRunner.process(world.path, { containerId: ID, process: 1, slots: 2 });
  world.run('early');
  expect(world.sink.sent.at(-1)?.refused).toMatchObject({ taskId: 'early', reason: 'not_ready' });
  control.send('ready', { mode: 'fork', slots: 4, onStartMs: 1 });
  await until('ready', () => world.readies.length > 0);
  for (const id of ['a', 'b', 'c', 'd', 'e']) world.run(id);
  expect(world.sink.sent.at(-1)?.refused).toMatchObject({ taskId: 'e', reason: 'no_free_slot' });
  for (const runner of [first, second]) {
    await runner.next('run');
    await runner.next('run');
  }
});

test('a task that no frame can carry is refused, and leaves its slot free', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('long', { query: JSON.stringify({ q: 'x'.repeat(70_000) }), timeoutMs: 1 });
  expect(world.sink.sent.at(-1)?.refused).toMatchObject({ taskId: 'long' });
  expect(world.sink.sent.at(-1)?.refused?.reason).toMatch(/header of \d+ bytes is too long/);
  expect(world.table.liveAttempts()).toEqual([]);
  world.run('next');
  expect((await runner.next('run')).header).toMatchObject({ taskId: 'next' });
});

test('a task for a container that is not here, or that stops, is refused', async ({ world }) => {
  world.run('t1', { containerId: 'other' });
  expect(world.sink.sent.at(-1)?.refused?.reason).toBe('no_such_container');
  await world.add();
  await world.single();
  world.table.get(ID)?.stopAccepting();
  world.run('t2');
  expect(world.sink.sent.at(-1)?.refused?.reason).toBe('stopping');
});

test('a large input reaches the runner in its parts', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1', { last: false, input: Buffer.alloc(300_000, 'a') });
  world.run('t1', { part: 1, last: true, input: Buffer.alloc(10, 'b') });
  const [one, two] = [await runner.next('run'), await runner.next('run')];
  expect([one.body.length, one.header['last'], two.body.toString(), two.header['part'], two.header['last']]).toEqual([
    300_000,
    false,
    'bbbbbbbbbb',
    1,
    true,
  ]);
});

test('a large result goes up in parts, numbered from zero', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.send('started', named('t1'));
  runner.send('chunk', { ...named('t1'), seq: 0 }, Buffer.alloc(700_000, 'x'));
  runner.send('result', { ...named('t1'), outcome: 'ok', chunks: 1 }, Buffer.alloc(300_000, 'y'));
  const result = await world.sink.result('t1');
  const chunks = world.sink.sent
    .map((message) => message.chunk)
    .filter((chunk) => chunk !== undefined && chunk !== null);
  expect(chunks.map((chunk) => chunk.seq)).toEqual([0, 1, 2]);
  expect(chunks.every((chunk) => (chunk.data as Buffer).length <= 512 * 1024)).toBe(true);
  expect(result.chunks).toBe(3);
  const whole = Buffer.concat([...chunks.map((chunk) => chunk.data as Buffer), result.body as Buffer]);
  expect(whole.toString()).toBe('x'.repeat(700_000) + 'y'.repeat(300_000));
});

test('items of a generator go up as they come, and are no part of the failure it ends with', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.send('chunk', { ...named('t1'), seq: 0, item: true }, 'data: {"data":1}\n\n');
  await until('an item', () => world.sink.sent.some(({ chunk }) => chunk?.data?.toString() === 'data: {"data":1}\n\n'));
  runner.send('result', { ...named('t1'), outcome: 'error', chunks: 1, items: 1 }, '{"error":"KeyError: 1"}');
  const result = await world.sink.result('t1');
  expect(result).toMatchObject({ outcome: 'error', chunks: 0 });
  expect(String(result.body)).toBe('{"error":"KeyError: 1"}');
});

test('a large result that a runner repeats after its connection broke comes once', async ({ world }) => {
  await world.add();
  const before = await world.single();
  world.run('t1');
  await before.next('run');
  before.send('chunk', { ...named('t1'), seq: 0 }, 'a');
  before.send('chunk', { ...named('t1'), seq: 1 }, 'b');
  await until('both parts', () => world.sink.sent.filter(({ chunk }) => chunk).length === 2);
  before.send('chunk', { ...named('t1'), seq: 0 }, 'a');
  before.send('chunk', { ...named('t1'), seq: 1 }, 'b');
  before.send('result', { ...named('t1'), outcome: 'ok', chunks: 2 }, 'c');
  expect(await world.sink.result('t1')).toMatchObject({ outcome: 'ok', chunks: 2 });
});

test('a generator whose items were lost on its machine ends with an error, not with a hole', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  // The first two items went to an earlier agent, or to none.
  runner.send('chunk', { ...named('t1'), seq: 2, item: true }, 'data: {"data":2}\n\n');
  runner.send('result', { ...named('t1'), outcome: 'ok', chunks: 3, items: 3 }, '');
  const result = await world.sink.result('t1');
  expect(result).toMatchObject({ outcome: 'error', chunks: 0 });
  expect(String(result.body)).toContain('items of the generator were lost');
  expect(world.sink.sent.some(({ chunk }) => chunk)).toBe(false);
});

test('past its execution limit a task is cancelled in its runner', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1', { timeoutMs: 50 });
  await runner.next('run');
  expect((await runner.next('cancel')).header).toEqual({ ...named('t1'), reason: 'timeout' });
  runner.send('result', { ...named('t1'), outcome: 'timeout' }, '');
  expect((await world.sink.result('t1')).outcome).toBe('timeout');
});

test('a cancel reaches the runner once', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  world.table.cancel('t1', 'token-t1', 'cancelled');
  world.table.cancel('t1', 'token-t1', 'cancelled');
  await runner.next('cancel');
  runner.send('result', { ...named('t1'), outcome: 'cancelled' }, '');
  expect((await world.sink.result('t1')).outcome).toBe('cancelled');
  expect(runner.frames.some((frame) => frame.kind === 'cancel')).toBe(false);
});

test('a process that dies with a task in hand is named with its code', async ({ world }) => {
  await world.add({ workers: 2 });
  const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const child = await FakeRunner.process(world.path, { containerId: ID, process: 1, slots: 1, pid: 77 });
  control.send('ready', { mode: 'fork', slots: 2, onStartMs: 1 });
  await until('ready', () => world.readies.length > 0);
  world.run('t1');
  await child.next('run');
  child.hangUp();
  control.send('exited', { process: 1, pid: 77, code: 3 });
  const result = await world.sink.result('t1');
  expect(result).toMatchObject({ outcome: 'exited', started: true });
  expect(Buffer.from(result.body as Buffer).toString()).toBe('{"error":"process exited (code 3)"}');
  expect(world.log).toEqual([aLine('t1', 'process exited (code 3)')]);
});

test('a process that starts again has no slots until it serves', async ({ world }) => {
  await world.add({ workers: 3, concurrentRequests: 2 });
  const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const serving = (process: number, pid: number): Promise<FakeRunner> =>
    FakeRunner.process(world.path, { containerId: ID, process, slots: 2, pid });
  const first = await serving(1, 77);
  const second = await serving(2, 78);
  // An end before the container is ready belongs to its start.
  control.send('exited', { process: 0, pid: 70, code: 1 });
  control.send('ready', { mode: 'spawn', slots: 6, onStartMs: 1 });
  await until('ready', () => world.readies.length > 0);
  expect(world.restarting).toEqual([]);
  first.hangUp();
  control.send('exited', { process: 1, pid: 77, signal: 9 });
  second.hangUp();
  control.send('exited', { process: 2, pid: 78, code: 3 });
  await until('both are missing', () => world.restarting.length === 2);
  await serving(1, 87);
  await until('one serves again', () => world.restarting.length === 3);
  await serving(2, 88);
  await until('the other serves again', () => world.restarting.length === 4);
  expect(world.restarting).toEqual([2, 4, 2, 0]);
  // These are ends of a process whose successor serves already, and of a process that does not exist.
  control.send('exited', { process: 2, pid: 78, code: 3 });
  control.send('exited', { process: 3, pid: 79, code: 3 });
  control.send('log', { taskId: '', stream: 'stdout', seq: 1 }, 'read');
  await until('both are read', () => world.log.length > 0);
  expect(world.restarting).toEqual([2, 4, 2, 0]);
});

test.for(['fork', 'spawn'])(
  'a handler that does not end after its cancel costs its process alone (%s)',
  async (mode, { world }) => {
    await world.add({ workers: 2 });
    const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
    const child = await FakeRunner.process(world.path, { containerId: ID, process: 1, slots: 1, pid: 77 });
    control.send('ready', { mode, slots: 2, onStartMs: 1 });
    await until('ready', () => world.readies.length > 0);
    expect(world.readies.at(-1)).toMatchObject({ mode, slots: 2 });
    world.run('t1');
    await child.next('run');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    world.table.cancel('t1', 'token-t1', 'timeout');
    vi.advanceTimersByTime(10_000);
    vi.useRealTimers();
    expect((await control.next('kill')).header).toEqual({ process: 1 });
    child.hangUp();
    control.send('exited', { process: 1, pid: 77, signal: 9 });
    expect((await world.sink.result('t1')).outcome).toBe('timeout');
    expect(world.log).toEqual([aLine('t1', 'the task ran out of time, and did not end: its process was killed')]);
  },
);

test('a process that dials again with its task in hand goes on with it', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.hangUp();
  const again = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0, holding: [named('t1')] });
  again.send('result', { ...named('t1'), outcome: 'ok' }, '"late"');
  expect((await world.sink.result('t1')).outcome).toBe('ok');
});

test('a process that dials again without its task has lost it', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  runner.hangUp();
  await until('the hang-up', () => runner.closed);
  await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0, holding: [] });
  expect((await world.sink.result('t1')).outcome).toBe('exited');
});

test('a new agent takes over what a runner holds, under the same token', async ({ world }) => {
  await world.add({ ready: { mode: 'single', slots: 1, onStartMs: 5 } });
  const runner = await FakeRunner.process(world.path, {
    containerId: ID,
    process: 0,
    slots: 0,
    holding: [named('t1')],
  });
  expect(world.table.areRunnersConnected([ID])).toBe(true);
  const sink = new Sink();
  world.table.connect(sink);
  expect(sink.sent[0]).toMatchObject({ report: { running: [{ ...named('t1'), containerId: ID }], finished: [] } });
  world.run('t2');
  expect(sink.sent.at(-1)?.refused?.reason).toBe('no_free_slot');
  runner.send('result', { ...named('t1'), outcome: 'ok' }, '1');
  expect((await sink.result('t1')).outcome).toBe('ok');
  world.run('t2');
  await runner.next('run');
});

/** Results that a runner keeps, and the newest of them, which its hello names. */
const manyResults = (count: number) => {
  const results = Array.from({ length: count }, (_, at) => named(`r${at}`));
  return { results, holding: results.toReversed().slice(0, 400) };
};

test('a new agent takes all results that a runner kept, also those that its hello has no room for', async ({
  world,
}) => {
  await world.add({ ready: { mode: 'single', slots: 1, onStartMs: 1 } });
  const { results, holding } = manyResults(1500);
  const runner = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0, holding });
  for (const name of results) runner.send('result', { ...name, outcome: 'ok' }, '1');
  runner.send('log', { taskId: '', stream: 'stdout' }, 'behind them');
  await until('all of them were read', () => world.log.length > 0 || runner.closed);
  expect(world.violations).toEqual([]);
  const arrived = world.sink.sent.flatMap(({ result }) => result?.taskId ?? []);
  expect(arrived).toEqual(results.map(({ taskId }) => taskId));
  expect(runner.frames.some(({ kind }) => kind === 'acked')).toBe(false);
  for (const { taskId, token } of results) world.table.acked(taskId, token);
  await until('each is acknowledged', () => runner.frames.filter(({ kind }) => kind === 'acked').length === 1500);
});

test('results that were acknowledged while their runner was away may all come again', async ({ world }) => {
  await world.add({ ready: { mode: 'single', slots: 1, onStartMs: 1 } });
  const { results, holding } = manyResults(8192);
  const hello = { containerId: ID, process: 0, slots: 0, holding };
  const first = await FakeRunner.process(world.path, hello);
  for (const name of results) first.send('result', { ...name, outcome: 'ok' }, '1');
  await until('all of them came', () => world.sink.sent.filter(({ result }) => result).length === 8192);
  first.hangUp();
  await until('the connection to end', () => first.closed);
  for (const { taskId, token } of results) world.table.acked(taskId, token);
  const before = world.sink.sent.length;
  const second = await FakeRunner.process(world.path, hello);
  const told = new Set<unknown>();
  for (const name of results) second.send('result', { ...name, outcome: 'ok' }, '1');
  await until('each is acknowledged', () => {
    for (const { kind, header } of second.frames.splice(0)) if (kind === 'acked') told.add(header['taskId']);
    return told.size === 8192 || second.closed;
  });
  expect(world.violations).toEqual([]);
  expect(told.size).toBe(8192);
  expect(world.sink.sent).toHaveLength(before);
});

test('what the scheduler does not adopt is cancelled', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  world.table.known({ adopted: [], refused: [{ ...named('t1'), containerId: ID, facts: Buffer.alloc(0) }] });
  expect((await runner.next('cancel')).header['reason']).toBe('superseded');
});

test('an attempt that the scheduler takes back ends as lost: another scheduler may hear of it, and runs its task again', async ({
  world,
}) => {
  await world.add();
  const runner = await world.single();
  world.run('t1');
  await runner.next('run');
  world.table.cancel('t1', 'token-t1', 'superseded');
  expect((await runner.next('cancel')).header['reason']).toBe('superseded');
  runner.send('result', { ...named('t1'), outcome: 'cancelled' }, '');
  expect((await world.sink.result('t1')).outcome).toBe('lost');
  world.table.acked('t1', 'token-t1');
  // A task that has ended by then has ended.
  world.run('t2');
  await runner.next('run');
  world.table.cancel('t2', 'token-t2', 'superseded');
  runner.send('result', { ...named('t2'), outcome: 'ok' }, '1');
  expect((await world.sink.result('t2')).outcome).toBe('ok');
});

test('when its container exits a task ends with the code, after frames that were under way', async ({ world }) => {
  await world.add({ concurrentRequests: 2 });
  const runner = await world.single(2);
  world.run('t1');
  world.run('t2');
  await runner.next('run');
  await runner.next('run');
  runner.send('result', { ...named('t1'), outcome: 'ok' }, '1');
  runner.hangUp();
  await world.table.end(ID, { kind: 'exited', exitCode: 9, oomKilled: false });
  expect((await world.sink.result('t1')).outcome).toBe('ok');
  const second = await world.sink.result('t2');
  expect(Buffer.from(second.body as Buffer).toString()).toBe('{"error":"process exited (code 9)"}');
  expect(world.log).toEqual([aLine('t2', 'process exited (code 9)')]);
});

test('memory that ran out is said so, and a container that was stopped is nobody’s error', async ({ world }) => {
  for (const [exit, outcome, body, lines] of [
    [
      { kind: 'exited', exitCode: 137, oomKilled: true },
      'exited',
      '{"error":"process ran out of memory"}',
      [aLine('exited', 'process ran out of memory')],
    ],
    [{ kind: 'stopped', exitCode: 143, oomKilled: false }, 'lost', '{"error":"container stopped"}', []],
  ] as const) {
    world.log.length = 0;
    await world.add();
    world.readies.length = 0;
    const runner = await world.single();
    world.run(outcome);
    await runner.next('run');
    runner.hangUp();
    await world.table.end(ID, exit);
    const result = await world.sink.result(outcome);
    expect(result.outcome).toBe(outcome);
    expect(Buffer.from(result.body as Buffer).toString()).toBe(body);
    expect(world.log).toEqual(lines);
  }
});

test('only a call in which its process was killed and memory ran out is told so', async ({ world }) => {
  const OUT_OF_MEMORY = 'process ran out of memory';
  for (const [taskId, exitCode, ranOutInCall, text] of [
    ['own-exit', 9, false, 'process exited (code 9)'],
    ['own-exit-beside-child', 9, true, 'process exited (code 9)'],
    ['killed-later', 137, false, 'process exited (code 137)'],
    ['killed-for-memory', 137, true, OUT_OF_MEMORY],
  ] as const) {
    await world.add();
    world.readies.length = 0;
    const runner = await world.single();
    // A child process of an earlier call was killed for memory: the engine's flag stays set.
    world.table.get(ID)?.noteOom();
    world.run(taskId);
    await runner.next('run');
    if (ranOutInCall) world.table.get(ID)?.noteOom();
    runner.hangUp();
    await world.table.end(ID, { kind: 'exited', exitCode, oomKilled: true });
    expect(JSON.parse(String((await world.sink.result(taskId)).body)), taskId).toEqual({ error: text });
  }
});

test('nor does a process of several blame memory that ran out in an earlier call', async ({ world }) => {
  await world.add({ workers: 3 });
  const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const child = (process: number): Promise<FakeRunner> =>
    FakeRunner.process(world.path, { containerId: ID, process, slots: 1, pid: 76 + process });
  const runners = { earlier: await child(1), now: await child(2) };
  control.send('ready', { mode: 'fork', slots: 2, onStartMs: 1 });
  await until('ready', () => world.readies.length > 0);
  world.table.get(ID)?.noteOom();
  world.run('one');
  world.run('two');
  await Promise.all([runners.earlier.next('run'), runners.now.next('run')]);
  const ended = async (process: number): Promise<string> => {
    control.send('exited', { process, pid: 76 + process, signal: 9 });
    return String((await until('its end', () => world.log.shift())).line);
  };
  expect(await ended(1)).toContain('process exited (code 137)');
  world.table.get(ID)?.noteOom();
  expect(await ended(2)).toContain('process ran out of memory');
});

test('a failed start carries the error and the end of the traceback', async ({ world }) => {
  await world.add();
  const runner = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const traceback = Array.from({ length: 50 }, (_, at) => `line ${at}`).join('\n');
  runner.send('failed', { phase: 'import', error: "KeyError: 'x'" }, traceback);
  await runner.next('acked');
  expect(world.failures[0]).toMatch(/^KeyError: 'x'\nline 30\n[^]*line 49$/);
});

test('a runner of another container, a frame before hello and a frame that cannot be read end the connection', async ({
  world,
}) => {
  await world.add();
  const stranger = await FakeRunner.dial(world.path);
  stranger.send('hello', { version: 1, containerId: 'other', process: 0, slots: 1 });
  const rude = await FakeRunner.dial(world.path);
  rude.send('ready', { mode: 'single', slots: 1 });
  const broken = await FakeRunner.dial(world.path);
  broken.raw(Buffer.from([255, 255, 255, 255, 0, 0, 0]));
  for (const one of [stranger, rude, broken]) await until('the connection to end', () => one.closed);
  expect(world.readies).toEqual([]);
});

test('frames may arrive cut at any byte', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  const header = { ...named('t0'), outcome: 'ok', durationMs: 1, chunks: 0 };
  const bytes = encodeFrame('result', header, Buffer.from('"x"')).length;
  for (let cut = 1; cut < bytes; cut += 1) {
    const id = `t${cut}`;
    world.run(id);
    await runner.next('run');
    await runner.sendCut(cut, 'result', { ...header, ...named(id) }, '"x"');
    expect((await world.sink.result(id)).outcome).toBe('ok');
    world.table.acked(id, `token-${id}`);
  }
});

test('a streamed call that is cancelled before its socket is there never reaches the runner', async ({ world }) => {
  world.opens(() => Promise.resolve(new Socket()));
  await world.add();
  const runner = await world.single();
  world.run('t1', { stream: true });
  world.table.cancel('t1', 'token-t1', 'caller left');
  expect((await world.sink.result('t1')).outcome).toBe('cancelled');
  world.run('t2');
  await until('the next one', () =>
    runner.frames.some(({ kind, header }) => kind === 'run' && header['taskId'] === 't2'),
  );
  expect(runner.frames.filter(({ kind, header }) => kind === 'run' && header['taskId'] === 't1')).toEqual([]);
});

test('every runner process hears that its container leaves for another one, also one that dials later, and that it stays', async ({
  world,
}) => {
  await world.add({ workers: 2 });
  const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  control.send('ready', { mode: 'fork', slots: 2, onStartMs: 1 });
  const first = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 1 });
  const slots = world.table.get(ID)!;
  slots.interrupt(20_000);
  for (const one of [control, first]) {
    const noticeMs = Number((await one.next('interrupt')).header['noticeMs']);
    expect(noticeMs).toBeGreaterThan(0);
    expect(noticeMs).toBeLessThanOrEqual(20_000);
  }
  // Each snapshot of the desired state says it again.
  slots.interrupt(20_000);
  const second = await FakeRunner.process(world.path, { containerId: ID, process: 1, slots: 1 });
  expect((await second.next('interrupt')).header['noticeMs']).toBeLessThanOrEqual(20_000);
  slots.interrupt(0);
  for (const one of [control, first, second]) {
    expect((await one.next('interrupt')).header).toEqual({ noticeMs: 0 });
    expect(one.frames.filter(({ kind }) => kind === 'interrupt')).toEqual([]);
  }
  const last = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 1 });
  world.run('t1');
  await Promise.race([last.next('run'), second.next('run')]);
  expect(last.frames.filter(({ kind }) => kind === 'interrupt')).toEqual([]);
});

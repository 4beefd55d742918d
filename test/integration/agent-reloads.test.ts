// Processes of a development server follow each other: which of them the agent gives calls to, and how many of them it
// reports. A fake runner speaks as `python/longshore/runner/reloading.py` does.
import { expect } from 'vitest';
import { FakeRunner } from '../helpers/fake-runner.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { ID, named, test } from '../helpers/slot-world.ts';
import type { World } from '../helpers/slot-world.ts';

/** A development server whose process 0 serves. */
async function served(world: World, slots = 1): Promise<{ control: FakeRunner; first: FakeRunner }> {
  await world.add({ concurrentRequests: slots });
  const control = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const first = await process(world, 0, slots);
  control.send('ready', { mode: 'reload', slots, onStartMs: 1 });
  await until('ready', () => world.readies.length > 0);
  return { control, first };
}

const process = (world: World, number: number, slots = 1): Promise<FakeRunner> =>
  FakeRunner.process(world.path, { containerId: ID, process: number, slots, pid: 70 + number });

/** The last report of the slots. */
const slotsOf = ({ restarting, retired }: World) => ({ restarting: restarting.at(-1), retired: retired.at(-1) });

test('a retired process ends its call beside the next one, which gets the calls', async ({ world }) => {
  const { control, first } = await served(world);
  world.run('a');
  await first.next('run');
  first.send('started', named('a'));
  control.send('retire', { process: 0, graceMs: 10_000 });
  expect((await first.next('drain')).header).toEqual({ graceMs: 10_000 });
  expect(slotsOf(world)).toEqual({ restarting: 1, retired: 1 });
  // Nobody serves yet: the call waits at the scheduler.
  world.run('b');
  expect(world.sink.sent.at(-1)?.refused).toMatchObject({ taskId: 'b', reason: 'no_free_slot' });
  const second = await process(world, 1);
  await until('it serves', () => slotsOf(world).restarting === 0);
  expect(slotsOf(world)).toEqual({ restarting: 0, retired: 1 });
  world.run('c');
  expect((await second.next('run')).header).toMatchObject({ taskId: 'c' });
  first.send('result', { ...named('a'), outcome: 'ok', durationMs: 1, chunks: 0 }, '"old"');
  expect((await world.sink.result('a')).outcome).toBe('ok');
  expect(slotsOf(world)).toEqual({ restarting: 0, retired: 0 });
  first.hangUp();
  control.send('exited', { process: 0, pid: 70, code: 0 });
  second.send('result', { ...named('c'), outcome: 'ok', durationMs: 1, chunks: 0 }, '"new"');
  expect((await world.sink.result('c')).outcome).toBe('ok');
  expect(slotsOf(world)).toEqual({ restarting: 0, retired: 0 });
});

test('a call that outlasts the grace fails with a reason that names the reload', async ({ world }) => {
  const { control, first } = await served(world, 2);
  world.run('killed');
  world.run('left');
  for (const id of ['killed', 'left']) {
    await first.next('run');
    first.send('started', named(id));
  }
  control.send('retire', { process: 0, graceMs: 10_000 });
  await first.next('drain');
  first.send('result', { ...named('left'), outcome: 'ok', durationMs: 1, chunks: 0 }, '1');
  await world.sink.result('left');
  first.hangUp();
  control.send('exited', { process: 0, pid: 70, signal: 9 });
  const { outcome, body } = await world.sink.result('killed');
  expect(outcome).toBe('exited');
  expect(Buffer.from(body as Buffer).toString()).toBe(
    '{"error":"ended by a reload: the call still ran 0 s after files were saved"}',
  );
});

test('a process that ends by itself after its retirement names its own exit code', async ({ world }) => {
  const { control, first } = await served(world);
  world.run('a');
  await first.next('run');
  first.send('started', named('a'));
  control.send('retire', { process: 0, graceMs: 10_000 });
  await first.next('drain');
  control.send('exited', { process: 0, pid: 70, code: 3 });
  const { body } = await world.sink.result('a');
  expect(Buffer.from(body as Buffer).toString()).toBe('{"error":"process exited (code 3)"}');
});

test('calls that a retired process did not begin go back, by its word or by its end', async ({ world }) => {
  const { control, first } = await served(world, 3);
  for (const id of ['begun', 'returned', 'stuck']) {
    world.run(id);
    // A process of a development server says which calls it began.
    expect((await first.next('run')).header).not.toHaveProperty('started');
  }
  first.send('started', named('begun'));
  control.send('retire', { process: 0, graceMs: 10_000 });
  await first.next('drain');
  first.send('returned', named('returned'));
  // A call that began does not go back, whatever its process says.
  first.send('returned', named('begun'));
  const refused = (): unknown[] => world.sink.sent.flatMap(({ refused: one }) => (one ? [one] : []));
  await until('one is back', () => refused().length === 1);
  expect(refused()).toEqual([{ ...named('returned'), reason: 'reloaded' }]);
  expect(slotsOf(world)).toEqual({ restarting: 3, retired: 2 });
  first.hangUp();
  control.send('exited', { process: 0, pid: 70, signal: 9 });
  expect((await world.sink.result('begun')).outcome).toBe('exited');
  expect(refused()).toHaveLength(2);
  expect(refused()[1]).toEqual({ ...named('stuck'), reason: 'reloaded' });
  expect(slotsOf(world)).toEqual({ restarting: 3, retired: 0 });
  expect(world.table.liveAttempts().map(({ taskId }) => taskId)).toEqual(['begun']);
});

test('a streamed call that a retired process did not begin goes back, and can be sent again', async ({ world }) => {
  const links: object[] = [];
  world.opens((line) => {
    links.push(line);
    return new Promise(() => undefined);
  });
  const { control, first } = await served(world, 2);
  world.run('s', { stream: true });
  await first.next('run');
  control.send('retire', { process: 0, graceMs: 10_000 });
  await first.next('drain');
  first.send('returned', named('s'));
  await until('it is back', () => world.sink.sent.some(({ refused }) => refused?.taskId === 's'));
  const second = await process(world, 1, 2);
  await until('it serves', () => slotsOf(world).restarting === 0);
  world.run('s', { stream: true, token: 'again' });
  expect((await second.next('run')).header).toMatchObject({ taskId: 's', token: 'again' });
  expect(links).toEqual([named('s'), { taskId: 's', token: 'again' }]);
});

test('a retirement ends with the control connection, whose next hello names it anew', async ({ world }) => {
  const { control, first } = await served(world);
  control.send('retire', { process: 0, graceMs: 10_000 });
  await first.next('drain');
  first.hangUp();
  control.hangUp();
  // The end of process 0 was told to nobody, and its number is used again.
  const again = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 0 });
  const next = await process(world, 0);
  again.send('retire', { process: 3, graceMs: 10_000 });
  await until('it serves', () => slotsOf(world).restarting === 0);
  world.run('a');
  expect((await next.next('run')).header).toMatchObject({ taskId: 'a' });
  expect(next.frames.some(({ kind }) => kind === 'drain')).toBe(false);
});

test('an agent that restarts takes a retired process back with its call, and gives it no other', async ({ world }) => {
  await world.add({ ready: { mode: 'reload', slots: 1, onStartMs: 1 } });
  const hello = { containerId: ID, slots: 1 };
  const old = await FakeRunner.process(world.path, { ...hello, process: 0, pid: 70, holding: [named('a')] });
  const next = await FakeRunner.process(world.path, { ...hello, process: 1, pid: 71, holding: [named('b')] });
  const control = await FakeRunner.process(world.path, { ...hello, process: 0, slots: 0 });
  expect(world.table.liveAttempts().map(({ taskId }) => taskId)).toEqual(['a', 'b']);
  control.send('retire', { process: 0, graceMs: 10_000 });
  await old.next('drain');
  expect(slotsOf(world)).toEqual({ restarting: 0, retired: 1 });
  next.send('result', { ...named('b'), outcome: 'ok', durationMs: 1, chunks: 0 }, '1');
  await world.sink.result('b');
  world.run('c');
  expect((await next.next('run')).header).toMatchObject({ taskId: 'c' });
  world.run('d');
  expect(world.sink.sent.at(-1)?.refused).toMatchObject({ taskId: 'd', reason: 'no_free_slot' });
  expect(old.frames.some(({ kind }) => kind === 'run')).toBe(false);
});

test('a call of before an agent restart goes back by the word of its retired process, and only so', async ({
  world,
}) => {
  await world.add({ concurrentRequests: 3, ready: { mode: 'reload', slots: 3, onStartMs: 1 } });
  const hello = { containerId: ID, slots: 3 };
  const holding = ['returned', 'begun', 'unknown'].map((id) => named(id));
  const old = await FakeRunner.process(world.path, { ...hello, process: 0, pid: 70, holding });
  const control = await FakeRunner.process(world.path, { ...hello, process: 0, slots: 0 });
  old.send('started', named('begun'));
  control.send('retire', { process: 0, graceMs: 10_000 });
  await old.next('drain');
  for (const id of ['begun', 'returned']) old.send('returned', named(id));
  await until('one is back', () => world.sink.sent.some(({ refused }) => refused !== undefined));
  old.hangUp();
  control.send('exited', { process: 0, pid: 70, code: 0 });
  // The agent before may have heard of their start, so nobody runs them twice.
  for (const id of ['begun', 'unknown']) expect((await world.sink.result(id)).outcome).toBe('exited');
  const refused = world.sink.sent.flatMap(({ refused: one }) => (one ? [one] : []));
  expect(refused).toEqual([{ ...named('returned'), reason: 'reloaded' }]);
});

test('a call whose start may have been told on a lost connection is not run twice', async ({ world }) => {
  const { control, first } = await served(world, 2);
  for (const id of ['returned', 'unknown']) {
    world.run(id);
    await first.next('run');
  }
  first.hangUp();
  const holding = ['returned', 'unknown'].map((id) => named(id));
  const again = await FakeRunner.process(world.path, { containerId: ID, process: 0, slots: 2, pid: 70, holding });
  control.send('retire', { process: 0, graceMs: 10_000 });
  await again.next('drain');
  again.send('returned', named('returned'));
  await until('one is back', () => world.sink.sent.some(({ refused }) => refused?.taskId === 'returned'));
  again.hangUp();
  control.send('exited', { process: 0, pid: 70, signal: 9 });
  expect((await world.sink.result('unknown')).outcome).toBe('exited');
});

test('other containers have no retired processes', async ({ world }) => {
  await world.add();
  const runner = await world.single();
  runner.send('retire', { process: 0, graceMs: 1 });
  world.run('a');
  await runner.next('run');
  runner.send('returned', named('a'));
  runner.send('result', { ...named('a'), outcome: 'ok', durationMs: 1, chunks: 0 }, '1');
  expect((await world.sink.result('a')).outcome).toBe('ok');
  expect(world.restarting).toEqual([]);
  expect(world.sink.sent.some(({ refused }) => refused !== undefined)).toBe(false);
  const other = await FakeRunner.dial(world.path);
  other.send('hello', { version: 1, containerId: ID, process: 1, slots: 1, pid: 71 });
  await until('it is refused', () => other.closed);
});

/**
 * The line of machines that pull one image: the scheduler's part at two replicas on a real Redis, and the agent's part
 * of 200 machines. A pull of five minutes takes 150 ms here, and all other times are as much shorter.
 */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { PullImageRequest__Output } from '#shared/protocol/generated/messages.ts';
import { Images, PULL_SETTINGS } from '#agent/images/images.ts';
import type { PullSettings } from '#agent/images/images.ts';
import { askPermit } from '#agent/images/permits.ts';
import type { PullQuestion } from '#agent/images/permits.ts';
import { startFailure } from '#agent/reconcile/starting.ts';
import { RedisBus } from '#scheduler/cluster/bus.ts';
import { ImageOrders } from '#scheduler/fleet/images/orders.ts';
import type { ImageOrdersParts } from '#scheduler/fleet/images/orders.ts';
import { PULL_LINE, PullLines } from '#scheduler/fleet/images/pull-line.ts';
import type { PullLineSettings } from '#scheduler/fleet/images/pull-line.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined } as unknown as Log;
/** Milliseconds here for five minutes there. */
const PULL_MS = 150;
const shorter = (ms: number): number => (ms / (5 * 60_000)) * PULL_MS;
const FAST: Partial<PullLineSettings> = { permitMs: 300, placeMs: 300, slowMs: 10_000, lookMs: 20 };
const KEYS = keysOf();

const machine = (name: string | number): MachineId => `machine-${name}` as MachineId;

const test = base.extend('lines', async ({ redis }, { onCleanup }) => {
  const image = `registry.test/${randomUUID()}:1`;
  const opened: RedisBus[] = [];
  onCleanup(() => opened.forEach((bus) => bus.stop()));
  const client = redis.connect();
  return {
    image,
    waiting: () => client.zcard(KEYS.pullLine(image)[2]),
    /** The lines as a replica has them. */
    replica: async (settings: Partial<PullLineSettings> = {}): Promise<PullLines> => {
      const bus = new RedisBus(client, redis.connect(), quiet);
      opened.push(bus);
      const made = new PullLines({
        client: redis.connect({ maxRetriesPerRequest: 1, retryStrategy: () => 20 }),
        keys: KEYS,
        bus,
        settings: { ...PULL_LINE, ...FAST, ...settings },
        log: quiet,
      });
      await bus.start();
      return made;
    },
  };
});

test('machines are served in the order in which they asked, at whichever replica', async ({ lines }) => {
  const [one, two] = [await lines.replica({ width: 1 }), await lines.replica({ width: 1 })];
  const { image } = lines;
  expect(await one.ask(image, machine('a'), 0)).toEqual({ kind: 'pull' });
  const served: string[] = [];
  const turns = [];
  for (const [at, name] of ['b', 'c', 'd'].entries()) {
    const turn = (at === 1 ? one : two).ask(image, machine(name), 5000);
    turns.push(turn.then(({ kind }) => served.push(`${name} ${kind}`)));
    await waitFor(async () => (await lines.waiting()) === at + 1, 'the machine is in the line');
  }
  expect(await two.ask(image, machine('e'), 0)).toEqual({ kind: 'wait', place: 4, waiting: 4 });
  // A machine keeps its permit by asking again, at any replica.
  expect(await two.ask(image, machine('a'), 0)).toEqual({ kind: 'pull' });
  for (const [at, name] of ['a', 'b', 'c'].entries()) {
    await one.leave(image, machine(name), 'done');
    await waitFor(() => served.length > at, 'the next machine is told');
  }
  await Promise.all(turns);
  expect(served).toEqual(['b pull', 'c pull', 'd pull']);
  // Another image has a line of its own.
  expect(await one.ask(randomUUID(), machine('f'), 0)).toEqual({ kind: 'pull' });
});

test('a machine whose replica ends goes on at another one, with its place kept', async ({ lines }) => {
  const [one, two] = [await lines.replica({ width: 1 }), await lines.replica({ width: 1 })];
  const { image } = lines;
  await one.ask(image, machine('a'), 0);
  const gone = new AbortController();
  const lost = one.ask(image, machine('b'), 5000, { signal: gone.signal });
  await waitFor(async () => (await lines.waiting()) === 1, 'the first machine waits');
  expect(await one.ask(image, machine('c'), 0)).toMatchObject({ place: 2 });
  gone.abort();
  expect((await lost).kind).toBe('wait');
  expect(await two.ask(image, machine('b'), 0)).toMatchObject({ place: 1 });
});

test('a dead machine loses its permit, and its place, and holds up nobody', async ({ lines }) => {
  const one = await lines.replica({ width: 1 });
  const { image } = lines;
  await one.ask(image, machine('dead while it pulls'), 0);
  await one.ask(image, machine('dead while it waits'), 0);
  const from = performance.now();
  expect(await one.ask(image, machine('alive'), 5000)).toEqual({ kind: 'pull' });
  expect(performance.now() - from).toBeLessThan(2000);
});

test('a slow pull keeps its permit, and another machine begins beside it', async ({ lines }) => {
  const one = await lines.replica({ width: 1, slowMs: 200, permitMs: 60_000 });
  const { image } = lines;
  await one.ask(image, machine('slow'), 0);
  await one.hold(image, machine('slow'));
  expect(await one.ask(image, machine('next'), 5000)).toEqual({ kind: 'pull' });
  expect(await one.ask(image, machine('slow'), 0)).toEqual({ kind: 'pull' });
  // The bound holds for slow pulls, too.
  const narrow = await lines.replica({ width: 1, widthMost: 2, slowMs: 0, permitMs: 60_000 });
  expect(await narrow.ask(image, machine('third'), 50)).toMatchObject({ kind: 'wait', place: 1 });
});

test('a pull that goes on after its permit lapsed is counted again', async ({ lines }) => {
  const one = await lines.replica({ width: 1, permitMs: 60_000 });
  const { image } = lines;
  await one.hold(image, machine('was away'));
  expect(await one.ask(image, machine('next'), 0)).toMatchObject({ kind: 'wait' });
});

test('a machine that tries again after a failure stands before those that asked later', async ({ lines }) => {
  const one = await lines.replica({ width: 1, permitMs: 60_000, placeMs: 60_000 });
  const { image } = lines;
  await one.ask(image, machine('a'), 0);
  for (const name of ['b', 'c']) await one.ask(image, machine(name), 0);
  await one.leave(image, machine('a'), 'again');
  // Nobody waits for it meanwhile.
  expect(await one.ask(image, machine('b'), 0)).toEqual({ kind: 'pull' });
  expect(await one.ask(image, machine('a'), 0)).toMatchObject({ place: 1, waiting: 2 });
  await one.leave(image, machine('a'), 'done');
  expect(await one.ask(image, machine('a'), 0)).toMatchObject({ place: 2, waiting: 2 });
});

test('machines that get an image ahead stand behind those on which somebody waits for it', async ({ lines }) => {
  const one = await lines.replica({ width: 1, permitMs: 60_000, placeMs: 60_000 });
  const { image } = lines;
  await one.ask(image, machine('a'), 0, { isAhead: true });
  for (const name of ['b', 'c']) await one.ask(image, machine(name), 0, { isAhead: true });
  expect(await one.ask(image, machine('d'), 0)).toMatchObject({ place: 1, waiting: 3 });
  // Now somebody waits for it there, too.
  expect(await one.ask(image, machine('c'), 0)).toMatchObject({ place: 2 });
  expect(await one.ask(image, machine('b'), 0, { isAhead: true })).toMatchObject({ place: 3 });
});

test('a permit of a machine that lost its container is kept while it pulls, and none is made for it', async ({
  lines,
}) => {
  const one = await lines.replica({ width: 1, permitMs: 200, placeMs: 60_000 });
  const { image } = lines;
  await one.keep(image, machine('a'));
  await one.ask(image, machine('b'), 0);
  const from = performance.now();
  while (performance.now() - from < 400) await one.keep(image, machine('b'));
  expect(await one.ask(image, machine('a'), 0)).toMatchObject({ kind: 'wait' });
});

test('nobody begins because Redis is away for a moment, and places are kept', async ({ lines, redis }) => {
  const one = await lines.replica({ width: 1, permitMs: 60_000, placeMs: 60_000 });
  const { image } = lines;
  await one.ask(image, machine('a'), 0);
  expect(await one.ask(image, machine('b'), 0)).toMatchObject({ place: 1 });
  await redis.crash();
  expect(await one.ask(image, machine('b'), 50)).toEqual({ kind: 'wait', place: 0, waiting: 0 });
  await redis.restart();
  await waitFor(async () => (await one.ask(image, machine('c'), 0)).kind === 'wait', 'Redis answers');
  const turn = one.ask(image, machine('b'), 5000);
  await one.leave(image, machine('a'), 'pulled');
  expect(await turn).toEqual({ kind: 'pull' });
});

/** An agent's images, with an engine that takes `pullMs` for a pull, or never ends it. */
function imagesOf(
  machineId: MachineId,
  orders: () => ImageOrders,
  { pullMs = PULL_MS, onPull = () => undefined }: { pullMs?: number; onPull?: () => void } = {},
  settings: Partial<PullSettings> = {},
): Images {
  const here = new Set<string>();
  const digest = `sha256:${'a'.repeat(64)}`;
  const ask = (question: PullQuestion) =>
    orders()
      .pull(machineId, { workspaceId: '', maxWaitMs: 0, ...question } as PullImageRequest__Output)
      .then((answer) => ({ auth: null, builtFrom: '', place: 0, waiting: 0, unwanted: false, ...answer }) as never);
  return new Images({
    runtime: {
      image: (id) =>
        Promise.resolve(here.has(id) ? { id, digests: [digest], isLocal: false, bytes: 1, builtFor: '' } : undefined),
      registryDigest: () => Promise.resolve(digest),
      removeImage: () => Promise.resolve(true),
      pull: async (name, { signal }) => {
        onPull();
        await new Promise<void>((resolve, reject) => {
          if (Number.isFinite(pullMs)) setTimeout(resolve, pullMs);
          signal.addEventListener('abort', () => reject(new Error('the pull was given up')));
        });
        here.add(name);
        return digest;
      },
    },
    permit: (image, workspaceId, asking) =>
      askPermit(ask, { image, workspaceId, ...asking, maxWaitMs: asking.pulling === true ? 0 : 100 }, quiet),
    release: (image, end) => void ask({ image, done: true, pulled: end === 'pulled', again: end === 'again' }),
    built: { host: undefined, adopt: () => Promise.resolve() },
    makeBase: () => Promise.reject(new Error('this machine makes no base images')),
    rights: { require: () => Promise.resolve() },
    isDiskLow: () => Promise.resolve(false),
    isDiskFull: () => Promise.resolve(false),
    maxBytes: () => Promise.resolve(Number.POSITIVE_INFINITY),
    makeRoom: () => Promise.resolve(false),
    onFull: () => undefined,
    onUsed: () => undefined,
    onPulled: () => Promise.resolve(),
    metrics: { pullEnded: () => undefined, pullBytes: () => undefined, pullsActive: () => undefined },
    log: quiet,
    settings: {
      ...PULL_SETTINGS,
      totalMs: shorter(PULL_SETTINGS.totalMs),
      turnMs: shorter(PULL_SETTINGS.turnMs),
      ...settings,
    },
  });
}

function ordersOf(lines: PullLines, image: string): ImageOrders {
  const row = { workspaceId: '' };
  return new ImageOrders({
    lines,
    machines: { all: () => [], get: () => undefined },
    containers: { ofMachine: () => [{ row, spec: { wire: { image } } }] },
    credentials: { of: () => Promise.resolve(undefined) },
    cpuWorkAllowed: () => true,
    log: quiet,
  } as unknown as ImageOrdersParts);
}

test('200 machines get an image whose pull takes five minutes, in the order in which they asked', async ({ lines }) => {
  const COUNT = 200;
  const slow = new Set([3, 5]);
  const times = { permitMs: 5000, placeMs: 5000, slowMs: shorter(PULL_LINE.slowMs) };
  const { image } = lines;
  const replicas = [ordersOf(await lines.replica(times), image), ordersOf(await lines.replica(times), image)] as const;
  const begun: number[] = [];
  let active = 0;
  let most = 0;
  const ends = [];
  const from = performance.now();
  for (let at = 0; at < COUNT; at += 1) {
    let asked = 0;
    // Each agent talks to another replica from time to time, as after a lost link.
    const orders = () => replicas[(at + Math.floor(asked++ / 3)) % 2] ?? replicas[0];
    const onPull = (): void => {
      begun.push(at);
      active += 1;
      most = Math.max(most, active);
    };
    const images = imagesOf(machine(at), orders, { onPull, pullMs: slow.has(at) ? PULL_MS * 5 : PULL_MS });
    const end = images
      .ensure(image, () => undefined)
      .then(
        () => 'pulled',
        (error: unknown) => startFailure(error).reason,
      );
    ends.push(end.finally(() => (active -= 1)));
    await waitFor(
      async () => begun.includes(at) || (await lines.waiting()) + begun.length > at,
      'the machine has asked',
    );
  }
  expect(new Set(await Promise.all(ends))).toEqual(new Set(['pulled']));
  // Nobody was overtaken by more machines than may begin at one moment.
  const displaced = begun.map((at, turn) => Math.abs(at - turn));
  expect(Math.max(...displaced)).toBeLessThan(PULL_LINE.widthMost);
  expect(begun.slice(0, PULL_LINE.width)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect(most).toBeGreaterThan(PULL_LINE.width);
  expect(most).toBeLessThanOrEqual(PULL_LINE.widthMost);
  // 25 rounds of eight would take 25 pulls' time.
  expect(performance.now() - from).toBeLessThan(PULL_MS * 25);
});

test('peers that hang hold up nobody, and their own end is no fault of the image', async ({ lines }) => {
  const times = { width: 2, permitMs: 5000, slowMs: shorter(PULL_LINE.slowMs) };
  const { image } = lines;
  const orders = ordersOf(await lines.replica(times), image);
  const reasonOf = (images: Images) =>
    images
      .ensure(image, () => undefined)
      .then(
        () => 'pulled',
        (error: unknown) => startFailure(error).reason,
      );
  let begun = 0;
  const hangs = { pullMs: Infinity, onPull: () => void (begun += 1) };
  const hanging = [0, 1].map((at) => reasonOf(imagesOf(machine(at), () => orders, hangs, { tries: 1 })));
  await waitFor(() => begun === 2, 'both have begun');
  const others = [2, 3, 4, 5].map((at) => reasonOf(imagesOf(machine(at), () => orders)));
  expect(await Promise.all(others)).toEqual(['pulled', 'pulled', 'pulled', 'pulled']);
  expect(await Promise.all(hanging)).toEqual(['registry_busy', 'registry_busy']);
});

// The dispatcher on the real queue adapter, and on the line of synchronous calls, which calls to models are here: every
// added task runs, once, and never where there is no room.
import { describe, expect } from 'vitest';
import type { InstanceId, MachineId, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { Claim } from '#scheduler/tasks/dispatch/attempts.ts';
import { Dispatcher } from '#scheduler/tasks/dispatch/dispatcher.ts';
import type { ReadyContainer } from '#scheduler/tasks/dispatch/slots.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import { Lines } from '#scheduler/tasks/lines/lines.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { PlayedLink, quiet } from './tasks-fixture.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const test = base.extend('queues', { scope: 'file' }, async ({ redis }, { onCleanup }): Promise<TaskQueues> => {
  const client = redis.connect({ maxRetriesPerRequest: 1, enableOfflineQueue: false, commandTimeout: 2000 });
  const queues = await openTaskQueues({ client, log: quiet });
  onCleanup(() => queues.close());
  return queues;
});

const aJob = (serving?: TaskJob['serving']): TaskJob =>
  aTaskJob({
    replica: 'x' as InstanceId,
    timeoutMs: 0,
    ...(serving === undefined ? {} : { kind: 'endpoint', sync: true, serving }),
  });

/** Numbers that a seed repeats (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A dispatcher whose claims are run by the test. */
class World {
  readonly slots = new SlotTable();
  readonly queue: QueueName = `tq-${newId<StubId>()}` as QueueName;
  readonly running: Claim[] = [];
  readonly ran = new Map<TaskId, number>();
  readonly added: TaskId[] = [];
  readonly queues: TaskQueues;
  readonly lines: Lines;
  readonly dispatcher: Dispatcher;
  overfull = 0;

  constructor(queues: TaskQueues, onClaim?: (world: World, claim: Claim) => void) {
    this.queues = queues;
    const replica = 'x' as InstanceId;
    this.lines = new Lines({ queues, instance: replica, isPresent: () => false, stalledAtMs: () => null });
    this.dispatcher = new Dispatcher({ queues, lines: this.lines, slots: this.slots, instance: replica, log: quiet });
    this.lines.onWaiting((queue) => this.dispatcher.wakeLine(queue));
    this.dispatcher.onClaimed((claim) => {
      this.#count(claim.container);
      if (onClaim === undefined) this.running.push(claim);
      else onClaim(this, claim);
    });
  }

  /** Counts claims beyond the container's slots. */
  #count(container: ReadyContainer): void {
    const inHand = this.running.filter((claim) => claim.container === container).length;
    if (container.inFlight > container.slots || inHand >= container.slots) this.overfull += 1;
  }

  container(name: string, slots: number, link: PlayedLink): ReadyContainer {
    const facts = { containerId: `c-${name}` as never, queue: this.queue, machineId: link.machineId, slots };
    return this.slots.ready(facts, link, 0);
  }

  async add(wake: 'named' | 'unnamed' | 'missed' = 'named', serving?: TaskJob['serving']): Promise<TaskJob> {
    const job = aJob(serving);
    this.added.push(job.taskId);
    if (job.sync) {
      this.lines.enter(this.queue, job, Infinity);
      this.dispatcher.wakeLine(this.queue);
      return job;
    }
    await this.queues.add(this.queue, job);
    if (wake === 'named') this.dispatcher.wake(this.queue, job.taskId);
    if (wake === 'unnamed') this.dispatcher.wake(this.queue);
    return job;
  }

  async finish(claim: Claim): Promise<void> {
    this.running.splice(this.running.indexOf(claim), 1);
    const ending = this.lines.complete(this.queue, claim.job.taskId, claim.lock);
    this.dispatcher.release(claim, 0);
    expect(await ending).toEqual({ kind: 'done' });
    this.lines.leave(claim.job.taskId);
    this.ran.set(claim.job.taskId, (this.ran.get(claim.job.taskId) ?? 0) + 1);
  }

  async giveBack(claim: Claim): Promise<void> {
    this.running.splice(this.running.indexOf(claim), 1);
    if (claim.job.sync) this.lines.return(claim.job.taskId, claim.lock, false);
    else await this.queues.giveBack(this.queue, claim.job.taskId, claim.lock);
    this.dispatcher.release(claim, 0);
    this.dispatcher.wake(this.queue);
  }

  async drain(): Promise<void> {
    await waitFor(async () => {
      await Promise.all([...this.running].map((claim) => this.finish(claim)));
      return this.ran.size === this.added.length;
    }, 'everything that was added is run');
  }
}

describe('random interleavings', () => {
  const SEEDS = 300;

  test('slots are never exceeded, every job is run exactly once', async ({ queues }) => {
    const BATCH = 25;
    for (let first = 0; first < SEEDS; first += BATCH) {
      await Promise.all(Array.from({ length: BATCH }, (_, index) => story(queues, first + index + 1)));
    }
  });

  async function story(queues: TaskQueues, seed: number): Promise<void> {
    const random = seeded(seed);
    const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
    const world = new World(queues);
    const links = [new PlayedLink(`m-${seed}-a` as MachineId), new PlayedLink(`m-${seed}-b` as MachineId)];
    for (const [index, link] of links.entries()) {
      for (let each = 0; each <= random() * 2; each += 1)
        world.container(`${seed}-${index}-${each}`, 1 + Math.floor(random() * 3), link);
    }
    const doing: Promise<unknown>[] = [];
    for (let step = 0; step < 40; step += 1) {
      const what = random();
      if (what < 0.45) {
        const prefers = random() < 0.5 ? `h${Math.floor(random() * 3)}` : undefined;
        const tokens = Math.floor(random() * 5000);
        const serving = { tokens, tokensPerStream: 1000, ...(prefers === undefined ? {} : { prefers }) };
        doing.push(world.add(random() < 0.8 ? 'named' : 'unnamed', random() < 0.5 ? serving : undefined));
      } else if (what < 0.7) {
        const claim = pick(world.running);
        if (claim !== undefined) doing.push(world.finish(claim));
      } else if (what < 0.78) {
        const claim = pick(world.running);
        if (claim !== undefined) doing.push(world.giveBack(claim));
      } else if (what < 0.86) {
        const link = pick(links);
        if (link !== undefined) world.slots.setLink(link.machineId, undefined);
      } else if (what < 0.94) {
        const link = pick(links);
        if (link !== undefined)
          for (const queue of world.slots.setLink(link.machineId, link)) world.dispatcher.wake(queue);
      } else await new Promise((resolve) => setImmediate(resolve));
      if (random() < 0.3) await doing.pop();
      for (const one of world.slots.of(world.queue))
        expect(one.inFlight, `seed ${seed}`).toBeLessThanOrEqual(one.slots);
    }
    await Promise.all(doing);
    for (const link of links)
      for (const queue of world.slots.setLink(link.machineId, link)) world.dispatcher.wake(queue);
    await world.drain();
    expect(world.overfull, `seed ${seed}`).toBe(0);
    expect(
      [...world.ran.values()].every((times) => times === 1),
      `seed ${seed}`,
    ).toBe(true);
    await waitFor(
      () => [...world.slots.of(world.queue)].every((one) => one.inFlight === 0),
      `every slot of seed ${seed} is free at the end`,
    );
    expect(
      [...world.slots.of(world.queue)].map((one) => one.tokens),
      `seed ${seed}`,
    ).toEqual([...world.slots.of(world.queue)].map(() => 0));
    world.dispatcher.stop();
  }
});

describe('calls to models', () => {
  const link = new PlayedLink('m-1' as MachineId);
  const call = (prefers: string, tokens = 100) => ({ tokens, tokensPerStream: 1000, prefers });

  test('a conversation returns to its container, and not when that is the busiest', async ({ queues }) => {
    const world = new World(queues);
    const all = ['a', 'b', 'c'].map((name) => world.container(name, 8, link));
    const served = async (prefers: string): Promise<Claim> => {
      const { taskId } = await world.add('named', call(prefers));
      await waitFor(() => world.running.some((claim) => claim.job.taskId === taskId), 'the call was claimed');
      return world.running.find((claim) => claim.job.taskId === taskId) as Claim;
    };
    const first = await served('h');
    await world.finish(first);
    for (let turn = 0; turn < 10; turn += 1) {
      const next = await served('h');
      expect(next.container).toBe(first.container);
      await world.finish(next);
    }
    // Two streams of others make it the only busy one.
    first.container.inFlight += 2;
    const moved = await served('h');
    expect(moved.container).not.toBe(first.container);
    first.container.inFlight -= 2;
    // The conversation belongs to the other container now.
    await world.finish(moved);
    const stays = await served('h');
    expect(stays.container).toBe(moved.container);
    await world.finish(stays);
    expect(all.map((one) => [one.inFlight, one.tokens])).toEqual(all.map(() => [0, 0]));
  });

  test('a long prompt weighs more than several short ones', async ({ queues }) => {
    const world = new World(queues);
    const [a, b] = ['a', 'b'].map((name) => world.container(name, 8, link));
    await world.add('named', call('long', 6000));
    await waitFor(() => world.running.length === 1, 'the long one was claimed');
    for (let index = 0; index < 5; index += 1) {
      await world.add('named', call(`short-${index}`));
      await waitFor(() => world.running.length === index + 2, 'a short one was claimed');
    }
    expect(new Set([a?.inFlight, b?.inFlight])).toEqual(new Set([1, 5]));
    await world.drain();
  });
});

describe('no lost wake-up', () => {
  const link = new PlayedLink('m-1' as MachineId);

  test('a job added while an empty answer is on its way is run', async ({ queues }) => {
    let hold: Promise<void> | undefined;
    const slow = fetchingBy(queues, async (fetch) => {
      const fetched = await fetch();
      await hold;
      return fetched;
    });
    const world = new World(slow);
    world.container('inflight', 1, link);
    const { promise, resolve } = Promise.withResolvers<void>();
    hold = promise;
    world.dispatcher.wake(world.queue);
    await waitFor(() => [...world.slots.of(world.queue)].some((one) => one.inFlight === 1), 'a fetch is under way');
    await Promise.all([world.add(), world.add('unnamed'), world.add()]);
    hold = undefined;
    resolve();
    await world.drain();
  });

  test('after a missed wake-up a lone caller is served, and so is the one who was missed', async ({ queues }) => {
    const world = new World(queues);
    world.container('lone', 1, link);
    await world.add('missed');
    await world.add('missed');
    await world.add();
    await world.drain();
    expect(world.ran.size).toBe(3);
  });

  test('a job somebody else fetched does not leave its waker fetching for ever', async ({ queues }) => {
    const calls = { fetch: 0 };
    const counting = fetchingBy(queues, (fetch) => {
      calls.fetch += 1;
      return fetch();
    });
    const world = new World(counting);
    world.container('stolen', 4, link);
    world.dispatcher.wake(world.queue, newId<TaskId>());
    world.dispatcher.wake(world.queue, newId<TaskId>());
    await waitFor(
      () => [...world.slots.of(world.queue)].every((one) => one.inFlight === 0),
      'the fetches came back empty',
    );
    const before = calls.fetch;
    const job = await world.add();
    await world.drain();
    expect(world.ran.get(job.taskId)).toBe(1);
    expect(calls.fetch - before).toBeLessThanOrEqual(3);
  });

  test('a fetch that fails is tried again, and holds no slot meanwhile', async ({ queues }) => {
    let failures = 3;
    const failing = fetchingBy(queues, (fetch) => {
      failures -= 1;
      return failures >= 0 ? Promise.reject(new Error('Redis is away')) : fetch();
    });
    const world = new World(failing);
    const container = world.container('failing', 1, link);
    await world.add();
    await waitFor(() => failures < 2, 'the first fetch failed');
    await waitFor(() => container.inFlight === 0, 'its slot is free again');
    await world.drain();
    expect(failures).toBeLessThan(0);
  });

  test('a container that leaves between fetch and send gives its job to another', async ({ queues }) => {
    const world = new World(queues, (self, claim) => {
      if (!claim.container.accepting) void self.giveBack((self.running.push(claim), claim));
      else self.running.push(claim);
    });
    const going = world.container('going', 1, link);
    await world.add();
    world.slots.remove(going.containerId);
    await waitFor(() => going.inFlight === 0, 'the slot of the one that left is free');
    world.container('coming', 1, link);
    world.dispatcher.wake(world.queue);
    await world.drain();
  });

  test('no container: the job waits, and is run when one comes', async ({ queues }) => {
    const world = new World(queues);
    await world.add();
    expect((await queues.depth(world.queue)).waiting).toBe(1);
    world.container('late', 1, link);
    world.dispatcher.wake(world.queue);
    await world.drain();
  });

  test('a claim that ends in the tick it began in leaves nothing waiting', async ({ queues }) => {
    const world = new World(queues, (self, claim) => {
      self.running.push(claim);
      void self.finish(claim);
    });
    world.container('instant', 1, link);
    await Promise.all(Array.from({ length: 30 }, () => world.add()));
    await waitFor(() => world.ran.size === 30, 'all thirty ran');
  });
});

/** The same queues with every fetch going through `by`. */
function fetchingBy(
  queues: TaskQueues,
  by: (fetch: () => ReturnType<TaskQueues['fetch']>) => ReturnType<TaskQueues['fetch']>,
): TaskQueues {
  return {
    open: (queue) => queues.open(queue),
    add: (queue, job) => queues.add(queue, job),
    complete: (queue, taskId, lock) => queues.complete(queue, taskId, lock),
    giveBack: (queue, taskId, lock) => queues.giveBack(queue, taskId, lock),
    fetch: (queue, lock) => by(() => queues.fetch(queue, lock)),
  } as TaskQueues;
}

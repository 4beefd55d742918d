// The leader's loops on a real database: containers asked for, placed, given back and stopped, with queues and machines played by the test.
/* oxlint-disable no-empty-pattern */
import { randomUUID } from 'node:crypto';
import { describe, expect } from 'vitest';
import type { Clock } from '#shared/clock.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { Autoscaler } from '#scheduler/autoscaler/loop.ts';
import { AutoscalerMetrics } from '#scheduler/autoscaler/metrics.ts';
import type { BookEntry } from '#scheduler/containers/book.ts';
import { ContainerStops } from '#scheduler/containers/actions.ts';
import { ContainerBook } from '#scheduler/containers/book.ts';
import type { Target } from '#scheduler/deployments/stub-config.ts';
import type { Targets } from '#scheduler/deployments/targets.ts';
import { SlotTable } from '#scheduler/dispatch/slots.ts';
import { MachineHealth } from '#scheduler/fleet/health.ts';
import { Machines } from '#scheduler/fleet/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { Workers } from '#scheduler/fleet/workers.ts';
import { LoopMetrics } from '#scheduler/loop-metrics.ts';
import { Placer } from '#scheduler/placement/commit.ts';
import { DueTimes } from '#scheduler/queues/due.ts';
import type { QueueDepth, TaskQueues } from '#scheduler/queues/task-queues.ts';
import type { Db } from '#scheduler/store/db.ts';
import type { Tasks } from '#scheduler/tasks/service.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { aDb, aStub, aWorkspace } from './store-fixture.ts';
import { aTarget, PlayedLink, quiet } from './tasks-fixture.ts';

class TestClock implements Clock {
  aheadMs = 0;
  nowMs(): number {
    return Date.now() + this.aheadMs;
  }
  monotonicMs(): number {
    return performance.now() + this.aheadMs;
  }
}

/** One target's queue and machine, and the two loops that look after them. */
class World {
  readonly clock = new TestClock();
  readonly slots = new SlotTable();
  readonly link: PlayedLink;
  readonly book: ContainerBook;
  readonly machines: Machines;
  readonly autoscaler: Autoscaler;
  readonly placer: Placer;
  readonly target: Target;
  readonly startFailures: string[] = [];
  /** Every move of every container, as `FROM TO`. */
  readonly moves: string[] = [];
  waiting = 0;
  sampleFails = false;
  dbFails = false;
  leads = true;

  constructor(db: Db, target: Target, machineId: MachineId) {
    const registry = new Registry();
    const metrics = new FleetMetrics(registry);
    const { clock, slots } = this;
    const loops = new LoopMetrics(registry, clock);
    const isLeader = (): boolean => this.leads;
    this.target = target;
    this.link = new PlayedLink(machineId);
    const query: Db['query'] = (sql, params) =>
      this.dbFails ? Promise.reject(new Error('the database is away')) : db.query(sql, params);
    this.book = new ContainerBook({ db: { query }, log: quiet, clock });
    this.machines = new Machines({ db, log: quiet, clock, metrics, caFingerprint: 'f' });
    this.machines.attach(this.book);
    this.autoscaler = new Autoscaler({
      targets: this.#targets(),
      queues: this.#queues(),
      book: this.book,
      slots,
      clock,
      log: quiet,
      metrics: new AutoscalerMetrics(registry),
      loops,
      due: new DueTimes(clock, () => undefined),
      isLeader,
      maxContainers: 10,
      onStartFailed: (_queue, lines) => void this.startFailures.push(lines),
    });
    this.placer = new Placer({ book: this.book, machines: this.machines, clock, log: quiet, metrics, loops, isLeader });
    this.book.onChange(({ entry, from, to }) => {
      this.moves.push(`${from ?? 'new'} ${to}`);
      if (to === 'STOPPED' || to === 'FAILED' || to === 'PENDING') slots.remove(entry.row.id);
    });
  }

  #targets(): Targets {
    const { target } = this;
    const played: Pick<Targets, 'onChange' | 'byQueue' | 'activeTargets'> = {
      onChange: () => () => undefined,
      byQueue: (queue: QueueName) => Promise.resolve(queue === target.queue ? target : undefined),
      activeTargets: () => [target].values(),
    };
    return played as Targets;
  }

  #queues(): TaskQueues {
    const depths = (queues: readonly QueueName[]): Promise<readonly QueueDepth[]> =>
      this.sampleFails
        ? Promise.reject(new Error('Redis is away'))
        : Promise.resolve(queues.map(() => ({ waiting: this.waiting, active: 0, delayed: 0, prioritized: 0 })));
    const played: Pick<TaskQueues, 'depths'> = { depths };
    return played as TaskQueues;
  }

  start(): void {
    this.autoscaler.start();
    this.placer.start();
  }

  stop(): void {
    this.autoscaler.stop();
    this.placer.stop();
  }

  entries(state?: string): BookEntry[] {
    return [...this.book.all()].filter((entry) => state === undefined || entry.row.state === state);
  }

  /** The next container that was placed. */
  placed(): Promise<BookEntry> {
    return waitFor(() => this.entries('ASSIGNED')[0], 'a container is placed');
  }

  /** It starts, and runs: as the links say it to dispatch. */
  async runs(entry: BookEntry): Promise<void> {
    await this.book.transition(entry.row.id, 'ack');
    await this.book.transition(entry.row.id, 'ready', { change: { startedAtMs: this.clock.nowMs() } });
    const { id: containerId, machineId } = entry.row;
    if (machineId === null) throw new Error('it has no machine');
    this.slots.ready({ containerId, queue: this.target.queue, machineId, slots: 1 }, this.link, this.clock.nowMs());
  }

  fails(id: ContainerId, reason = 'user_error') {
    return this.book.transition(id, 'fail', { change: { reason, message: 'last lines' } });
  }

  decided(kind: string, why?: string) {
    return waitFor(
      () => {
        const decision = this.autoscaler.decisionOf(this.target.queue);
        const fits = decision?.kind === kind && (why === undefined || ('why' in decision && decision.why === why));
        return fits && decision;
      },
      `the decision is ${kind} ${why ?? ''}`,
    );
  }
}

const test = base
  .extend('db', { scope: 'file' }, async ({}, { onCleanup }): Promise<Db> => {
    const opened = await aDb('pglite');
    onCleanup(() => opened.stop());
    return opened.db;
  })
  .extend('world', async ({ db }, { onCleanup }): Promise<World> => {
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id, randomUUID());
    const target = { ...aTarget(), workspaceId: workspace.id, stubId: stub.id, queue: queueNameOf(null, stub.id) };
    const ground = new Machines({
      db,
      log: quiet,
      clock: new TestClock(),
      metrics: new FleetMetrics(new Registry()),
      caFingerprint: 'f',
    });
    const { machineId, joinToken } = await ground.create({ workspaceId: null }, 'default');
    const world = new World(db, target, machineId);
    const facts = { nonce: 'n', fingerprint: 'f', publicKey: 'k', hostname: 'h', agentVersion: '0' };
    await world.machines.join({ secret: joinToken.split('.')[2] ?? '', ...facts });
    const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images: [] };
    const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
    await world.machines.hello(machineId, 's', hello as unknown as Parameters<Machines['hello']>[2]);
    world.machines.ready(machineId, 's');
    onCleanup(() => world.stop());
    return world;
  });

describe('placement', () => {
  test('a container that its machine refuses at once is offered again, more slowly each time', async ({ world }) => {
    world.book.onChange(({ entry, to }) => {
      if (to !== 'ASSIGNED') return;
      const change = { machineId: null, assignmentId: null };
      void world.book.transition(entry.row.id, 'revoke', { epoch: entry.row.epoch, change });
    });
    world.waiting = 1;
    world.start();
    const startMs = performance.now();
    const offers = (): number => world.moves.filter((move) => move === 'PENDING ASSIGNED').length;
    await waitFor(() => offers() === 3, 'it was offered three times');
    expect(performance.now() - startMs).toBeGreaterThan(500);
    expect(world.entries()).toHaveLength(1);
  });

  test('more containers than fit: those that do are placed, the others wait and say why, until there is room', async ({
    world,
  }) => {
    // 100 millicores each of 4000 less 400 for the host, 64 MiB each: 36 fit.
    const made = await Promise.all(Array.from({ length: 40 }, () => world.book.create(world.target)));
    world.waiting = 40;
    world.autoscaler.stop();
    world.placer.start();
    await waitFor(() => world.entries('ASSIGNED').length === 36, '36 are placed');
    await waitFor(
      () => made.filter((entry) => entry.rejections?.['cpu'] === 1).length === 4,
      'four say that there is no CPU',
    );
    const [first] = world.entries('ASSIGNED');
    if (first === undefined) throw new Error('none placed');
    await world.book.transition(first.row.id, 'abandon');
    await waitFor(() => world.entries('PENDING').length === 3, 'one more has its place');
    expect(world.entries('ASSIGNED')).toHaveLength(36);
  });
});

describe('scaling', () => {
  test('who is not the leader starts nothing; the one that becomes it looks at everything', async ({ world }) => {
    world.leads = false;
    world.waiting = 1;
    world.start();
    world.autoscaler.depthSeen(world.target, 1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(world.entries()).toEqual([]);
    world.leads = true;
    world.autoscaler.sweep();
    await world.placed();
  });

  test('a sample that fails changes nothing, and the next one is taken soon', async ({ world }) => {
    world.start();
    world.sampleFails = true;
    world.waiting = 2;
    world.autoscaler.wake(world.target.queue);
    await world.decided('hold', 'bad_sample');
    expect(world.entries()).toEqual([]);
    world.sampleFails = false;
    await waitFor(() => world.entries().length === 2, 'two containers are asked for');
  });

  test('three starts that fail open the breaker; one probe follows, and a task it serves closes it', async ({
    world,
  }) => {
    world.waiting = 3;
    world.start();
    await waitFor(() => world.entries('ASSIGNED').length === 3, 'three are placed');
    for (const entry of world.entries('ASSIGNED')) {
      await world.book.transition(entry.row.id, 'ack');
      await world.fails(entry.row.id);
    }
    await world.decided('hold', 'cooling_down');
    expect(world.startFailures).toEqual(['last lines', 'last lines', 'last lines']);
    world.clock.aheadMs = 61_000;
    for (const entry of world.entries()) await world.book.transition(entry.row.id, 'abandon');
    world.autoscaler.sweep();
    const probe = await world.placed();
    await world.runs(probe);
    await world.decided('hold', 'cooling_down');
    expect(world.entries()).toHaveLength(1);
    const container = world.slots.get(probe.row.id);
    if (container === undefined) throw new Error('it is not ready');
    container.completed = 1;
    world.autoscaler.attemptEnded(world.target.queue, probe.row.id);
    await waitFor(() => world.entries().length === 3, 'the others start');
  });

  test('containers that become ready and fall at once open the breaker, too', async ({ world }) => {
    world.waiting = 1;
    world.start();
    for (let times = 0; times < 3; times += 1) {
      const entry = await world.placed();
      await world.runs(entry);
      await world.fails(entry.row.id);
    }
    await world.decided('hold', 'cooling_down');
    expect(world.startFailures).toEqual([]);
  });

  test('one that stays up for a minute closes the breaker without a task', async ({ world }) => {
    world.waiting = 1;
    world.start();
    for (let times = 0; times < 2; times += 1) {
      const entry = await world.placed();
      await world.book.transition(entry.row.id, 'ack');
      await world.fails(entry.row.id);
    }
    await world.runs(await world.placed());
    world.clock.aheadMs = 61_000;
    world.autoscaler.sweep();
    await waitFor(() => world.autoscaler.decisionOf(world.target.queue)?.kind === 'hold', 'it was looked at');
    world.waiting = 3;
    world.autoscaler.wake(world.target.queue);
    await waitFor(() => world.entries('ASSIGNED').length === 2, 'two more are placed');
    const [one] = world.entries('ASSIGNED');
    if (one === undefined) throw new Error('none placed');
    await world.book.transition(one.row.id, 'ack');
    await world.fails(one.row.id);
    // The third failure in all, the first since: another container takes its place.
    await waitFor(() => world.entries('ASSIGNED').length === 2, 'it is replaced');
  });

  test('an idle container goes, one that works or whose machine has no link stays', async ({ world }) => {
    world.waiting = 3;
    world.start();
    await waitFor(() => world.entries('ASSIGNED').length === 3, 'three are placed');
    const [idle, busy, unlinked] = world.entries('ASSIGNED');
    if (idle === undefined || busy === undefined || unlinked === undefined) throw new Error('not placed');
    for (const entry of [idle, busy, unlinked]) await world.runs(entry);
    const working = world.slots.get(busy.row.id);
    if (working === undefined) throw new Error('it is not ready');
    working.inFlight = 1;
    world.slots.remove(unlinked.row.id);
    const facts = {
      containerId: unlinked.row.id,
      queue: world.target.queue,
      machineId: world.link.machineId,
      slots: 1,
    };
    world.slots.ready(facts, undefined, 0);
    world.waiting = 0;
    world.autoscaler.wake(world.target.queue);
    await waitFor(() => idle.row.state === 'STOPPING', 'the idle one is stopping');
    await world.decided('hold', 'busy_or_warm');
    expect([busy.row.state, unlinked.row.state]).toEqual(['RUNNING', 'RUNNING']);
  });
});

describe('a database that is away for a moment', () => {
  test('a container that could not be told to go takes tasks again, and goes later', async ({ world }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const container = world.slots.get(entry.row.id);
    world.dbFails = true;
    world.waiting = 0;
    world.autoscaler.wake(world.target.queue);
    await world.decided('stop');
    await waitFor(() => container?.accepting === true, 'it takes tasks');
    expect(entry.row.state).toBe('RUNNING');
    world.dbFails = false;
    await waitFor(() => entry.row.state === 'STOPPING', 'it is told to go');
    expect(container?.accepting).toBe(false);
  });

  test('a stop by name that could not be written is an error, and changes nothing', async ({ world }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const stops = new ContainerStops(world.book, world.slots);
    world.dbFails = true;
    await expect(stops.stopContainer(null, entry.row.id)).rejects.toThrow('the database is away');
    expect(world.slots.get(entry.row.id)?.accepting).toBe(true);
    world.dbFails = false;
    expect(await stops.stopContainer(null, entry.row.id)).toBe(true);
    expect(entry.row.state).toBe('STOPPING');
  });

  test('a drain goes on when it is back', async ({ world, db }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const { machines, book, slots, clock } = world;
    const workers = new Workers({ db, machines, book, slots, clock, log: quiet, isLeader: () => true });
    workers.start();
    try {
      world.dbFails = true;
      expect(await workers.drain({ workspaceId: null }, world.link.machineId)).toBe(true);
      expect(entry.row.state).toBe('RUNNING');
      world.dbFails = false;
      await waitFor(() => entry.row.state === 'STOPPING', 'its container is told to stop');
    } finally {
      workers.stop();
    }
  });

  test('a lost machine is emptied when it is back, and forgotten after a day', async ({ world }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const { machines, book, slots, clock } = world;
    const machine = machines.get(world.link.machineId);
    if (machine === undefined) throw new Error('there is no machine');
    const tasks = { machineLost: () => Promise.resolve() } as unknown as Tasks;
    const health = new MachineHealth({ machines, book, slots, tasks, clock, isLeader: () => true, log: quiet });
    health.start();
    health.stop();
    machines.suspect(machine.row.id, 's', 'stream_ended');
    clock.aheadMs = 125_000;
    world.dbFails = true;
    await expect(health.look()).rejects.toThrow('the database is away');
    expect([machine.health, entry.row.state]).toEqual(['LOST', 'RUNNING']);
    world.dbFails = false;
    await health.look();
    expect(entry.row.state).toBe('UNKNOWN');
    clock.aheadMs += 24 * 3600_000;
    await health.look();
    expect(entry.row.state).toBe('LOST');
  });
});

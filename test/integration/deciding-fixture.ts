/**
 * The queue and machine of one target on a real database, and the leader's
 * loops that look after them. The test plays the queue and the machine.
 */
/* oxlint-disable no-empty-pattern */
import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, DeploymentId, MachineId, QueueName } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { Breakers } from '#scheduler/control/autoscaler/breakers.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { Loads } from '#scheduler/cluster/loads.ts';
import { Autoscaler } from '#scheduler/control/autoscaler/loop.ts';
import { AutoscalerMetrics } from '#scheduler/control/autoscaler/metrics.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { openPlacement } from '#scheduler/compose/placement.ts';
import { wireScaling } from '#scheduler/compose/wiring.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { Targets } from '#scheduler/workspaces/deployments/targets.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import type { Joining } from '#scheduler/fleet/joining.ts';
import type { Machines } from '#scheduler/fleet/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import type { Placer } from '#scheduler/control/placement/placer.ts';
import type { Quotas } from '#scheduler/control/placement/quotas.ts';
import type { QueueDepth, TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { breakerOf } from '#scheduler/stores/store/queries/breakers.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { aDb, aStub, aWorkspace } from './store-fixture.ts';
import { aTarget, PlayedLink, quiet } from './tasks-fixture.ts';

export class World {
  readonly clock = new TestClock();
  readonly slots = new SlotTable();
  readonly link: PlayedLink;
  readonly containers: ContainerRegistry;
  readonly machines: Machines;
  readonly joining: Joining;
  readonly agentReports: AgentReports;
  readonly autoscaler: Autoscaler;
  readonly placer: Placer;
  readonly quotas: Quotas;
  readonly redis: Redis;
  readonly guardMetric: FleetMetrics['guard'];
  target: Target;
  readonly breakers: Breakers;
  readonly db: Pick<Db, 'query' | 'transaction'>;
  readonly whole: Db;
  readonly others: World[] = [];
  sampleTakesMs = 0;
  readonly startFailures: string[] = [];
  /** Every move of every container, as `FROM TO`. */
  readonly moves: string[] = [];
  waiting = 0;
  /** Most containers of a deployment. */
  most = 10;
  /** Tokens that open calls to models reserve. */
  reservedTokens = 0;
  sampleFails = false;
  dbFails = false;
  leads = true;
  askedWhoLeads = 0;
  /** Whether this process led, for each sample of the queue. */
  readonly sampledAsLeader: boolean[] = [];
  fence = 1;
  guarded = false;
  /** Targets beside the world's own. */
  readonly known = new Map<QueueName, Target>();
  /** Queues of versions whose rollout waits. */
  readonly rollingOut = new Set<QueueName>();
  depths: readonly QueueDepth[] | undefined;
  targetChanged: (() => void) | undefined;

  constructor(db: Db, redis: Redis, target: Target, machineId: MachineId, graceMs?: number) {
    const registry = new Registry();
    const metrics = new FleetMetrics(registry);
    const { clock, slots } = this;
    const loops = new LoopMetrics(registry, clock);
    const isLeader = (): boolean => {
      this.askedWhoLeads += 1;
      return this.leads;
    };
    this.target = target;
    this.link = new PlayedLink(machineId);
    const query: Db['query'] = (sql, params) =>
      this.dbFails ? Promise.reject(new Error('the database is away')) : db.query(sql, params);
    this.db = { query, transaction: (work) => db.transaction(work) };
    this.whole = db;
    this.containers = new ContainerRegistry({ db: this.db, log: quiet, clock });
    this.breakers = new Breakers({
      db: this.db,
      clock,
      log: quiet,
      fence: () => (this.leads ? this.fence : undefined),
    });
    const machineParts = openMachines({
      db,
      log: quiet,
      clock,
      metrics,
      caFingerprint: 'f',
      containers: this.containers,
    });
    this.machines = machineParts.machines;
    this.joining = machineParts.joining;
    this.agentReports = machineParts.agentReports;
    const loads = new Loads({ bus: ALONE, channel: 'decide', instance: newInstanceId(), slots, isLive: () => true });
    const targets = this.#targets();
    this.autoscaler = new Autoscaler({
      targets,
      queues: this.#queues(),
      containers: this.containers,
      create: (wanted, count, unplaced) => this.placer.create(wanted, count, unplaced),
      slots,
      loads,
      reservedTokens: { of: () => this.reservedTokens },
      breakers: this.breakers,
      clock,
      log: quiet,
      metrics: new AutoscalerMetrics(registry),
      ...(graceMs === undefined ? {} : { graceMs }),
      silentSinceMs: (id) => this.machines.silentSinceMs(id),
      isGuarded: () => this.guarded,
      isAwaited: (entry) => this.placer.isAwaited(entry),
      loops,
      isLeader,
      serves: { isServed: () => false, queues: () => [] },
      maxContainers: () => this.most,
    });
    this.autoscaler.onStartFailed((_queue, lines) => void this.startFailures.push(lines));
    this.redis = redis;
    this.guardMetric = metrics.guard;
    const { containers, machines } = this;
    const fence = (): number | undefined => (this.leads ? this.fence : undefined);
    const placement = { db, containers, machines, clock, log: quiet, metrics, loops, fence };
    const { placer, quotas } = openPlacement({
      ...placement,
      cpuWorkAllowed: () => true,
      loads,
      slots,
      isGuarded: () => this.guarded,
      spare: () => this.autoscaler.spare(),
      isRollingOut: (queue) => this.rollingOut.has(queue),
      reserveGraceMs: graceMs ?? 0,
    });
    this.placer = placer;
    this.quotas = quotas;
    const { autoscaler } = this;
    wireScaling({ containers, machines, targets, autoscaler, placer });
    this.containers.onChange(({ entry, from, to }) => {
      this.moves.push(`${from ?? 'new'} ${to}`);
      if (to === 'STOPPED' || to === 'FAILED' || to === 'PENDING') slots.remove(entry.row.id);
    });
  }

  #targets(): Targets {
    const played: Pick<Targets, 'onChange' | 'byQueue' | 'activeTargets'> = {
      onChange: (listener) => {
        this.targetChanged = () =>
          listener({ deploymentId: this.target.queue.slice('tq-'.length) as DeploymentId, target: this.target });
        return () => undefined;
      },
      byQueue: (queue: QueueName) => Promise.resolve(queue === this.target.queue ? this.target : this.known.get(queue)),
      activeTargets: () => [this.target].values(),
    };
    return played as Targets;
  }

  #queues(): TaskQueues {
    const depths = (queues: readonly QueueName[]): Promise<readonly QueueDepth[]> => {
      this.sampledAsLeader.push(this.leads);
      this.clock.aheadMs += this.sampleTakesMs;
      if (this.sampleFails) return Promise.reject(new Error('Redis is away'));
      const depth = { waiting: this.waiting, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 };
      return Promise.resolve(this.depths ?? queues.map(() => depth));
    };
    const played: Pick<TaskQueues, 'depths'> = { depths };
    return played as TaskQueues;
  }

  /** Starts another scheduler on the same rows, with the same queue and machine. */
  next(graceMs?: number): World {
    const next = new World(this.whole, this.redis, this.target, this.link.machineId, graceMs);
    this.others.push(next);
    return next;
  }

  async breakerRow(): Promise<boolean> {
    return (await breakerOf(this.db, this.target.queue)) !== undefined;
  }

  /** A container that is ready and has nothing to do, but is still wanted. */
  async idle(): Promise<ContainerEntry> {
    this.waiting = 1;
    this.start();
    const entry = await this.placed();
    await this.runs(entry);
    await this.decided('hold', 'at_target');
    return entry;
  }

  /** Three starts that fail, one after another. */
  async opensBreaker(): Promise<void> {
    this.waiting = 1;
    this.start();
    for (let times = 0; times < 3; times += 1) {
      const entry = await this.placed();
      await this.containers.transition(entry.row.id, 'ack');
      await this.fails(entry.row.id);
    }
    await this.decided('hold', 'cooling_down');
  }

  start(): void {
    this.autoscaler.start();
    this.placer.start();
  }

  stop(): void {
    this.autoscaler.stop();
    this.placer.stop();
    for (const other of this.others) other.stop();
  }

  entries(state?: string): ContainerEntry[] {
    return [...this.containers.all()].filter((entry) => state === undefined || entry.row.state === state);
  }

  /** The next container that was placed. */
  placed(): Promise<ContainerEntry> {
    return waitFor(() => this.entries('ASSIGNED')[0], 'a container is placed');
  }

  /** The container starts and runs: dispatch hears of it as it does from the links. */
  async runs(entry: ContainerEntry): Promise<void> {
    await this.containers.transition(entry.row.id, 'ack');
    await this.containers.transition(entry.row.id, 'ready', { change: { startedAtMs: this.clock.nowMs() } });
    const { id: containerId, machineId } = entry.row;
    if (machineId === null) throw new Error('it has no machine');
    this.slots.ready({ containerId, queue: this.target.queue, machineId, slots: 1 }, this.link, this.clock.nowMs());
  }

  fails(id: ContainerId, reason = 'user_error') {
    return this.containers.transition(id, 'fail', { change: { reason, message: 'last lines' } });
  }

  /** The next decision after this moment. */
  decidedAgain() {
    const before = this.autoscaler.decisionOf(this.target.queue);
    this.autoscaler.wake(this.target.queue);
    return waitFor(() => {
      const decision = this.autoscaler.decisionOf(this.target.queue);
      return decision !== before && decision;
    }, 'another decision');
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

export const test = base
  .extend('db', { scope: 'file' }, async ({}, { onCleanup }): Promise<Db> => {
    const opened = await aDb('pglite');
    onCleanup(() => opened.stop());
    return opened.db;
  })
  .extend('world', async ({ db, redis }, { onCleanup }): Promise<World> => {
    // Who reads all rows must not find those of the test before.
    await db.query('delete from containers');
    await db.query('delete from leased_gpus');
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id, randomUUID());
    const target = { ...aTarget(), workspaceId: workspace.id, stubId: stub.id, queue: queueNameOf(null, stub.id) };
    const before = openMachines({
      db,
      log: quiet,
      clock: new TestClock(),
      metrics: new FleetMetrics(new Registry()),
      caFingerprint: 'f',
    });
    const { machineId, joinToken } = await before.joining.create({ workspaceId: null }, 'default');
    const world = new World(db, redis.connect(), target, machineId);
    const facts = { nonce: 'n', fingerprint: 'f', publicKey: 'k', hostname: 'h', agentVersion: '0' };
    await world.joining.join({ secret: joinToken.split('.')[2] ?? '', ...facts });
    const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images: [] };
    const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
    await world.agentReports.hello(machineId, 's', hello as unknown as Parameters<AgentReports['hello']>[2]);
    world.agentReports.ready(machineId, 's');
    onCleanup(() => world.stop());
    return world;
  });

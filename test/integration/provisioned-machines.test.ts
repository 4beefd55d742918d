/**
 * Machines of a provider that misbehaves, under processes that are killed at any statement and leaders that change: at
 * rest no instance is leaked, and none is there twice. LS_PROVISIONING_SEEDS sets the number of stories.
 */
import { randomUUID } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, describe } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { isSchedulable } from '#scheduler/fleet/machine.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { machineFactsOf } from '#scheduler/fleet/provisioning/machine-facts.ts';
import { Provisioner } from '#scheduler/fleet/provisioning/provisioner.ts';
import type { GrowingPool } from '#scheduler/fleet/provisioning/provisioner.ts';
import type { ConfiguredProvider, Instance } from '#scheduler/domain/provisioning.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { openInstallation } from '#scheduler/workspaces/identity/installation.ts';
import { makePool } from '#scheduler/stores/store/queries/pools.ts';
import { noteProviderCall, providerCalls, pruneProviderCalls } from '#scheduler/stores/store/queries/provider-calls.ts';
import { ownedInstances } from '#scheduler/stores/store/queries/provisioned.ts';
import { raiseFence } from '#scheduler/stores/store/queries/leadership.ts';
import { deleteMachine, machineById, updateMachine } from '#scheduler/stores/store/queries/machines.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { KillableDb } from '../helpers/killable-db.ts';
import { test as base } from '../helpers/services.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { randomFrom, UnrulyCloud } from '../helpers/unruly-cloud.ts';
import type { CloudInstance } from '../helpers/unruly-cloud.ts';
import { aDb, silent } from './store-fixture.ts';

const SEEDS = Number(process.env['LS_PROVISIONING_SEEDS'] ?? 20);
const STEP_MS = 10_000;
const LOST_MS = 90_000;

const sealer = createSealer(Buffer.alloc(32, 9));

// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
const test = base.extend('db', { scope: 'file' }, async ({}, { onCleanup }): Promise<Db> => {
  const opened = await aDb('pglite');
  onCleanup(() => opened.stop());
  await openInstallation(opened.db, sealer);
  return opened.db;
});

async function aPool(db: Db, name: string): Promise<GrowingPool> {
  const row = await makePool(db, { name, workspaceId: null, settings: {} });
  if (row === undefined) throw new Error(`pool ${name} is there already`);
  const shape = { gpuModel: '', gpuCount: 0, cpuCores: 2, memoryMib: 4096 };
  return { id: row.id, name, workspaceId: null, provider: name, shape };
}

/** Begins the time of another leader. @returns its number */
async function nextFence(db: Db): Promise<number> {
  const { rows } = await db.query<{ fence: number }>('select fence from leadership where id = 1');
  const fence = Number(rows[0]?.fence ?? 0) + 1;
  await raiseFence(db, fence);
  return fence;
}

/** The same account of a cloud as another provider, by which the pool makes every second machine. */
const bigOf = (cloud: ConfiguredProvider): ConfiguredProvider => ({
  name: `${cloud.name}-big`,
  timeoutMs: cloud.timeoutMs,
  create: (request) => cloud.create(request),
  list: (installationId) => cloud.list(installationId),
  terminate: (instance) => cloud.terminate(instance),
});

/** A scheduler process, as far as it concerns machines of providers. */
class Process {
  readonly db: KillableDb;
  readonly fence: number;
  readonly machines;
  readonly joining;
  readonly provisioner: Provisioner;
  /** Machines with containers. */
  readonly occupied = new Set<MachineId>();
  hasEnded = false;

  /** Providers of its file. */
  clouds: readonly ConfiguredProvider[];

  constructor(db: Db, fence: number, pool: GrowingPool, clouds: readonly ConfiguredProvider[], clock: TestClock) {
    this.clouds = clouds;
    this.db = new KillableDb(db);
    this.fence = fence;
    const metrics = new FleetMetrics(new Registry());
    const parts = openMachines({ db: this.db, log: silent, clock, metrics, caFingerprint: 'ca' });
    this.machines = parts.machines;
    this.joining = parts.joining;
    let made = 0;
    const intend = async (id: string, intent: string): Promise<boolean> => {
      const machine = this.machines.get(id as MachineId);
      if (machine === undefined || !(await updateMachine(this.db, machine.row.id, { intent }))) return false;
      this.machines.setRow(machine, { intent });
      return true;
    };
    this.provisioner = new Provisioner({
      db: this.db,
      clock,
      log: silent,
      fence: () => (this.hasEnded || this.db.isDead ? undefined : fence),
      sealer,
      providers: {
        names: () => this.clouds.map(({ name }) => name),
        get: (wanted) => this.clouds.find(({ name }) => name === wanted),
      },
      poolOf: () => {
        made += 1;
        return Promise.resolve({ ...pool, provider: this.clouds[made % this.clouds.length]?.name ?? pool.provider });
      },
      joining: this.joining,
      workers: {
        cordon: (_owner, id) => intend(id, 'cordoned'),
        uncordon: (_owner, id) => intend(id, 'active'),
        drain: (_owner, id) => intend(id, 'drained'),
        remove: async (id) => {
          const isDeleted = await deleteMachine(this.db, id);
          this.machines.deleted(id);
          return isDeleted;
        },
      },
      machineOf: (id) => {
        const machine = this.machines.get(id);
        if (machine === undefined) return undefined;
        return machineFactsOf(machine, this.occupied.has(id), clock.monotonicMs());
      },
      isDeleted: async (id) => (await machineById(this.db, id)) === undefined,
      joinOf: (joinToken) => Promise.resolve({ joinLine: joinToken, userData: '' }),
    });
  }

  /** Waits until no statement is under way; calls that hang stay. */
  async idle(): Promise<void> {
    for (let quiet = 0; quiet < 4;) {
      await turn();
      quiet = this.db.running === 0 ? quiet + 1 : 0;
    }
  }
}

class Story {
  readonly clock = new TestClock();
  readonly cloud: UnrulyCloud;
  /** Two providers of one account. */
  readonly clouds: readonly ConfiguredProvider[];
  readonly #random: () => number;
  readonly #db: Db;
  readonly #pool: GrowingPool;
  process: Process;
  /** Process that led before, and does not know yet that it leads no more. */
  former: Process | undefined;

  constructor(db: Db, pool: GrowingPool, seed: number) {
    this.#random = randomFrom(seed);
    this.#db = db;
    this.#pool = pool;
    this.cloud = new UnrulyCloud(pool.provider, this.#random, () => this.clock.nowMs());
    this.clouds = [this.cloud, bigOf(this.cloud)];
    this.process = new Process(db, 1, pool, this.clouds, this.clock);
  }

  /** Another process leads. */
  async change(clouds: readonly ConfiguredProvider[] = this.clouds): Promise<void> {
    if (this.former !== undefined) this.former.hasEnded = true;
    this.former = this.process;
    const fence = await nextFence(this.#db);
    this.process = new Process(this.#db, fence, this.#pool, clouds, this.clock);
    await this.process.machines.start();
  }

  /** A step of time: agents, the cloud, and a round of the process, which may be killed in it. */
  async step(wanted: number): Promise<void> {
    this.clock.aheadMs += STEP_MS;
    this.cloud.pass();
    if (this.cloud.isUnruly && this.#random() < 0.08)
      this.process.db.killAt(Math.floor(this.#random() * 6), this.#random() < 0.5);
    await this.#agents().catch(() => undefined);
    await this.process.provisioner.tick();
    await this.process.idle();
    await this.#demand(wanted).catch(() => undefined);
    await this.process.idle();
    await this.former?.provisioner.tick();
    await this.former?.idle();
    if (this.process.db.isDead || (this.cloud.isUnruly && this.#random() < 0.03)) await this.change();
  }

  async #demand(wanted: number): Promise<void> {
    const { provisioner, machines } = this.process;
    const capacity = provisioner.capacity(this.#pool.id);
    if (capacity.alive < wanted && capacity.pending < 5 && this.clock.nowMs() >= capacity.notBeforeMs)
      await provisioner.grow(this.#pool.id, 'a story wants it');
    const idle = [...machines.all()].find(({ health, row }) => health === 'READY' && row.intent === 'active');
    if (capacity.alive > wanted && idle !== undefined) await provisioner.shrink(idle.row.id, 'idle');
    if (this.cloud.isUnruly && idle !== undefined && this.#random() < 0.02) {
      // An operator deletes a machine.
      await deleteMachine(this.process.db, idle.row.id);
      machines.deleted(idle.row.id);
    }
  }

  /** Agents of running instances join, are ready later, and stay connected; those of others fall silent. */
  async #agents(): Promise<void> {
    const { machines, joining } = this.process;
    const nowMs = this.clock.nowMs();
    const connected = new Map<string, CloudInstance>();
    for (const one of this.cloud.instances.values()) {
      if (one.machineId === undefined && !one.isRefused && nowMs >= one.joinsAtMs) {
        const secret = one.joinToken.split('.')[2] ?? '';
        const join = {
          secret,
          nonce: one.instanceId,
          fingerprint: 'f',
          publicKey: 'k',
          hostname: 'h',
          agentVersion: '1',
        };
        const row = await joining.join(join).catch((error: unknown) => {
          if (this.process.db.isDead) throw error;
          return undefined;
        });
        if (row === undefined) one.isRefused = true;
        else one.machineId = row.id;
      }
      if (one.machineId !== undefined && nowMs >= one.connectsAtMs) connected.set(one.machineId, one);
    }
    for (const machine of machines.all()) {
      if (machine.row.joinedAtMs === null) continue;
      const instance = connected.get(machine.row.id);
      if (instance !== undefined) {
        machine.conditions = nowMs >= instance.readyAtMs ? [] : ['Preflight'];
        if (machine.health !== 'READY') {
          machines.move(machine, 'hello');
          machines.move(machine, 'resolved');
        }
      } else if (machine.health === 'READY') {
        machines.move(machine, 'silent');
        machines.fellSilent(machine);
      } else if (machine.health === 'SUSPECT' && this.clock.monotonicMs() - (machine.silentFromMs ?? 0) > LOST_MS)
        machines.move(machine, 'overdue');
    }
  }

  async steps(count: number, wanted: number): Promise<void> {
    for (let n = 0; n < count; n += 1) await this.step(wanted);
  }

  end(): void {
    this.process.hasEnded = true;
    if (this.former !== undefined) this.former.hasEnded = true;
  }
}

/** Rows of the pool that are not over, and its machines. */
async function present(db: Db, poolId: number) {
  const rows = await db.query<{ state: string; machine_id: string; request_id: string; instance_id: string | null }>(
    'select state, machine_id, request_id, instance_id from provisioned_machines where pool_id = $1 and ended_at is null order by 2',
    [poolId],
  );
  const machines = await db.query<{ id: string }>(
    'select id from machines where pool_id = $1 and deleted_at is null order by 1',
    [poolId],
  );
  return { rows: rows.rows, machines: machines.rows.map(({ id }) => id) };
}

describe('a provider that misbehaves', () => {
  const seeds = Array.from({ length: SEEDS }, (_, index) => index + 1);
  test.for(seeds)(
    'story %i: at rest nothing is leaked, and nothing doubled',
    { timeout: 120_000 },
    async (seed, { db }) => {
      const pool = await aPool(db, `unruly-${seed}-${randomUUID().slice(0, 4)}`);
      const story = new Story(db, pool, seed);
      await story.change();
      await story.steps(60, 3);

      story.cloud.isUnruly = false;
      // Long enough for a machine that never joins, and for its replacement.
      await story.steps(300, 3);
      const held = await present(db, pool.id);
      expect(held.rows.map(({ state }) => state)).toEqual(['joined', 'joined', 'joined']);
      expect(held.machines).toEqual(held.rows.map((row) => row.machine_id));
      const known = held.machines.map((id) => story.process.machines.get(id as MachineId));
      expect(known.map((machine) => machine !== undefined && isSchedulable(machine))).toEqual([true, true, true]);
      const running = [...story.cloud.instances.values()];
      expect(running.map(({ machineId }) => machineId ?? '').toSorted((a, b) => (a < b ? -1 : 1))).toEqual(
        held.machines,
      );

      await story.steps(90, 0);
      const left = await present(db, pool.id);
      expect(left, JSON.stringify(left)).toEqual({ rows: [], machines: [] });
      expect([...story.cloud.instances.values()]).toEqual([]);
      story.end();
    },
  );
});

describe('a provider that behaves', () => {
  test('a machine is requested, created, joins, and goes when it is idle', async ({ db }) => {
    const pool = await aPool(db, `calm-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 7);
    story.cloud.isUnruly = false;
    await story.change();
    // The answer to Join is no machine that can take work: it counts as on its way.
    const { provisioner, machines } = story.process;
    const ofPool = () => [...machines.all()].find(({ row }) => row.poolId === pool.id);
    for (let n = 0; n < 20 && (ofPool()?.row.joinedAtMs ?? null) === null; n += 1) await story.step(1);
    expect([ofPool()?.health, ...provisioner.pending(pool.id)]).toEqual(['PENDING', ofPool()?.row.id]);
    expect([provisioner.machines(pool.id), provisioner.capacity(pool.id).pending]).toEqual([[], 1]);
    await story.steps(20, 1);
    expect([provisioner.machines(pool.id), provisioner.pending(pool.id)]).toEqual([[ofPool()?.row.id], []]);
    expect(story.cloud.creates).toBe(1);
    const capacity = story.process.provisioner.capacity(pool.id);
    expect(capacity).toMatchObject({ pending: 0, alive: 1, hourlyCost: 2.5, unpriced: 0, lastFailure: null });
    await story.steps(20, 0);
    expect(story.cloud.instances.size).toBe(0);
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    story.end();
  });

  test.for([
    ['whose agent ends after it joined', { connectsAtMs: Infinity }, /could not take containers within 15 min$/],
    ['with a condition that stays', { readyAtMs: Infinity }, /15 min \(Preflight\)$/],
  ] as const)('a machine %s is on its way for 15 minutes, then fails its pool', async ([, said, failure], { db }) => {
    const pool = await aPool(db, `unready-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 11);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(2, 1);
    for (const one of story.cloud.instances.values()) Object.assign(one, said);
    await story.steps(60, 1);
    const { provisioner } = story.process;
    expect([provisioner.capacity(pool.id), story.cloud.creates]).toMatchObject([{ pending: 1, alive: 1 }, 1]);
    await story.steps(40, 0);
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    expect(provisioner.capacity(pool.id)).toMatchObject({ alive: 0, lastFailure: expect.stringMatching(failure) });
    expect([story.cloud.instances.size, story.cloud.creates]).toEqual([0, 1]);
    story.end();
  });

  test('a machine whose terminate fails takes no work when its agent comes back, and none joins late', async ({
    db,
  }) => {
    const pool = await aPool(db, `failing-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 12);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(30, 2);
    const [first, second] = story.cloud.instances.values();
    if (first === undefined || second === undefined) throw new Error('there are no two instances');
    story.cloud.refusesTerminate = true;
    // The agent of the first is silent, and a third instance does not boot.
    const connectsAtMs = first.connectsAtMs;
    Object.assign(first, { connectsAtMs: Infinity });
    await story.steps(3, 3);
    const third = [...story.cloud.instances.values()].at(-1);
    if (third === undefined || third === second) throw new Error('there is no third instance');
    Object.assign(third, { joinsAtMs: Infinity, connectsAtMs: Infinity });
    // The two that end count until they are gone, so the story wants no other.
    await story.steps(120, 3);
    const states = (await present(db, pool.id)).rows.map(({ state }) => state);
    expect(states.filter((state) => state === 'terminating')).toHaveLength(2);
    Object.assign(first, { connectsAtMs });
    Object.assign(third, { joinsAtMs: 0, connectsAtMs: 0 });
    await story.steps(3, 3);
    const { machines } = story.process;
    const known = machines.get(first.machineId as MachineId);
    expect([known?.health, known?.row.intent, known && isSchedulable(known)]).toEqual(['READY', 'cordoned', false]);
    expect([third.isRefused, third.machineId]).toEqual([true, undefined]);
    story.cloud.refusesTerminate = false;
    await story.steps(90, 3);
    expect((await present(db, pool.id)).rows.map(({ state }) => state)).toEqual(['joined', 'joined', 'joined']);
    story.end();
  });

  test('a machine that got work is not taken back', async ({ db }) => {
    const pool = await aPool(db, `busy-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 8);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(20, 1);
    const [row] = (await present(db, pool.id)).rows;
    const machineId = row?.machine_id as MachineId;
    story.process.occupied.add(machineId);
    expect(await story.process.provisioner.shrink(machineId, 'idle')).toBe(false);
    await story.steps(5, 1);
    expect((await present(db, pool.id)).rows).toMatchObject([{ state: 'joined' }]);
    expect(story.process.machines.get(machineId)?.row.intent).toBe('active');
    story.end();
  });

  test('two providers of one account leave each other the machines, also when one is taken out of the file', async ({
    db,
  }) => {
    const pool = await aPool(db, `shared-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 11);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(20, 4);
    const made = [...story.cloud.instances.keys()];
    const { rows } = await db.query<{ provider: string }>(
      'select distinct provider from provisioned_machines where pool_id = $1 order by provider',
      [pool.id],
    );
    expect(rows.map(({ provider }) => provider)).toEqual(story.clouds.map(({ name }) => name));
    expect(made).toHaveLength(4);
    const instances = [...story.cloud.instances.values()];
    expect([...(await ownedInstances(db, 'another', instances))].toSorted()).toEqual(made.toSorted());
    const untagged = instances.map((one) => ({ ...one, requestId: '' }));
    expect((await ownedInstances(db, 'another', untagged)).size).toBe(0);
    expect((await ownedInstances(db, pool.provider, untagged)).size).toBe(2);
    await story.steps(30, 4);
    expect([...story.cloud.instances.keys()]).toEqual(made);
    await story.change(story.clouds.slice(1));
    await story.steps(30, 4);
    expect([...story.cloud.instances.keys()]).toEqual(made);
    // Machines of the missing provider end without it, and the other one finds their instances.
    await story.steps(60, 0);
    expect([...story.cloud.instances.keys()]).toEqual([]);
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    story.end();
  });

  test('an instance that ends before it joins is a failure, for which the pool waits', async ({ db }) => {
    const pool = await aPool(db, `dead-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 13);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(2, 1);
    expect((await present(db, pool.id)).rows).toMatchObject([{ state: 'created' }]);
    story.cloud.instances.clear();
    await story.steps(30, 0);
    const { rows } = await db.query('select state, failures, failure from provisioned_machines where pool_id = $1', [
      pool.id,
    ]);
    expect(rows).toEqual([
      { state: 'failed', failures: 1, failure: 'its instance ended before it could take containers' },
    ]);
    expect(story.process.provisioner.capacity(pool.id).notBeforeMs).toBeGreaterThan(0);
    story.end();
  });

  test('a price that only create tells stays known', async ({ db }) => {
    const pool = await aPool(db, `priced-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 12);
    story.cloud.isUnruly = false;
    const list = story.cloud.list.bind(story.cloud);
    story.cloud.list = async (tag) => (await list(tag)).map((one) => ({ ...one, hourlyCost: null, address: null }));
    await story.change();
    await story.steps(20, 1);
    const { rows } = await db.query(
      'select state, hourly_cost, address is not null as has_address from provisioned_machines where pool_id = $1',
      [pool.id],
    );
    expect(rows).toEqual([{ state: 'joined', hourly_cost: 2.5, has_address: true }]);
    story.end();
  });

  test('a pool has at most five machines on their way', async ({ db }) => {
    const pool = await aPool(db, `many-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 9);
    story.cloud.isUnruly = false;
    await story.change();
    await story.process.provisioner.tick();
    const { provisioner } = story.process;
    for (let n = 0; n < 5; n += 1) await provisioner.grow(pool.id, 'demand');
    await expect(provisioner.grow(pool.id, 'demand')).rejects.toThrow(/5 machines on their way/);
    await provisioner.settled();
    story.end();
  });

  test('a replica that has not read the rows does not say that a pool is empty', async ({ db }) => {
    const pool = await aPool(db, `unread-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 10);
    expect(story.process.provisioner.capacity(pool.id)).toMatchObject({ pending: 5, notBeforeMs: Infinity });
    await expect(story.process.provisioner.grow(pool.id, 'demand')).rejects.toThrow(/does not lead/);
  });
});

/** A provider whose calls of create end when the test says so. */
class HeldCloud implements ConfiguredProvider {
  readonly name: string;
  readonly timeoutMs = 120_000;
  readonly held: PromiseWithResolvers<Instance>[] = [];

  constructor(name: string) {
    this.name = name;
  }

  create(): Promise<Instance> {
    const call = Promise.withResolvers<Instance>();
    this.held.push(call);
    return call.promise;
  }

  list(): Promise<readonly Instance[]> {
    return Promise.resolve([]);
  }

  terminate(): Promise<void> {
    return Promise.resolve();
  }
}

describe('five machines asked of a provider that takes its time', () => {
  /** Four calls run, and the fifth waits for its turn. */
  async function fiveAsked(db: Db) {
    const pool = await aPool(db, `held-${randomUUID().slice(0, 4)}`);
    const [clock, cloud] = [new TestClock(), new HeldCloud(pool.provider)];
    const leader = new Process(db, await nextFence(db), pool, [cloud], clock);
    await leader.machines.start();
    await leader.provisioner.tick();
    for (let n = 0; n < 5; n += 1) await leader.provisioner.grow(pool.id, 'demand');
    await leader.idle();
    expect(cloud.held).toHaveLength(4);
    const refuseAll = (): void => {
      for (const call of cloud.held) call.reject(new Error('quota exceeded'));
    };
    return { leader, clock, cloud, refuseAll };
  }

  test('a call that waited for its turn is not made by a replica that leads no more', async ({ db }) => {
    const { leader, cloud, refuseAll } = await fiveAsked(db);
    leader.hasEnded = true;
    refuseAll();
    await leader.provisioner.settled();
    await leader.idle();
    expect(cloud.held).toHaveLength(4);
  });

  test('a call that waited for its turn heeds the back-off that began meanwhile, and is made after it', async ({
    db,
  }) => {
    const { leader, clock, cloud, refuseAll } = await fiveAsked(db);
    refuseAll();
    await leader.provisioner.settled();
    await leader.provisioner.tick();
    await leader.idle();
    expect(cloud.held).toHaveLength(4);
    clock.aheadMs += 5 * 60_000;
    await leader.provisioner.tick();
    await leader.idle();
    expect(cloud.held.length).toBeGreaterThan(4);
    leader.hasEnded = true;
    refuseAll();
    await leader.provisioner.settled();
  });
});

describe('a provider that is taken out of the file', () => {
  test('with requests under way bars its pool for ten minutes', async ({ db }) => {
    const pool = await aPool(db, `left-${randomUUID().slice(0, 4)}`);
    const [clock, cloud] = [new TestClock(), new HeldCloud(pool.provider)];
    const leader = new Process(db, await nextFence(db), pool, [cloud], clock);
    await leader.machines.start();
    await leader.provisioner.tick();
    for (let n = 0; n < 5; n += 1) await leader.provisioner.grow(pool.id, 'demand');
    await leader.idle();
    leader.clouds = [];
    for (const call of cloud.held) call.reject(new Error('not now'));
    await leader.provisioner.settled();
    expect(cloud.held).toHaveLength(4);
    expect(leader.provisioner.capacity(pool.id)).toMatchObject({ pending: 5, alive: 5 });
    clock.aheadMs += 11 * 60_000;
    for (let n = 0; n < 3; n += 1) {
      await leader.provisioner.tick();
      await leader.provisioner.settled();
    }
    expect(leader.provisioner.capacity(pool.id)).toMatchObject({ pending: 0, alive: 0 });
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    leader.hasEnded = true;
  });
});

test('the last call of each verb is kept in bounds, and goes a while after its provider left the file', async ({
  db,
}) => {
  const provider = `told-${randomUUID().slice(0, 4)}`;
  const atMs = Date.now();
  const note = (verb: string, failure: string | null, instances?: number) =>
    noteProviderCall(db, { provider, verb, failure, instances, atMs });
  await note('list', null, 2);
  await note('list', 'no such region', undefined);
  await note('list', 'x'.repeat(600), undefined);
  await note('create', null);
  const told = async () => (await providerCalls(db)).filter((call) => call.provider === provider);
  const calls = new Map((await told()).map((call) => [call.verb, call]));
  expect([...calls.keys()].toSorted()).toEqual(['create', 'list']);
  expect(calls.get('create')).toMatchObject({ failure: null, failures: 0, listedAtMs: null, instances: null });
  expect(calls.get('list')).toEqual({
    provider,
    verb: 'list',
    calledAtMs: atMs,
    failure: 'x'.repeat(500),
    failures: 2,
    listedAtMs: atMs,
    instances: 2,
  });
  await pruneProviderCalls(db, [provider], atMs + 1);
  await pruneProviderCalls(db, [], atMs);
  expect(await told()).toHaveLength(2);
  await pruneProviderCalls(db, [], atMs + 1);
  expect(await told()).toEqual([]);
});

/**
 * Stories of machines that a provider makes, on a real database: the provider may misbehave, processes are killed at
 * any statement, and leaders change. Agents and operators are played, and the clock is the story's own.
 */
import { randomUUID } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import type { ConfiguredProvider } from '#scheduler/domain/provisioning.ts';
import { isSchedulable } from '#scheduler/fleet/machine.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { machineFactsOf } from '#scheduler/fleet/provisioning/machine-facts.ts';
import { Provisioner } from '#scheduler/fleet/provisioning/provisioner.ts';
import type { GrowingPool } from '#scheduler/fleet/provisioning/provisioner.ts';
import { raiseFence } from '#scheduler/stores/store/queries/leadership.ts';
import { deleteMachine, machineById, updateMachine } from '#scheduler/stores/store/queries/machines.ts';
import { makePool } from '#scheduler/stores/store/queries/pools.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import { pino } from 'pino';
import { KillableDb } from './killable-db.ts';
import { TestClock } from './test-clock.ts';
import { randomFrom, UnrulyCloud } from './unruly-cloud.ts';
import type { CloudInstance } from './unruly-cloud.ts';

const silent = pino({ level: 'silent' });
const STEP_MS = 10_000;
const LOST_MS = 90_000;

export const sealer = createSealer(Buffer.alloc(32, 9));

export async function aPool(db: Db, name: string): Promise<GrowingPool> {
  const row = await makePool(db, { name, workspaceId: null, settings: {} });
  if (row === undefined) throw new Error(`pool ${name} is there already`);
  const shape = { gpuModel: '', gpuCount: 0, cpuCores: 2, memoryMib: 4096 };
  return { id: row.id, name, workspaceId: null, provider: name, shape };
}

/** Begins the time of another leader. @returns its number */
export async function nextFence(db: Db): Promise<number> {
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
export class Process {
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

export class Story {
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

  /** Steps until the pool has rows in these states, or for `most` steps. @returns the states of the end */
  async stepsUntil(states: readonly string[], most: number, wanted: number): Promise<readonly string[]> {
    const now = async () => (await present(this.#db, this.#pool.id)).rows.map(({ state }) => state).toSorted();
    let found = await now();
    for (let n = 0; n < most && found.join() !== states.join(); n += 1) {
      await this.step(wanted);
      found = await now();
    }
    return found;
  }

  end(): void {
    this.process.hasEnded = true;
    if (this.former !== undefined) this.former.hasEnded = true;
  }
}

/** Rows of the pool that are not over, and its machines. */
export async function present(db: Db, poolId: number) {
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

/** A whole story of a seed. At rest no instance is leaked, and none is there twice. */
export async function tellStory(db: Db, seed: number): Promise<void> {
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
  expect(running.map(({ machineId }) => machineId ?? '').toSorted((a, b) => (a < b ? -1 : 1))).toEqual(held.machines);

  await story.steps(90, 0);
  const left = await present(db, pool.id);
  expect(left, JSON.stringify(left)).toEqual({ rows: [], machines: [] });
  expect([...story.cloud.instances.values()]).toEqual([]);
  story.end();
}

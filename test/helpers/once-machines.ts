// A story of a provider's machine that is made and deleted, while statements of its leader meet faults or its leader
// dies or stands still. The provider makes one instance, takes no blame for the database, and none is left.
import assert from 'node:assert/strict';
import { newId } from '#shared/domain/ids.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { GrowingPool } from '#scheduler/fleet/provisioning/provisioner.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { DoubtfulDb } from './doubtful-db.ts';
import type { Doubt } from './doubtful-db.ts';
import { aPool, nextFence, present, Process } from './provisioning-story.ts';
import { StandingDb } from './standing-db.ts';
import { TestClock } from './test-clock.ts';
import { UnrulyCloud } from './unruly-cloud.ts';

/** Statements of a leader from its first look until its machine is gone, and a few more. */
export const MACHINE_STATEMENTS = 26;
/** Statements until its machine is created. */
export const CREATE_STATEMENTS = 14;
const STEP_MS = 6_000;
/** Steps of a story that waits for a call of a dead leader, and for listings. */
const MOST_STEPS = 120;
/** A listing of a cloud may omit a new instance for minutes. */
const HIDDEN_MS = 3 * 60_000;

class MachineStory {
  readonly clock = new TestClock();
  readonly cloud: UnrulyCloud;
  readonly #real: Db;
  readonly #pool: GrowingPool;
  leader: Process | undefined;

  constructor(real: Db, pool: GrowingPool) {
    this.#real = real;
    this.#pool = pool;
    // A repeated `create` makes another instance.
    this.cloud = new UnrulyCloud(
      pool.provider,
      () => 0.9,
      () => this.clock.nowMs(),
    );
    this.cloud.isUnruly = false;
  }

  /** Another process leads. The former one does not know it yet. */
  async lead(db: Db): Promise<Process> {
    const fence = await nextFence(this.#real);
    const leader = new Process(db, fence, this.#pool, [this.cloud], this.clock);
    this.leader = leader;
    return leader;
  }

  /** The leader's rounds until the row and its machine are in that state. */
  async until(state: 'created' | 'over', wanted: number): Promise<void> {
    for (let step = 0; step < MOST_STEPS; step += 1) {
      const { rows, machines } = await present(this.#real, this.#pool.id);
      if (state === 'over' ? rows.length + machines.length === 0 : rows[0]?.state === 'created') return;
      await this.#step(wanted);
    }
    assert.fail(`the machine is not ${state}: ${JSON.stringify(await present(this.#real, this.#pool.id))}`);
  }

  /** The leader's rounds until its end comes. @returns whether it came before the machine was created */
  async untilEnd(end: Promise<unknown>, isOver: () => boolean): Promise<boolean> {
    for (let step = 0; step < MOST_STEPS && !isOver(); step += 1) {
      const { rows } = await present(this.#real, this.#pool.id);
      if (rows[0]?.state === 'created') return false;
      await Promise.race([this.#step(1).catch(() => undefined), end]);
    }
    return true;
  }

  async #step(wanted: number): Promise<void> {
    const { leader } = this;
    if (leader === undefined) return;
    this.clock.aheadMs += STEP_MS;
    const { provisioner, machines } = leader;
    await machines.readMissed(() => undefined).catch(() => undefined);
    await provisioner.tick();
    await leader.idle();
    const { alive, notBeforeMs, lastFailure } = provisioner.capacity(this.#pool.id);
    // Not even for a moment does a provider that did all that it was asked stop its pool.
    assert.equal(lastFailure, null, 'a failure of the provider');
    if (notBeforeMs <= this.clock.nowMs() && alive < wanted)
      await provisioner.grow(this.#pool.id, 'wanted').catch(() => undefined);
    assert.deepEqual(provisioner.trouble(this.#pool.id, this.#pool.provider).stuck, []);
  }

  /** Another leader goes on to the machine's end. @param onCreated - called when it has the instance */
  async hasSuccessor(real: Db, onCreated: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    const leader = await this.lead(real);
    await leader.machines.start();
    await this.until('created', 1);
    await onCreated();
    assert.equal(this.cloud.creates, 1, 'calls of create');
    await this.deleteMachines();
    await this.until('over', 0);
    assert.deepEqual([this.cloud.creates, this.cloud.instances.size], [1, 0]);
    leader.hasEnded = true;
  }

  async deleteMachines(): Promise<void> {
    for (const id of (await present(this.#real, this.#pool.id)).machines as MachineId[]) {
      await deleteMachine(this.#real, id);
      this.leader?.machines.deleted(id);
    }
  }
}

const aStory = async (real: Db): Promise<MachineStory> =>
  new MachineStory(real, await aPool(real, `once-${newId().slice(0, 8)}`));

/** @returns the number of faults that were met */
export async function playMachineStory(real: Db, next: () => Doubt | undefined): Promise<number> {
  const story = await aStory(real);
  story.cloud.hidesForMs = HIDDEN_MS;
  let hasBegun = false;
  const db = new DoubtfulDb(real, () => (hasBegun ? next() : undefined));
  const leader = await story.lead(db);
  await leader.machines.start();
  hasBegun = true;
  await story.until('created', 1);
  await db.letGo();
  assert.equal(story.cloud.creates, 1, 'calls of create');
  await story.deleteMachines();
  await story.until('over', 0);
  await db.letGo();
  assert.deepEqual([story.cloud.creates, story.cloud.instances.size], [1, 0]);
  leader.hasEnded = true;
  return db.met;
}

/**
 * The leader dies at a statement, before or behind its effect, until the machine is created.
 * @returns whether it died
 */
export async function playDeath(real: Db, at: number, isAfter: boolean): Promise<boolean> {
  const story = await aStory(real);
  const { db } = await story.lead(real);
  db.killAt(at, isAfter);
  const died = await story.untilEnd(new Promise(() => undefined), () => db.isDead);
  await story.hasSuccessor(real);
  return died;
}

/**
 * The leader stands still at a statement for minutes, in which another one leads, and then goes on.
 * @returns whether it stood still
 */
export async function playStandstill(real: Db, at: number, isAfter: boolean): Promise<boolean> {
  const story = await aStory(real);
  const db = new StandingDb(real, at, isAfter);
  const former = await story.lead(db);
  let stands = false;
  void db.stands.then(() => (stands = true));
  const stood = await story.untilEnd(db.stands, () => stands);
  // A process that wakes up knows by its clock that its lease is over.
  former.hasEnded = true;
  await story.hasSuccessor(real, async () => {
    db.goOn();
    await former.idle();
    await former.provisioner.settled();
  });
  return stood;
}

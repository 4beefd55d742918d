// Executes what the deciding loop wants of pools: makes machines by their providers and takes them back. The leader
// alone acts. A row is written before each effect, and next-step.ts decides from the rows, so another leader goes on.
import { randomUUID } from 'node:crypto';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type {
  CapacityChanges,
  ConfiguredProvider,
  Instance,
  MachineOrder,
  MachineOrders,
  MachineShape,
  PoolCapacity,
  PoolTrouble,
} from '../../domain/provisioning.ts';
import type { Db } from '../../stores/store/db.ts';
import { isOutcomeUnknown } from '../../stores/store/limits.ts';
import { lockAdmissions } from '../../stores/store/queries/machine-joins.ts';
import { pruneProviderCalls } from '../../stores/store/queries/provider-calls.ts';
import {
  insertProvisioned,
  installationTag,
  ownedInstances,
  provisionedOf,
  pruneProvisioned,
} from '../../stores/store/queries/provisioned.ts';
import { SYSTEM } from '../../workspaces/events/audit.ts';
import type { Joining } from '../joining.ts';
import type { WorkerService } from '../worker-service.ts';
import { Calls, factsOf } from './calls.ts';
import type { CallsParts } from './calls.ts';
import { Lanes } from './lanes.ts';
import { Listings } from './listings.ts';
import { nextStep } from './next-step.ts';
import type { Step } from './next-step.ts';
import { MOST_PENDING, poolCapacity } from './pool-capacity.ts';
import { ProvisionedRows } from './rows.ts';
import type { WriteTold } from './rows.ts';
import { Steps } from './steps.ts';
import type { StepsParts } from './steps.ts';
import { isOver, isPending } from './states.ts';
import type { ProvisionedRow } from './states.ts';
import { poolTrouble } from './trouble.ts';

const TICK_MS = 1_000;
const KEPT_MS = 7 * 24 * 3_600_000;
const PRUNE_EVERY_MS = 3_600_000;
const PRUNE_AT_ONCE = 1_000;
const DRAIN_MS = 30 * 60_000;
const MOST_STEPS = 10;

/** A pool that can grow. */
export interface GrowingPool {
  readonly id: number;
  readonly name: string;
  readonly workspaceId: WorkspaceId | null;
  readonly provider: string;
  readonly shape: MachineShape;
}

export interface ProvisionerParts
  extends Pick<CallsParts, 'sealer' | 'joinOf'>, Pick<StepsParts, 'machineOf' | 'isDeleted'> {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly fence: () => number | undefined;
  readonly providers: { names(): readonly string[]; get(name: string): ConfiguredProvider | undefined };
  /** undefined: the pool is deleted, or has no provider. */
  readonly poolOf: (poolId: number) => Promise<GrowingPool | undefined>;
  readonly joining: Pick<Joining, 'create'> & StepsParts['joining'];
  readonly workers: Pick<WorkerService, 'uncordon'> & StepsParts['workers'];
  readonly told?: WriteTold;
}

export class Provisioner implements CapacityChanges, MachineOrders {
  readonly name = 'machines of providers';
  readonly #parts: ProvisionerParts;
  readonly #rows: ProvisionedRows;
  readonly #listings: Listings;
  readonly #calls: Calls;
  readonly #steps: Steps;
  readonly #lanes = new Lanes();
  readonly #changed = new Listeners<[number]>();
  /** Rows with a step under way. */
  readonly #busy = new Map<string, Promise<unknown>>();
  /** Rows to look at again after that step. */
  readonly #again = new Set<string>();
  /** Machines whose row may be there: nobody answered. Their pools do not grow until the rows were looked up. */
  readonly #doubts = new Map<string, GrowingPool>();
  #timer: NodeJS.Timeout | undefined;
  /** The leader's number for which the rows in memory are complete. */
  #loadedFor: number | undefined;
  #loading: Promise<void> | undefined;
  #leadingSinceMs = 0;
  #prunedMs = -Infinity;
  #tag: Promise<string> | undefined;

  constructor(parts: ProvisionerParts) {
    this.#parts = parts;
    this.#rows = new ProvisionedRows(parts);
    this.#listings = new Listings({
      providers: parts.providers,
      lanes: this.#lanes,
      rows: () => this.#rows.all(),
      callEndsMs: (row) => this.#calls.endsMs(row),
      installationId: () => this.#installationId(),
      owned: (provider, instances) => ownedInstances(parts.db, provider, instances),
      isLeader: () => this.#isReady(),
      onFacts: (row, instance) => this.#facts(row, instance),
      clock: parts.clock,
      log: parts.log,
    });
    const made = { ...parts, rows: this.#rows, listings: this.#listings };
    this.#calls = new Calls({ ...made, installationId: () => this.#installationId() });
    this.#steps = new Steps({ ...made, calls: this.#calls });
  }

  /** Told when the capacity of a pool changed. */
  onChange(listener: (poolId: number) => void): void {
    this.#changed.add(listener);
  }

  start(): void {
    this.#timer = setInterval(() => void this.tick(), TICK_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    // Running calls end by their own deadlines; a new leader looks for what they made.
    this.#loadedFor = undefined;
    await this.#loading?.catch(() => undefined);
  }

  // ---- what the deciding loop asks ----------------------------------------------------------------------------------

  capacity(poolId: number): PoolCapacity {
    const summed = this.#sumOf(poolId);
    // Without its rows a leader must not decide that a pool has no machines.
    if (!this.#isReady()) return { ...summed, pending: MOST_PENDING, notBeforeMs: Infinity };
    return this.#isInDoubt(poolId) ? { ...summed, notBeforeMs: Infinity } : summed;
  }

  #isInDoubt(poolId: number): boolean {
    return [...this.#doubts.values()].some(({ id }) => id === poolId);
  }

  #sumOf(poolId: number): PoolCapacity {
    const rows = this.#rows.ofPool(poolId);
    return poolCapacity({ poolId, workspaceId: rows[0]?.poolWorkspaceId ?? null }, rows);
  }

  trouble(poolId: number, provider: string): PoolTrouble {
    return poolTrouble(this.#rows.ofPool(poolId), provider, {
      stepOf: (row) => this.#stepOf(row),
      listingsOf: (name) => this.#listings.failedOf(name),
      terminateFailureOf: (row) => this.#calls.terminateFailureOf(row),
    });
  }

  /** Whether the installation has a provider of that name. */
  knows(provider: string): boolean {
    return this.#parts.providers.get(provider) !== undefined;
  }

  /** Machines of the pool that its provider made, from when they are ready until they begin to leave. */
  machines(poolId: number): readonly MachineId[] {
    return this.#machinesOf(poolId, ({ state }) => state === 'joined');
  }

  pending(poolId: number): readonly MachineId[] {
    return this.#machinesOf(poolId, isPending);
  }

  #machinesOf(poolId: number, isMeant: (row: ProvisionedRow) => boolean): readonly MachineId[] {
    const rows = this.#rows.ofPool(poolId).filter(isMeant);
    return rows.map(({ machineId }) => machineId);
  }

  orderOf(machineId: MachineId): MachineOrder | undefined {
    const row = this.#rows.ofMachine(machineId);
    return row === undefined ? undefined : { provider: row.provider, shape: row.shape };
  }

  async grow(poolId: number, reason: string): Promise<void> {
    const { joining, poolOf, fence, clock } = this.#parts;
    const number = fence();
    if (number === undefined || !this.#isReady()) throw new Error('this replica does not lead: it makes no machines');
    const pool = await poolOf(poolId);
    if (pool === undefined) throw new Error(`pool ${poolId} has no provider that makes machines`);
    if (this.#rows.ofPool(poolId).filter(isPending).length >= MOST_PENDING)
      throw new Error(`pool ${pool.name} has ${MOST_PENDING} machines on their way already`);
    if (this.#isInDoubt(poolId)) throw new Error(`pool ${pool.name} may have a machine whose row is not known yet`);
    const requestId = randomUUID();
    let row: ProvisionedRow | undefined;
    const created = joining.create({ workspaceId: pool.workspaceId }, pool.name, {}, SYSTEM, async (tx, made) => {
      if (made.poolId !== poolId) throw new Error(`pool ${pool.name} was deleted meanwhile`);
      const inserted = await insertProvisioned(
        tx,
        {
          requestId,
          poolId,
          machineId: made.machineId,
          provider: pool.provider,
          shape: pool.shape,
          reason,
          joinToken: this.#calls.sealed(requestId, made.joinToken),
          requestedAtMs: clock.nowMs(),
        },
        number,
      );
      if (inserted === undefined) throw new Error('another replica leads: it makes the machines');
      row = inserted as ProvisionedRow;
    });
    await created.catch((error: unknown) => {
      if (isOutcomeUnknown(error)) this.#doubts.set(requestId, pool);
      throw error;
    });
    if (row === undefined) return;
    this.#rows.put(row);
    this.#look(requestId);
  }

  async shrink(machineId: MachineId, _reason: string): Promise<boolean> {
    const row = this.#rows.ofMachine(machineId);
    if (!this.#isReady() || row === undefined) return false;
    // A row that ends may have a call under way, which can take its whole deadline.
    if (row.state !== 'joined') return row.state === 'leaving' || row.state === 'terminating';
    return await this.#inTurn(row.requestId, () => this.#shrink(row.requestId));
  }

  async #shrink(requestId: string): Promise<boolean> {
    const { workers, clock } = this.#parts;
    const row = this.#rows.get(requestId);
    if (row === undefined || isOver(row)) return false;
    if (row.state === 'leaving' || row.state === 'terminating') return true;
    const machine = this.#steps.machineOf(row);
    if (row.state !== 'joined' || machine === undefined || machine.isOccupied) return false;
    const leaving = await this.#rows.move(row, 'leave', { endWhy: 'idle', drainUntilMs: clock.nowMs() + DRAIN_MS });
    if (leaving === undefined) return false;
    const owner = { workspaceId: row.poolWorkspaceId };
    if (machine.intent === 'active') {
      await workers.cordon(owner, row.machineId);
      // A container may have been placed there until the cordon; it keeps the machine.
      if (this.#steps.machineOf(row)?.isOccupied === true) {
        await workers.uncordon(owner, row.machineId);
        await this.#rows.move(leaving, 'stay', { endWhy: null, drainUntilMs: null });
        return false;
      }
    }
    this.#again.add(requestId);
    return true;
  }

  // ---- the rounds ---------------------------------------------------------------------------------------------------

  /** Looks at everything; the timer and the tests call this. */
  async tick(): Promise<void> {
    try {
      if (!(await this.#ready())) return;
      await this.#lookUp();
      for (const row of this.#rows.live()) this.#look(row.requestId);
      await this.#listings.tick();
      await this.#prune();
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'machines of providers not looked at, trying again');
    }
  }

  /** A machine changed: looks at its row. */
  machineChanged(machineId: MachineId): void {
    if (!this.#isReady()) return;
    const row = this.#rows.ofMachine(machineId);
    if (row !== undefined) this.#look(row.requestId);
  }

  /** Resolves when no step is under way; for tests. */
  async settled(): Promise<void> {
    while (this.#busy.size > 0) await Promise.allSettled(this.#busy.values());
  }

  #isReady(): boolean {
    const fence = this.#parts.fence();
    return fence !== undefined && fence === this.#loadedFor;
  }

  /** Reads the rows when this replica begins to lead. @returns false: it does not lead */
  async #ready(): Promise<boolean> {
    const fence = this.#parts.fence();
    if (fence === undefined) return false;
    if (fence === this.#loadedFor) return true;
    this.#loading ??= this.#load(fence).finally(() => (this.#loading = undefined));
    await this.#loading;
    return this.#isReady();
  }

  async #load(fence: number): Promise<void> {
    this.#loadedFor = undefined;
    await this.settled();
    await this.#rows.load();
    for (const known of [this.#listings, this.#calls, this.#steps]) known.clear();
    this.#leadingSinceMs = this.#parts.clock.nowMs();
    this.#loadedFor = fence;
    for (const row of this.#rows.live()) this.#changed.tell(row.poolId);
  }

  /** Finds rows whose commit was not answered. Such a transaction holds the lock of admissions until it has ended. */
  async #lookUp(): Promise<void> {
    const { db, log } = this.#parts;
    for (const [requestId, { id: poolId, workspaceId }] of this.#doubts) {
      const row = await db.transaction(async (tx) => {
        await lockAdmissions(tx, workspaceId);
        return await provisionedOf(tx, requestId);
      });
      this.#doubts.delete(requestId);
      if (row !== undefined) this.#rows.put(row as ProvisionedRow);
      log.info({ requestId, poolId, isMade: row !== undefined }, 'the row of a machine was looked up');
      this.#changed.tell(poolId);
    }
  }

  async #prune(): Promise<void> {
    const { clock, db, providers } = this.#parts;
    if (clock.monotonicMs() - this.#prunedMs < PRUNE_EVERY_MS) return;
    this.#prunedMs = clock.monotonicMs();
    this.#rows.forgetOld();
    await pruneProvisioned(db, clock.nowMs() - KEPT_MS, PRUNE_AT_ONCE);
    await pruneProviderCalls(db, providers.names(), clock.nowMs() - KEPT_MS);
  }

  #look(requestId: string): void {
    if (this.#busy.has(requestId)) {
      this.#again.add(requestId);
      return;
    }
    this.#inTurn(requestId, () => this.#advance(requestId)).catch((error: unknown) =>
      this.#parts.log.warn({ err: error, requestId }, 'a machine of a provider could not go on, trying again'),
    );
  }

  /** Runs the work of a row, one at a time. */
  async #inTurn<T>(requestId: string, work: () => Promise<T>): Promise<T> {
    for (;;) {
      const running = this.#busy.get(requestId);
      if (running === undefined) break;
      await running.catch(() => undefined);
    }
    const turn = work();
    this.#busy.set(requestId, turn);
    try {
      return await turn;
    } finally {
      this.#busy.delete(requestId);
      if (this.#again.delete(requestId) && this.#isReady()) this.#look(requestId);
    }
  }

  async #advance(requestId: string): Promise<void> {
    for (let steps = 0; steps < MOST_STEPS; steps += 1) {
      const row = this.#rows.get(requestId);
      const step = this.#stepOf(row);
      if (row === undefined || step === undefined || step.kind === 'wait') return;
      if (step.kind === 'look') {
        this.#listings.want(row.provider);
        return;
      }
      const isCall = step.kind === 'create' || step.kind === 'terminate';
      const isDone = isCall
        ? await this.#lanes.run(row.provider, () => this.#callIfDue(requestId, step.kind))
        : await this.#steps.carryOut(row, step);
      if (!isDone) return;
      this.#changed.tell(row.poolId);
    }
  }

  /** Calls the provider if the step is still the next one: the wait for a lane may have been long. */
  async #callIfDue(requestId: string, kind: Step['kind']): Promise<boolean> {
    const row = this.#rows.get(requestId);
    const step = this.#stepOf(row);
    if (row === undefined || step?.kind !== kind || step.kind === 'wait' || step.kind === 'look') return false;
    return await this.#steps.carryOut(row, step);
  }

  /** @returns undefined: the row is over, or this replica does not lead */
  #stepOf(row: ProvisionedRow | undefined): Step | undefined {
    if (row === undefined || isOver(row) || !this.#isReady()) return undefined;
    const seen = this.#calls.seenOf(row, this.#listings.seenOf(row.requestId));
    return nextStep(row, this.#steps.machineOf(row), seen, {
      nowMs: this.#parts.clock.nowMs(),
      leadingSinceMs: this.#leadingSinceMs,
      // Rows of other states wait for no `create`, and most rows are of those.
      notBeforeMs: isPending(row) ? this.#sumOf(row.poolId).notBeforeMs : 0,
      callEndsMs: this.#calls.endsMs(row),
      isProviderKnown: this.knows(row.provider),
    });
  }

  /** Takes over the address, the price and the notice of a listing. */
  async #facts(row: ProvisionedRow, instance: Instance): Promise<void> {
    // A row without a made instance takes them with its next step.
    if (this.#busy.has(row.requestId) || row.state === 'requested' || row.state === 'creating') return;
    const known = { ...factsOf(instance, row), instanceId: row.instanceId ?? instance.instanceId };
    const isSame =
      row.instanceId === known.instanceId &&
      row.address === known.address &&
      row.hourlyCost === known.hourlyCost &&
      row.endsAtMs === known.endsAtMs;
    if (isSame) return;
    await this.#inTurn(row.requestId, async () => {
      const now = this.#rows.get(row.requestId);
      if (now !== undefined && now.revision === row.revision) await this.#rows.note(now, known);
    });
    this.#changed.tell(row.poolId);
    this.#look(row.requestId);
  }

  #installationId(): Promise<string> {
    this.#tag ??= installationTag(this.#parts.db).catch((error: unknown) => {
      this.#tag = undefined;
      throw error;
    });
    return this.#tag;
  }
}

// Executes what the deciding loop wants of pools: makes machines by their providers and takes them back. The leader
// alone acts. A row is written before each effect, and next-step.ts decides from the rows, so another leader goes on.
import { randomUUID } from 'node:crypto';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { messageOf } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { CapacityChanges, Instance, MachineShape, PoolCapacity, Provider } from '../../domain/provisioning.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  insertProvisioned,
  installationTag,
  ownedInstances,
  pruneProvisioned,
} from '../../stores/store/queries/provisioned.ts';
import { SYSTEM } from '../../workspaces/events/audit.ts';
import type { Sealer } from '../../workspaces/secrets/seal.ts';
import type { Joining } from '../joining.ts';
import type { WorkerService } from '../worker-service.ts';
import { Listings } from './listings.ts';
import { nextStep, RULES } from './next-step.ts';
import type { MachineFacts, Step } from './next-step.ts';
import { MOST_PENDING, poolCapacity } from './pool-capacity.ts';
import { ProvisionedRows } from './rows.ts';
import type { WriteTold } from './rows.ts';
import { isFailedEnd, isOver, isPending } from './states.ts';
import type { ProvisionedRow } from './states.ts';

const TICK_MS = 1_000;
const KEPT_MS = 7 * 24 * 3_600_000;
const PRUNE_EVERY_MS = 3_600_000;
const PRUNE_AT_ONCE = 1_000;
/** Time that a call of another process may exceed its deadline by. */
const SETTLE_MS = 5_000;
const DRAIN_MS = 30 * 60_000;
const MOST_STEPS = 10;
const MOST_FAILURE = 500;

/** A provider as it is configured. */
export interface ConfiguredProvider extends Provider {
  /** Deadline of each call. */
  readonly timeoutMs: number;
}

/** A pool that can grow. */
export interface GrowingPool {
  readonly id: number;
  readonly name: string;
  readonly workspaceId: WorkspaceId | null;
  readonly provider: string;
  readonly shape: MachineShape;
}

export interface ProvisionerParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly fence: () => number | undefined;
  readonly sealer: Pick<Sealer, 'seal' | 'open'>;
  readonly providers: { names(): readonly string[]; get(name: string): ConfiguredProvider | undefined };
  /** undefined: the pool is deleted, or has no provider. */
  readonly poolOf: (poolId: number) => Promise<GrowingPool | undefined>;
  readonly joining: Pick<Joining, 'create'>;
  readonly workers: Pick<WorkerService, 'cordon' | 'uncordon' | 'drain'> & {
    /** Deletes a machine in any state. */
    remove(machineId: MachineId): Promise<boolean>;
  };
  /** undefined: deleted, or not known here. */
  readonly machineOf: (machineId: MachineId) => Omit<MachineFacts, 'drainedMs'> | undefined;
  /** Whether the machine is deleted, by the database. */
  readonly isDeleted: (machineId: MachineId) => Promise<boolean>;
  /** Line and document with which an instance joins. */
  readonly joinOf: (joinToken: string) => Promise<{ readonly joinLine: string; readonly userData: string }>;
  readonly told?: WriteTold;
}

const sealContext = (requestId: string): string => `provisioned.${requestId}`;

export class Provisioner implements CapacityChanges {
  readonly name = 'machines of providers';
  readonly #parts: ProvisionerParts;
  readonly #rows: ProvisionedRows;
  readonly #listings: Listings;
  readonly #changed = new Listeners<[number]>();
  /** Rows with a step under way. */
  readonly #busy = new Map<string, Promise<unknown>>();
  /** Rows to look at again after that step. */
  readonly #again = new Set<string>();
  /** When the last call that this process made for a row ended. */
  readonly #callEnded = new Map<string, number>();
  /** Since when this leader has seen a machine drained. */
  readonly #drainedSince = new Map<MachineId, number>();
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
      rowsOf: (provider) => this.#rows.all().filter((row) => row.provider === provider),
      callEndsMs: (row) => this.#callEndsMs(row),
      installationId: () => this.#installationId(),
      owned: (provider, instances) => ownedInstances(parts.db, provider, instances),
      isLeader: () => this.#isReady(),
      onFacts: (row, instance) => this.#facts(row, instance),
      clock: parts.clock,
      log: parts.log,
    });
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
    return this.#isReady() ? summed : { ...summed, pending: MOST_PENDING, notBeforeMs: Infinity };
  }

  #sumOf(poolId: number): PoolCapacity {
    const rows = this.#rows.ofPool(poolId);
    return poolCapacity({ poolId, workspaceId: rows[0]?.poolWorkspaceId ?? null }, rows);
  }

  /** Whether the installation has a provider of that name. */
  knows(provider: string): boolean {
    return this.#parts.providers.get(provider) !== undefined;
  }

  /** Machines of the pool that its provider made, from their join until they begin to leave. */
  machines(poolId: number): readonly MachineId[] {
    return this.#rows
      .ofPool(poolId)
      .filter(({ state }) => state === 'joined')
      .map(({ machineId }) => machineId);
  }

  async grow(poolId: number, reason: string): Promise<void> {
    const { joining, sealer, poolOf, fence, clock } = this.#parts;
    const number = fence();
    if (number === undefined || !this.#isReady()) throw new Error('this replica does not lead: it makes no machines');
    const pool = await poolOf(poolId);
    if (pool === undefined) throw new Error(`pool ${poolId} has no provider that makes machines`);
    if (this.#rows.ofPool(poolId).filter(isPending).length >= MOST_PENDING)
      throw new Error(`pool ${pool.name} has ${MOST_PENDING} machines on their way already`);
    const requestId = randomUUID();
    let row: ProvisionedRow | undefined;
    await joining.create({ workspaceId: pool.workspaceId }, pool.name, {}, SYSTEM, async (tx, made) => {
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
          joinToken: sealer.seal(Buffer.from(made.joinToken), sealContext(requestId)),
          requestedAtMs: clock.nowMs(),
        },
        number,
      );
      if (inserted === undefined) throw new Error('another replica leads: it makes the machines');
      row = inserted as ProvisionedRow;
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
    const machine = this.#machineOf(row);
    if (row.state !== 'joined' || machine === undefined || machine.isOccupied) return false;
    const leaving = await this.#rows.move(row, 'leave', { endWhy: 'idle', drainUntilMs: clock.nowMs() + DRAIN_MS });
    if (leaving === undefined) return false;
    const owner = { workspaceId: row.poolWorkspaceId };
    if (machine.intent === 'active') {
      await workers.cordon(owner, row.machineId);
      // A container may have been placed there until the cordon; it keeps the machine.
      if (this.#machineOf(row)?.isOccupied === true) {
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
    this.#listings.clear();
    this.#callEnded.clear();
    this.#drainedSince.clear();
    this.#leadingSinceMs = this.#parts.clock.nowMs();
    this.#loadedFor = fence;
    for (const row of this.#rows.live()) this.#changed.tell(row.poolId);
  }

  async #prune(): Promise<void> {
    const { clock, db } = this.#parts;
    if (clock.monotonicMs() - this.#prunedMs < PRUNE_EVERY_MS) return;
    this.#prunedMs = clock.monotonicMs();
    this.#rows.forgetOld();
    await pruneProvisioned(db, clock.nowMs() - KEPT_MS, PRUNE_AT_ONCE);
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
    const { clock } = this.#parts;
    for (let steps = 0; steps < MOST_STEPS && this.#isReady(); steps += 1) {
      const row = this.#rows.get(requestId);
      if (row === undefined || isOver(row)) return;
      const nowMs = clock.nowMs();
      const step = nextStep(row, this.#machineOf(row), this.#listings.seenOf(requestId), {
        nowMs,
        leadingSinceMs: this.#leadingSinceMs,
        // Rows of other states wait for no `create`, and most rows are of those.
        notBeforeMs: isPending(row) ? this.#sumOf(row.poolId).notBeforeMs : 0,
        callEndsMs: this.#callEndsMs(row),
      });
      if (step.kind === 'wait') return;
      if (step.kind === 'look') {
        this.#listings.want(row.provider);
        return;
      }
      if (!(await this.#carryOut(row, step))) return;
      this.#changed.tell(row.poolId);
    }
  }

  #machineOf({ machineId }: ProvisionedRow): MachineFacts | undefined {
    const { machineOf, clock } = this.#parts;
    const facts = machineOf(machineId);
    if (facts?.intent !== 'drained') this.#drainedSince.delete(machineId);
    else if (!this.#drainedSince.has(machineId)) this.#drainedSince.set(machineId, clock.monotonicMs());
    if (facts === undefined) return undefined;
    return { ...facts, drainedMs: clock.monotonicMs() - (this.#drainedSince.get(machineId) ?? clock.monotonicMs()) };
  }

  #callEndsMs({ requestId, calledAtMs, provider }: ProvisionedRow): number {
    const ended = this.#callEnded.get(requestId);
    if (calledAtMs === null || ended !== undefined) return ended ?? 0;
    return calledAtMs + (this.#parts.providers.get(provider)?.timeoutMs ?? 0) + SETTLE_MS;
  }

  /** Carries out a step. @returns false: nothing changed that another step could follow */
  async #carryOut(row: ProvisionedRow, step: Exclude<Step, { kind: 'wait' | 'look' }>): Promise<boolean> {
    const { workers, clock, isDeleted } = this.#parts;
    const nowMs = clock.nowMs();
    switch (step.kind) {
      case 'create':
        return await this.#create(row);
      case 'made':
        return await this.#made(row, step.instance);
      case 'join': {
        const change = { joinedAtMs: nowMs, joinToken: null, failures: 0, failure: null };
        return (await this.#rows.move(row, 'join', change)) !== undefined;
      }
      case 'leave':
        return (
          (await this.#rows.move(row, 'leave', { endWhy: step.why, drainUntilMs: step.drainUntilMs })) !== undefined
        );
      case 'drain': {
        const deadlineMs = Math.max(0, (row.drainUntilMs ?? nowMs) - nowMs);
        await workers.drain({ workspaceId: row.poolWorkspaceId }, row.machineId, deadlineMs);
        // The drain ends by the machine's own events, and the next look sees them.
        return this.#machineOf(row)?.intent === 'drained';
      }
      case 'end': {
        if (step.why === 'machine_deleted' && !(await isDeleted(row.machineId))) return false;
        const isFailed = isFailedEnd(step.why);
        const failure = {
          failures: Math.max(1, row.failures),
          failedAtMs: nowMs,
          failure: row.failure ?? FAILED[step.why] ?? null,
        };
        const change = { endWhy: step.why, joinToken: null, ...(isFailed ? failure : { failures: 0, failure: null }) };
        return (await this.#rows.move(row, 'end', change)) !== undefined;
      }
      case 'terminate':
        return await this.#terminate(row, step.instanceId);
      case 'delete_machine':
        await workers.remove(row.machineId);
        return this.#machineOf(row) === undefined;
      case 'over': {
        const isFailed = isFailedEnd(row.endWhy);
        await this.#rows.move(row, isFailed ? 'give_up' : 'over', { endedAtMs: nowMs });
        this.#callEnded.delete(row.requestId);
        this.#listings.forget(row.requestId);
        this.#drainedSince.delete(row.machineId);
        return false;
      }
    }
  }

  async #create(row: ProvisionedRow): Promise<boolean> {
    const { providers, sealer, joinOf, clock } = this.#parts;
    this.#callEnded.delete(row.requestId);
    const calling = await this.#rows.move(row, 'call', { creates: row.creates + 1, calledAtMs: clock.nowMs() });
    if (calling === undefined) return false;
    this.#listings.forget(row.requestId);
    try {
      const provider = providers.get(row.provider);
      if (provider === undefined) throw new Error(`no provider ${row.provider} is configured`);
      if (row.joinToken === null) throw new Error('the join token of the request is gone');
      const token = Buffer.from(sealer.open(row.joinToken, sealContext(row.requestId))).toString();
      const { requestId, machineId, poolName, shape } = row;
      const installationId = await this.#installationId();
      const instance = await provider.create({
        requestId,
        installationId,
        machineId,
        poolName,
        shape,
        ...(await joinOf(token)),
      });
      this.#callEnded.set(row.requestId, clock.nowMs());
      return await this.#made(calling, instance);
    } catch (error) {
      this.#callEnded.set(row.requestId, clock.nowMs());
      await this.#failed(calling, error);
      this.#listings.want(row.provider);
      return false;
    }
  }

  async #made(row: ProvisionedRow, instance: Instance): Promise<boolean> {
    const change = { ...factsOf(instance), createdAtMs: this.#parts.clock.nowMs(), failures: 0, failure: null };
    return (await this.#rows.move(row, 'made', change)) !== undefined;
  }

  async #terminate(row: ProvisionedRow, instanceId: string): Promise<boolean> {
    const { providers, clock } = this.#parts;
    this.#callEnded.delete(row.requestId);
    const calling = await this.#rows.note(row, { instanceId, calledAtMs: clock.nowMs(), terminatedAtMs: null });
    if (calling === undefined) return false;
    this.#listings.forget(row.requestId);
    try {
      const provider = providers.get(row.provider);
      if (provider === undefined) throw new Error(`no provider ${row.provider} is configured`);
      await provider.terminate({ instanceId, requestId: row.requestId });
      this.#callEnded.set(row.requestId, clock.nowMs());
      this.#listings.want(row.provider);
      return (await this.#rows.note(calling, { terminatedAtMs: clock.nowMs() })) !== undefined;
    } catch (error) {
      this.#callEnded.set(row.requestId, clock.nowMs());
      await this.#failed(calling, error);
      return false;
    }
  }

  async #failed(row: ProvisionedRow, error: unknown): Promise<void> {
    const { clock, log } = this.#parts;
    const failure = messageOf(error).slice(0, MOST_FAILURE);
    const { requestId, provider, poolName: pool, state } = row;
    log.warn({ requestId, provider, pool, state, failure }, 'a call of a provider failed');
    await this.#rows.note(row, { failures: row.failures + 1, failedAtMs: clock.nowMs(), failure });
  }

  /** Takes over the address, the price and the notice of a listing. */
  async #facts(row: ProvisionedRow, instance: Instance): Promise<void> {
    // A row without a made instance takes them with its next step.
    if (this.#busy.has(row.requestId) || row.state === 'requested' || row.state === 'creating') return;
    const facts = factsOf(instance);
    const known = row.instanceId === null ? facts : { ...facts, instanceId: row.instanceId };
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

const FAILED: Readonly<Record<string, string>> = {
  not_created: `no instance was made within ${RULES.createWithinMs / 60_000} min or ${RULES.mostCreates} calls`,
  never_joined: `its agent did not join within ${RULES.joinWithinMs / 60_000} min`,
};

const factsOf = ({ instanceId, address, hourlyCost, endsAtMs }: Instance) => ({
  instanceId,
  address,
  hourlyCost,
  endsAtMs,
});

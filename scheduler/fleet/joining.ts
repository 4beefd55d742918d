// Admission of machines: CreateMachine with its bound on machines that have not joined, join tokens, and the lists of
// machines. A join token is good for one machine, once, within 30 minutes.
import { randomBytes } from 'node:crypto';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Db, Transaction } from '../stores/store/db.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { deleteMachine } from '../stores/store/queries/machines.ts';
import {
  expireJoinSecrets,
  insertMachine,
  joinMachine,
  joinSecretState,
  unjoinedMachines,
  voidJoinSecret,
} from '../stores/store/queries/machine-joins.ts';
import { SYSTEM } from '../workspaces/events/audit.ts';
import type { Actor } from '../workspaces/events/audit.ts';
import type { InstallationTrail, Say } from '../workspaces/events/installation-trail.ts';
import { viewOf } from './machine.ts';
import type { CreatedMachine, MachineService, MachineView } from './machine-service.ts';
import type { MachineEvents } from './machine-events.ts';
import type { Machines } from './machines.ts';
import type { JoiningHost } from './enrolment.ts';
import type { FleetMetrics } from './metrics.ts';
import { admitPool, mostShared } from './pool-admission.ts';
import type { MostPools } from './pool-admission.ts';

const JOIN_TOKEN_MS = 30 * 60_000;

const JOIN_REFUSALS = {
  unknown: 'join token is of no machine here; create a machine for a new token',
  expired: 'join token has expired; create a new machine for a new token',
  replayed: 'join token was used already; create a new machine for a new token',
} as const;

/** The bound of all shared pools together; a workspace has its limit `counts.unjoined_machines`. */
const MOST_UNJOINED_SHARED = 1_000;

const tooManyUnjoined = (limit: number): AppError =>
  new AppError(
    'too_many_unjoined',
    `${limit} machines were created and have not joined, and there may be no more: install the agent on them, delete them (\`longshore machine delete\`), or wait until their join tokens have expired (30 minutes)`,
    { details: { limit } },
  );

/** Writes more in the transaction that creates a machine; a throw undoes it all. */
export type AlsoWritten = (
  tx: Transaction,
  made: { readonly machineId: MachineId; readonly poolId: number; readonly joinToken: string },
) => Promise<void>;

export class Joining implements MachineService {
  readonly #machines: Machines;
  readonly #db: Db;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #metrics: FleetMetrics;
  readonly #caFingerprint: string;
  readonly #told: MachineEvents | undefined;
  readonly #trail: InstallationTrail | undefined;
  readonly #mostPools: MostPools;
  readonly #mostUnjoined: (workspaceId: WorkspaceId | null) => number | Promise<number>;

  constructor(parts: {
    readonly machines: Machines;
    readonly db: Db;
    readonly log: Log;
    readonly clock: Clock;
    readonly metrics: FleetMetrics;
    readonly caFingerprint: string;
    /** Most machines of a workspace that may wait to join; absent: the bound of the shared pools. */
    readonly mostUnjoinedOf?: (workspaceId: WorkspaceId) => number | Promise<number>;
    /** Most pools of an owner; absent: the bound of the shared pools. */
    readonly mostPoolsOf?: MostPools;
    /** Writer of events; absent: nothing is told. */
    readonly machineEvents?: MachineEvents;
    /** Writer of who made machines; absent: nothing is told. */
    readonly trail?: InstallationTrail;
  }) {
    const { mostUnjoinedOf, mostPoolsOf = mostShared } = parts;
    this.#mostPools = mostPoolsOf;
    this.#mostUnjoined = (id) => (id === null ? MOST_UNJOINED_SHARED : (mostUnjoinedOf?.(id) ?? MOST_UNJOINED_SHARED));
    this.#machines = parts.machines;
    this.#told = parts.machineEvents;
    this.#trail = parts.trail;
    this.#db = parts.db;
    this.#log = parts.log;
    this.#clock = parts.clock;
    this.#metrics = parts.metrics;
    this.#caFingerprint = parts.caFingerprint;
  }

  /**
   * Creates a machine.
   * @param settings - of the pool, where this call makes it
   * @param also - writes more in the same transaction
   * @throws AppError `too_many_unjoined` (details.limit): so many of the owner's machines have not joined and still
   * may; `too_many_pools` (details.limit): the pool is missing, and the owner has no room for it;
   * `workspace_not_found`: the workspace is gone or being deleted
   */
  async create(
    owner: { readonly workspaceId: WorkspaceId | null },
    poolName: string,
    settings: PoolSettingsChange = {},
    by: Actor = SYSTEM,
    also?: AlsoWritten,
  ): Promise<CreatedMachine> {
    const nowMs = this.#clock.nowMs();
    const most = await this.#mostUnjoined(owner.workspaceId);
    // A flood is refused from memory; the database decides below.
    if (this.#pendingOf(owner.workspaceId, nowMs) >= most) throw tooManyUnjoined(most);
    const mostPools = await this.#mostPools(owner.workspaceId);
    const secret = randomBytes(32).toString('base64url');
    const joinToken = `lsj1.${this.#caFingerprint}.${secret}`;
    const expiresAtMs = nowMs + JOIN_TOKEN_MS;
    const { row, replaced, pool } = await this.#written(async (tx, say) => {
      const named = { name: poolName, workspaceId: owner.workspaceId, settings };
      // Locks the owner's admissions.
      const within = await admitPool(tx, say, by, named, mostPools);
      const { count, expired } = await unjoinedMachines(tx, owner.workspaceId, nowMs);
      // Expired machines make room, the oldest first.
      const leave = expired.slice(0, Math.max(0, count + 1 - most));
      if (count - leave.length >= most) throw tooManyUnjoined(most);
      for (const id of leave) await deleteMachine(tx, id);
      const made = await insertMachine(tx, {
        id: randomBytes(4).toString('hex') as MachineId,
        poolId: within.id,
        joinSecretHash: Buffer.from(sha256Hex(secret), 'hex'),
        joinExpiresAtMs: expiresAtMs,
      });
      const target = { type: 'machine', id: made.id };
      const attrs = { pool_name: within.name };
      say(by, 'audit.machine.created', { workspaceId: owner.workspaceId, machineId: made.id, target, attrs });
      await also?.(tx, { machineId: made.id, poolId: made.poolId, joinToken });
      return { row: made, replaced: leave, pool: within };
    });
    for (const id of replaced) this.#machines.deleted(id);
    this.#machines.created(row);
    return {
      machineId: row.id,
      poolName: pool.name,
      joinToken,
      expiresAtMs,
      createdAtMs: row.createdAtMs,
    };
  }

  #written<T>(run: (tx: Transaction, say: Say) => Promise<T>): Promise<T> {
    return this.#trail === undefined
      ? this.#db.transaction((tx) => run(tx, () => undefined))
      : this.#trail.transaction(run);
  }

  /** Machines of the owner that may still join. */
  #pendingOf(workspaceId: WorkspaceId | null, nowMs: number): number {
    let count = 0;
    for (const { row } of this.#machines.all()) {
      const mayJoin = row.joinedAtMs === null && (row.joinExpiresAtMs ?? 0) > nowMs;
      if (mayJoin && row.poolWorkspaceId === workspaceId) count += 1;
    }
    return count;
  }

  async list(owner: { readonly workspaceId: WorkspaceId | null }): Promise<readonly MachineView[]> {
    await this.expireJoins();
    return [...this.#machines.all()]
      .filter((machine) => machine.row.poolWorkspaceId === owner.workspaceId)
      .map((machine) => viewOf(machine, this.#machines.capacity(machine), this.#clock.nowMs()))
      .sort((a, b) => a.poolName.localeCompare(b.poolName) || a.machineId.localeCompare(b.machineId));
  }

  /** Marks machines that did not join in time as EXPIRED: their join secret is no longer valid. */
  async expireJoins(): Promise<void> {
    const nowMs = this.#clock.nowMs();
    const overdue = [...this.#machines.all()].filter(
      ({ health, row }) => health === 'PENDING' && row.joinedAtMs === null && (row.joinExpiresAtMs ?? nowMs) <= nowMs,
    );
    if (overdue.length === 0) return;
    await expireJoinSecrets(this.#db, nowMs);
    for (const machine of overdue) {
      // The machine may have joined meanwhile.
      if (machine.row.joinedAtMs !== null || !this.#machines.move(machine, 'join_expired')) continue;
      this.#machines.wrote(machine.row.id);
      this.#machines.changed(machine);
    }
  }

  /** Voids the join token of a machine. @returns false: it has joined, or is deleted */
  async voidToken(id: MachineId): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    if (!(await voidJoinSecret(this.#db, id, nowMs))) return false;
    const machine = this.#machines.get(id);
    if (machine !== undefined) this.#machines.setRow(machine, { joinExpiresAtMs: nowMs });
    return true;
  }

  /** Swaps a join token for an identity. @throws AppError `join_token_invalid` */
  async join(request: JoiningHost): Promise<MachineRow> {
    const secretHash = Buffer.from(sha256Hex(request.secret), 'hex');
    const joining = {
      secretHash,
      nonce: request.nonce,
      fingerprint: request.fingerprint,
      publicKey: request.publicKey,
      hostname: request.hostname,
      agentVersion: request.agentVersion,
      hostIdentity: request.hostIdentity ?? null,
      nowMs: this.#clock.nowMs(),
    };
    const row =
      this.#told === undefined
        ? await joinMachine(this.#db, joining)
        : await this.#told.made('joined', (tx) => joinMachine(tx, joining));
    if (row === undefined) {
      const state = await joinSecretState(this.#db, secretHash);
      const result = state === undefined ? 'unknown' : state.joinedAtMs === null ? 'expired' : 'replayed';
      this.#metrics.joins.inc({ result });
      const { fingerprint, hostname } = request;
      this.#log.warn({ result, machineId: state?.id, fingerprint, hostname }, 'join token refused');
      throw new AppError('join_token_invalid', JOIN_REFUSALS[result]);
    }
    this.#metrics.joins.inc({ result: 'joined' });
    const machine = this.#machines.get(row.id);
    if (machine !== undefined) machine.row = row;
    this.#machines.wrote(row.id);
    return row;
  }
}

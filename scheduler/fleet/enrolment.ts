// Enrolment tokens: many hosts join a pool by one, until it expires or is revoked, and no more at once than it admits.
// Invariant: hosts that join by a token take turns at its row, so the bound holds whatever comes at once.
import { randomBytes } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Db, Queryable, Transaction } from '../stores/store/db.ts';
import { noSuchWorkspace } from '../domain/no-workspace.ts';
import {
  deleteEnrolmentTokens,
  insertEnrolmentToken,
  listEnrolmentTokens,
  lockEnrolmentToken,
  revokeEnrolmentToken,
  usedEnrolmentToken,
} from '../stores/store/queries/enrolment-tokens.ts';
import type { EnrolmentTokenRow } from '../stores/store/queries/enrolment-tokens.ts';
import type { JoiningAgent } from '../stores/store/queries/machine-joins.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { enrolMachine, enrolledBefore, lockAdmissions } from '../stores/store/queries/machine-joins.ts';
import { poolByName } from '../stores/store/queries/pools.ts';
import type { Actor } from '../workspaces/events/audit.ts';
import type { InstallationTrail, Say } from '../workspaces/events/installation-trail.ts';
import type { MachineEvents } from './machine-events.ts';
import type { Machines } from './machines.ts';
import type { FleetMetrics } from './metrics.ts';
import type { Owner } from './worker-service.ts';

/** Most tokens of an owner that count, and as many that count no more. */
export const MOST_ENROLMENT_TOKENS = 100;

export type EnrolmentState = 'active' | 'revoked' | 'expired';
export type EnrolmentToken = EnrolmentTokenRow & { readonly state: EnrolmentState };

export type CreateEnrolmentOutcome =
  /** `secret`: the token, shown this once. */
  | { readonly kind: 'created'; readonly token: EnrolmentToken; readonly secret: string }
  | { readonly kind: 'no_pool' | 'name_taken' | 'too_many' };

/** Operations on enrolment tokens for the surfaces. */
export interface EnrolmentService {
  /** @throws AppError `workspace_not_found`: the workspace is gone or being deleted */
  create(owner: Owner, request: EnrolmentRequest, by: Actor): Promise<CreateEnrolmentOutcome>;
  list(owner: Owner): Promise<readonly EnrolmentToken[]>;
  /** @param reference - an id, or the name of a token that counts @returns undefined: there is none */
  revoke(owner: Owner, reference: string, by: Actor): Promise<EnrolmentToken | undefined>;
}

export interface EnrolmentRequest {
  readonly name: string;
  readonly poolName: string;
  readonly maxMachines: number;
  readonly lifetimeMs: number;
}

/** Facts that a host gives when it joins. */
export type JoiningHost = Omit<JoiningAgent, 'nowMs'> & { readonly secret: string };

export interface EnrolmentParts {
  readonly machines: Pick<Machines, 'created' | 'get' | 'wrote'>;
  readonly db: Db;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: FleetMetrics;
  readonly caFingerprint: string;
  /** Writer of events; absent: nothing is told. */
  readonly machineEvents?: MachineEvents;
  /** Writer of who made tokens; absent: nothing is told. */
  readonly trail?: InstallationTrail;
}

export class Enrolment implements EnrolmentService {
  readonly #parts: EnrolmentParts;

  constructor(parts: EnrolmentParts) {
    this.#parts = parts;
  }

  async create(owner: Owner, request: EnrolmentRequest, by: Actor): Promise<CreateEnrolmentOutcome> {
    const { db, clock, caFingerprint } = this.#parts;
    const { workspaceId } = owner;
    const pool = await poolByName(db, { name: request.poolName, workspaceId });
    if (pool === undefined) return { kind: 'no_pool' };
    const secret = randomBytes(32).toString('base64url');
    const nowMs = clock.nowMs();
    return this.#written(async (tx, say): Promise<CreateEnrolmentOutcome> => {
      if (!(await lockAdmissions(tx, workspaceId))) throw noSuchWorkspace();
      const all = (await listEnrolmentTokens(tx, workspaceId)).map((row) => this.#asToken(row));
      const active = all.filter(({ state }) => state === 'active');
      if (active.length >= MOST_ENROLMENT_TOKENS) return { kind: 'too_many' };
      if (active.some(({ name }) => name === request.name)) return { kind: 'name_taken' };
      const over = all.filter(({ state }) => state !== 'active').slice(MOST_ENROLMENT_TOKENS - 1);
      if (over.length > 0)
        await deleteEnrolmentTokens(
          tx,
          over.map(({ id }) => id),
        );
      const row = await insertEnrolmentToken(tx, {
        id: randomBytes(4).toString('hex'),
        poolId: pool.id,
        workspaceId,
        name: request.name,
        secretHash: hashOf(secret),
        maxMachines: request.maxMachines,
        expiresAtMs: nowMs + request.lifetimeMs,
        createdBy: (by.tokenName || by.tokenId) ?? 'system',
        nowMs,
      });
      say(by, 'audit.enrolment_token.created', entryOf(row));
      return { kind: 'created', token: this.#asToken(row), secret: `lse1.${caFingerprint}.${secret}` };
    });
  }

  async list({ workspaceId }: Owner): Promise<readonly EnrolmentToken[]> {
    return (await listEnrolmentTokens(this.#parts.db, workspaceId)).map((row) => this.#asToken(row));
  }

  async revoke({ workspaceId }: Owner, reference: string, by: Actor): Promise<EnrolmentToken | undefined> {
    const { clock } = this.#parts;
    return this.#written(async (tx, say) => {
      const all = (await listEnrolmentTokens(tx, workspaceId)).map((row) => this.#asToken(row));
      const named =
        all.find(({ id }) => id === reference) ??
        all.find(({ name, state }) => name === reference && state === 'active') ??
        all.find(({ name }) => name === reference);
      if (named === undefined) return undefined;
      const revoked = await revokeEnrolmentToken(tx, workspaceId, named.id, clock.nowMs());
      if (revoked === undefined) return named;
      say(by, 'audit.enrolment_token.revoked', entryOf(revoked));
      return this.#asToken(revoked);
    });
  }

  /**
   * Makes the host that shows an enrolment token a new machine of the token's pool.
   * @throws AppError `enrolment_refused`; `enrolment_full` while the token admits no more machines
   */
  async enrol(host: JoiningHost): Promise<MachineRow> {
    const { machines, log, metrics } = this.#parts;
    let refusal: Refusal = { result: 'unknown', text: UNKNOWN };
    let token: EnrolmentTokenRow | undefined;
    const row = await this.#joined(async (tx) => {
      token = await lockEnrolmentToken(tx, hashOf(host.secret));
      if (token === undefined) return undefined;
      const nowMs = this.#parts.clock.nowMs();
      const join = { ...host, tokenId: token.id, poolId: token.poolId, nowMs };
      const refused = refusalOf(token, nowMs);
      const before = refused === undefined || refused.result === 'full' ? await enrolledBefore(tx, join) : undefined;
      if (before !== undefined) return before;
      if (refused !== undefined) {
        refusal = refused;
        return undefined;
      }
      await usedEnrolmentToken(tx, token.id, nowMs);
      return await enrolMachine(tx, { ...join, id: randomBytes(4).toString('hex') as MachineId });
    });
    if (row === undefined) {
      const { hostname, fingerprint } = host;
      metrics.joins.inc({ result: refusal.result });
      log.warn({ result: refusal.result, token: token?.name, hostname, fingerprint }, 'enrolment token refused');
      if (refusal.result === 'full') throw new AppError('enrolment_full', refusal.text);
      throw new AppError('enrolment_refused', refusal.text);
    }
    metrics.joins.inc({ result: 'enrolled' });
    if (machines.get(row.id) === undefined) machines.created(row);
    else machines.wrote(row.id);
    return row;
  }

  #joined(change: (tx: Queryable) => Promise<MachineRow | undefined>): Promise<MachineRow | undefined> {
    const { machineEvents, db } = this.#parts;
    return machineEvents === undefined ? db.transaction(change) : machineEvents.made('joined', change);
  }

  #written<T>(run: (tx: Transaction, say: Say) => Promise<T>): Promise<T> {
    const { trail, db } = this.#parts;
    return trail === undefined ? db.transaction((tx) => run(tx, () => undefined)) : trail.transaction(run);
  }

  #asToken(row: EnrolmentTokenRow): EnrolmentToken {
    const isOver = row.expiresAtMs <= this.#parts.clock.nowMs();
    return { ...row, state: row.revokedAtMs !== null ? 'revoked' : isOver ? 'expired' : 'active' };
  }
}

const hashOf = (secret: string): Buffer => Buffer.from(sha256Hex(secret), 'hex');

interface Refusal {
  readonly result: 'unknown' | 'revoked' | 'expired' | 'full';
  readonly text: string;
}

const UNKNOWN = 'enrolment token is of no pool here; make one with `longshore enrol-token create`';

/** Why nobody joins by the token now; undefined: hosts may. Pure. @internal exported for its test */
export function refusalOf(
  token: Pick<EnrolmentTokenRow, 'name' | 'isPoolDeleted' | 'revokedAtMs' | 'expiresAtMs' | 'maxMachines' | 'machines'>,
  nowMs: number,
): Refusal | undefined {
  const named = `enrolment token ${token.name}`;
  const another = 'make another with `longshore enrol-token create`';
  if (token.revokedAtMs !== null) return { result: 'revoked', text: `${named} was revoked; ${another}` };
  if (token.isPoolDeleted) return { result: 'revoked', text: `the pool of ${named} was deleted; ${another}` };
  if (token.expiresAtMs <= nowMs) return { result: 'expired', text: `${named} has expired; ${another}` };
  if (token.machines < token.maxMachines) return undefined;
  return {
    result: 'full',
    text: `${named} admits ${token.maxMachines} machines, and ${token.machines} have joined; delete those that are gone (\`longshore machine delete\`), or ${another}`,
  };
}

const entryOf = (row: EnrolmentTokenRow) => ({
  workspaceId: row.workspaceId,
  target: { type: 'enrolment_token', id: row.id, name: row.name },
  attrs: {
    pool_name: row.poolName,
    max_machines: row.maxMachines,
    expires_at: new Date(row.expiresAtMs).toISOString(),
  },
});

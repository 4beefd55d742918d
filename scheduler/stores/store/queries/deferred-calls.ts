// Calls of models whose callers read the answer later. States and columns: migrations/0006_models.sql.
// Invariants: a try is fenced by its replica and its number. A row ends once. Leases and waits are compared with the
// clock of the database.
import type { InstanceId, ObjectId, PutBy, TaskId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ChargeRequest } from '../../../domain/inference.ts';
import type { Queryable, Transaction } from '../db.ts';
import { many, maybeOne, msOf, msOrNull, one, storableText } from '../rows.ts';
import type { TaskRecordRow } from './tasks.ts';
import { upsertTaskRecords } from './tasks.ts';

/** How a call ended, as its task tells it. */
export interface DeferredEnding {
  readonly status: 'COMPLETE' | 'ERROR' | 'TIMEOUT' | 'CANCELLED' | 'EXPIRED';
  readonly reason: string;
  readonly result?: string;
  readonly resultObjectId?: ObjectId;
}

export interface DeferredCallRow {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly tokenId: TokenId;
  readonly requestId: string;
  readonly fingerprint: string;
  readonly putBy: PutBy | undefined;
  /** Route, model and caller; the surface that accepted the call reads it. */
  readonly request: unknown;
  readonly charge: ChargeRequest;
  readonly isCharged: boolean;
  readonly attempt: number;
  readonly losses: number;
  readonly delays: number;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly ending: DeferredEnding | undefined;
}

export interface NewDeferredCall extends Pick<
  DeferredCallRow,
  | 'taskId'
  | 'workspaceId'
  | 'tokenId'
  | 'requestId'
  | 'fingerprint'
  | 'putBy'
  | 'request'
  | 'charge'
  | 'isCharged'
  | 'createdAtMs'
  | 'expiresAtMs'
> {
  readonly keyHash: string | undefined;
  readonly body: string;
}

interface Raw {
  task_id: string;
  workspace_id: string;
  token_id: string;
  request_id: string;
  fingerprint: string;
  put_by: string | null;
  request: unknown;
  charge: ChargeRequest;
  is_charged: boolean;
  attempt: number;
  losses: number;
  delays: number;
  created_at: Date;
  expires_at: Date;
  started_at: Date | null;
  ended_at: Date | null;
  ending: DeferredEnding | null;
}
const COLUMNS = `c.task_id, c.workspace_id, c.token_id, c.request_id, c.fingerprint, c.put_by, c.request, c.charge,
  c.is_charged, c.attempt, c.losses, c.delays, c.created_at, c.expires_at, c.started_at, c.ended_at, c.ending`;
const map = (row: Raw): DeferredCallRow => ({
  taskId: row.task_id as TaskId,
  workspaceId: row.workspace_id as WorkspaceId,
  tokenId: row.token_id as TokenId,
  requestId: row.request_id,
  fingerprint: row.fingerprint,
  putBy: (row.put_by ?? undefined) as PutBy | undefined,
  request: row.request,
  charge: row.charge,
  isCharged: row.is_charged,
  attempt: row.attempt,
  losses: row.losses,
  delays: row.delays,
  createdAtMs: msOf(row.created_at),
  expiresAtMs: msOf(row.expires_at),
  startedAtMs: msOrNull(row.started_at),
  endedAtMs: msOrNull(row.ended_at),
  ending: row.ending ?? undefined,
});

/** Calls of one workspace that wait or run, and the bytes of their bodies. */
export interface DeferredBounds {
  readonly calls: number;
  readonly bytes: number;
}

/** Calls of a workspace take turns, so that its bounds hold over replicas. A turn ends with its transaction. */
const takeTurn = (tx: Transaction, workspaceId: WorkspaceId): Promise<unknown> =>
  tx.query('select pg_advisory_xact_lock(hashtextextended($1, 43))', [workspaceId]);

/**
 * Whether a call was accepted whose commit was not answered. It waits until that transaction has ended, so that the
 * answer is final. The task tells, because it outlives the row of the call.
 */
export async function wasDeferredCallAccepted(
  tx: Transaction,
  { taskId, workspaceId }: Pick<NewDeferredCall, 'taskId' | 'workspaceId'>,
): Promise<boolean> {
  await takeTurn(tx, workspaceId);
  const { rows } = await tx.query('select from tasks where id = $1', [taskId]);
  return rows.length > 0;
}

/**
 * Writes a call and its task, within the bounds of its workspace.
 * @returns `known`: its key has a call already
 */
export async function insertDeferredCall(
  tx: Transaction,
  call: NewDeferredCall,
  task: TaskRecordRow,
  most: DeferredBounds,
): Promise<'accepted' | 'known' | 'too_many_calls' | 'too_many_bytes'> {
  await takeTurn(tx, call.workspaceId);
  const open = await one(
    tx,
    `select count(*)::int as calls, coalesce(sum(body_bytes), 0)::bigint as bytes from deferred_calls
     where workspace_id = $1 and state in ('waiting', 'running')`,
    [call.workspaceId],
    (row: { calls: number; bytes: number }) => row,
  );
  const bytes = Buffer.byteLength(call.body);
  if (open.calls >= most.calls) return 'too_many_calls';
  if (Number(open.bytes) + bytes > most.bytes) return 'too_many_bytes';
  const { rowCount } = await tx.query(
    `insert into deferred_calls (task_id, workspace_id, token_id, request_id, key_hash, fingerprint, put_by, request, charge,
       is_charged, body, body_bytes, expires_at, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8::json, $9::json, $10, $11, $12, $13, $14) on conflict do nothing`,
    [
      call.taskId,
      call.workspaceId,
      call.tokenId,
      call.requestId,
      call.keyHash ?? null,
      call.fingerprint,
      call.putBy ?? null,
      JSON.stringify(call.request),
      JSON.stringify(call.charge),
      call.isCharged,
      storableText(call.body),
      bytes,
      new Date(call.expiresAtMs),
      new Date(call.createdAtMs),
    ],
  );
  if (rowCount === 0) return 'known';
  await upsertTaskRecords(tx, [task]);
  return 'accepted';
}

/** The call that a key of a token stands for. */
export function deferredCallOfKey(
  db: Queryable,
  tokenId: TokenId,
  keyHash: string,
): Promise<DeferredCallRow | undefined> {
  const sql = `select ${COLUMNS} from deferred_calls c where c.token_id = $1 and c.key_hash = $2`;
  return maybeOne(db, sql, [tokenId, keyHash], map);
}

/** The body of a call under that try. @returns undefined: the try is over */
export async function deferredBody(db: Queryable, taskId: TaskId, attempt: number): Promise<string | undefined> {
  const { rows } = await db.query<{ body: string | null }>(
    `select body from deferred_calls where task_id = $1 and attempt = $2 and state = 'running'`,
    [taskId, attempt],
  );
  return rows[0]?.body ?? undefined;
}

/** Takes waiting calls for a replica: workspaces in turn, each with at most `ofWorkspace` that run. */
export function claimDeferredCalls(
  db: Queryable,
  owner: InstanceId,
  leaseMs: number,
  limit: number,
  ofWorkspace: number,
): Promise<DeferredCallRow[]> {
  return many(
    db,
    `with running as (
       select workspace_id, count(*) as calls from deferred_calls where state = 'running' group by workspace_id
     ), ranked as (
       select w.task_id, w.created_at, coalesce(r.calls, 0) + row_number() over (
           partition by w.workspace_id order by w.created_at, w.task_id) as turn
       from deferred_calls w left join running r on r.workspace_id = w.workspace_id
       where w.state = 'waiting' and w.due_at <= now() and w.expires_at > now()
     ), picked as (
       select p.task_id from deferred_calls p
       where p.state = 'waiting' and p.task_id in (
         select task_id from ranked where turn <= $4 order by turn, created_at, task_id limit $3)
       for update skip locked
     )
     update deferred_calls c set state = 'running', owner = $1, attempt = c.attempt + 1, started_at = now(),
       lease_until = now() + $2 * interval '1 millisecond'
     from picked where c.task_id = picked.task_id returning ${COLUMNS}`,
    [owner, leaseMs, limit, ofWorkspace],
    map,
  );
}

/** Renews the leases of a replica. @returns the calls that it still has */
export async function renewDeferredCalls(
  db: Queryable,
  owner: InstanceId,
  leaseMs: number,
): Promise<ReadonlyMap<TaskId, number>> {
  const { rows } = await db.query<{ task_id: string; attempt: number }>(
    `update deferred_calls set lease_until = now() + $2 * interval '1 millisecond'
     where state = 'running' and owner = $1 returning task_id, attempt`,
    [owner, leaseMs],
  );
  return new Map(rows.map((row) => [row.task_id as TaskId, row.attempt]));
}

/** A try of a replica. */
export interface DeferredTry {
  readonly taskId: TaskId;
  readonly owner: InstanceId;
  readonly attempt: number;
}

/** Puts a call back behind a pause. @param why - `delayed`: the model had no room @returns false: the try is over */
export async function putBackDeferredCall(
  db: Queryable,
  { taskId, owner, attempt }: DeferredTry,
  pauseMs: number,
  why: 'delayed' | 'stopping',
): Promise<boolean> {
  const { rowCount } = await db.query(
    `update deferred_calls set state = 'waiting', owner = null, lease_until = null,
       due_at = now() + $4 * interval '1 millisecond', delays = delays + $5
     where task_id = $1 and state = 'running' and owner = $2 and attempt = $3`,
    [taskId, owner, attempt, pauseMs, why === 'delayed' ? 1 : 0],
  );
  return rowCount > 0;
}

const END = `state = 'ended', ending = $1::json, body = null, owner = null, lease_until = null, ended_at = now()`;

/** Ends the call of a try. @returns undefined: the try is over */
export function endDeferredTry(
  db: Queryable,
  { taskId, owner, attempt }: DeferredTry,
  ending: DeferredEnding,
): Promise<DeferredCallRow | undefined> {
  return maybeOne(
    db,
    `update deferred_calls c set ${END} where c.task_id = $2 and c.state = 'running' and c.owner = $3 and c.attempt = $4
     returning ${COLUMNS}`,
    [JSON.stringify(ending), taskId, owner, attempt],
    map,
  );
}

/** A row with its state before. */
export interface EndedCall {
  readonly call: DeferredCallRow;
  readonly wasRunning: boolean;
}
const ended = (row: Raw & { before: string }): EndedCall => ({ call: map(row), wasRunning: row.before === 'running' });

/** Ends a call that waits or runs. @returns undefined: it had ended */
export function endDeferredCall(db: Queryable, taskId: TaskId, ending: DeferredEnding): Promise<EndedCall | undefined> {
  return maybeOne(
    db,
    `with held as (select task_id, state as before from deferred_calls
       where task_id = $2 and state in ('waiting', 'running') for update)
     update deferred_calls c set ${END} from held where c.task_id = held.task_id returning ${COLUMNS}, held.before`,
    [JSON.stringify(ending), taskId],
    ended,
  );
}

/** Ends calls that waited too long. */
export function expireDeferredCalls(db: Queryable, ending: DeferredEnding, limit: number): Promise<DeferredCallRow[]> {
  return many(
    db,
    `update deferred_calls c set ${END} where c.task_id in (select task_id from deferred_calls
       where state = 'waiting' and expires_at <= now() limit $2 for update skip locked) returning ${COLUMNS}`,
    [JSON.stringify(ending), limit],
    map,
  );
}

/** Takes calls from replicas that no longer renew their leases: they wait again. */
export function takeLostDeferredCalls(db: Queryable, limit: number): Promise<DeferredCallRow[]> {
  return many(
    db,
    `update deferred_calls c set state = 'waiting', owner = null, lease_until = null, due_at = now(), losses = c.losses + 1
     where c.task_id in (select task_id from deferred_calls
       where state = 'running' and lease_until <= now() limit $1 for update skip locked) returning ${COLUMNS}`,
    [limit],
    map,
  );
}

/** Holds of calls that wait, by task. @param after - last task of the page before */
export function waitingCharges(
  db: Queryable,
  limit: number,
  after: string,
): Promise<{ readonly taskId: string; readonly charge: ChargeRequest }[]> {
  return many(
    db,
    `select task_id, charge from deferred_calls where state = 'waiting' and is_charged and task_id > $2
     order by task_id limit $1`,
    [limit, after],
    (row: { task_id: string; charge: ChargeRequest }) => ({ taskId: row.task_id, charge: row.charge }),
  );
}

/** Calls that ended and whose tasks are not final in the database, some time after their end. */
export function untoldDeferredCalls(db: Queryable, afterMs: number, limit: number): Promise<DeferredCallRow[]> {
  return many(
    db,
    `select ${COLUMNS} from deferred_calls c join tasks t on t.id = c.task_id
     where c.state = 'ended' and t.rank < 3 and c.ended_at < now() - $1 * interval '1 millisecond'
     order by c.ended_at limit $2`,
    [afterMs, limit],
    map,
  );
}

/**
 * Forgets calls whose tasks are final, or gone. A call with a key is kept for a day after it came.
 * @returns rows changed
 */
export async function forgetDeferredCalls(db: Queryable, keptMs: number, limit: number): Promise<number> {
  const isTold = `select c.task_id from deferred_calls c left join tasks t on t.id = c.task_id
    where c.state = 'ended' and coalesce(t.rank, 3) >= 3 order by c.ended_at limit $1`;
  const kept = await db.query(
    `update deferred_calls set state = 'kept', ending = null where key_hash is not null and task_id in (${isTold})`,
    [limit],
  );
  const gone = await db.query(`delete from deferred_calls where key_hash is null and task_id in (${isTold})`, [limit]);
  const old = await db.query(
    `delete from deferred_calls where task_id in (select task_id from deferred_calls where state = 'kept'
       and created_at < now() - $2 * interval '1 millisecond' order by created_at limit $1)`,
    [limit, keptMs],
  );
  return kept.rowCount + gone.rowCount + old.rowCount;
}

/** Number of calls that wait, and whether there is a row of any state. */
export function countWaitingCalls(db: Queryable): Promise<{ readonly waiting: number; readonly hasRows: boolean }> {
  return one(
    db,
    `select exists (select 1 from deferred_calls) as has_rows,
       (select count(*) from deferred_calls where state in ('waiting', 'running') and state = 'waiting')::int as waiting`,
    [],
    (row: { has_rows: boolean; waiting: number }) => ({ waiting: row.waiting, hasRows: row.has_rows }),
  );
}

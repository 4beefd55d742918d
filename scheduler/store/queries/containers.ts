import type { ContainerId, DeploymentId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, many, maybeOne, msOf, msOrNull, one, storableText } from '../rows.ts';

export interface ContainerRow {
  readonly id: ContainerId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly state: ContainerState;
  readonly machineId: MachineId | null;
  readonly assignmentId: string | null;
  readonly epoch: number;
  /** As stored; whoever wrote it knows its shape. */
  readonly spec: object;
  readonly slots: number;
  readonly frozen: boolean;
  readonly startFailures: number;
  readonly reason: string | null;
  readonly exitCode: number | null;
  readonly message: string | null;
  readonly rejections: Readonly<Record<string, number>> | null;
  /** Devices leased with the placement; of a container that is not terminal, nobody else's. */
  readonly gpuUuids: readonly string[];
  /** While UNKNOWN: what it was before. */
  readonly stateBefore: ContainerState | null;
  readonly createdAtMs: number;
  readonly scheduledAtMs: number | null;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  /** Grows with every change. */
  readonly revision: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  stub_id: string;
  deployment_id: string | null;
  state: string;
  machine_id: string | null;
  assignment_id: string | null;
  epoch: number;
  spec: object;
  slots: number;
  frozen: boolean;
  start_failures: number;
  reason: string | null;
  exit_code: number | null;
  message: string | null;
  rejections: Record<string, number> | null;
  gpu_uuids: string[];
  state_before: string | null;
  created_at: Date;
  scheduled_at: Date | null;
  started_at: Date | null;
  ended_at: Date | null;
  revision: number;
}
const COLUMNS = `id, workspace_id, stub_id, deployment_id, state, machine_id, assignment_id, epoch, spec, slots, frozen, start_failures,
  reason, exit_code, message, rejections, gpu_uuids, state_before, created_at, scheduled_at, started_at, ended_at, revision`;
const map = (row: Raw): ContainerRow => ({
  id: row.id as ContainerId,
  workspaceId: row.workspace_id as WorkspaceId,
  stubId: row.stub_id as StubId,
  deploymentId: row.deployment_id as DeploymentId | null,
  state: row.state as ContainerState,
  machineId: row.machine_id as MachineId | null,
  assignmentId: row.assignment_id,
  epoch: row.epoch,
  spec: row.spec,
  slots: row.slots,
  frozen: row.frozen,
  startFailures: row.start_failures,
  reason: row.reason,
  exitCode: row.exit_code,
  message: row.message,
  rejections: row.rejections,
  gpuUuids: row.gpu_uuids,
  stateBefore: row.state_before as ContainerState | null,
  createdAtMs: msOf(row.created_at),
  scheduledAtMs: msOrNull(row.scheduled_at),
  startedAtMs: msOrNull(row.started_at),
  endedAtMs: msOrNull(row.ended_at),
  revision: row.revision,
});

export type NewContainer = Pick<ContainerRow, 'id' | 'workspaceId' | 'stubId' | 'deploymentId' | 'spec' | 'slots'>;

/** PENDING, epoch 0, revision 1. */
export function insertContainer(db: Queryable, container: NewContainer): Promise<ContainerRow> {
  return one(
    db,
    `insert into containers (id, workspace_id, stub_id, deployment_id, state, spec, slots)
     values ($1, $2, $3, $4, 'PENDING', $5::jsonb, $6) returning ${COLUMNS}`,
    [
      container.id,
      container.workspaceId,
      container.stubId,
      container.deploymentId,
      JSON.stringify(container.spec),
      container.slots,
    ],
    map,
  );
}

/** The highest number that has led. Writes under way share the row, so that a new leader's number waits for them, and later ones for it. */
const LED = 'select fence from leadership where id = 1 for share';

/** As {@link insertContainer}, as the leader with that fencing number. @returns undefined: a higher number has led meanwhile */
export function insertContainerAsLeader(
  db: Queryable,
  container: NewContainer,
  fence: number,
): Promise<ContainerRow | undefined> {
  return maybeOne(
    db,
    `with led as (${LED})
     insert into containers (id, workspace_id, stub_id, deployment_id, state, spec, slots)
     select $1, $2, $3, $4, 'PENDING', $5::jsonb, $6::integer from led where led.fence <= $7::bigint
     returning ${COLUMNS}`,
    [
      container.id,
      container.workspaceId,
      container.stubId,
      container.deploymentId,
      JSON.stringify(container.spec),
      container.slots,
      fence,
    ],
    map,
  );
}

/** What a transition may write beside the state; absent leaves a column as it is, null clears it. */
export interface ContainerChange {
  readonly machineId?: MachineId | null;
  readonly assignmentId?: string | null;
  readonly epoch?: number;
  readonly frozen?: boolean;
  readonly startFailures?: number;
  readonly reason?: string | null;
  readonly exitCode?: number | null;
  readonly message?: string | null;
  readonly rejections?: Readonly<Record<string, number>> | null;
  readonly gpuUuids?: readonly string[];
  readonly stateBefore?: ContainerState | null;
  readonly scheduledAtMs?: number | null;
  readonly startedAtMs?: number | null;
  readonly endedAtMs?: number | null;
}

const textOrNull = (text: string | null): string | null => (text === null ? null : storableText(text));
const SETTERS: { readonly [K in keyof Required<ContainerChange>]: [string, (value: never) => unknown] } = {
  machineId: ['machine_id', (value: MachineId | null) => value],
  assignmentId: ['assignment_id', (value: string | null) => value],
  epoch: ['epoch', (value: number) => value],
  frozen: ['frozen', (value: boolean) => value],
  startFailures: ['start_failures', (value: number) => value],
  reason: ['reason', textOrNull],
  exitCode: ['exit_code', (value: number | null) => value],
  message: ['message', textOrNull],
  rejections: ['rejections', (value: object | null) => (value === null ? null : JSON.stringify(value))],
  gpuUuids: ['gpu_uuids', (value: readonly string[]) => JSON.stringify(value)],
  stateBefore: ['state_before', (value: ContainerState | null) => value],
  scheduledAtMs: ['scheduled_at', dateOrNull],
  startedAtMs: ['started_at', dateOrNull],
  endedAtMs: ['ended_at', dateOrNull],
};

/** What a transition was decided on. */
export interface TransitionFrom {
  readonly states: readonly ContainerState[];
  readonly epoch?: number;
  readonly revision?: number;
}

/**
 * Compare-and-set: moves the container when it is in one of the states (and the epoch) named.
 * @returns the row as written; undefined when it was elsewhere (a normal result: somebody else was first)
 */
export function transitionContainer(
  db: Queryable,
  id: ContainerId,
  from: TransitionFrom,
  to: ContainerState,
  change: ContainerChange = {},
): Promise<ContainerRow | undefined> {
  const { sql, params } = updateOf(id, from, to, change);
  return maybeOne(db, `${sql} returning ${COLUMNS}`, params, map);
}

export type LeaderTransition =
  | { readonly kind: 'written'; readonly row: ContainerRow }
  | { readonly kind: 'elsewhere' }
  /** A higher fencing number has led meanwhile. */
  | { readonly kind: 'stale' };

/** As {@link transitionContainer}, as the leader with that fencing number. */
export async function transitionAsLeader(
  db: Queryable,
  id: ContainerId,
  from: TransitionFrom,
  to: ContainerState,
  change: ContainerChange,
  fence: number,
): Promise<LeaderTransition> {
  const { sql, params } = updateOf(id, from, to, change);
  params.push(fence);
  const leads = `(select fence from led) <= $${params.length}::bigint`;
  const { rows } = await db.query<Raw & { leads: boolean; written_id: string | null }>(
    `with led as (${LED}), written as (${sql} and ${leads} returning ${COLUMNS})
     select ${leads} as leads, written.id as written_id, written.* from (select 1) as always left join written on true`,
    params,
  );
  const [row] = rows;
  if (row?.leads !== true) return { kind: 'stale' };
  return row.written_id === null ? { kind: 'elsewhere' } : { kind: 'written', row: map(row) };
}

function updateOf(
  id: ContainerId,
  from: TransitionFrom,
  to: ContainerState,
  change: ContainerChange,
): { readonly sql: string; readonly params: unknown[] } {
  const params: unknown[] = [id, from.states, from.epoch ?? null, from.revision ?? null, to];
  const sets = ['state = $5', 'revision = revision + 1', 'updated_at = now()'];
  for (const [key, value] of Object.entries(change)) {
    if (value === undefined) continue;
    const [column, toParam] = SETTERS[key as keyof ContainerChange];
    params.push(toParam(value as never));
    sets.push(`${column} = $${params.length}`);
  }
  const sql = `update containers set ${sets.join(', ')}
     where id = $1 and state = any ($2::text[]) and ($3::bigint is null or epoch = $3::bigint)
       and ($4::bigint is null or revision = $4::bigint)`;
  return { sql, params };
}

/** Why no machine takes it, while it waits for a place; no transition, so its revision stays. */
export async function recordRejections(
  db: Queryable,
  id: ContainerId,
  rejections: Readonly<Record<string, number>>,
): Promise<void> {
  await db.query("update containers set rejections = $2::jsonb where id = $1 and state = 'PENDING'", [
    id,
    JSON.stringify(rejections),
  ]);
}

export function containerById(db: Queryable, id: string): Promise<ContainerRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from containers where id = $1`, [id], map);
}

/** Those of the ids that exist, in whatever state. */
export function containersById(db: Queryable, ids: readonly ContainerId[]): Promise<ContainerRow[]> {
  return many(db, `select ${COLUMNS} from containers where id = any ($1::text[])`, [ids], map);
}

/** Every container that is not terminal, and how often it was written: tells whether a memory of them is complete. */
export async function liveContainerRevisions(db: Queryable): Promise<ReadonlyMap<ContainerId, number>> {
  const { rows } = await db.query<{ id: string; revision: number }>(
    "select id, revision from containers where state not in ('STOPPED', 'FAILED', 'LOST')",
  );
  return new Map(rows.map((row) => [row.id as ContainerId, row.revision]));
}

/** Placed on that machine and not terminal. */
export function liveContainersOfMachine(db: Queryable, machineId: MachineId): Promise<ContainerRow[]> {
  return many(
    db,
    `select ${COLUMNS} from containers where machine_id = $1 and state not in ('STOPPED', 'FAILED', 'LOST')`,
    [machineId],
    map,
  );
}

/** Every container that is not terminal, of every workspace, oldest first. */
export function listLiveContainers(db: Queryable): Promise<ContainerRow[]> {
  return many(
    db,
    `select ${COLUMNS} from containers where state not in ('STOPPED', 'FAILED', 'LOST') order by created_at, id`,
    [],
    map,
  );
}

/** Newest first. */
export function listContainers(
  db: Queryable,
  filter: {
    readonly workspaceId?: WorkspaceId;
    readonly stubId?: string;
    readonly deploymentId?: string;
    readonly liveOnly: boolean;
    readonly limit: number;
  },
): Promise<ContainerRow[]> {
  return many(
    db,
    `select ${COLUMNS} from containers
     where ($1::text is null or workspace_id = $1) and ($2::text is null or stub_id = $2)
       and ($3::text is null or deployment_id = $3)
       and (not $4::boolean or state not in ('STOPPED', 'FAILED', 'LOST'))
     order by created_at desc, id desc limit $5`,
    [filter.workspaceId ?? null, filter.stubId ?? null, filter.deploymentId ?? null, filter.liveOnly, filter.limit],
    map,
  );
}

/** Retention: at most `limit` terminal containers that ended before. @returns how many went */
export async function deleteContainersEndedBefore(db: Queryable, beforeMs: number, limit: number): Promise<number> {
  const { rowCount } = await db.query(
    'delete from containers where id in (select id from containers where ended_at < $1 order by ended_at limit $2)',
    [new Date(beforeMs), limit],
  );
  return rowCount;
}

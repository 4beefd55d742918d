// Moves of containers from one state to another, each by its own compare-and-set.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, storableText } from '../rows.ts';
import { CONTAINER_COLUMNS, LED, MAX_CONTAINER_BATCH, mapMoved } from './containers.ts';
import type { ContainerRow, RawContainer } from './containers.ts';

/** Columns that a transition may write beside the state; an absent one stays as it is, null clears it. */
export interface ContainerChange {
  readonly machineId?: MachineId | null;
  readonly assignmentId?: string | null;
  readonly epoch?: number;
  readonly slots?: number;
  readonly frozen?: boolean;
  readonly startFailures?: number;
  readonly reason?: string | null;
  readonly exitCode?: number | null;
  readonly message?: string | null;
  readonly rejections?: Readonly<Record<string, number>> | null;
  /** Only a placement leases devices (container-placements.ts). */
  readonly gpuUuids?: readonly never[];
  readonly stateBefore?: ContainerState | null;
  readonly scheduledAtMs?: number | null;
  readonly startedAtMs?: number | null;
  readonly endedAtMs?: number | null;
}

const textOrNull = (text: string | null): string | null => (text === null ? null : storableText(text));
const same = (value: unknown): unknown => value;
/** Column of each change, its SQL type, and its value as JSON. */
const COLUMN_OF: {
  readonly [K in keyof Required<ContainerChange>]: readonly [string, string, (value: never) => unknown];
} = {
  machineId: ['machine_id', 'text', same],
  assignmentId: ['assignment_id', 'text', same],
  epoch: ['epoch', 'bigint', same],
  slots: ['slots', 'integer', same],
  frozen: ['frozen', 'boolean', same],
  startFailures: ['start_failures', 'integer', same],
  reason: ['reason', 'text', textOrNull],
  exitCode: ['exit_code', 'integer', same],
  message: ['message', 'text', textOrNull],
  rejections: ['rejections', 'jsonb', same],
  gpuUuids: ['gpu_uuids', 'jsonb', same],
  stateBefore: ['state_before', 'text', same],
  scheduledAtMs: ['scheduled_at', 'timestamptz', dateOrNull],
  startedAtMs: ['started_at', 'timestamptz', dateOrNull],
  endedAtMs: ['ended_at', 'timestamptz', dateOrNull],
};

/** Conditions of a move: the row must still match them. */
export interface MoveFrom {
  readonly states: readonly ContainerState[];
  readonly epoch?: number;
  readonly revision?: number;
}

/** A move of a container from a state to another. */
export interface ContainerMove {
  readonly id: ContainerId;
  readonly from: MoveFrom;
  readonly to: ContainerState;
  readonly change?: ContainerChange;
  /** The leader's fencing number, when a leader decided the move. */
  readonly fence?: number | undefined;
}

export type MoveOutcome =
  /** The row as it is now, without its recipe, which a move does not change. */
  | { readonly kind: 'written'; readonly row: Omit<ContainerRow, 'spec'> }
  /** The row was in another state, epoch or revision, or does not exist: a normal result, another writer was faster. */
  | { readonly kind: 'elsewhere' }
  /** A higher fencing number has led meanwhile. */
  | { readonly kind: 'stale' };

const SETS = Object.values(COLUMN_OF).map(([column, type]) => {
  const given =
    type === 'jsonb' ? `nullif(m.change -> '${column}', 'null'::jsonb)` : `(m.change ->> '${column}')::${type}`;
  return `${column} = case when m.change ? '${column}' then ${given} else c.${column} end`;
});
export const MOVED_COLUMNS = CONTAINER_COLUMNS.replace(' spec,', '');
/** States of containers that hold nothing of a machine. */
const HOLDS_NOTHING: readonly ContainerState[] = ['PENDING', 'STOPPED', 'FAILED', 'LOST'];
/** Gives back the devices of the rows in `written` that hold nothing any more. */
const RELEASE = `released as (
     delete from leased_gpus where container_id in (
       select id from written where state in (${HOLDS_NOTHING.map((state) => `'${state}'`).join(', ')})))`;
/**
 * Rows are locked in the order of their ids, so that two such
 * statements at once wait for each other and never deadlock.
 */
const MOVE = `with led as (${LED}),
   m as materialized (
     select * from json_to_recordset($1::json)
       as m (id text, states jsonb, at_epoch bigint, at_revision bigint, to_state text, change jsonb, by_leader bigint)),
   locked as materialized (select id from containers where id = any ($2::text[]) order by id collate "C" for update),
   written as (
     update containers as c set state = m.to_state, revision = c.revision + 1, updated_at = now(), ${SETS.join(', ')}
     from m join locked using (id)
     where c.id = m.id and m.states ? c.state and (m.at_epoch is null or c.epoch = m.at_epoch)
       and (m.at_revision is null or c.revision = m.at_revision)
       and (m.by_leader is null or (select fence from led) <= m.by_leader)
     returning ${MOVED_COLUMNS.replaceAll(/\w+/g, 'c.$&')}),
   ${RELEASE}
   select m.id as move_id, (m.by_leader is null or (select fence from led) <= m.by_leader) as leads, written.*
   from m left join written on written.id = m.id`;

/**
 * Moves many containers in one statement, each by its own compare-and-set:
 * a container moves when it is in a named state (and epoch).
 * @param moves - of different containers, at most {@link MAX_CONTAINER_BATCH}
 * @returns the outcome of each move, in their order
 */
export async function moveContainers(db: Queryable, moves: readonly ContainerMove[]): Promise<readonly MoveOutcome[]> {
  if (moves.length > MAX_CONTAINER_BATCH) throw new RangeError(`at most ${MAX_CONTAINER_BATCH} containers at a time`);
  const [first] = moves;
  if (first === undefined) return [];
  if (moves.length === 1) return [await moveOne(db, first)];
  const ordered = moves.toSorted((a, b) => (a.id < b.id ? -1 : Number(a.id > b.id)));
  const { rows } = await db.query<
    Omit<RawContainer, 'spec'> & { move_id: string; leads: boolean | null; id: string | null }
  >(MOVE, [JSON.stringify(ordered.map(asJson)), ordered.map(({ id }) => id)]);
  const outcomes = new Map(
    rows.map((row): [string, MoveOutcome] => {
      if (row.leads !== true) return [row.move_id, { kind: 'stale' }];
      return [row.move_id, row.id === null ? { kind: 'elsewhere' } : { kind: 'written', row: mapMoved(row) }];
    }),
  );
  return moves.map(({ id }) => outcomes.get(id) ?? { kind: 'elsewhere' });
}

/** Moves a single container: planning this statement is much cheaper for the database. */
async function moveOne(db: Queryable, { id, from, to, change = {}, fence }: ContainerMove): Promise<MoveOutcome> {
  const params: unknown[] = [id, from.states, from.epoch ?? null, from.revision ?? null, to, fence ?? null];
  const sets = ['state = $5', 'revision = revision + 1', 'updated_at = now()'];
  for (const [key, value] of Object.entries(change)) {
    if (value === undefined) continue;
    const [column, type, toJson] = COLUMN_OF[key as keyof ContainerChange];
    const given = toJson(value as never);
    params.push(type === 'jsonb' && given !== null ? JSON.stringify(given) : given);
    sets.push(`${column} = $${params.length}`);
  }
  const leads = '($6::bigint is null or (select fence from led) <= $6::bigint)';
  const { rows } = await db.query<Omit<RawContainer, 'spec'> & { leads: boolean | null; written_id: string | null }>(
    `with led as (${LED}), written as (
       update containers set ${sets.join(', ')}
       where id = $1 and state = any ($2::text[]) and ($3::bigint is null or epoch = $3::bigint)
         and ($4::bigint is null or revision = $4::bigint) and ${leads}
       returning ${MOVED_COLUMNS})${HOLDS_NOTHING.includes(to) ? `, ${RELEASE}` : ''}
     select ${leads} as leads, written.id as written_id, written.* from (select 1) as always left join written on true`,
    params,
  );
  const [row] = rows;
  if (row?.leads !== true) return { kind: 'stale' };
  return row.written_id === null ? { kind: 'elsewhere' } : { kind: 'written', row: mapMoved(row) };
}

function asJson({ id, from, to, change = {}, fence }: ContainerMove): object {
  const changes: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(change)) {
    if (value === undefined) continue;
    const [column, , toJson] = COLUMN_OF[key as keyof ContainerChange];
    changes[column] = toJson(value as never);
  }
  const { states, epoch, revision } = from;
  return {
    id,
    states,
    at_epoch: epoch ?? null,
    at_revision: revision ?? null,
    to_state: to,
    change: changes,
    by_leader: fence ?? null,
  };
}

// Containers get their places. One statement checks everything again: who leads, the state of each machine, what its
// rows hold, and the owners of its GPUs. A statement without an answer, or of an earlier leader, can therefore come at
// any time: it takes nothing that another placement has, and another takes nothing that it has.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Queryable } from '../db.ts';
import type { MoveOutcome } from './container-moves.ts';
import { MOVED_COLUMNS } from './container-moves.ts';
import type { ContainerRow, NewContainer, RawContainer } from './containers.ts';
import { CONTAINER_COLUMNS, LED, MAX_CONTAINER_BATCH, mapContainer, mapMoved, NOT_ENDED } from './containers.ts';

/** An amount of CPU and memory. */
export interface Room {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
}

/** A place for a container. */
export interface Place {
  readonly machineId: MachineId;
  readonly assignmentId: string;
  readonly gpuUuids: readonly string[];
  readonly scheduledAtMs: number;
  /** Amounts that the container takes. */
  readonly takes: Room;
  /** Amounts that all rows of the machine may hold together. */
  readonly room: Room;
}

/** A placement of a container that waits. */
export interface Assignment {
  readonly id: ContainerId;
  /** Epoch of the container's row; its assignment has the next one. */
  readonly epoch: number;
  readonly place: Place;
  /** The leader's fencing number; absent: no leader decided. */
  readonly fence?: number | undefined;
}

/**
 * Why a machine was refused. `not_schedulable`: it is deleted or takes no containers;
 * `raced`: another statement placed containers there meanwhile.
 */
export type PlaceRefusal = 'not_schedulable' | 'raced' | 'cpu' | 'memory' | 'gpu_taken';

export type AssignOutcome = MoveOutcome | { readonly kind: 'no_room'; readonly why: PlaceRefusal };

/** A container's first row: PENDING, or with its first place. */
export interface InitialPlacement {
  readonly id: ContainerId;
  readonly place?: Place;
}

/** Rows that hold resources of their machine. */
const HOLDS = `${NOT_ENDED} and state <> 'PENDING'`;
const LEASES_KEY = 'leased_gpus_pkey';

/**
 * Checks of the machines in $2, for places in `p`. Two statements that place containers on one machine never overlap:
 * each locks the machine's row and raises its number. A statement whose snapshot is older than the number that it then
 * finds does not see the rows of the other one, so it places nothing there. Rows are locked in the order of their ids.
 */
const CHECKED = `
  room as materialized (
    select * from json_to_recordset($2::json)
      as room (machine_id text, cpu bigint, memory bigint, takes_cpu bigint, takes_memory bigint)),
  seen as materialized (select id, placements from machines where id = any ($3::text[])),
  machine as materialized (
    select id, placements, (intent = 'active' and not system_cordon and host_drain_until is null and deleted_at is null) as in_service
    from machines where id = any ($3::text[]) order by id collate "C" for no key update),
  used as materialized (
    select machine_id, sum(cpu_millicores) as cpu, sum(memory_bytes) as memory
    from containers where machine_id = any ($3::text[]) and ${HOLDS} group by machine_id),
  checked as materialized (
    select room.machine_id, case
      when machine.in_service is not true then 'not_schedulable'
      when machine.placements <> seen.placements then 'raced'
      when coalesce(used.cpu, 0) + room.takes_cpu > room.cpu then 'cpu'
      when coalesce(used.memory, 0) + room.takes_memory > room.memory then 'memory' end as refusal
    from room left join machine on machine.id = room.machine_id left join seen on seen.id = room.machine_id
      left join used on used.machine_id = room.machine_id),
  place as materialized (
    select p.*, coalesce(checked.refusal, case when exists (
      select 1 from json_array_elements_text(p.gpu_uuids) as wanted (uuid) join leased_gpus as l
        on l.uuid = wanted.uuid and l.part = 0 and l.machine_id = p.machine_id) then 'gpu_taken' end) as refusal
    from p left join checked on checked.machine_id = p.machine_id)`;

/** GPU rows of the rows in `written` that have a place now, and the new numbers of their machines. */
const TAKEN = `
  leased as (
    insert into leased_gpus (machine_id, uuid, part, container_id, epoch)
    select written.machine_id, gpu.uuid, 0, written.id, written.epoch
    from written cross join lateral jsonb_array_elements_text(written.gpu_uuids) as gpu (uuid)
    where written.state = 'ASSIGNED' order by gpu.uuid collate "C"),
  counted as (
    update machines set placements = placements + 1
    where id in (select machine_id from written where state = 'ASSIGNED'))`;

const PLACE_FIELDS = 'machine_id text, assignment_id text, epoch bigint, gpu_uuids json, scheduled_at timestamptz';

const ASSIGN = `with led as (${LED}),
  p as materialized (select * from json_to_recordset($1::json) as p (id text, by_leader bigint, ${PLACE_FIELDS})),
  ${CHECKED},
  locked as materialized (
    select id from containers where id = any ($4::text[]) and (select count(*) from machine) >= 0
    order by id collate "C" for update),
  written as (
    update containers as c set state = 'ASSIGNED', revision = c.revision + 1, updated_at = now(), rejections = null,
      machine_id = p.machine_id, assignment_id = p.assignment_id, epoch = p.epoch, gpu_uuids = p.gpu_uuids::jsonb, scheduled_at = p.scheduled_at
    from place as p join locked using (id)
    where c.id = p.id and c.state = 'PENDING' and c.epoch = p.epoch - 1 and p.refusal is null
      and (p.by_leader is null or (select fence from led) <= p.by_leader)
    returning ${MOVED_COLUMNS.replaceAll(/\w+/g, 'c.$&')}),
  ${TAKEN}
  select p.id as place_id, (p.by_leader is null or (select fence from led) <= p.by_leader) as leads, p.refusal, written.*
  from place as p left join written on written.id = p.id`;

/**
 * Assigns containers that wait, each by its own compare-and-set. The containers of one machine fit together or none is
 * placed there.
 * @param placements - of different containers, at most {@link MAX_CONTAINER_BATCH}
 * @returns the outcome of each, in their order
 * @throws AppError `database_error` when a GPU of several placements was leased in this moment; each alone is refused
 */
export async function assignContainers(
  db: Queryable,
  placements: readonly Assignment[],
): Promise<readonly AssignOutcome[]> {
  if (placements.length > MAX_CONTAINER_BATCH)
    throw new RangeError(`at most ${MAX_CONTAINER_BATCH} containers at a time`);
  const rows = placements.map(({ id, epoch, place, fence }) => ({
    by_leader: fence ?? null,
    ...placeFieldsOf(id, epoch + 1, place),
  }));
  const ids = placements.map(({ id }) => id);
  try {
    const answer = await db.query<AssignedRow>(
      ASSIGN,
      [JSON.stringify(rows), ...roomsOf(placements.map(({ place }) => place)), ids],
      { isPrepared: true },
    );
    const outcomes = new Map(answer.rows.map((row) => [row.place_id, outcomeOf(row)]));
    return ids.map((id) => outcomes.get(id) ?? { kind: 'elsewhere' });
  } catch (error) {
    if (placements.length === 1 && isLeasedMeanwhile(error)) return [{ kind: 'no_room', why: 'gpu_taken' }];
    throw error;
  }
}

type AssignedRow = Omit<RawContainer, 'spec'> & {
  readonly place_id: string;
  readonly leads: boolean | null;
  readonly refusal: PlaceRefusal | null;
  readonly id: string | null;
};

function outcomeOf(row: AssignedRow): AssignOutcome {
  if (row.leads !== true) return { kind: 'stale' };
  if (row.refusal !== null) return { kind: 'no_room', why: row.refusal };
  return row.id === null ? { kind: 'elsewhere' } : { kind: 'written', row: mapMoved(row) };
}

/**
 * Inserts many containers of one kind, all or none, with revision 1: ASSIGNED with epoch 1 where a place is given and
 * there is room, else PENDING with epoch 0.
 * @param fence - the leader's number, when a leader decided it
 * @returns undefined: a higher number has led meanwhile
 */
export async function insertContainers(
  db: Queryable,
  placements: readonly InitialPlacement[],
  common: Omit<NewContainer, 'id'>,
  fence?: number,
): Promise<ContainerRow[] | undefined> {
  if (placements.length === 0 || placements.length > MAX_CONTAINER_BATCH)
    throw new RangeError(`from 1 to ${MAX_CONTAINER_BATCH} containers at a time`);
  const { workspaceId, stubId, deploymentId, spec, slots, ttlSeconds = null } = common;
  const places = placements.flatMap(({ place }) => place ?? []);
  const rows = placements.map(({ id, place }) => (place === undefined ? { id } : placeFieldsOf(id, 1, place)));
  const values = [workspaceId, stubId, deploymentId, JSON.stringify(spec), slots, ttlSeconds, fence ?? null];
  const params = [JSON.stringify(rows), ...(places.length === 0 ? [] : roomsOf(places)), ...values];
  try {
    const statement = places.length === 0 ? INSERT_WAITING : INSERT_PLACED;
    const inserted = await db.query<RawContainer>(statement, params, { isPrepared: true });
    return inserted.rows.length === 0 ? undefined : inserted.rows.map(mapContainer);
  } catch (error) {
    if (places.length === 0 || !isLeasedMeanwhile(error)) throw error;
    const waiting = placements.map(({ id }) => ({ id }));
    return await insertContainers(db, waiting, common, fence);
  }
}

const INSERT_WAITING = `with led as (${LED}),
  place as (select id, 'none' as refusal, null::text as machine_id, null::text as assignment_id, null::json as gpu_uuids,
    null::timestamptz as scheduled_at from json_to_recordset($1::json) as p (id text))
  ${insertFrom(2)}`;
const INSERT_PLACED = `with led as (${LED}),
  p as materialized (select * from json_to_recordset($1::json) as p (id text, ${PLACE_FIELDS})),
  ${CHECKED}, written as (${insertFrom(4)}), ${TAKEN}
  select * from written`;

/** @param first - number of the first parameter of what the containers have in common */
function insertFrom(first: number): string {
  const [workspace, stub, deployment, spec, slots, ttl, fence] = Array.from(
    { length: 7 },
    (_none, n) => `$${first + n}`,
  );
  const placed = 'p.machine_id is not null and p.refusal is null';
  return `insert into containers (id, workspace_id, stub_id, deployment_id, spec, slots, ttl_seconds, expires_at,
      state, machine_id, assignment_id, epoch, gpu_uuids, scheduled_at)
    select p.id, ${workspace}::text, ${stub}::text, ${deployment}::text, ${spec}::jsonb, ${slots}::integer, ${ttl}::integer,
      now() + make_interval(secs => ${ttl}::integer), case when ${placed} then 'ASSIGNED' else 'PENDING' end,
      case when ${placed} then p.machine_id end, case when ${placed} then p.assignment_id end, case when ${placed} then 1 else 0 end,
      case when ${placed} then p.gpu_uuids::jsonb else '[]' end, case when ${placed} then p.scheduled_at end
    from place as p where ${fence}::bigint is null or (select fence from led) <= ${fence}::bigint
    returning ${CONTAINER_COLUMNS}`;
}

const placeFieldsOf = (id: ContainerId, epoch: number, place: Place): object => ({
  id,
  epoch,
  machine_id: place.machineId,
  assignment_id: place.assignmentId,
  gpu_uuids: place.gpuUuids,
  scheduled_at: new Date(place.scheduledAtMs),
});

/** Parameters of {@link CHECKED}: room and sums of each machine, and the ids of the machines. */
function roomsOf(places: readonly Place[]): readonly [string, readonly MachineId[]] {
  const rooms = new Map<MachineId, { cpu: number; memory: number; takes_cpu: number; takes_memory: number }>();
  for (const { machineId, room, takes } of places) {
    const before = rooms.get(machineId) ?? { takes_cpu: 0, takes_memory: 0 };
    rooms.set(machineId, {
      cpu: Math.floor(room.cpuMillicores),
      memory: Math.floor(room.memoryBytes),
      takes_cpu: before.takes_cpu + Math.ceil(takes.cpuMillicores),
      takes_memory: before.takes_memory + Math.ceil(takes.memoryBytes),
    });
  }
  return [JSON.stringify([...rooms].map(([machine_id, room]) => ({ machine_id, ...room }))), [...rooms.keys()]];
}

/** Whether another statement leased one of the GPUs while this one ran. */
const isLeasedMeanwhile = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'database_error' && error.details?.['constraint'] === LEASES_KEY;

/** GPU rows that do not follow from containers' rows. */
export interface LeaseFaults {
  /** Missing rows of live containers, which were added. */
  readonly missing: number;
  /** Rows without a live container, which were deleted. */
  readonly left_over: number;
  /** GPUs that two live containers name. One of them has the row. */
  readonly leased_twice: number;
}

/** Makes the GPU rows follow from containers' rows. @param fence - the leader's number; a lower one changes nothing */
export async function repairLeases(db: Queryable, fence: number): Promise<LeaseFaults> {
  const same = 'l.uuid = gpu.uuid and l.part = 0 and l.machine_id = c.machine_id';
  const held = 'containers as c cross join lateral jsonb_array_elements_text(c.gpu_uuids) as gpu (uuid)';
  const live = `c.machine_id is not null and ${HOLDS.replaceAll('state', 'c.state')}`;
  const { rows } = await db.query<LeaseFaults>(
    `with led as (${LED}),
     missing as materialized (
       select c.machine_id, gpu.uuid, c.id, c.epoch from ${held}
       where ${live} and not exists (select 1 from leased_gpus as l where ${same} and l.container_id = c.id)
         and (select fence from led) <= $1::bigint
       order by c.id collate "C" for share of c),
     left_over as materialized (
       delete from leased_gpus as l
       where not exists (select 1 from ${held} where ${live} and ${same} and l.container_id = c.id)
         and (select fence from led) <= $1::bigint
       returning l.uuid),
     added as materialized (
       insert into leased_gpus (machine_id, uuid, part, container_id, epoch)
       select machine_id, uuid, 0, id, epoch from missing where (select count(*) from left_over) >= 0 order by uuid collate "C"
       on conflict do nothing returning uuid)
     select (select count(*) from added)::int as missing, (select count(*) from left_over)::int as left_over,
       ((select count(*) from missing) - (select count(*) from added))::int as leased_twice`,
    [fence],
  );
  return rows[0] ?? { missing: 0, left_over: 0, leased_twice: 0 };
}

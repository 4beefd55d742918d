import type { ContainerId, DeploymentId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, many, maybeOne, msOf, msOrNull } from '../rows.ts';

export interface ContainerRow {
  readonly id: ContainerId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly state: ContainerState;
  readonly machineId: MachineId | null;
  readonly assignmentId: string | null;
  readonly epoch: number;
  /** The spec as stored; its shape belongs to the module that wrote it. */
  readonly spec: object;
  readonly slots: number;
  readonly frozen: boolean;
  readonly startFailures: number;
  readonly reason: string | null;
  readonly exitCode: number | null;
  readonly message: string | null;
  readonly rejections: Readonly<Record<string, number>> | null;
  /** Devices leased with the placement. While the container is not terminal, no other container has them. */
  readonly gpuUuids: readonly string[];
  /** The state before UNKNOWN, while the container is UNKNOWN. */
  readonly stateBefore: ContainerState | null;
  /** Seconds for which it may be unused; null: it is not stopped for want of use. */
  readonly ttlSeconds: number | null;
  /** Ports of a sandbox that were exposed since it was made. */
  readonly exposedPorts: readonly number[];
  readonly createdAtMs: number;
  readonly scheduledAtMs: number | null;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  /** Revision of the row; grows with every change. */
  readonly revision: number;
}

export interface RawContainer {
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
  ttl_seconds: number | null;
  exposed_ports: number[];
  created_at: Date;
  scheduled_at: Date | null;
  started_at: Date | null;
  ended_at: Date | null;
  revision: number;
}
/** Rows of containers that have not ended. */
export const NOT_ENDED = "state not in ('STOPPED', 'FAILED', 'LOST')";
const ENDED = NOT_ENDED.replace('not in', 'in');
export const CONTAINER_COLUMNS = `id, workspace_id, stub_id, deployment_id, state, machine_id, assignment_id, epoch, spec, slots, frozen, start_failures,
  reason, exit_code, message, rejections, gpu_uuids, state_before, ttl_seconds, exposed_ports, created_at, scheduled_at, started_at, ended_at, revision`;
export const mapContainer = (row: RawContainer): ContainerRow => ({ ...mapMoved(row), spec: row.spec });
export const mapMoved = (row: Omit<RawContainer, 'spec'>): Omit<ContainerRow, 'spec'> => ({
  id: row.id as ContainerId,
  workspaceId: row.workspace_id as WorkspaceId,
  stubId: row.stub_id as StubId,
  deploymentId: row.deployment_id as DeploymentId | null,
  state: row.state as ContainerState,
  machineId: row.machine_id as MachineId | null,
  assignmentId: row.assignment_id,
  epoch: row.epoch,
  slots: row.slots,
  frozen: row.frozen,
  startFailures: row.start_failures,
  reason: row.reason,
  exitCode: row.exit_code,
  message: row.message,
  rejections: row.rejections,
  gpuUuids: row.gpu_uuids,
  stateBefore: row.state_before as ContainerState | null,
  ttlSeconds: row.ttl_seconds,
  exposedPorts: row.exposed_ports,
  createdAtMs: msOf(row.created_at),
  scheduledAtMs: msOrNull(row.scheduled_at),
  startedAtMs: msOrNull(row.started_at),
  endedAtMs: msOrNull(row.ended_at),
  revision: row.revision,
});

export type NewContainer = Pick<ContainerRow, 'id' | 'workspaceId' | 'stubId' | 'deploymentId' | 'spec' | 'slots'> &
  Partial<Pick<ContainerRow, 'ttlSeconds'>>;

/**
 * The highest fencing number that has led. Writes under way share the row lock:
 * a new leader's number waits for them, and later writes wait for that number.
 */
export const LED = 'select fence from leadership where id = 1 for share';

/** Most containers written in one statement. */
export const MAX_CONTAINER_BATCH = 500;

/** Containers of the workspace that CreatePod made, and that have not ended. */
export async function countByHand(db: Queryable, workspaceId: WorkspaceId): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `select count(*)::int as count from containers
     where ${NOT_ENDED} and workspace_id = $1 and spec->>'byHand' = 'true'`,
    [workspaceId],
  );
  return rows[0]?.count ?? 0;
}

/** Why no machine takes a container that waits. */
export interface RejectionNote {
  readonly id: ContainerId;
  readonly rejections: Readonly<Record<string, number>>;
}

/** Stores why no machine takes containers while they wait for a place. No transition, so the revisions stay. */
export async function recordRejections(db: Queryable, notes: readonly RejectionNote[]): Promise<void> {
  await db.query(
    `update containers as c set rejections = n.rejections from jsonb_to_recordset($1::jsonb) as n(id text, rejections jsonb)
     where c.id = n.id and c.state = 'PENDING'`,
    [JSON.stringify(notes)],
  );
}

/** A change of a container's row beside its state. */
export type ContainerAmendment =
  | { readonly ttlSeconds: number | null }
  | { readonly exposedPort: number }
  /** `networkVersion` of its recipe grows. */
  | { readonly network: ContainerNetwork };

/** Addresses that a sandbox may reach. */
export interface ContainerNetwork {
  readonly blockNetwork: boolean;
  readonly allowList: readonly string[];
}

/** Most ports of a container that are exposed after it was made. */
export const MOST_EXPOSED_PORTS = 20;

/**
 * Amends the row of a container that has not ended. A new time to live begins now.
 * @returns undefined: it has ended, has as many exposed ports as it may, or is no sandbox whose network changes
 */
export function amendContainer(
  db: Queryable,
  id: ContainerId,
  change: ContainerAmendment,
): Promise<ContainerRow | undefined> {
  const [sets, where, value] = amendmentOf(change);
  return maybeOne(
    db,
    `update containers set revision = revision + 1, updated_at = now(), ${sets}
     where id = $1 and ${NOT_ENDED} ${where} returning ${CONTAINER_COLUMNS}`,
    [id, value],
    mapContainer,
  );
}

/** Columns, further condition, and value of an amendment. */
function amendmentOf(change: ContainerAmendment): readonly [string, string, unknown] {
  if ('network' in change) {
    const version = "coalesce((spec #>> '{wire,networkVersion}')::integer, 0) + 1";
    return [
      `spec = jsonb_set(spec, '{wire}', (spec -> 'wire') || $2::jsonb || jsonb_build_object('networkVersion', ${version}))`,
      "and spec ->> 'kind' = 'sandbox'",
      JSON.stringify(change.network),
    ];
  }
  if ('exposedPort' in change)
    return [
      'exposed_ports = case when exposed_ports @> to_jsonb($2::integer) then exposed_ports else exposed_ports || to_jsonb($2::integer) end',
      `and (exposed_ports @> to_jsonb($2::integer) or jsonb_array_length(exposed_ports) < ${MOST_EXPOSED_PORTS})`,
      change.exposedPort,
    ];
  return ['ttl_seconds = $2::integer, expires_at = now() + make_interval(secs => $2::integer)', '', change.ttlSeconds];
}

/** A use of a container that is noted in its row. */
export interface ContainerUse {
  readonly id: ContainerId;
  /** Milliseconds since the use. */
  readonly agoMs: number;
  /** Milliseconds from now until which a stream is taken as open; absent: none was. */
  readonly heldMs?: number;
  /** The stream is over: an earlier `heldMs` is shortened to this one. */
  readonly isOver?: boolean;
}

/** Notes uses of containers that have a time to live. No transition, so the revisions stay. */
export async function noteUses(db: Queryable, uses: readonly ContainerUse[]): Promise<void> {
  await db.query(
    `with u as materialized (
       select * from json_to_recordset($1::json) as u (id text, "agoMs" float8, "heldMs" float8, "isOver" boolean)),
     locked as materialized (select id from containers where id = any ($2::text[]) order by id collate "C" for update)
     update containers as c set
       expires_at = greatest(c.expires_at, now() + make_interval(secs => c.ttl_seconds - u."agoMs" / 1000)),
       held_until = case
         when u."heldMs" is null then c.held_until
         when u."isOver" then case when c.held_until is not null then least(c.held_until, now() + make_interval(secs => u."heldMs" / 1000)) end
         else greatest(c.held_until, now() + make_interval(secs => u."heldMs" / 1000)) end
     from u join locked using (id)
     where c.id = u.id and c.ttl_seconds is not null and c.${NOT_ENDED}`,
    [JSON.stringify(uses), uses.map(({ id }) => id)],
  );
}

/** Containers that run and were unused for their time to live, the longest first. One that starts is in use. */
export async function expiredContainers(db: Queryable, limit: number): Promise<readonly ContainerId[]> {
  const { rows } = await db.query<{ id: string }>(
    `select id from containers
     where expires_at <= now() and ${NOT_ENDED} and state = 'RUNNING'
       and (held_until is null or held_until <= now()) and started_at + make_interval(secs => ttl_seconds) <= now()
     order by expires_at limit $1`,
    [limit],
  );
  return rows.map(({ id }) => id as ContainerId);
}

export function containerById(db: Queryable, id: string): Promise<ContainerRow | undefined> {
  return maybeOne(db, `select ${CONTAINER_COLUMNS} from containers where id = $1`, [id], mapContainer);
}

/** Number of a workspace's newest containers among which the end of an id is looked for. */
const MOST_LOOKED_THROUGH = 10_000;

/** The newest container of a stub of that name and without a deployment; one that lives comes first. */
export function newestOfStubName(
  db: Queryable,
  workspaceId: WorkspaceId,
  stubName: string,
): Promise<ContainerRow | undefined> {
  return maybeOne(
    db,
    `select ${CONTAINER_COLUMNS} from containers where deployment_id is null and stub_id in (
       select id from stubs where workspace_id = $1 and name = $2 order by created_at desc limit 100)
     order by ended_at is null desc, created_at desc limit 1`,
    [workspaceId, stubName],
    mapContainer,
  );
}

/**
 * The first container of a deployment that was made since then and failed before it was ready, for one of the reasons.
 */
export function firstFailedStart(
  db: Queryable,
  of: {
    readonly stubId: StubId;
    readonly deploymentId: DeploymentId;
    readonly sinceMs: number;
    readonly reasons: readonly string[];
  },
): Promise<ContainerRow | undefined> {
  return maybeOne(
    db,
    `select ${CONTAINER_COLUMNS} from containers where stub_id = $1 and deployment_id = $2 and created_at >= $3
       and state = 'FAILED' and started_at is null and coalesce(reason, 'user_error') = any ($4::text[])
     order by created_at limit 1`,
    [of.stubId, of.deploymentId, new Date(of.sinceMs), of.reasons],
    mapContainer,
  );
}

/**
 * The container whose id ends with `end`, in any state, among the newest of the workspace.
 * @param end - hexadecimal.
 * @returns undefined: none matches, or several do
 */
export async function containerByEnd(
  db: Queryable,
  workspaceId: WorkspaceId,
  end: string,
): Promise<ContainerRow | undefined> {
  const found = await many(
    db,
    `select ${CONTAINER_COLUMNS} from containers where id in (
       select id from (
         select id from containers where workspace_id = $1 order by created_at desc limit ${MOST_LOOKED_THROUGH}) as newest
       where id like '%' || $2::text limit 2)`,
    [workspaceId, end],
    mapContainer,
  );
  return found.length === 1 ? found[0] : undefined;
}

/** The containers with these ids, in any state; unknown ids are left out. */
export function containersById(db: Queryable, ids: readonly ContainerId[]): Promise<ContainerRow[]> {
  return many(db, `select ${CONTAINER_COLUMNS} from containers where id = any ($1::text[])`, [ids], mapContainer);
}

/** The machine where each of these containers was last. */
export async function machinesOfContainers(
  db: Queryable,
  workspaceId: WorkspaceId,
  ids: readonly ContainerId[],
): Promise<ReadonlyMap<ContainerId, MachineId>> {
  const { rows } = await db.query<{ id: ContainerId; machine_id: MachineId }>(
    `select id, machine_id from containers
     where id = any ($1::text[]) and workspace_id = $2 and machine_id is not null`,
    [ids, workspaceId],
  );
  return new Map(rows.map((row) => [row.id, row.machine_id]));
}

/**
 * Revision of every container that is not terminal: the caller checks with it whether its memory of them is complete.
 */
export async function liveContainerRevisions(db: Queryable): Promise<ReadonlyMap<ContainerId, number>> {
  const { rows } = await db.query<{ id: string; revision: number }>(
    `select id, revision from containers where ${NOT_ENDED}`,
  );
  return new Map(rows.map((row) => [row.id as ContainerId, row.revision]));
}

/** Containers on that machine that are not terminal. */
export function liveContainersOfMachine(db: Queryable, machineId: MachineId): Promise<ContainerRow[]> {
  return many(
    db,
    `select ${CONTAINER_COLUMNS} from containers where machine_id = $1 and ${NOT_ENDED}`,
    [machineId],
    mapContainer,
  );
}

/** Every container that is not terminal, of every workspace, oldest first. */
export function listLiveContainers(db: Queryable): Promise<ContainerRow[]> {
  return many(
    db,
    `select ${CONTAINER_COLUMNS} from containers where ${NOT_ENDED} order by created_at, id`,
    [],
    mapContainer,
  );
}

export interface EndedFilter {
  readonly workspaceId: WorkspaceId;
  readonly appId?: string;
  readonly stubIds?: readonly string[];
  readonly deploymentIds?: readonly string[];
  readonly reasons?: readonly string[];
  /** Last row of the page before. */
  readonly before?: { readonly createdAtMs: number; readonly id: string };
  readonly limit: number;
}

/**
 * Containers of a workspace that ended, those that were made last first. Their times are more exact than a cursor's,
 * so that a page goes on behind the time of its row, while there is one.
 */
export function endedContainers(db: Queryable, filter: EndedFilter): Promise<ContainerRow[]> {
  const columns = CONTAINER_COLUMNS.replaceAll(/\w+/g, 'c.$&');
  return many(
    db,
    `select ${columns} from containers c
     where c.workspace_id = $1 and c.${ENDED}
       and ($2::text[] is null or c.stub_id = any ($2::text[]))
       and ($3::text[] is null or c.deployment_id = any ($3::text[]))
       and ($4::text[] is null or c.reason = any ($4::text[]))
       and ($5::text is null or exists (select 1 from stubs s where s.id = c.stub_id and s.app_id = $5))
       and ($6::timestamptz is null or (c.created_at, c.id) <
         (coalesce((select created_at from containers where id = $7::text), $6::timestamptz), $7::text))
     order by c.created_at desc, c.id desc limit $8`,
    [
      filter.workspaceId,
      filter.stubIds ?? null,
      filter.deploymentIds ?? null,
      filter.reasons ?? null,
      filter.appId ?? null,
      dateOrNull(filter.before?.createdAtMs),
      filter.before?.id ?? null,
      filter.limit,
    ],
    mapContainer,
  );
}

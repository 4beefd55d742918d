import type { PoolSettings } from '#shared/api/pools.ts';
import type { HostIdentity } from '#shared/domain/host-identity.ts';
import type { InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Labels } from '#shared/domain/labels.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, msOrNull } from '../rows.ts';
import { poolSettingsOf } from './pools.ts';
import type { RawPoolSettings } from './pools.ts';

export interface MachineRow {
  readonly id: MachineId;
  readonly poolId: number;
  readonly poolName: string;
  /** The pool's owner; null: shared. */
  readonly poolWorkspaceId: WorkspaceId | null;
  readonly poolSettings: PoolSettings;
  /** Intent: active, cordoned, draining, drained. */
  readonly intent: string;
  readonly health: string;
  readonly conditions: readonly string[];
  readonly systemCordon: boolean;
  readonly joinExpiresAtMs: number | null;
  readonly joinedAtMs: number | null;
  readonly fingerprint: string | null;
  readonly publicKey: string | null;
  /** Version of the credential that was used last. */
  readonly credentialVersion: number;
  /** Version of a credential that was given and not used yet; null: none. */
  readonly credentialNext: number | null;
  readonly credentialNextAtMs: number | null;
  readonly hostname: string | null;
  /** Labels that an operator gave it. */
  readonly labels: Labels;
  readonly inventory: object | null;
  /**
   * Containers that the agent has although no row places them there; column `strangers`. Their shape belongs to the
   * module that wrote them.
   */
  readonly orphans: readonly object[];
  readonly bootId: string | null;
  /** The agent's reason for leaving: `restarting`, `shutdown`; null: none given, or the agent is connected. */
  readonly goodbye: string | null;
  /**
   * Deadline of the drain, at which the remaining containers' attempts are
   * handed back and the containers stopped; null: the machine does not drain.
   */
  readonly drainDeadlineAtMs: number | null;
  /** Number of containers when the drain began. */
  readonly drainTotal: number | null;
  /** The host goes down: no new containers there, and running ones may stay until then. */
  readonly hostDrainUntilMs: number | null;
  /** Moment of deletion at the latest, even with containers left on the machine. */
  readonly deleteAtMs: number | null;
  readonly agentVersion: string | null;
  readonly sessionEpoch: number;
  /**
   * When an agent came back although another one had taken its place: two agents speak as this machine. null: never.
   */
  readonly contestedAtMs: number | null;
  /** The host that it joined from, or that its agent showed later; null: not shown yet. */
  readonly hostIdentity: HostIdentity | null;
  /** When another host last came with this machine's disk and was refused; null: never. */
  readonly refusedAtMs: number | null;
  readonly refusedWords: string;
  /** Enrolment token by which it joined; null: a token of its own. */
  readonly enrolmentTokenId: string | null;
  /** Replica that holds the machine's link, or held the last one. */
  readonly replica: InstanceId | null;
  readonly lastSeenAtMs: number | null;
  readonly createdAtMs: number;
  /** When the machine or its pool was last written. */
  readonly updatedAtMs: number;
  readonly deletedAtMs: number | null;
}

interface Raw extends RawPoolSettings {
  id: string;
  pool_id: number;
  pool_name: string;
  pool_workspace_id: string | null;
  intent: string;
  health: string;
  conditions: string[];
  system_cordon: boolean;
  join_expires_at: Date | null;
  joined_at: Date | null;
  fingerprint: string | null;
  public_key: string | null;
  credential_version: number;
  credential_next: number | null;
  credential_next_at: Date | null;
  hostname: string | null;
  labels: Labels;
  inventory: object | null;
  strangers: object[];
  boot_id: string | null;
  goodbye: string | null;
  drain_deadline_at: Date | null;
  drain_total: number | null;
  host_drain_until: Date | null;
  delete_at: Date | null;
  agent_version: string | null;
  session_epoch: number;
  contested_at: Date | null;
  host_identity: HostIdentity | null;
  refused_at: Date | null;
  refused_words: string | null;
  enrolment_token_id: string | null;
  replica: string | null;
  last_seen_at: Date | null;
  created_at: Date;
  updated_at: Date;
  deleted_at: Date | null;
}
export const MACHINE_COLUMNS = `m.id, m.pool_id, p.name as pool_name, p.workspace_id as pool_workspace_id, p.cpu_overcommit, p.settings, m.intent, m.health,
  m.conditions, m.system_cordon, m.join_expires_at, m.joined_at, m.fingerprint, m.public_key, m.credential_version, m.credential_next, m.credential_next_at, m.contested_at, m.host_identity, m.refused_at, m.refused_words, m.enrolment_token_id, m.hostname, m.labels,
  m.inventory, m.strangers, m.boot_id, m.goodbye, m.drain_deadline_at, m.drain_total, m.host_drain_until, m.delete_at, m.agent_version, m.session_epoch, m.replica, m.last_seen_at, m.created_at, greatest(m.updated_at, p.updated_at) as updated_at, m.deleted_at`;
export const mapMachine = (row: Raw): MachineRow => ({
  id: row.id as MachineId,
  poolId: row.pool_id,
  poolName: row.pool_name,
  poolWorkspaceId: row.pool_workspace_id as WorkspaceId | null,
  poolSettings: poolSettingsOf(row),
  intent: row.intent,
  health: row.health,
  conditions: row.conditions,
  systemCordon: row.system_cordon,
  joinExpiresAtMs: msOrNull(row.join_expires_at),
  joinedAtMs: msOrNull(row.joined_at),
  fingerprint: row.fingerprint,
  publicKey: row.public_key,
  credentialVersion: row.credential_version,
  credentialNext: row.credential_next,
  credentialNextAtMs: msOrNull(row.credential_next_at),
  contestedAtMs: msOrNull(row.contested_at),
  hostIdentity: row.host_identity,
  refusedAtMs: msOrNull(row.refused_at),
  refusedWords: row.refused_words ?? '',
  enrolmentTokenId: row.enrolment_token_id,
  hostname: row.hostname,
  labels: row.labels,
  inventory: row.inventory,
  orphans: row.strangers,
  bootId: row.boot_id,
  goodbye: row.goodbye,
  drainDeadlineAtMs: msOrNull(row.drain_deadline_at),
  drainTotal: row.drain_total,
  hostDrainUntilMs: msOrNull(row.host_drain_until),
  deleteAtMs: msOrNull(row.delete_at),
  agentVersion: row.agent_version,
  sessionEpoch: row.session_epoch,
  replica: row.replica as InstanceId | null,
  lastSeenAtMs: msOrNull(row.last_seen_at),
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
  deletedAtMs: msOrNull(row.deleted_at),
});

/** The machine with this id, if it is not deleted. */
export function machineById(db: Queryable, id: string): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `select ${MACHINE_COLUMNS} from machines m join pools p on p.id = m.pool_id where m.id = $1 and m.deleted_at is null`,
    [id],
    mapMachine,
  );
}

/** Machines that are not deleted, oldest first. */
export function listMachines(db: Queryable): Promise<MachineRow[]> {
  return many(
    db,
    `select ${MACHINE_COLUMNS} from machines m join pools p on p.id = m.pool_id where m.deleted_at is null order by m.created_at, m.id`,
    [],
    mapMachine,
  );
}

/** The machines with these ids that are not deleted. */
export function machinesById(db: Queryable, ids: readonly MachineId[]): Promise<MachineRow[]> {
  return many(
    db,
    `select ${MACHINE_COLUMNS} from machines m join pools p on p.id = m.pool_id where m.id = any ($1::text[]) and m.deleted_at is null`,
    [ids],
    mapMachine,
  );
}

/**
 * When each machine that is not deleted, or its pool, was last written, and when it was last heard of. The caller
 * checks with these whether its memory of the machines is complete.
 */
export async function machineVersions(
  db: Queryable,
): Promise<ReadonlyMap<MachineId, { readonly updatedAtMs: number; readonly lastSeenAtMs: number | null }>> {
  const { rows } = await db.query<{ id: string; updated_at: Date; last_seen_at: Date | null }>(
    'select m.id, greatest(m.updated_at, p.updated_at) as updated_at, m.last_seen_at from machines m join pools p on p.id = m.pool_id where m.deleted_at is null',
  );
  return new Map(
    rows.map((row) => [
      row.id as MachineId,
      { updatedAtMs: msOf(row.updated_at), lastSeenAtMs: msOrNull(row.last_seen_at) },
    ]),
  );
}

/**
 * A session began: stores what the machine reported of itself, and raises the session epoch. `bootIdBefore`: the boot
 * id of the session before; null: this session is the first.
 */
export function recordHello(
  db: Queryable,
  hello: {
    readonly id: MachineId;
    readonly bootId: string;
    readonly agentVersion: string;
    readonly hostname: string;
    readonly inventory: object;
    readonly conditions: readonly string[];
    /** Replica that has the machine's link from now on. */
    readonly replica: InstanceId | null;
    /** Id of the agent's process: new at every start of an agent. */
    readonly agentInstance: string;
    readonly hostDrainUntilMs?: number | null;
  },
): Promise<(MachineRow & { readonly bootIdBefore: string | null }) | undefined> {
  return maybeOne(
    db,
    `with before as (select boot_id from machines where id = $1), m as (
       update machines set
         contested_at = case when agent_instances @> to_jsonb($8::text) and agent_instances ->> -1 <> $8::text then now() else contested_at end,
         agent_instances = (
           select jsonb_agg(value order by place) from (
             select value, place from jsonb_array_elements((agent_instances - $8::text) || to_jsonb($8::text)) with ordinality as known (value, place)
             order by place desc limit 4
           ) as newest),
         boot_id = $2, goodbye = null, host_drain_until = $9::timestamptz, agent_version = $3, hostname = $4, inventory = $5::jsonb, conditions = $7::jsonb, health = 'RECONCILING', replica = $6,
         session_epoch = session_epoch + 1, last_seen_at = now(), updated_at = now()
       where id = $1 and deleted_at is null returning *
     ) select ${MACHINE_COLUMNS}, (select boot_id from before) as boot_id_before from m join pools p on p.id = m.pool_id`,
    [
      hello.id,
      hello.bootId,
      hello.agentVersion,
      hello.hostname,
      JSON.stringify(hello.inventory),
      hello.replica,
      JSON.stringify(hello.conditions),
      hello.agentInstance,
      dateOf(hello.hostDrainUntilMs),
    ],
    (row: Raw & { readonly boot_id_before: string | null }) => ({
      ...mapMachine(row),
      bootIdBefore: row.boot_id_before,
    }),
  );
}

/**
 * Writes the given columns by compare-and-set on the session: an older session changes nothing.
 * @returns false: the session, the leader or the intent is no longer the current one
 */
export async function updateMachine(
  db: Queryable,
  id: MachineId,
  change: {
    readonly health?: string;
    readonly intent?: string;
    readonly systemCordon?: boolean;
    readonly conditions?: readonly string[];
    readonly inventory?: object;
    readonly orphans?: readonly object[];
    readonly goodbye?: string;
    readonly lastSeenAtMs?: number;
    /** The drain; null: the machine does not drain (any more). */
    readonly drain?: { readonly deadlineMs: number; readonly total: number } | null;
    readonly hostDrainUntilMs?: number | null;
    readonly deleteAtMs?: number;
    /** Writes only while this is the session epoch. */
    readonly ifSessionEpoch?: number;
    /** Writes only while this is the operator's intent. */
    readonly ifIntent?: string;
    /** The fencing number of the leader that decided the change; refused if a higher one has led meanwhile. */
    readonly fence?: number;
  },
): Promise<boolean> {
  const { rowCount } = await db.query(
    `with led as (select fence from leadership where id = 1 for share)
     update machines set
       health = coalesce($2, health), intent = coalesce($3, intent), system_cordon = coalesce($4, system_cordon),
       conditions = coalesce($5::jsonb, conditions), inventory = coalesce($6::jsonb, inventory),
       last_seen_at = coalesce($7::timestamptz, last_seen_at), strangers = coalesce($9::jsonb, strangers), goodbye = coalesce($10, goodbye),
       drain_deadline_at = case when $13 then $14::timestamptz else drain_deadline_at end, drain_total = case when $13 then $15::integer else drain_total end,
       host_drain_until = case when $16 then $17::timestamptz else host_drain_until end, delete_at = coalesce($18::timestamptz, delete_at), updated_at = now()
     where id = $1 and deleted_at is null and ($8::bigint is null or session_epoch = $8::bigint)
       and ($11::text is null or intent = $11::text) and ($12::bigint is null or (select fence from led) <= $12::bigint)`,
    [
      id,
      change.health ?? null,
      change.intent ?? null,
      change.systemCordon ?? null,
      change.conditions === undefined ? null : JSON.stringify(change.conditions),
      change.inventory === undefined ? null : JSON.stringify(change.inventory),
      change.lastSeenAtMs === undefined ? null : new Date(change.lastSeenAtMs),
      change.ifSessionEpoch ?? null,
      change.orphans === undefined ? null : JSON.stringify(change.orphans),
      change.goodbye ?? null,
      change.ifIntent ?? null,
      change.fence ?? null,
      change.drain !== undefined,
      dateOf(change.drain?.deadlineMs),
      change.drain?.total ?? null,
      change.hostDrainUntilMs !== undefined,
      dateOf(change.hostDrainUntilMs),
      dateOf(change.deleteAtMs),
    ],
  );
  return rowCount === 1;
}

/**
 * Sets and removes labels of a machine.
 * @returns all that it has then; undefined: there is no such machine, or it would have more than `most`
 */
export async function labelMachine(
  db: Queryable,
  id: MachineId,
  { set, remove }: { readonly set: Labels; readonly remove: readonly string[] },
  most: number,
): Promise<Labels | undefined> {
  const row = await maybeOne(
    db,
    `update machines set labels = (labels || $2::jsonb) - $3::text[], updated_at = now()
     where id = $1 and deleted_at is null
       and (select count(*) from jsonb_object_keys((labels || $2::jsonb) - $3::text[])) <= $4
     returning labels`,
    [id, JSON.stringify(set), remove, most],
    (raw: { readonly labels: Labels }) => raw.labels,
  );
  return row;
}

const dateOf = (ms: number | null | undefined): Date | null => (ms === null || ms === undefined ? null : new Date(ms));

/** Stores heartbeats of many machines in one statement. Rows are locked in the order in which placements lock them. */
export async function touchMachines(db: Queryable, ids: readonly MachineId[], nowMs: number): Promise<void> {
  await db.query(
    `with locked as materialized (
       select id from machines where id = any ($1::text[]) and deleted_at is null
       order by id collate "C" for no key update)
     update machines as m set last_seen_at = $2 from locked where m.id = locked.id`,
    [ids, new Date(nowMs)],
  );
}

/**
 * Deletes a machine for good: its credential is invalid from now on,
 * and volumes whose directories were there begin anew elsewhere.
 */
export async function deleteMachine(db: Queryable, id: MachineId): Promise<boolean> {
  const { rowCount } = await db.query(
    `with unbound as (update volumes set home_machine_id = null where home_machine_id = $1)
     update machines set deleted_at = now(), health = 'DELETED', join_secret_hash = null, updated_at = now()
     where id = $1 and deleted_at is null`,
    [id],
  );
  return rowCount === 1;
}

/** Whether the machine is in a pool of the workspace or ran a container of it; an administrator knows shared ones. */
export async function mayKnowMachine(
  db: Queryable,
  reader: { readonly workspaceId: WorkspaceId; readonly isAdmin: boolean },
  id: MachineId,
): Promise<boolean> {
  const { rows } = await db.query(
    `select 1 where exists (
         select 1 from machines m join pools p on p.id = m.pool_id
         where m.id = $1 and (p.workspace_id = $2 or (p.workspace_id is null and $3::boolean)))
       or exists (select 1 from containers where machine_id = $1 and workspace_id = $2)`,
    [id, reader.workspaceId, reader.isAdmin],
  );
  return rows.length > 0;
}

// Events of machines, written together with their rows: joined, silent, lost, cordoned, drained, deleted. Those of
// shared pools belong to the administrator's workspace. Source: REST §9.2.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../stores/store/db.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { adminWorkspaceId } from '../stores/store/queries/workspaces.ts';
import type { EventGiven, EventWriter } from '../workspaces/events/writer.ts';
import { auditEvent } from '../workspaces/events/audit.ts';
import type { Actor, AuditKind } from '../workspaces/events/audit.ts';

/** State that an event tells. */
export type MachineStatus =
  | 'created'
  | 'joined'
  | 'ready'
  | 'suspect'
  | 'lost'
  | 'active'
  | 'cordoned'
  | 'draining'
  | 'drained'
  | 'refused'
  | 'deleted';

type Told = Pick<MachineRow, 'id' | 'poolName' | 'poolWorkspaceId'> & Partial<Pick<MachineRow, 'hostname'>>;

/** Who asked for a change, and facts of it beside the pool's name. */
interface AuditedOrder {
  readonly kind: AuditKind;
  readonly by: Actor;
  readonly attrs?: Readonly<Record<string, string>>;
}

export class MachineEvents {
  readonly #db: Db;
  readonly #events: Pick<EventWriter, 'transaction'>;
  readonly #nowMs: () => number;
  #admin: WorkspaceId | undefined;

  constructor(db: Db, events: Pick<EventWriter, 'transaction'>, nowMs: () => number) {
    this.#db = db;
    this.#events = events;
    this.#nowMs = nowMs;
  }

  /**
   * Runs a change of a machine's row, and writes its events if the row was changed.
   * @param audited - who asked for the change; absent: nobody did
   * @returns whether the row was changed
   */
  async write(
    machine: Told,
    status: MachineStatus,
    reason: string,
    change: (tx: Queryable) => Promise<boolean>,
    audited?: AuditedOrder,
  ): Promise<boolean> {
    const workspaceId = machine.poolWorkspaceId ?? (await this.#adminWorkspace());
    if (workspaceId === undefined) return change(this.#db);
    return this.#events.transaction(this.#db, async (tx, emit) => {
      const isChanged = await change(tx);
      if (!isChanged) return false;
      const atMs = this.#nowMs();
      emit(lifecycleOf(machine, workspaceId, status, reason, atMs));
      if (audited !== undefined) emit(auditOf(machine, workspaceId, audited, atMs));
      return true;
    });
  }

  /** Writes an order to a machine's agent into the trail. No row tells of it. */
  async ordered(machine: Told, audited: AuditedOrder): Promise<void> {
    const workspaceId = machine.poolWorkspaceId ?? (await this.#adminWorkspace());
    if (workspaceId === undefined) return;
    await this.#events.transaction(this.#db, (_tx, emit) => {
      emit(auditOf(machine, workspaceId, audited, this.#nowMs()));
      return Promise.resolve();
    });
  }

  /** Runs a change that gives the row of a machine, and writes its events with it; undefined: there was no change. */
  async made(
    status: MachineStatus,
    change: (tx: Queryable) => Promise<MachineRow | undefined>,
  ): Promise<MachineRow | undefined> {
    const admin = await this.#adminWorkspace();
    return this.#events.transaction(this.#db, async (tx, emit) => {
      const row = await change(tx);
      const workspaceId = row?.poolWorkspaceId ?? admin;
      if (row !== undefined && workspaceId !== undefined)
        emit(lifecycleOf(row, workspaceId, status, '', this.#nowMs()));
      return row;
    });
  }

  /** The first workspace, made once and never deleted; undefined: not made yet. */
  async #adminWorkspace(): Promise<WorkspaceId | undefined> {
    this.#admin ??= await adminWorkspaceId(this.#db);
    return this.#admin;
  }
}

const auditOf = (
  { id, hostname, poolName }: Told,
  workspaceId: WorkspaceId,
  { kind, by, attrs }: AuditedOrder,
  atMs: number,
): EventGiven => {
  const target = { type: 'machine', id, name: hostname ?? '' };
  return auditEvent(by, kind, { workspaceId, machineId: id, target, attrs: { pool_name: poolName, ...attrs } }, atMs);
};

const lifecycleOf = (
  { id, poolName }: Told,
  workspaceId: WorkspaceId,
  status: MachineStatus,
  reason: string,
  atMs: number,
): EventGiven => ({
  workspaceId,
  machineId: id,
  type: 'worker.lifecycle',
  atMs,
  // The id of a machine's only worker is the machine's id.
  data: { worker_id: id, machine_id: id, pool_name: poolName, status, reason },
});

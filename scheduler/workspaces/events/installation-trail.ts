// The audit trail of changes to what the whole installation shares, beside what workspaces own: signing keys, pools and
// their machines. Entries about shared things belong to the administrator's workspace.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Transaction } from '../../stores/store/db.ts';
import { adminWorkspaceId } from '../../stores/store/queries/workspaces.ts';
import { auditEvent } from './audit.ts';
import type { Actor, Audited, AuditKind } from './audit.ts';
import type { EventWriter } from './writer.ts';

/** An entry. `workspaceId` null: of the administrator's workspace. */
export type Entry = Omit<Audited, 'workspaceId'> & { readonly workspaceId: WorkspaceId | null };

/** Takes an entry, which is written with the change. */
export type Say = (by: Actor, kind: AuditKind, entry: Entry) => void;

export class InstallationTrail {
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
   * Runs a change, and writes its entries in the same transaction. Entries of the administrator's workspace are left
   * out before that workspace is made.
   */
  async transaction<T>(run: (tx: Transaction, say: Say) => Promise<T>): Promise<T> {
    this.#admin ??= await adminWorkspaceId(this.#db);
    return this.#events.transaction(this.#db, (tx, emit) =>
      run(tx, (by, kind, { workspaceId, ...entry }) => {
        const trail = workspaceId ?? this.#admin;
        if (trail !== undefined) emit(auditEvent(by, kind, { ...entry, workspaceId: trail }, this.#nowMs()));
      }),
    );
  }
}

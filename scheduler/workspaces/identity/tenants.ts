// Workspaces beyond the first: the installation's administrator makes and lists them.
import { MAX_WORKSPACE_NAME } from '#shared/api/rest/workspaces.ts';
import { AppError } from '#shared/errors.ts';
import type { Clock } from '#shared/clock.ts';
import type { Sealer } from '../secrets/seal.ts';
import type { Db } from '../../stores/store/db.ts';
import { pageOfWorkspaces } from '../../stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';
import { SYSTEM, auditEvent } from '../events/audit.ts';
import type { Actor } from '../events/audit.ts';
import type { EventWriter } from '../events/writer.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { SigningKeys } from './jwt.ts';
import { issueToken } from './tokens.ts';
import { createWorkspace } from './workspaces.ts';

export interface NewTenant {
  readonly workspace: WorkspaceRow;
  /** The workspace's workspace_primary token in clear; this once. */
  readonly token: string;
}

export class Tenants {
  readonly #db: Db;
  readonly #sealer: Sealer;
  readonly #keys: SigningKeys;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #events: Pick<EventWriter, 'transaction'>;

  constructor(
    db: Db,
    sealer: Sealer,
    keys: SigningKeys,
    clock: Pick<Clock, 'nowMs'>,
    events: Pick<EventWriter, 'transaction'>,
  ) {
    this.#db = db;
    this.#sealer = sealer;
    this.#keys = keys;
    this.#clock = clock;
    this.#events = events;
  }

  /**
   * Creates a workspace with its first token.
   * @param name - empty: a short random one; several may have the same
   * @param trail - the workspace whose audit trail tells it: the administrator's; absent: the new one's
   * @throws AppError `invalid_body`
   */
  async create(name: string, by: Actor = SYSTEM, trail?: WorkspaceId): Promise<NewTenant> {
    if (name.length > MAX_WORKSPACE_NAME || /\p{Cc}/u.test(name) || name !== name.trim()) {
      throw new AppError(
        'invalid_body',
        `name must have at most ${MAX_WORKSPACE_NAME} characters, without control characters and without spaces around it`,
      );
    }
    return this.#events.transaction(this.#db, async (tx, emit) => {
      const workspace = await createWorkspace(tx, this.#sealer, name === '' ? {} : { name });
      const owner = { workspaceId: workspace.id };
      const { token } = await issueToken(tx, this.#keys, owner, 'workspace_primary', { nowMs: this.#clock.nowMs() });
      const target = { type: 'workspace', id: workspace.id, name: workspace.name };
      const event = { workspaceId: trail ?? workspace.id, target };
      emit(auditEvent(by, 'audit.workspace.created', event, this.#clock.nowMs()));
      return { workspace, token };
    });
  }

  /** Workspaces in the order they were made. */
  list(afterNumber: number, limit: number): Promise<readonly WorkspaceRow[]> {
    return pageOfWorkspaces(this.#db, afterNumber, limit);
  }
}

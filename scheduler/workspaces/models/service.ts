// Models as their owners see them: made, changed, listed and deleted. The REST routes call it on any replica. A change
// is told to the audit trail with its row, and to every replica's catalog behind the commit.
import { MOST_MODELS } from '#shared/domain/models.ts';
import type { ChangeModel, CreateModel } from '#shared/api/rest/models.ts';
import type { Clock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { isUniqueViolation } from '../../stores/store/db.ts';
import type { Db, Transaction } from '../../stores/store/db.ts';
import { deleteModel, insertModel, modelNamed, modelsOf, updateModel } from '../../stores/store/queries/models.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import type { ModelRow } from '../../stores/store/queries/models.ts';
import { SYSTEM, auditEvent } from '../events/audit.ts';
import type { Actor, AuditKind } from '../events/audit.ts';
import type { EventWriter } from '../events/writer.ts';
import type { ModelCatalog } from './catalog.ts';
import { checkChange, checkNew } from './fields.ts';

export interface ModelServiceParts {
  readonly db: Db;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly catalog: Pick<ModelCatalog, 'changed'>;
  /** Why an address cannot be called; undefined: it may be tried. */
  readonly urlProblem: (url: string) => string | undefined;
  readonly clock: Pick<Clock, 'nowMs'>;
}

export interface By {
  readonly actor?: Actor;
  /** Whether the caller may make models that every workspace sees. */
  readonly isAdmin: boolean;
}

export class ModelService {
  readonly #parts: ModelServiceParts;

  constructor(parts: ModelServiceParts) {
    this.#parts = parts;
  }

  /** Models of the workspace by name. @param after - name of the last one of the page before */
  list(workspaceId: WorkspaceId, after: string, limit: number): Promise<ModelRow[]> {
    return modelsOf(this.#parts.db.reads.of(workspaceId), workspaceId, after, limit);
  }

  /** @throws AppError `model_not_found` */
  async one(workspaceId: WorkspaceId, name: string): Promise<ModelRow> {
    const row = await modelNamed(this.#parts.db, workspaceId, name);
    if (row === undefined) throw notFound();
    return row;
  }

  /** @throws AppError `invalid_model`, `model_exists`, `too_many_models`, `unauthorized` (public) */
  async create(workspaceId: WorkspaceId, given: CreateModel, by: By): Promise<ModelRow> {
    const checked = checkNew(given, this.#parts.urlProblem);
    if (typeof checked === 'string') throw invalid(checked);
    if (checked.isPublic && !by.isAdmin) throw notPublic();
    const row = await this.#written('audit.model.created', by, given.id, async (tx) => {
      await lockCounts(tx, workspaceId);
      if (!(await insertModel(tx, { ...checked, id: newId(), workspaceId }, MOST_MODELS))) {
        throw new AppError('too_many_models', `a workspace may have ${MOST_MODELS} models, and this one has them`);
      }
      return await modelNamed(tx, workspaceId, given.id);
    });
    if (row === undefined) throw notFound();
    await this.#parts.catalog.changed(workspaceId, row.isPublic);
    return row;
  }

  /** Changes the fields that are given. @throws AppError as `create`, and `model_not_found` */
  async change(workspaceId: WorkspaceId, name: string, given: ChangeModel, by: By): Promise<ModelRow> {
    let touchesPublic = false;
    const row = await this.#written('audit.model.updated', by, name, async (tx) => {
      await lockCounts(tx, workspaceId);
      const before = await modelNamed(tx, workspaceId, name);
      if (before === undefined) return undefined;
      const after = checkChange(before, given, this.#parts.urlProblem);
      if (typeof after === 'string') throw invalid(after);
      touchesPublic = before.isPublic || after.isPublic;
      if (touchesPublic && !by.isAdmin) throw notPublic();
      await updateModel(tx, { ...after, id: before.id, workspaceId });
      return await modelNamed(tx, workspaceId, name);
    });
    if (row === undefined) throw notFound();
    await this.#parts.catalog.changed(workspaceId, touchesPublic);
    return row;
  }

  /** @throws AppError `model_not_found`, `unauthorized` */
  async delete(workspaceId: WorkspaceId, name: string, by: By): Promise<void> {
    const row = await this.#written('audit.model.deleted', by, name, async (tx) => {
      const before = await modelNamed(tx, workspaceId, name);
      if (before?.isPublic === true && !by.isAdmin) throw notPublic();
      return before !== undefined && (await deleteModel(tx, workspaceId, name)) ? before : undefined;
    });
    if (row === undefined) throw notFound();
    await this.#parts.catalog.changed(workspaceId, row.isPublic);
  }

  async #written(
    kind: AuditKind,
    { actor = SYSTEM }: By,
    name: string,
    write: (tx: Transaction) => Promise<ModelRow | undefined>,
  ): Promise<ModelRow | undefined> {
    const { db, events, clock } = this.#parts;
    try {
      return await events.transaction(db, async (tx, emit) => {
        const row = await write(tx);
        if (row !== undefined) {
          const { workspaceId, id, active, isPublic, type } = row;
          const target = { type: 'model', id, name };
          emit(
            auditEvent(actor, kind, { workspaceId, target, attrs: { active, public: isPublic, type } }, clock.nowMs()),
          );
        }
        return row;
      });
    } catch (error) {
      if (!isUniqueViolation(error)) throw error;
      throw new AppError('model_exists', `there is a model ${name} already`, { cause: error });
    }
  }
}

const invalid = (text: string): AppError => new AppError('invalid_model', text);
const notFound = (): AppError =>
  new AppError('model_not_found', 'this workspace has no model of that id: `longshore model list` shows them');
const notPublic = (): AppError => new AppError('unauthorized', "Unauthorized: public models are the administrator's");

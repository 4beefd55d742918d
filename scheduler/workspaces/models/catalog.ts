// Models as calls find them, in memory: the models of a workspace, and those that are public. A list is read by SQL on
// first use, and again after a change (here at once, on other replicas by message).
// Invariant: a list that was read before a change is never kept after it. While messages do not arrive, no list is
// trusted. The number of lists is bounded.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { modelsOf, publicModels } from '../../stores/store/queries/models.ts';
import type { ModelRow } from '../../stores/store/queries/models.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';
import type { Invalidation } from '../identity/invalidation.ts';

/** Most public models that the catalog shows. */
export const MOST_PUBLIC = 1000;
const MOST_LISTS = 2000;
const PUBLIC = 'public';

export type Models = ReadonlyMap<string, ModelRow>;

export interface CatalogParts {
  readonly db: Queryable;
  readonly invalidation: Pick<Invalidation, 'publish' | 'on' | 'onReset' | 'isLive'>;
  /** Most models of a workspace. */
  readonly most: number;
}

export class ModelCatalog {
  readonly #parts: CatalogParts;
  readonly #lists = new BoundedMap<string, Models>(MOST_LISTS);
  readonly #reading = new Map<string, Promise<Models>>();
  #generation = 0;

  constructor(parts: CatalogParts) {
    this.#parts = parts;
    parts.invalidation.on('model', (scope) => this.#forget(scope));
    parts.invalidation.on('workspace_deleted', (id) => {
      this.#forget(id);
      this.#forget(PUBLIC);
    });
    parts.invalidation.onReset(() => {
      this.#generation++;
      this.#lists.clear();
      this.#reading.clear();
    });
  }

  /** The model that a caller names: of its own workspace, else a public one. */
  find(workspaceId: WorkspaceId, name: string): ModelRow | undefined | Promise<ModelRow | undefined> {
    const own = this.#of(workspaceId);
    if (!(own instanceof Promise)) {
      const found = own.get(name);
      if (found !== undefined) return found;
      const all = this.public();
      return all instanceof Promise ? all.then((models) => models.get(name)) : all.get(name);
    }
    return own.then(async (models) => models.get(name) ?? (await this.public()).get(name));
  }

  /** Models of every workspace that are public, by name. */
  public(): Models | Promise<Models> {
    return this.#list(PUBLIC, () => publicModels(this.#parts.db, MOST_PUBLIC));
  }

  /** Models that a caller of the workspace sees, by name: public ones, and its own in front of them. */
  async visibleTo(workspaceId: WorkspaceId): Promise<Models> {
    return new Map([...(await this.public()), ...(await this.#of(workspaceId))]);
  }

  /** Announces a change of a workspace's models. When it resolves, every replica sees the change. */
  async changed(workspaceId: WorkspaceId, touchesPublic: boolean): Promise<void> {
    const { invalidation } = this.#parts;
    this.#forget(workspaceId);
    const told = [invalidation.publish('model', workspaceId)];
    if (touchesPublic) {
      this.#forget(PUBLIC);
      told.push(invalidation.publish('model', PUBLIC));
    }
    await Promise.all(told);
  }

  #of(workspaceId: WorkspaceId): Models | Promise<Models> {
    return this.#list(workspaceId, () => modelsOf(this.#parts.db, workspaceId, '', this.#parts.most));
  }

  #list(scope: string, read: () => Promise<readonly ModelRow[]>): Models | Promise<Models> {
    const { isLive } = this.#parts.invalidation;
    const known = isLive ? this.#lists.get(scope) : undefined;
    if (known !== undefined) return known;
    const underWay = isLive ? this.#reading.get(scope) : undefined;
    if (underWay !== undefined) return underWay;
    const generation = this.#generation;
    const reading = read().then((rows) => {
      const models: Models = new Map(rows.map((row) => [row.name, row]));
      if (generation === this.#generation) this.#lists.set(scope, models);
      return models;
    });
    this.#reading.set(scope, reading);
    const forget = (): void => {
      if (this.#reading.get(scope) === reading) this.#reading.delete(scope);
    };
    // The failure reaches those who wait for the list.
    reading.then(forget, () => forget());
    return reading;
  }

  #forget(scope: string): void {
    // A reading under way may be older than the change, of whichever scope.
    this.#generation++;
    this.#lists.delete(scope);
    this.#reading.clear();
  }
}

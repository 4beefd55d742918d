// Built images as people see them.
import { builtImageName, isBuiltImageName } from '#shared/domain/built-images.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import { imageById, imageOutput, imagePlaces, imagesOfWorkspace } from '../../stores/store/queries/images.ts';
import type { ImageRow } from '../../stores/store/queries/images.ts';
import type { Definition } from './definition.ts';

const MOST_LISTED = 1000;

export interface ImageView {
  /** The part of its name that differs. */
  readonly id: string;
  readonly row: ImageRow;
  readonly pythonVersion: string;
  readonly steps: readonly string[];
  readonly places: readonly { readonly machineId: MachineId; readonly sizeBytes: number }[];
}

export class ImageReads {
  readonly #db: Db;

  constructor(db: Db) {
    this.#db = db;
  }

  /** The newest images of a workspace. */
  async list(workspaceId: WorkspaceId): Promise<readonly ImageView[]> {
    return this.#views(await imagesOfWorkspace(this.#db, workspaceId, MOST_LISTED));
  }

  async read(workspaceId: WorkspaceId, id: string): Promise<ImageView | undefined> {
    const name = nameOf(id);
    const row = isBuiltImageName(name) ? await imageById(this.#db, workspaceId, name) : undefined;
    return row === undefined ? undefined : (await this.#views([row]))[0];
  }

  /** Output of the last build; undefined: no such image. */
  async output(workspaceId: WorkspaceId, id: string): Promise<string | undefined> {
    const name = nameOf(id);
    return isBuiltImageName(name) ? await imageOutput(this.#db, workspaceId, name) : undefined;
  }

  async #views(rows: readonly ImageRow[]): Promise<readonly ImageView[]> {
    const places = await imagePlaces(
      this.#db,
      rows.map(({ id }) => id),
    );
    return rows.map((row) => {
      const { pythonVersion = '', steps = [] } = row.definition as Partial<Definition>;
      return {
        id: row.id.slice(row.id.indexOf('/') + 1),
        row,
        pythonVersion,
        steps: steps.map(({ title, text }) => title || text),
        places: places.filter(({ imageId }) => imageId === row.id),
      };
    });
  }
}

/** The name of an image; the caller may give the whole name or the part that differs. */
export const nameOf = (id: string): string => (id.includes('/') ? id : builtImageName(id));

// Files that tasks saved: which object belongs to which task, and signed addresses of their bytes. The REST routes call
// it.
// Invariant: a container saves outputs of tasks of its own stub alone, from objects that its stub's containers made.
import { AppError } from '#shared/errors.ts';
import { isUuid, newId } from '#shared/domain/ids.ts';
import type { OutputId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { ownObjectsOf } from '../../stores/objects/service.ts';
import type { Objects } from '../../stores/objects/service.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  insertTaskOutput,
  outputsOfTask,
  outputsOfTasks,
  taskOutputById,
} from '../../stores/store/queries/task-outputs.ts';
import type { TaskOutputRow } from '../../stores/store/queries/task-outputs.ts';
import type { TaskReads } from '../records/reads.ts';

/** Most outputs of a task. */
export const MOST_OUTPUTS = 100;
/** Most outputs in a list of tasks: each has an address to sign. */
const MOST_LISTED = 2_000;
/** Life of an address that names none, and the longest: an S3 store signs none for longer. */
export const ADDRESS_SECONDS = 3_600;
export const MOST_ADDRESS_SECONDS = 7 * 86_400;
const MAX_NAME = 255;

export interface OutputsParts {
  readonly db: Db;
  readonly objects: Pick<Objects, 'find' | 'signDownload' | 'addressOf'>;
  readonly tasks: Pick<TaskReads, 'read'>;
}

/** The caller's workspace, and the stub of a calling container. */
export interface OutputOwner {
  readonly workspaceId: WorkspaceId;
  readonly container?: { readonly stubId: StubId } | undefined;
}

/** An output with the path of its bytes. */
export interface AddressedOutput {
  readonly name: string;
  readonly path: string;
  readonly lifeSeconds: number;
}

export interface SignedOutput {
  readonly row: TaskOutputRow;
  readonly path: string;
  readonly untilMs: number;
  readonly size: number;
  readonly sha256: string;
}

export class Outputs {
  readonly #parts: OutputsParts;

  constructor(parts: OutputsParts) {
    this.#parts = parts;
  }

  /**
   * The task of an output that the owner may save.
   * @throws AppError `task_not_found`, `invalid_body`
   */
  async taskOf(owner: OutputOwner, output: { readonly taskId: string; readonly name: string }): Promise<TaskId> {
    if (output.name === '' || output.name.length > MAX_NAME || output.name.includes('/')) {
      throw new AppError('invalid_body', `name must be the name of a file, of 1 to ${MAX_NAME} characters`);
    }
    const task = await this.#parts.tasks.read(owner.workspaceId, output.taskId.toLowerCase());
    if (task === undefined || (owner.container !== undefined && owner.container.stubId !== task.stubId)) {
      throw new AppError('task_not_found', 'task not found');
    }
    return task.taskId;
  }

  /** @throws AppError as `taskOf`, and `object_not_found`, `too_many_outputs` */
  async save(
    owner: OutputOwner,
    output: { readonly taskId: string; readonly objectId: string; readonly name: string },
  ): Promise<TaskOutputRow> {
    const { workspaceId } = owner;
    const taskId = await this.taskOf(owner, output);
    const objectId = output.objectId.toLowerCase();
    const { container } = owner;
    const found = isUuid(objectId) ? await this.#parts.objects.find({ workspaceId }, objectId) : undefined;
    const isOwn = container === undefined || found?.hash.startsWith(ownObjectsOf(container.stubId)) === true;
    if (found === undefined || !isOwn) throw new AppError('object_not_found', 'object not found');
    const row = await insertTaskOutput(this.#parts.db, {
      id: newId<OutputId>(),
      workspaceId,
      taskId,
      objectId: found.id,
      name: output.name,
      most: MOST_OUTPUTS,
    });
    if (row === undefined) throw new AppError('too_many_outputs', `a task may have ${MOST_OUTPUTS} outputs`);
    return row;
  }

  /** The signed address of an output. @throws AppError `output_not_found` */
  async sign(owner: OutputOwner, id: string, lifeSeconds: number): Promise<SignedOutput> {
    const { workspaceId, container } = owner;
    const lower = id.toLowerCase();
    const row = isUuid(lower) ? await taskOutputById(this.#parts.db, workspaceId, lower) : undefined;
    if (row === undefined) throw notFound();
    if (container !== undefined) {
      const task = await this.#parts.tasks.read(workspaceId, row.taskId);
      if (task?.stubId !== container.stubId && task?.putBy !== container.stubId) throw notFound();
    }
    const signed = await this.#parts.objects.signDownload({ workspaceId }, row.objectId, lifeSeconds * 1000);
    // The bytes were deleted, or were never uploaded.
    if (signed === undefined) throw notFound();
    return { row, ...signed };
  }

  /** The outputs of a task, each with an address. Nothing is looked up but the rows. */
  async ofTask(workspaceId: WorkspaceId, taskId: TaskId): Promise<readonly AddressedOutput[]> {
    return this.#addressed(await outputsOfTask(this.#parts.db, workspaceId, taskId));
  }

  /**
   * The outputs of a page of tasks, each with an address.
   * @returns by task; and the number of tasks, from the first on, whose outputs are all there
   */
  async ofTasks(
    workspaceId: WorkspaceId,
    taskIds: readonly TaskId[],
  ): Promise<{ readonly byTask: ReadonlyMap<TaskId, readonly AddressedOutput[]>; readonly complete: number }> {
    const byTask = new Map<TaskId, readonly AddressedOutput[]>();
    if (taskIds.length === 0) return { byTask, complete: 0 };
    const rows = await outputsOfTasks(this.#parts.db, workspaceId, taskIds, MOST_LISTED + 1);
    const lastTask = rows.at(-1)?.taskId;
    const isCut = rows.length > MOST_LISTED && lastTask !== undefined;
    // A task has few outputs beside the bound, so a page always holds some tasks.
    const kept = isCut ? rows.filter((row) => row.taskId !== lastTask) : rows;
    for (const [taskId, some] of Map.groupBy(kept, (row) => row.taskId)) {
      byTask.set(taskId, await this.#addressed(some));
    }
    return { byTask, complete: isCut ? taskIds.indexOf(lastTask) : taskIds.length };
  }

  #addressed(rows: readonly TaskOutputRow[]): Promise<AddressedOutput[]> {
    return Promise.all(
      rows.map(async ({ name, objectId }) => ({
        name,
        path: await this.#parts.objects.addressOf(objectId, ADDRESS_SECONDS * 1000),
        lifeSeconds: ADDRESS_SECONDS,
      })),
    );
  }
}

const notFound = (): AppError => new AppError('output_not_found', 'output not found');

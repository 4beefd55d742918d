// Reads of tasks for the surfaces: one task, or a page of them.
import type { StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { TaskBodies } from '../dispatch/bodies.ts';
import type { StubFacts } from './list-by-id.ts';
import { pickById } from './list-by-id.ts';
import type { TaskRecord } from './task-record.ts';
import type { TaskRecords } from './records.ts';

export interface TaskFilter {
  /** Tasks of the workspace when absent. public: calls that it made of others' deployments · all: both. */
  readonly whose?: 'public' | 'all';
  readonly limit: number;
  readonly statuses?: readonly string[];
  readonly stubIds?: readonly string[];
  readonly stubNames?: readonly string[];
  readonly taskIds?: readonly string[];
  readonly containerIds?: readonly string[];
  readonly deploymentIds?: readonly string[];
  /** Name of a deployment, whole: all versions. */
  readonly deploymentName?: string;
  readonly failureReasons?: readonly string[];
  /** Tasks whose inputs these reruns have. */
  readonly rerunOf?: readonly string[];
  readonly stubTypes?: readonly string[];
  readonly appId?: string;
  readonly createdFromMs?: number;
  readonly createdToMs?: number;
  /** Shortest duration from start to end, in milliseconds. */
  readonly minDurationMs?: number;
  readonly maxDurationMs?: number;
  readonly offset?: number;
  /** Whether results of tasks that failed come along, if they are short: they have the error. */
  readonly withErrors?: boolean;
  /** Whether only dead tasks are listed, those that ended last first. */
  readonly dead?: boolean;
  /** Last task of the page before; only older ones are listed. Of dead ones, the time is that of their end. */
  readonly before?: { readonly createdAtMs: number; readonly taskId: string };
}

export interface TaskReadsParts {
  readonly records: Pick<TaskRecords, 'read'>;
  readonly bodies: Pick<TaskBodies, 'resultText'>;
  /**
   * Resolves when the database has every record that replicas held, or after a deadline.
   * Absent: lists lag by a batch.
   */
  readonly caughtUp?: (() => Promise<unknown>) | undefined;
  readonly listRows: (workspaceId: WorkspaceId, filter: TaskFilter) => Promise<readonly TaskRecord[]>;
  readonly stubsOf: (ids: readonly StubId[]) => Promise<ReadonlyMap<StubId, StubFacts>>;
}

export class TaskReads {
  readonly #parts: TaskReadsParts;

  constructor(parts: TaskReadsParts) {
    this.#parts = parts;
  }

  /** undefined when unknown or another workspace's. */
  async read(workspaceId: WorkspaceId, taskId: string): Promise<TaskRecord | undefined> {
    if (!isUuid(taskId)) return undefined;
    const record = await this.#parts.records.read(taskId as TaskId);
    return record?.workspaceId === workspaceId ? record : undefined;
  }

  /** Resolves when the database has every record that replicas held, or after a deadline. */
  async caughtUp(): Promise<void> {
    await this.#parts.caughtUp?.();
  }

  /**
   * Lists from the database, newest first, with every task whose record a replica had when
   * the list was asked for. A list by task ids reads like single tasks; their records have no deployment's name.
   */
  async list(workspaceId: WorkspaceId, filter: TaskFilter): Promise<readonly TaskRecord[]> {
    if (filter.taskIds === undefined || filter.deploymentName !== undefined) {
      await this.caughtUp();
      return await this.#parts.listRows(workspaceId, filter);
    }
    const ids = [...new Set(filter.taskIds)];
    const found = await Promise.all(ids.filter(isUuid).map((taskId) => this.#parts.records.read(taskId as TaskId)));
    const records = found
      .filter((record) => record !== undefined)
      .filter((record) => isOf(record, workspaceId, filter.whose));
    const own = records.filter((record) => record.workspaceId === workspaceId);
    const stubs = await this.#parts.stubsOf([...new Set(own.map((record) => record.stubId))]);
    return pickById(records, stubs, filter);
  }

  /** Result of a task as text, also when it is kept outside its record; undefined: there is none. */
  resultText(record: TaskRecord): Promise<string | undefined> {
    return this.#parts.bodies.resultText(record);
  }
}

const isOf = (record: TaskRecord, workspaceId: WorkspaceId, whose: TaskFilter['whose']): boolean =>
  (record.workspaceId === workspaceId && whose !== 'public') ||
  (whose !== undefined && record.calledBy === workspaceId);

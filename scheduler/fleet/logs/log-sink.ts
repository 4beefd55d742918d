// Output of people's containers on its way from agents to the database.
// The links call it with batches, which are acknowledged when written.
// Invariant: a line is kept only when its container is on the machine that sent
// it. The owner of a line comes from the container's row, never from the message.
import { setImmediate } from 'node:timers/promises';
import type { ContainerId, MachineId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { areJoined, separateLines } from '#shared/domain/log-lines.ts';
import { Listeners } from '#shared/listeners.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { LogBatch__Output, LogRecord__Output } from '#shared/protocol/generated/messages.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { containerById } from '../../stores/store/queries/containers.ts';
import type { LogWritten, NewLogLine, NumberedBatch } from '../../stores/store/queries/logs.ts';
import { insertLogLines, MAX_LOG_BATCH } from '../../stores/store/queries/logs.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import { containerFact } from '../../workspaces/events/container-fact.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../containers/container-registry.ts';
import type { LogQuota } from './log-quota.ts';

const MAX_REMEMBERED = 5_000;
const MAX_LINE_CHARACTERS = 64 * 1024;
/** Latest accepted time: the year 3000. */
const LATEST_MS = Date.UTC(3000);

type Owner = Pick<ContainerRow, 'id' | 'workspaceId' | 'stubId' | 'deploymentId'> & {
  readonly machineId: MachineId | null;
};

export interface LogSinkParts {
  readonly db: Queryable;
  readonly containers: ContainerRegistry;
  /** Bound on a workspace's lines in a day; absent: none. */
  readonly quota?: LogQuota;
  /** Database and writer of events about lines that the quota drops; absent: nothing is told. */
  readonly told?: { readonly db: Db; readonly events: Pick<EventWriter, 'transaction'> };
}

export class LogSink {
  readonly #db: Queryable;
  readonly #containers: ContainerRegistry;
  readonly #quota: LogQuota | undefined;
  readonly #told: LogSinkParts['told'];
  /** Owners of ended containers, whose lines may still be under way. */
  readonly #ended = new Map<string, Owner>();
  readonly #written = new Listeners<[WorkspaceId, number]>();
  readonly #notes: NewLogLine[] = [];
  #isNoting = false;

  constructor({ db, containers, quota, told }: LogSinkParts) {
    this.#told = told;
    this.#db = db;
    this.#quota = quota;
    this.#containers = containers;
  }

  /** Told after each commit: the workspace, and the id of its last line. */
  onWritten(listener: (workspaceId: WorkspaceId, lastId: number) => void): void {
    this.#written.add(listener);
  }

  containerChanged({ entry, to, machineBefore }: ContainerEntryChange): void {
    if (to === 'STOPPED' || to === 'FAILED' || to === 'LOST')
      this.#remember({ ...entry.row, machineId: machineBefore });
  }

  /** Writes a machine's batch, once however often it comes. A batch that is larger than agents' batches is refused. */
  async append(machineId: MachineId, { seq, sender, records }: LogBatch__Output): Promise<void> {
    const lines: NewLogLine[] = [];
    /** Containers of notices in place of lines that were dropped. */
    const notices = new Map<NewLogLine, Owner>();
    let containerId: string | undefined;
    let owner: Owner | undefined;
    for (const record of records) {
      if (record.containerId !== containerId) owner = await this.#ownerOf(record.containerId);
      containerId = record.containerId;
      if (owner === undefined || owner.machineId !== machineId) continue;
      for (const line of this.#admissible(linesOf(record, owner))) {
        const instead = this.#quota === undefined ? line : this.#quota.admit(line);
        if (instead === undefined) continue;
        lines.push(instead);
        if (instead !== line) notices.set(instead, owner);
      }
    }
    try {
      await this.#writeTold(lines, notices, isUuid(sender) ? { machineId, sender, seq } : undefined);
    } catch (error) {
      this.#quota?.notWritten(lines);
      throw error;
    }
  }

  /**
   * Adds a line of the scheduler's own. Lines of one moment are written together. A line that cannot be written is
   * dropped, because the record of its task says the same.
   */
  note(line: NewLogLine): void {
    if (this.#notes.length >= MAX_LOG_BATCH || this.#quota?.hasRoomFor(line) === false) return;
    this.#notes.push(line);
    if (this.#isNoting) return;
    this.#isNoting = true;
    void setImmediate().then(() => this.#writeNotes());
  }

  /** Writes notes, one statement after another: those that come meanwhile gather for the next one. */
  async #writeNotes(): Promise<void> {
    while (this.#notes.length > 0) {
      try {
        await this.#writeTold(this.#notes.splice(0), new Map());
      } catch {
        // The lines of this statement are dropped.
      }
    }
    this.#isNoting = false;
  }

  /** Lines of a record as far as the quota can decide on them at once. */
  #admissible(lines: NewLogLine): readonly NewLogLine[] {
    return this.#quota === undefined || this.#quota.hasRoomFor(lines) ? [lines] : separateLines(lines);
  }

  /** Writes lines, and tells those who count them or wait for them. */
  async #writeTold(
    lines: readonly NewLogLine[],
    notices: ReadonlyMap<NewLogLine, Owner>,
    batch?: NumberedBatch,
  ): Promise<void> {
    const written = await this.#write(lines, notices, batch);
    if (written.size === 0) this.#quota?.repeated(lines);
    this.#quota?.written(written);
    for (const [workspaceId, { lastId }] of written) this.#written.tell(workspaceId, lastId);
  }

  /** Writes lines, and events about those that are notices of dropped ones. */
  #write(
    lines: readonly NewLogLine[],
    notices: ReadonlyMap<NewLogLine, Owner>,
    batch: NumberedBatch | undefined,
  ): Promise<ReadonlyMap<WorkspaceId, LogWritten>> {
    const nowMs = this.#quota?.nowMs() ?? Date.now();
    const noticed = this.#told === undefined ? [] : lines.filter((line) => notices.has(line));
    if (this.#told === undefined || noticed.length === 0) return insertLogLines(this.#db, lines, nowMs, batch);
    return this.#told.events.transaction(this.#told.db, async (tx, emit) => {
      const written = await insertLogLines(tx, lines, nowMs, batch);
      if (written.size === 0) return written;
      for (const line of noticed) {
        const owner = notices.get(line);
        if (owner === undefined) continue;
        const fact = { reason: 'quota', message: line.line, attrs: { limit: 'bytes.logs_per_day' } };
        emit(containerFact(owner, undefined, 'logs.dropped', nowMs, fact));
      }
      return written;
    });
  }

  async #ownerOf(containerId: string): Promise<Owner | undefined> {
    const live = this.#containers.get(containerId as ContainerId);
    if (live !== undefined) return live.row;
    const known = this.#ended.get(containerId);
    if (known !== undefined) return known;
    const row = await containerById(this.#db, containerId);
    if (row !== undefined) this.#remember(row);
    return row;
  }

  #remember(owner: Owner): void {
    this.#ended.set(owner.id, owner);
    const oldest = this.#ended.keys().next();
    if (this.#ended.size > MAX_REMEMBERED && oldest.done !== true) this.#ended.delete(oldest.value);
  }
}

/** A record's lines. Where text and times do not belong together, the text is one line. */
function linesOf(record: LogRecord__Output, owner: Owner): NewLogLine {
  const isJoined = areJoined(record.line, record.afterMs);
  return {
    workspaceId: owner.workspaceId,
    stubId: owner.stubId,
    deploymentId: owner.deploymentId,
    containerId: owner.id,
    taskId: isUuid(record.taskId) ? (record.taskId as TaskId) : null,
    stream: record.stream === 'stderr' ? 'stderr' : 'stdout',
    line: isJoined ? record.line : record.line.slice(0, MAX_LINE_CHARACTERS),
    atMs: datable(record.timestampMs),
    afterMs: isJoined ? record.afterMs : undefined,
  };
}

/** The line's time if a database can store it, else the present: a refused batch would come again for ever. */
function datable(timestampMs: number): number {
  return timestampMs > 0 && timestampMs < LATEST_MS ? timestampMs : Date.now();
}

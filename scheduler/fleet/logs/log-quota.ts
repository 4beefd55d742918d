// The quota of log lines of a workspace in a day of UTC. The statement that writes lines counts them, so replicas and
// restarts share one count. This file keeps the last known count.
// Invariant: no statement of its own. A workspace above its quota loses
// lines, is told so once for each container and day, and costs nothing more.
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { countOfLines } from '#shared/domain/log-lines.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { LogWritten, NewLogLine } from '../../stores/store/queries/logs.ts';
import { LINE_OVERHEAD_BYTES } from '../../stores/store/queries/logs.ts';
import { dayOf } from '../../stores/store/queries/quotas.ts';

const MAX_WORKSPACES = 10_000;
/** Most containers of a workspace that are told in a day; later ones are not. */
const MAX_TOLD = 1_000;

interface Used {
  readonly day: string;
  /** Bytes that the database last reported, and those on their way there. */
  bytes: number;
  readonly told: Set<ContainerId>;
}

export interface LogQuotaParts {
  /** `bytes.logs_per_day` of the workspace, as far as it is known. */
  readonly limitOf: (workspaceId: WorkspaceId) => number;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly onDropped: () => void;
}

export class LogQuota {
  readonly #parts: LogQuotaParts;
  readonly #used = new BoundedMap<WorkspaceId, Used>(MAX_WORKSPACES);

  constructor(parts: LogQuotaParts) {
    this.#parts = parts;
  }

  /** The time whose day the lines of this moment count for. */
  nowMs(): number {
    return this.#parts.clock.nowMs();
  }

  /** Whether the quota has room for all of them: else each line has to be admitted by itself. */
  hasRoomFor(lines: NewLogLine): boolean {
    return this.#of(lines.workspaceId).bytes + bytesOf(lines) <= this.#parts.limitOf(lines.workspaceId);
  }

  /**
   * Admits a line, or several that there is room for. Above the quota it returns a line that says so,
   * once for its container; else undefined: the line is dropped.
   */
  admit(line: NewLogLine): NewLogLine | undefined {
    const used = this.#of(line.workspaceId);
    if (this.hasRoomFor(line)) {
      used.bytes += bytesOf(line);
      return line;
    }
    this.#parts.onDropped();
    if (used.told.has(line.containerId) || used.told.size >= MAX_TOLD) return undefined;
    used.told.add(line.containerId);
    const limit = this.#parts.limitOf(line.workspaceId);
    const text = `longshore: this workspace has written its ${limit} bytes of log lines for ${used.day} (UTC). Lines are dropped until midnight. An administrator can raise bytes.logs_per_day with \`longshore workspace limits\`.`;
    const notice: NewLogLine = { ...line, stream: 'stderr', taskId: null, line: text };
    used.bytes += bytesOf(notice);
    return notice;
  }

  /** Takes over the database's counts of today, after lines were written. */
  written(written: ReadonlyMap<WorkspaceId, Pick<LogWritten, 'dayBytes'>>): void {
    for (const [workspaceId, { dayBytes }] of written) {
      const used = this.#of(workspaceId);
      used.bytes = Math.max(used.bytes, dayBytes);
    }
  }

  /** Takes back admitted lines that the database did not store: they come again. */
  notWritten(lines: readonly NewLogLine[]): void {
    this.repeated(lines);
    for (const line of lines) this.#of(line.workspaceId).told.delete(line.containerId);
  }

  /** Takes back admitted lines that the database has from before. */
  repeated(lines: readonly NewLogLine[]): void {
    for (const line of lines) {
      const used = this.#of(line.workspaceId);
      used.bytes = Math.max(0, used.bytes - bytesOf(line));
    }
  }

  #of(workspaceId: WorkspaceId): Used {
    const day = dayOf(this.#parts.clock.nowMs());
    const known = this.#used.get(workspaceId);
    if (known?.day === day) return known;
    const fresh: Used = { day, bytes: 0, told: new Set() };
    this.#used.set(workspaceId, fresh);
    return fresh;
  }
}

/** Bytes of a line, or of several: line ends between them do not count. */
const bytesOf = (line: NewLogLine): number =>
  Buffer.byteLength(line.line) + 1 + countOfLines(line) * (LINE_OVERHEAD_BYTES - 1);

// Log lines as the hub of live readers takes them: a line's id is its number. Ids of a workspace's lines are in the
// order of commits (stores/store/queries/logs.ts).
import type { ContainerId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import type { LogLineRow } from '../../stores/store/queries/logs.ts';
import { MOST_LINES_OF_ROW } from '../../stores/store/log-rows.ts';
import { lastLogIds, logEdge, logIdAt, readLogLines } from '../../stores/store/queries/logs.ts';
import { Hub } from '../../workspaces/events/hub.ts';
import type { HubParts } from '../../workspaces/events/hub.ts';
import { matchOf } from './log-reads.ts';
import type { LogFilter, LogLine } from './log-service.ts';

/** Filter of a live reader: a filter of pages without places and times. */
export type LiveLogFilter = Omit<LogFilter, 'limit' | 'page' | 'afterSeq' | 'beforeSeq' | 'fromMs' | 'toMs'>;

/** Facts about a line that its row lacks. */
export interface LogOwner {
  readonly appId: string | undefined;
  readonly stubType: string | undefined;
  readonly machineId: MachineId | undefined;
}

export interface LiveLine extends LogLine, LogOwner {
  readonly workspaceId: WorkspaceId;
  readonly storedAtMs: number;
}

export interface LogOwners {
  stubs(ids: readonly StubId[]): Promise<ReadonlyMap<StubId, { readonly appId: string; readonly type: string }>>;
  machinesOf(
    workspaceId: WorkspaceId,
    containerIds: readonly ContainerId[],
  ): Promise<ReadonlyMap<ContainerId, MachineId>>;
}

export interface LiveLogsParts {
  readonly db: Pick<Db, 'kind' | 'reads'>;
  readonly owners: LogOwners;
}

/** Rows that one page of a reader looks at. */
const ROWS_OF_PAGE = { pglite: 2_000, postgres: 10_000 } as const;
/** Bytes of a line in memory beside its text, and those of its frame. */
const BYTES_BESIDE = 1_200;
/** The text is in the row and in the frame, where it may have escapes. */
const COPIES = 4;

export type LogHub = Hub<LiveLine, LiveLogFilter>;

export class LiveLogs {
  readonly #parts: LiveLogsParts;

  constructor(parts: LiveLogsParts) {
    this.#parts = parts;
  }

  /** @param frameOf - a line as it is sent */
  hub(frameOf: (line: LiveLine) => Buffer, parts: Omit<HubParts<LiveLine, LiveLogFilter>, 'source'>): LogHub {
    return new Hub<LiveLine, LiveLogFilter>({
      ...parts,
      source: {
        tails: (workspaceIds) => this.#tails(workspaceIds),
        startOf: (workspaceId, tail, most) => this.#startOf(workspaceId, tail, most),
        next: (workspaceId, afterSeq, limit) => this.next(workspaceId, afterSeq, limit),
        after: (...asked) => this.#after(...asked),
        passes,
        frameOf,
        sizeOf: ({ line }) => COPIES * line.length + BYTES_BESIDE,
      },
    });
  }

  /** Lines behind an id, of the whole workspace. */
  async next(workspaceId: WorkspaceId, afterSeq: number, limit: number): Promise<readonly LiveLine[]> {
    const reads = this.#parts.db.reads.of(workspaceId);
    return this.#owned(
      workspaceId,
      await readLogLines(reads, { workspaceId }, { afterId: afterSeq }, undefined, limit),
    );
  }

  /** Id of the first line that was printed at that time or later, as far as lines come in order. */
  idAt(workspaceId: WorkspaceId, ms: number): Promise<number> {
    return logIdAt(this.#parts.db.reads.of(workspaceId), workspaceId, ms);
  }

  async #tails(workspaceIds: readonly WorkspaceId[]): Promise<ReadonlyMap<WorkspaceId, number>> {
    const [first] = workspaceIds;
    return first === undefined ? new Map() : await lastLogIds(this.#parts.db.reads.of(first), workspaceIds);
  }

  /** The id before some lines up to the tail. The edge may lie a row's lines further back than was asked. */
  async #startOf(workspaceId: WorkspaceId, tail: number, most: number): Promise<number> {
    const reads = this.#parts.db.reads.of(workspaceId);
    const edge = await logEdge(reads, { workspaceId }, { beforeId: tail + 1 }, Math.max(1, most - MOST_LINES_OF_ROW));
    return edge === undefined ? 0 : edge.id - 1;
  }

  async #after(
    workspaceId: WorkspaceId,
    filter: LiveLogFilter,
    afterSeq: number,
    untilSeq: number,
    limit: number,
  ): Promise<{ readonly rows: readonly LiveLine[]; readonly nextSeq: number }> {
    if (afterSeq >= untilSeq) return { rows: [], nextSeq: untilSeq + 1 };
    const { db } = this.#parts;
    const reads = db.reads.of(workspaceId);
    const match = matchOf(workspaceId, filter);
    const start = { afterId: afterSeq };
    const edge = await logEdge(reads, match, start, ROWS_OF_PAGE[db.kind]);
    // The lines of a container, task, stub or deployment belong to one workspace.
    if (edge !== undefined && edge.workspaceId !== workspaceId) return { rows: [], nextSeq: untilSeq + 1 };
    const edgeId = Math.min(edge?.id ?? untilSeq, untilSeq);
    const found = await readLogLines(reads, match, start, edgeId, limit);
    const last = found.at(-1);
    return {
      rows: await this.#owned(workspaceId, found),
      nextSeq: found.length === limit && last !== undefined ? last.id + 1 : edgeId + 1,
    };
  }

  #owned(workspaceId: WorkspaceId, rows: readonly LogLineRow[]): Promise<readonly LiveLine[]> {
    const lines = rows.map(({ id, ...row }) => ({ ...row, seq: id, storedAtMs: row.atMs }));
    return ownedLines(this.#parts.owners, workspaceId, lines);
  }
}

/** Lines with the facts that their rows lack. A stub's facts and a container's machine are looked up, once for each. */
export async function ownedLines<Line extends LogLine>(
  owners: LogOwners,
  workspaceId: WorkspaceId,
  lines: readonly Line[],
): Promise<readonly (Line & LogOwner & { readonly workspaceId: WorkspaceId })[]> {
  if (lines.length === 0) return [];
  const containerIds = [...new Set(lines.map((line) => line.containerId as ContainerId))];
  const [stubs, machines] = await Promise.all([
    owners.stubs(lines.map((line) => line.stubId as StubId)),
    owners.machinesOf(workspaceId, containerIds),
  ]);
  return lines.map((line) => {
    const stub = stubs.get(line.stubId as StubId);
    const machineId = machines.get(line.containerId as ContainerId);
    return { ...line, workspaceId, appId: stub?.appId, stubType: stub?.type, machineId };
  });
}

function passes(line: LiveLine, filter: LiveLogFilter): boolean {
  const { containerId, taskId, stubId, deploymentId, appId, machineId, query } = filter;
  return (
    (containerId === undefined || line.containerId === containerId) &&
    (taskId === undefined || line.taskId === taskId) &&
    (stubId === undefined || line.stubId === stubId) &&
    (deploymentId === undefined || line.deploymentId === deploymentId) &&
    (appId === undefined || line.appId === appId) &&
    (machineId === undefined || line.machineId === machineId) &&
    (query === undefined || query === '' || line.line.toLowerCase().includes(query.toLowerCase()))
  );
}

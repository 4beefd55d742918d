// Reads of the stored output of people's containers.
// Invariants: a statement looks at few rows and a read at 50 000, however many there are. The lines of a statement, and
// those of an answer, take a bounded number of bytes. The next request reads on from where this one stopped.
import { FairLine } from '#shared/fair-line.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import type { LogLineRow, LogMatch, LogStart } from '../../stores/store/queries/logs.ts';
import { logEdge, readLogLines } from '../../stores/store/queries/logs.ts';
import type { LogFilter, LogPageRead, LogReads } from './log-service.ts';

/** Most rows that a read looks at. Source: reference, REST §8. */
const MOST_EXAMINED = 50_000;
/** Most rows that one statement looks at: on PGlite some 20 ms, in which every other statement waits. */
const MOST_AT_ONCE = { pglite: 2_000, postgres: 10_000 } as const;
const FEWEST_AT_ONCE = 500;
const READ_MS = 8_000;
/**
 * Tolerance for clocks that are ahead. A line carries its printing time:
 * lines older than their neighbours come from machines that were away.
 */
const CLOCKS_AHEAD_MS = 60 * 60_000;
/** Lines of one statement, each of 64 KiB at most. */
const PORTION = 250;
/** Characters of an answer at which it is cut. */
const MOST_CHARACTERS = 16 * 1024 * 1024;
const SEARCHES_WAITING = 4;
const SEARCH_WAIT_MS = 5_000;

/** Bounds of a reader, for tests. */
export interface LogBounds {
  readonly portion?: number;
  readonly mostCharacters?: number;
}

/** Lines that a read found. Those that its page passes over are counted, and not kept. */
class Found {
  readonly #passedOver: number;
  readonly rows: LogLineRow[] = [];
  count = 0;
  characters = 0;
  last: LogLineRow | undefined;

  constructor(passedOver: number) {
    this.#passedOver = passedOver;
  }

  /** @returns the last of the lines */
  add(lines: readonly LogLineRow[]): LogLineRow | undefined {
    for (const line of lines) {
      this.count += 1;
      if (this.count <= this.#passedOver) continue;
      this.rows.push(line);
      this.characters += line.line.length;
    }
    const last = lines.at(-1);
    this.last = last ?? this.last;
    return last;
  }
}

export class LogReader implements LogReads {
  readonly #db: Pick<Db, 'kind' | 'reads'>;
  readonly #portion: number;
  readonly #mostCharacters: number;
  /** Searches by text, one at a time for each workspace. */
  readonly #searches = new FairLine({
    atOnce: 1_000,
    atOnceOfOne: 1,
    mostWaiting: 1_000,
    mostWaitingOfOne: SEARCHES_WAITING,
    waitMs: SEARCH_WAIT_MS,
    refusal: () =>
      new AppError('rate_limited', 'other log searches of this workspace run: try again when they are done'),
  });

  constructor(db: Pick<Db, 'kind' | 'reads'>, { portion = PORTION, mostCharacters = MOST_CHARACTERS }: LogBounds = {}) {
    this.#db = db;
    this.#portion = portion;
    this.#mostCharacters = mostCharacters;
  }

  read(workspaceId: WorkspaceId, filter: LogFilter): Promise<LogPageRead> {
    const read = (): Promise<LogPageRead> => this.#read(workspaceId, filter);
    return (filter.query ?? '') === '' ? read() : this.#searches.run(workspaceId, read);
  }

  async #read(workspaceId: WorkspaceId, filter: LogFilter): Promise<LogPageRead> {
    const reads = this.#db.reads.of(workspaceId);
    const match = matchOf(workspaceId, filter);
    const passedOver = filter.page * filter.limit;
    const wanted = passedOver + filter.limit;
    const found = new Found(passedOver);
    const isForward = filter.afterSeq !== undefined;
    let at: LogStart = isForward
      ? { afterId: filter.afterSeq ?? 0 }
      : { beforeId: filter.beforeSeq ?? Number.MAX_SAFE_INTEGER };
    let rows = Math.min(Math.max(wanted, FEWEST_AT_ONCE), MOST_AT_ONCE[this.#db.kind]);
    const untilMs = performance.now() + READ_MS;
    for (let examined = 0; examined < MOST_EXAMINED; examined += rows) {
      rows = Math.min(examined === 0 ? rows : rows * 2, MOST_AT_ONCE[this.#db.kind], MOST_EXAMINED - examined);
      const edge = await logEdge(reads, match, at, rows);
      // The lines of a container, task, stub or deployment belong
      // to one workspace; another workspace's read finds nothing.
      if (edge !== undefined && edge.workspaceId !== workspaceId) return pageOf(new Found(0), filter, undefined);
      for (;;) {
        const missing = wanted - found.count;
        const portion = Math.min(missing, this.#portion);
        const lines = await readLogLines(reads, match, at, edge?.id, portion);
        const last = found.add(lines);
        if (last === undefined || lines.length < portion) break;
        const isEnough = missing === portion || found.characters >= this.#mostCharacters;
        if (isEnough || performance.now() > untilMs) return pageOf(found, filter, last.id);
        at = isForward ? { afterId: last.id } : { beforeId: last.id };
      }
      if (edge === undefined || isPast(edge, filter)) return pageOf(found, filter, undefined);
      at = isForward ? { afterId: edge.id } : { beforeId: edge.id };
      if (performance.now() > untilMs) break;
    }
    return pageOf(found, filter, 'beforeId' in at ? at.beforeId : at.afterId);
  }
}

/** Whether all lines further back are older than the wanted ones. */
const isPast = (edge: { readonly atMs: number }, { fromMs, afterSeq }: LogFilter): boolean =>
  afterSeq === undefined && fromMs !== undefined && edge.atMs < fromMs - CLOCKS_AHEAD_MS;

function pageOf({ rows, last }: Found, filter: LogFilter, nextSeq: number | undefined): LogPageRead {
  const lines = filter.afterSeq === undefined ? rows.toReversed() : rows;
  return {
    lines: lines.map((row) => ({
      seq: row.id,
      atMs: row.atMs,
      stream: row.stream,
      line: row.line,
      containerId: row.containerId,
      stubId: row.stubId,
      deploymentId: row.deploymentId,
      taskId: row.taskId,
    })),
    isFull: rows.length === filter.limit,
    nextSeq,
    lastSeq: last?.id,
  };
}

/** The filter as the statements take it. */
export const matchOf = (workspaceId: WorkspaceId, filter: Omit<LogFilter, 'limit' | 'page'>): LogMatch => ({
  workspaceId,
  ...(filter.containerId === undefined ? {} : { containerId: filter.containerId }),
  ...(filter.taskId === undefined ? {} : { taskId: filter.taskId }),
  ...(filter.stubId === undefined ? {} : { stubId: filter.stubId }),
  ...(filter.deploymentId === undefined ? {} : { deploymentId: filter.deploymentId }),
  ...(filter.appId === undefined ? {} : { appId: filter.appId }),
  ...(filter.machineId === undefined ? {} : { machineId: filter.machineId }),
  ...(filter.query === undefined ? {} : { contains: filter.query }),
  ...(filter.fromMs === undefined ? {} : { fromMs: filter.fromMs }),
  ...(filter.toMs === undefined ? {} : { toMs: filter.toMs }),
});

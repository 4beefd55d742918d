// Sends events and log lines to a system outside: to a collector, or into a file. The leader does so, and goes on where
// the one before stopped.
// Invariants: a row is sent at least once while it exists, and rows of a workspace in order. A target that does not
// answer costs no memory: rows wait in the database, until their retention. Messages are hints; the sweep finds the
// rest.
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { LeaderLease } from '../../cluster/leader.ts';
import { whileLeading } from '../../cluster/while-leading.ts';
import type { ExportMetrics } from './metrics.ts';

export type ExportKind = 'events' | 'logs';

/** A row as targets take it. */
export interface ExportRecord {
  readonly kind: ExportKind;
  readonly atMs: number;
  readonly storedAtMs: number;
  /** The record as the REST API shows it. */
  readonly record: Readonly<Record<string, unknown>>;
}

export interface ExportSource {
  readonly kind: ExportKind;
  /** Number of the last committed row of every workspace that has one. */
  tails(): Promise<ReadonlyMap<WorkspaceId, number>>;
  /**
   * The next rows behind a number, in order, and the number of the last of them. There may be more than the limit;
   * fewer: these are all.
   */
  next(
    workspaceId: WorkspaceId,
    after: number,
    limit: number,
  ): Promise<{ readonly records: readonly ExportRecord[]; readonly last: number }>;
}

export interface ExportTarget {
  /** Name for logs. */
  readonly name: string;
  /** Resolves when the records are there. @throws when they are not, or may not be: they come again */
  send(records: readonly ExportRecord[], signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export interface ExportPositions {
  load(kind: ExportKind): Promise<ReadonlyMap<WorkspaceId, number>>;
  store(kind: ExportKind, positions: ReadonlyMap<WorkspaceId, number>): Promise<void>;
}

export interface ExporterParts {
  readonly sources: readonly ExportSource[];
  readonly target: ExportTarget;
  readonly positions: ExportPositions;
  readonly leader: Pick<LeaderLease, 'isLeader' | 'onChange'>;
  readonly log: Log;
  readonly metrics: ExportMetrics;
  readonly pageRows?: number;
  readonly sweepMs?: number;
  readonly storeMs?: number;
  readonly retryMs?: number;
}

const PAGE_ROWS = 500;
const SWEEP_MS = 10_000;
/** Milliseconds between two writes of positions: a leader that is killed repeats what was sent since. */
const STORE_MS = 2_000;
const RETRY_MS = 1_000;
const MOST_RETRY_MS = 60_000;

/** Id of no workspace. */
const NOBODY = '' as WorkspaceId;

/** Progress of one source on its way to the target. */
interface Way {
  readonly source: ExportSource;
  readonly positions: Map<WorkspaceId, number>;
  /** Workspaces with rows that are not sent, as far as known. */
  readonly behind: Set<WorkspaceId>;
  /** Positions that are not stored. */
  readonly moved: Set<WorkspaceId>;
}

export class Exporter {
  readonly name = 'exports';
  readonly #parts: ExporterParts;
  readonly #hinted = new Map<ExportKind, Set<WorkspaceId>>();
  #wakeUp: (() => void) | undefined;
  #end: (() => void) | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(parts: ExporterParts) {
    this.#parts = parts;
    for (const { kind } of parts.sources) this.#hinted.set(kind, new Set());
  }

  start(): void {
    this.#end = whileLeading(this.#parts.leader, (signal) => {
      this.#running = this.#running.then(() => this.#run(signal));
    });
  }

  async stop(): Promise<void> {
    this.#end?.();
    await this.#running;
    await this.#parts.target.close();
  }

  /** Tells that a workspace has new rows; called on any replica. */
  wake(kind: ExportKind, workspaceId: WorkspaceId): void {
    if (!this.#parts.leader.isLeader()) return;
    this.#hinted.get(kind)?.add(workspaceId);
    this.#wakeUp?.();
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { log, sweepMs = SWEEP_MS, retryMs = RETRY_MS, metrics } = this.#parts;
    signal.addEventListener('abort', () => this.#wakeUp?.(), { once: true });
    let ways: readonly Way[] | undefined;
    let failures = 0;
    let sweepAtMs = 0;
    let storedAtMs = performance.now();
    while (!signal.aborted) {
      try {
        ways ??= await this.#begin();
        if (performance.now() >= sweepAtMs) {
          await this.#sweep(ways);
          sweepAtMs = performance.now() + sweepMs;
        }
        const isDone = await this.#round(ways, signal);
        failures = 0;
        if (performance.now() - storedAtMs >= (this.#parts.storeMs ?? STORE_MS)) {
          await this.#store(ways);
          storedAtMs = performance.now();
        }
        if (isDone)
          await this.#rest(
            this.#isMoved(ways) ? (this.#parts.storeMs ?? STORE_MS) : sweepAtMs - performance.now(),
            signal,
          );
      } catch (error) {
        if (signal.aborted) break;
        failures += 1;
        metrics.failures.inc();
        log.warn({ err: error, target: this.#parts.target.name, failures }, 'events and log lines are exported later');
        await sleep(backoffMs(failures, { baseMs: retryMs, capMs: MOST_RETRY_MS }), signal);
      }
    }
    metrics.behind.set(0);
    if (ways !== undefined) {
      await this.#store(ways).catch((error: unknown) =>
        log.info({ err: error }, 'positions of exports are not stored'),
      );
    }
  }

  /** Reads the positions. An export that never ran begins with what comes from now on. */
  async #begin(): Promise<readonly Way[]> {
    const { sources, positions } = this.#parts;
    const ways: Way[] = [];
    for (const source of sources) {
      const known = await positions.load(source.kind);
      const way: Way = { source, positions: new Map(known), behind: new Set(), moved: new Set() };
      if (known.size === 0) {
        // Also where no row exists yet, the next leader must see that the export ran.
        way.positions.set(NOBODY, 0);
        way.moved.add(NOBODY);
        for (const [workspaceId, tail] of await source.tails()) {
          way.positions.set(workspaceId, tail);
          way.moved.add(workspaceId);
        }
      }
      ways.push(way);
    }
    await this.#store(ways);
    return ways;
  }

  async #sweep(ways: readonly Way[]): Promise<void> {
    let behind = 0;
    for (const { source, positions, behind: those } of ways) {
      for (const [workspaceId, tail] of await source.tails()) {
        if (tail <= (positions.get(workspaceId) ?? 0)) continue;
        those.add(workspaceId);
        behind += 1;
      }
    }
    this.#parts.metrics.behind.set(behind);
  }

  /** Sends a page of each workspace that has rows. @returns whether nothing is left, as far as known */
  async #round(ways: readonly Way[], signal: AbortSignal): Promise<boolean> {
    const { target, metrics, pageRows = PAGE_ROWS, leader } = this.#parts;
    for (const way of ways) {
      const hinted = this.#hinted.get(way.source.kind);
      for (const workspaceId of hinted ?? []) way.behind.add(workspaceId);
      hinted?.clear();
      for (const workspaceId of way.behind) {
        // The lease may have run out while this process stood still.
        if (signal.aborted || !leader.isLeader()) return true;
        const after = way.positions.get(workspaceId) ?? 0;
        const { records, last } = await way.source.next(workspaceId, after, pageRows);
        if (records.length > 0) {
          await target.send(records, signal);
          metrics.exported.inc({ kind: way.source.kind }, records.length);
          way.positions.set(workspaceId, last);
          way.moved.add(workspaceId);
        }
        // A full page may have more behind it: the next round reads on, after the other workspaces.
        if (records.length < pageRows) way.behind.delete(workspaceId);
      }
    }
    return ways.every(({ behind }) => behind.size === 0) && [...this.#hinted.values()].every(({ size }) => size === 0);
  }

  #isMoved(ways: readonly Way[]): boolean {
    return ways.some(({ moved }) => moved.size > 0);
  }

  /** The positions of a leader that leads no more may be behind those of the next one. */
  async #store(ways: readonly Way[]): Promise<void> {
    if (!this.#parts.leader.isLeader()) return;
    for (const { source, positions, moved } of ways) {
      if (moved.size === 0) continue;
      const ids = [...moved];
      await this.#parts.positions.store(source.kind, new Map(ids.map((id) => [id, positions.get(id) ?? 0])));
      for (const id of ids) moved.delete(id);
    }
  }

  async #rest(ms: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted || [...this.#hinted.values()].some(({ size }) => size > 0)) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, Math.max(1, ms));
      this.#wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wakeUp = undefined;
  }
}

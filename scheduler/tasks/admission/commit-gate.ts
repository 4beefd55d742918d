// Gate for asynchronous tasks, whose jobs are queued before their rows are committed. While commits fail or
// hang, new calls are refused before anything is queued. A probe that commits something opens admission again.
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { sqlStateOf } from '../../stores/store/db.ts';

/** Milliseconds after which a commit counts as stalled, and admission closes; an ordinary commit takes milliseconds. */
const STALLED_MS = 2_000;
const PROBES = { baseMs: 250, capMs: 5_000, floorMs: 100 };

export interface CommitGateParts {
  /** Commits something small, with a deadline. */
  readonly probe: () => Promise<unknown>;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly nowMs?: () => number;
  readonly pause?: typeof sleep;
}

export class CommitGate {
  readonly #parts: CommitGateParts;
  readonly #nowMs: () => number;
  /** Start time of each commit under way, the oldest first. */
  readonly #underWay = new Map<symbol, number>();
  #isClosed = false;

  constructor(parts: CommitGateParts) {
    this.#parts = parts;
    this.#nowMs = parts.nowMs ?? (() => performance.now());
  }

  /** Whether calls must be refused before anything is queued. */
  isClosed(): boolean {
    if (this.#isClosed) return true;
    const [oldestMs] = this.#underWay.values();
    if (oldestMs === undefined || this.#nowMs() - oldestMs < STALLED_MS) return false;
    this.#close(undefined);
    return true;
  }

  /** Watches a commit. @throws the commit's error */
  async watch<T>(commit: () => Promise<T>): Promise<T> {
    const id = Symbol('commit');
    this.#underWay.set(id, this.#nowMs());
    try {
      return await commit();
    } catch (error) {
      if (!isOfTheTask(error)) this.#close(error);
      throw error;
    } finally {
      this.#underWay.delete(id);
    }
  }

  #close(error: unknown): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#parts.log.error({ err: error }, 'tasks cannot be committed; asynchronous calls are refused until they can');
    void this.#reopen();
  }

  async #reopen(): Promise<void> {
    const { probe, signal, log, pause = sleep } = this.#parts;
    for (let tries = 1; await pause(backoffMs(tries, PROBES), signal); tries += 1) {
      try {
        await probe();
      } catch {
        continue;
      }
      // Commits that stalled before say nothing about new ones.
      this.#underWay.clear();
      this.#isClosed = false;
      log.info({ tries }, 'tasks can be committed again; asynchronous calls are taken');
      return;
    }
  }
}

/** Whether the database refuses these data (SQLSTATE classes 22 and 23), not commits. */
const isOfTheTask = (error: unknown): boolean => /^2[23]/.test(sqlStateOf(error) ?? '');

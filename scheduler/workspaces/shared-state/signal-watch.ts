// Watches signals for callers that wait for them. While anybody waits, one statement each second reads all that are
// waited for, whatever their number. The gRPC calls use it.
// Invariant: a setting is told once to each watcher, and so is its end. What happens between two looks may be missed.
import { sleep } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { signalRevisions } from '../../stores/store/queries/shared-entries.ts';

const LOOK_EVERY_MS = 1_000;

interface Watcher {
  readonly workspaceId: WorkspaceId;
  readonly name: string;
  /** The newest revision that the watcher has not taken yet. */
  news: number | undefined;
  /** Revision that was told last; undefined: none was. */
  told: number | undefined;
  wake: () => void;
}

export class SignalWatch {
  readonly #parts: { readonly db: Queryable; readonly log: Log; readonly everyMs?: number };
  readonly #watchers = new Set<Watcher>();
  #isLooking = false;

  constructor(parts: { readonly db: Queryable; readonly log: Log; readonly everyMs?: number }) {
    this.#parts = parts;
  }

  /** Tells whether the signal is set, now and after each change; a signal that is set again is told again. */
  async *watch(workspaceId: WorkspaceId, name: string, signal: AbortSignal): AsyncGenerator<boolean> {
    const watcher: Watcher = { workspaceId, name, news: undefined, told: undefined, wake: () => undefined };
    const onAbort = (): void => watcher.wake();
    signal.addEventListener('abort', onAbort);
    this.#watchers.add(watcher);
    if (!this.#isLooking) void this.#look();
    try {
      for (;;) {
        if (signal.aborted) return;
        const { news } = watcher;
        if (news === undefined) {
          await new Promise<void>((resolve) => (watcher.wake = resolve));
          continue;
        }
        watcher.news = undefined;
        yield news !== 0;
      }
    } finally {
      this.#watchers.delete(watcher);
      signal.removeEventListener('abort', onAbort);
    }
  }

  async #look(): Promise<void> {
    this.#isLooking = true;
    while (this.#watchers.size > 0) {
      try {
        await this.#lookOnce();
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'signals cannot be read; the next look may');
      }
      await sleep(this.#parts.everyMs ?? LOOK_EVERY_MS);
    }
    this.#isLooking = false;
  }

  async #lookOnce(): Promise<void> {
    const watchers = [...this.#watchers];
    const keyOf = (workspaceId: string, name: string): string => `${workspaceId} ${name}`;
    const places = new Map(watchers.map((one) => [keyOf(one.workspaceId, one.name), one]));
    const found = await signalRevisions(this.#parts.db, [...places.values()]);
    const revisions = new Map(found.map((one) => [keyOf(one.workspaceId, one.name), one.revision]));
    for (const watcher of watchers) {
      const revision = revisions.get(keyOf(watcher.workspaceId, watcher.name)) ?? 0;
      if (revision === watcher.told) continue;
      watcher.told = revision;
      watcher.news = revision;
      watcher.wake();
    }
  }
}

// Entries that this replica settled a moment ago. Redis may lose them before the database has them: they are put on the
// ledger again then. An entry that the database has changes nothing.
import type { Hold } from '../../stores/queues/credit-book.ts';
import type { LedgerEntry } from '../../stores/store/queries/credits.ts';

const MOST = 20_000;
const KEPT_MS = 10 * 60_000;

interface Recent {
  readonly hold: Hold;
  readonly entry: LedgerEntry;
  readonly atMs: number;
}

export class RecentEntries {
  readonly #entries = new Map<string, Recent>();

  add(hold: Hold, entry: LedgerEntry): void {
    const atMs = performance.now();
    this.#entries.set(entry.requestId, { hold, entry, atMs });
    for (const [id, recent] of this.#entries) {
      if (this.#entries.size <= MOST && atMs - recent.atMs < KEPT_MS) return;
      this.#entries.delete(id);
    }
  }

  all(): readonly Recent[] {
    return [...this.#entries.values()];
  }
}

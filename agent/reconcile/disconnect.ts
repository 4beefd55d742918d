/**
 * Ends containers that must not run where the scheduler cannot reach them (`stopAfterDisconnect`): it starts
 * replacements once it is certain that these have stopped. The time counts from the last contact (upstream/contact.ts),
 * in any state of the link. Must stay true: no other container ever ends for lack of contact.
 */
import type { Log } from '#shared/log.ts';
import type { JournalEntry } from './journal.ts';

export const DISCONNECTED = 'disconnected';
/** Short, because the scheduler waits only a minute longer than the agent, and both TERM and KILL have to fit in. */
const GRACE_MS = 10_000;
const EVERY_MS = 1000;
/** Interval without such containers: a new one has a minute at least. */
const IDLE_MS = 5000;
/** Share of the time after which a heartbeat is sent, unless an answer came: heartbeats may be rarer than that. */
const ASK_AFTER = 1 / 3;

export interface DisconnectParts {
  readonly entries: () => Iterable<JournalEntry>;
  readonly bootId: string;
  readonly contact: { silentMs(): number };
  readonly isEnding: (containerId: string) => boolean;
  readonly end: (containerId: string, reason: string, graceMs: number) => void;
  /** Sends a heartbeat now. */
  readonly ask: () => void;
  readonly log: Log;
}

/**
 * Containers with a disconnect limit that were started in this boot and are not known to have ended, each with its
 * limit.
 */
function* exclusive(entries: Iterable<JournalEntry>, bootId: string): Generator<[id: string, afterMs: number]> {
  for (const { containerId, stage, exit, bootId: of, stopAfterDisconnectMs } of entries)
    if (stopAfterDisconnectMs > 0 && stage !== 'gone' && exit === undefined && of === bootId)
      yield [containerId, stopAfterDisconnectMs];
}

/** Decides which containers end, and whether to ask, after a silence of this length. Pure. */
export function afterSilence(
  entries: Iterable<JournalEntry>,
  bootId: string,
  silentMs: number,
): { readonly end: readonly string[]; readonly ask: boolean } {
  const all = [...exclusive(entries, bootId)];
  return {
    end: all.filter(([, afterMs]) => silentMs >= afterMs).map(([containerId]) => containerId),
    ask: all.some(([, afterMs]) => silentMs >= afterMs * ASK_AFTER),
  };
}

export class DisconnectWatch {
  readonly #parts: DisconnectParts;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: DisconnectParts) {
    this.#parts = parts;
  }

  start(): void {
    this.check();
    const [first] = exclusive(this.#parts.entries(), this.#parts.bootId);
    this.#timer = setTimeout(() => this.start(), first === undefined ? IDLE_MS : EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  check(): void {
    const { entries, bootId, contact, isEnding, end, ask, log } = this.#parts;
    const silentMs = contact.silentMs();
    const due = afterSilence(entries(), bootId, silentMs);
    for (const containerId of due.end) {
      if (isEnding(containerId)) continue;
      log.warn(
        { containerId, silentMs: Math.round(silentMs) },
        'no answer from the scheduler: an exclusive container stops',
      );
      end(containerId, DISCONNECTED, GRACE_MS);
    }
    if (due.ask) ask();
  }
}

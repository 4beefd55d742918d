/**
 * Containers that must not run on where the scheduler cannot reach them (`stopAfterDisconnect`): it starts others in their place when it is certain that these have
 * stopped. Counts from the last contact (upstream/contact.ts), whatever the state of the link. Must stay true: no other container is ever ended for want of contact.
 */
import type { Log } from '#shared/log.ts';
import type { Contact } from '../upstream/contact.ts';
import type { JournalEntry } from './journal.ts';

export const DISCONNECTED = 'disconnected';
/** Short, because the scheduler waits a minute more than the agent, and both TERM and KILL have to fit in. */
const GRACE_MS = 10_000;
const EVERY_MS = 1000;
/** While there is none of them: one that comes now has a minute at least. */
const IDLE_MS = 5000;
/** A heartbeat answered within so much of the time shows that there is contact; where heartbeats are rarer than that, one more is sent. */
const ASK_AFTER = 1 / 3;

export interface DisconnectParts {
  readonly entries: () => Iterable<JournalEntry>;
  readonly bootId: string;
  readonly contact: Pick<Contact, 'silentMs'>;
  readonly isEnding: (containerId: string) => boolean;
  readonly end: (containerId: string, reason: string, graceMs: number) => void;
  /** Asks the scheduler for a sign now. */
  readonly ask: () => void;
  readonly log: Log;
}

/** What was started in this boot and is not known to be over, with the time it asks for. */
function* exclusive(entries: Iterable<JournalEntry>, bootId: string): Generator<[id: string, afterMs: number]> {
  for (const { containerId, stage, exit, bootId: of, stopAfterDisconnectMs = 0 } of entries)
    if (stopAfterDisconnectMs > 0 && stage !== 'gone' && exit === undefined && of === bootId)
      yield [containerId, stopAfterDisconnectMs];
}

/** What a silence of this length asks for. Pure. */
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
    this.look();
    const [first] = exclusive(this.#parts.entries(), this.#parts.bootId);
    this.#timer = setTimeout(() => this.start(), first === undefined ? IDLE_MS : EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  look(): void {
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

/**
 * What the agent must know after a crash: which assignments it has taken, how far each came, how it ended. Written before the step it announces, one file, group
 * commit. No environment values and no credentials: they come again with the scheduler's next snapshot. A journal that cannot be read is set aside; what it said of
 * containers is taken from their labels (rebuild.ts).
 */
import { rename } from 'node:fs/promises';
import { StartupError } from '#shared/errors.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import { readIfThere, writeDurably } from '../durable.ts';
import type { ReadyFacts } from '../slots/container-slots.ts';

/** accepted: acknowledged or about to be · creating: the engine may have it · created: it has been started · gone: nothing is left but this entry. */
export type Stage = 'accepted' | 'creating' | 'created' | 'gone';

export interface ExitFacts {
  readonly exitCode: number;
  readonly oomKilled: boolean;
  readonly reason: string;
  readonly message: string;
  readonly finishedAtMs: number;
}

export interface JournalEntry {
  readonly containerId: string;
  readonly assignmentId: string;
  readonly epoch: number;
  readonly stage: Stage;
  readonly shortId: string;
  readonly image: string;
  readonly codeSha256: string;
  readonly deploymentId: string;
  readonly workers: number;
  readonly concurrentRequests: number;
  readonly timeoutMs: number;
  readonly startTimeoutMs: number;
  /** The scheduler silent for so long, it stops; 0, or absent in what an older version wrote: it runs on. */
  readonly stopAfterDisconnectMs?: number;
  /** Variables whose values are nobody's to read; absent in what an older version wrote. */
  readonly secretNames?: readonly string[];
  readonly bootId: string;
  /** What it holds here; absent in what an older version wrote. */
  readonly cpuMillicores?: number;
  readonly memoryBytes?: number;
  readonly gpuUuids?: readonly string[];
  readonly dockerId?: string;
  readonly startedAtMs?: number;
  readonly ready?: ReadyFacts;
  readonly exit?: ExitFacts;
}

interface JournalFile {
  readonly version: 1;
  /** Of the version and the entries; absent in what an older version wrote. */
  readonly sha256?: string;
  readonly entries: readonly JournalEntry[];
}

export class Journal {
  readonly #path: string;
  readonly #onError: () => void;
  readonly #entries = new Map<string, JournalEntry>();
  #writing: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(path: string, onError: () => void = () => undefined) {
    this.#path = path;
    this.#onError = onError;
  }

  /**
   * Reads what an earlier agent left. One that is cut off or damaged is moved aside, and this one begins empty.
   * @returns where the damaged one lies now; undefined: there was none
   * @throws StartupError `state_too_new`
   */
  async open(): Promise<string | undefined> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return undefined;
    const entries = entriesIn(text);
    if (entries === 'newer')
      throw new StartupError(
        'state_too_new',
        `${this.#path} was written by a newer agent; start that version, or drain this machine first`,
      );
    if (entries === 'damaged') {
      const aside = `${this.#path}.damaged`;
      this.#onError();
      await rename(this.#path, aside);
      return aside;
    }
    for (const entry of entries) this.#entries.set(entry.containerId, entry);
    return undefined;
  }

  get(containerId: string): JournalEntry | undefined {
    return this.#entries.get(containerId);
  }

  all(): IterableIterator<JournalEntry> {
    return this.#entries.values();
  }

  /** Resolves when the entry is on disk. */
  put(entry: JournalEntry): Promise<void> {
    this.#entries.set(entry.containerId, entry);
    return this.#commit();
  }

  /** Changes some facts of an entry that is there. */
  change(containerId: string, facts: Partial<JournalEntry>): Promise<void> {
    const entry = this.#entries.get(containerId);
    if (entry === undefined) return Promise.resolve();
    return this.put({ ...entry, ...facts });
  }

  delete(containerId: string): Promise<void> {
    this.#entries.delete(containerId);
    return this.#commit();
  }

  /** One write at a time; whoever comes meanwhile shares the next. */
  #commit(): Promise<void> {
    if (this.#writing === undefined) {
      this.#writing = this.#write().finally(() => {
        this.#writing = undefined;
      });
      return this.#writing;
    }
    this.#next ??= this.#writing
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined;
        return this.#commit();
      });
    return this.#next;
  }

  async #write(): Promise<void> {
    const entries = [...this.#entries.values()];
    const file: JournalFile = { version: 1, sha256: checksumOf(1, entries), entries };
    try {
      await writeDurably(this.#path, JSON.stringify(file));
    } catch (error) {
      this.#onError();
      throw error;
    }
  }
}

const checksumOf = (version: unknown, entries: unknown): string =>
  sha256Hex(`${String(version)} ${JSON.stringify(entries)}`);

function entriesIn(text: string): readonly JournalEntry[] | 'damaged' | 'newer' {
  let file: Partial<Record<keyof JournalFile, unknown>> | null;
  try {
    file = JSON.parse(text) as typeof file;
  } catch {
    return 'damaged';
  }
  if (typeof file !== 'object' || file === null) return 'damaged';
  const { version, sha256, entries } = file;
  if (sha256 !== undefined && sha256 !== checksumOf(version, entries)) return 'damaged';
  if (typeof version === 'number' && version > 1) return 'newer';
  return version === 1 && Array.isArray(entries) ? (entries as readonly JournalEntry[]) : 'damaged';
}

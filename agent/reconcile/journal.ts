/**
 * What the agent must know after a crash: which assignments it has taken, how far each came, how it ended. Written before the step it announces, one file, group
 * commit. No environment values and no credentials: they come again with the scheduler's next snapshot.
 */
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

  /** Reads what an earlier agent left. @throws when the file cannot be read as a journal */
  async open(): Promise<void> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return;
    const file = JSON.parse(text) as JournalFile;
    if (file.version !== 1) throw new Error(`${this.#path} was written by a newer version`);
    for (const entry of file.entries) this.#entries.set(entry.containerId, entry);
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
    const file: JournalFile = { version: 1, entries: [...this.#entries.values()] };
    try {
      await writeDurably(this.#path, JSON.stringify(file));
    } catch (error) {
      this.#onError();
      throw error;
    }
  }
}

/**
 * The agent's memory across crashes: the assignments it has taken, how far each came, and how it ended. Written before
 * the step it announces: one file, group commit. Environment values and credentials are left out: they come with the
 * scheduler's next snapshot. An unreadable journal is set aside; its facts of containers are restored from their labels
 * (rebuild.ts).
 */
import { rename } from 'node:fs/promises';
import { StartupError } from '#shared/errors.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import { readIfThere, writeDurably } from '../durable.ts';
import type { ReadyFacts } from '../slots/container-facts.ts';

/**
 * `accepted`: acknowledged or about to be · `creating`: the engine may have it · `created`: it has been started ·
 * `gone`: nothing is left but this entry.
 */
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
  /** Silence of the scheduler after which the container stops; 0: never. */
  readonly stopAfterDisconnectMs: number;
  /** Variables with secret values. */
  readonly secretNames: readonly string[];
  readonly bootId: string;
  /** Resources that it holds here. */
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpuUuids: readonly string[];
  /** Kind of its stub. */
  readonly kind: string;
  /** Number of the network rules in force, of a sandbox whose network has changed. */
  readonly networkVersion?: number;
  /** A supervisor was started in it, which is neither pod nor sandbox. */
  readonly hasSupervisor?: boolean;
  readonly dockerId?: string;
  readonly startedAtMs?: number;
  readonly ready?: ReadyFacts;
  readonly exit?: ExitFacts;
}

interface JournalFile {
  readonly version: 1;
  /** Checksum over version and entries. */
  readonly sha256: string;
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
   * Reads the journal of an earlier agent. A truncated or damaged file is moved aside, and the new journal begins
   * empty.
   * @returns the new path of a damaged file; undefined: the file was absent or sound
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

  /** Changes some fields of an existing entry. */
  change(containerId: string, facts: Partial<JournalEntry>): Promise<void> {
    const entry = this.#entries.get(containerId);
    if (entry === undefined) return Promise.resolve();
    return this.put({ ...entry, ...facts });
  }

  delete(containerId: string): Promise<void> {
    this.#entries.delete(containerId);
    return this.#commit();
  }

  /** Writes one at a time; changes during a write share the next. */
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
  if (sha256 !== checksumOf(version, entries)) return 'damaged';
  if (typeof version === 'number' && version > 1) return 'newer';
  return version === 1 && Array.isArray(entries) ? (entries as readonly JournalEntry[]) : 'damaged';
}

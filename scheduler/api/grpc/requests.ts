// Answers by the id of their request. A published client repeats a call under one id until it is answered. The
// repeated call gets the answer of the first, so that nothing is done twice. Bounded for each workspace in number,
// bytes and age.
import type { Clock } from '#shared/clock.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';

export const MEMORY_RULES = {
  ofWorkspace: 1_000,
  workspaceBytes: 8 * 1024 * 1024,
  workspaces: 1_000,
  keptMs: 10 * 60_000,
  longestId: 128,
} as const;

/** Whose request it is: ids of another token, or of another call, are other requests. */
export interface RequestKey {
  readonly workspaceId: WorkspaceId;
  readonly tokenId: TokenId;
  readonly path: string;
  readonly id: string;
}

export interface Remembered {
  readonly bytes: Buffer;
  /** Whether a repeated call gets this answer; a refusal is asked anew. */
  readonly isKept: boolean;
}

interface Entry {
  readonly answer: Promise<Remembered>;
  readonly atMs: number;
  bytes: number;
}

const nameOf = (tokenId: string, path: string, id: string): string => `${tokenId} ${path} ${id}`;

export class RememberedAnswers {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  /** Entries of each workspace, oldest first. The workspace that was used last is the last one. */
  readonly #of = new Map<WorkspaceId, Map<string, Entry>>();

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  /** The number of answers that are kept for a workspace. */
  size(workspaceId: WorkspaceId): number {
    return this.#of.get(workspaceId)?.size ?? 0;
  }

  /** Gives the answer of an earlier call with this id, or makes one; calls at the same time share it. */
  answer(key: RequestKey, make: () => Promise<Remembered>): Promise<Remembered> {
    const entries = this.#entriesOf(key.workspaceId);
    const name = nameOf(key.tokenId, key.path, key.id);
    const known = entries.get(name);
    if (known !== undefined) return known.answer;
    const answer = make();
    const entry: Entry = { answer, atMs: this.#clock.monotonicMs(), bytes: 0 };
    entries.set(name, entry);
    this.#trim(entries);
    answer.then(
      ({ bytes, isKept }) => {
        if (!isKept) forget(entries, name, entry);
        else entry.bytes = bytes.length;
        this.#trim(entries);
      },
      () => forget(entries, name, entry),
    );
    return answer;
  }

  /** The client has these answers, and asks for them no more. */
  acknowledged(workspaceId: WorkspaceId, tokenId: TokenId, ids: readonly string[]): void {
    const entries = this.#of.get(workspaceId);
    if (entries === undefined || ids.length === 0) return;
    const known = new Set(ids);
    for (const name of entries.keys()) {
      const [ofToken, , id] = name.split(' ');
      if (ofToken === tokenId && id !== undefined && known.has(id)) entries.delete(name);
    }
  }

  #entriesOf(workspaceId: WorkspaceId): Map<string, Entry> {
    const entries = this.#of.get(workspaceId) ?? new Map<string, Entry>();
    this.#of.delete(workspaceId);
    this.#of.set(workspaceId, entries);
    for (const oldest of this.#of.keys()) {
      if (this.#of.size <= MEMORY_RULES.workspaces) break;
      this.#of.delete(oldest);
    }
    this.#trim(entries);
    return entries;
  }

  /** Drops what is too old, and the oldest of what is too much. */
  #trim(entries: Map<string, Entry>): void {
    const since = this.#clock.monotonicMs() - MEMORY_RULES.keptMs;
    let bytes = 0;
    for (const entry of entries.values()) bytes += entry.bytes;
    for (const [name, entry] of entries) {
      const isWithin = entries.size <= MEMORY_RULES.ofWorkspace && bytes <= MEMORY_RULES.workspaceBytes;
      if (isWithin && entry.atMs >= since) break;
      bytes -= entry.bytes;
      entries.delete(name);
    }
  }
}

function forget(entries: Map<string, Entry>, name: string, entry: Entry): void {
  if (entries.get(name) === entry) entries.delete(name);
}

// Answers by the id of their request. A published client repeats a call under one id until it is answered. The
// repeated call gets the answer of the first, so that nothing is done twice. Bounded in number, bytes and age, for each
// workspace and in all.
// Invariant: a call that is under way is never forgotten. Its repeats wait for its answer.
import type { Clock } from '#shared/clock.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';

export const MEMORY_RULES = {
  ofWorkspace: 1_000,
  workspaceBytes: 8 * 1024 * 1024,
  workspaces: 1_000,
  allBytes: 64 * 1024 * 1024,
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
  /** Bytes of the answer; null: the call is under way. */
  bytes: number | null;
}

/** Answers that are kept for a workspace, oldest first. */
interface Kept {
  readonly entries: Map<string, Entry>;
  bytes: number;
  usedMs: number;
}

const nameOf = (tokenId: string, path: string, id: string): string => `${tokenId} ${path} ${id}`;

export class RememberedAnswers {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  /** By workspace; the one that was used last is the last one. */
  readonly #of = new Map<WorkspaceId, Kept>();
  #bytes = 0;

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  /** The number of answers that are kept for a workspace. */
  size(workspaceId: WorkspaceId): number {
    return this.#of.get(workspaceId)?.entries.size ?? 0;
  }

  /** Bytes of all answers that are kept. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Gives the answer of an earlier call with this id, or makes one; calls at the same time share it. */
  answer(key: RequestKey, make: () => Promise<Remembered>): Promise<Remembered> {
    const kept = this.#keptOf(key.workspaceId);
    const name = nameOf(key.tokenId, key.path, key.id);
    const known = kept.entries.get(name);
    if (known !== undefined) return known.answer;
    const answer = make();
    const entry: Entry = { answer, atMs: this.#clock.monotonicMs(), bytes: null };
    kept.entries.set(name, entry);
    this.#trim(kept);
    answer.then(
      ({ bytes, isKept }) => {
        if (!isKept) return void kept.entries.delete(name);
        entry.bytes = bytes.length;
        this.#count(kept, bytes.length);
        this.#trim(kept);
        this.#trimAll();
      },
      () => this.#forget(kept, name),
    );
    return answer;
  }

  /** The client has these answers, and asks for them no more. */
  acknowledged(workspaceId: WorkspaceId, tokenId: TokenId, ids: readonly string[]): void {
    const kept = this.#of.get(workspaceId);
    if (kept === undefined || ids.length === 0) return;
    const known = new Set(ids);
    for (const [name, { bytes }] of kept.entries) {
      const [ofToken, , id] = name.split(' ');
      if (bytes !== null && ofToken === tokenId && id !== undefined && known.has(id)) this.#forget(kept, name);
    }
  }

  #keptOf(workspaceId: WorkspaceId): Kept {
    const kept = this.#of.get(workspaceId) ?? { entries: new Map<string, Entry>(), bytes: 0, usedMs: 0 };
    kept.usedMs = this.#clock.monotonicMs();
    this.#of.delete(workspaceId);
    this.#of.set(workspaceId, kept);
    this.#trim(kept);
    this.#trimAll();
    return kept;
  }

  /** Drops what is too old, and the oldest of what is too much. */
  #trim(kept: Kept): void {
    const since = this.#clock.monotonicMs() - MEMORY_RULES.keptMs;
    for (const [name, entry] of kept.entries) {
      const isWithin = kept.entries.size <= MEMORY_RULES.ofWorkspace && kept.bytes <= MEMORY_RULES.workspaceBytes;
      if (isWithin && entry.atMs >= since) break;
      if (entry.bytes !== null) this.#forget(kept, name);
    }
  }

  /** Drops workspaces that were not used for long, and those of them that are too many or have too much together. */
  #trimAll(): void {
    const since = this.#clock.monotonicMs() - MEMORY_RULES.keptMs;
    for (const [workspaceId, kept] of this.#of) {
      const isWithin = this.#of.size <= MEMORY_RULES.workspaces && this.#bytes <= MEMORY_RULES.allBytes;
      if (isWithin && kept.usedMs >= since) break;
      for (const [name, { bytes }] of kept.entries) if (bytes !== null) this.#forget(kept, name);
      if (kept.entries.size === 0) this.#of.delete(workspaceId);
    }
  }

  #forget(kept: Kept, name: string): void {
    const bytes = kept.entries.get(name)?.bytes ?? 0;
    if (kept.entries.delete(name)) this.#count(kept, -bytes);
  }

  #count(kept: Kept, bytes: number): void {
    kept.bytes += bytes;
    this.#bytes += bytes;
  }
}

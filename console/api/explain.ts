// Explanations of deployments, for many rows at once: a few requests at a time, the worst and oldest first, so that a
// long list costs a session no more requests than it may send.
import { signal } from '@preact/signals';
import type { Explanation } from '#shared/api/explain.ts';
import type { Static } from 'typebox';
import { rest } from './client.ts';

export type Explained = Static<typeof Explanation>;

export const explain = (workspaceId: string, reference: string, abort?: AbortSignal): Promise<Explained> =>
  rest<Explained>(`/explain/${workspaceId}/${encodeURIComponent(reference)}`, { signal: abort });

/** Explanations that one look asks for. */
const AT_ONCE = 4;

export interface KeptExplanation {
  readonly atMs: number;
  /** undefined: the last try failed. */
  readonly explained: Explained | undefined;
}

/** Explanations by the names of a workspace's deployments. */
export class Explanations {
  readonly byName = signal<ReadonlyMap<string, KeptExplanation>>(new Map());
  readonly #workspaceId: string;

  constructor(workspaceId: string) {
    this.#workspaceId = workspaceId;
  }

  /** Asks for names without an explanation, and for the oldest ones. Names that are gone are forgotten. */
  async look(names: readonly string[], olderThanMs: number, abort: AbortSignal): Promise<void> {
    const nowMs = Date.now();
    const ageOf = (name: string): number => nowMs - (this.byName.peek().get(name)?.atMs ?? 0);
    const due = names.filter((name) => ageOf(name) > olderThanMs).toSorted((a, b) => ageOf(b) - ageOf(a));
    const known = new Map([...this.byName.peek()].filter(([name]) => names.includes(name)));
    await Promise.all(
      due.slice(0, AT_ONCE).map(async (name) => {
        const explained = await explain(this.#workspaceId, name, abort).catch(() => undefined);
        known.set(name, { atMs: nowMs, explained: explained ?? known.get(name)?.explained });
      }),
    );
    if (!abort.aborted) this.byName.value = known;
  }
}

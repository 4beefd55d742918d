import type { ConditionName } from '#shared/domain/conditions.ts';

const MAX_WORDS = 500;

/**
 * What is wrong with this machine now. Whoever finds out says so here; the metrics page and the scheduler hear of a change at once, and of all of them with every
 * heartbeat and hello.
 */
export class Conditions {
  /** With the words of whoever found it; most have none. */
  readonly #held = new Map<ConditionName, string>();
  readonly #onChange: (names: readonly ConditionName[]) => void;

  constructor(onChange: (names: readonly ConditionName[]) => void) {
    this.#onChange = onChange;
    onChange([]);
  }

  /**
   * Says whether one holds; saying the same again changes nothing.
   * @param words - why, for people; the first 500 characters count
   */
  set(name: ConditionName, holds: boolean, words = ''): void {
    const said = words.slice(0, MAX_WORDS);
    if (this.#held.has(name) === holds && (!holds || this.#held.get(name) === said)) return;
    if (holds) this.#held.set(name, said);
    else this.#held.delete(name);
    this.#onChange(this.names);
  }

  /** Those that hold, sorted. */
  get names(): readonly ConditionName[] {
    return [...this.#held.keys()].toSorted();
  }

  /** Why, for those that say more than their name. */
  get words(): Readonly<Record<string, string>> {
    return Object.fromEntries([...this.#held].filter(([, words]) => words !== ''));
  }
}

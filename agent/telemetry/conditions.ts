import type { ConditionName } from '#shared/domain/conditions.ts';
import { Listeners } from '#shared/listeners.ts';

const MAX_WORDS = 500;

/**
 * The present faults of this machine, set by the part that detects each. The metrics page and the scheduler hear of a
 * change at once; every heartbeat and hello carries all of them.
 */
export class Conditions {
  /** Conditions that hold, with an explanation by the part that set them; mostly empty. */
  readonly #held = new Map<ConditionName, string>();
  readonly #changed = new Listeners<[readonly ConditionName[]]>();

  /** Told of the conditions that hold, whenever they change. */
  onChange(listener: (names: readonly ConditionName[]) => void): void {
    this.#changed.add(listener);
  }

  /**
   * Sets whether a condition holds; the same value again changes nothing.
   * @param words - the reason, for people; cut to 500 characters
   */
  set(name: ConditionName, holds: boolean, words = ''): void {
    const said = words.slice(0, MAX_WORDS);
    if (this.#held.has(name) === holds && (!holds || this.#held.get(name) === said)) return;
    if (holds) this.#held.set(name, said);
    else this.#held.delete(name);
    this.#changed.tell(this.names);
  }

  /** Names of conditions that hold, sorted. */
  get names(): readonly ConditionName[] {
    return [...this.#held.keys()].toSorted();
  }

  /** Explanations of conditions that have one. */
  get words(): Readonly<Record<string, string>> {
    return Object.fromEntries([...this.#held].filter(([, words]) => words !== ''));
  }
}

import type { ConditionName } from '#shared/domain/conditions.ts';

/**
 * What is wrong with this machine now. Whoever finds out says so here; the metrics page and the scheduler hear of a change at once, and of all of them with every
 * heartbeat and hello.
 */
export class Conditions {
  readonly #held = new Set<ConditionName>();
  readonly #onChange: (names: readonly ConditionName[]) => void;

  constructor(onChange: (names: readonly ConditionName[]) => void) {
    this.#onChange = onChange;
    onChange([]);
  }

  /** Says whether one holds; saying the same again changes nothing. */
  set(name: ConditionName, holds: boolean): void {
    if (this.#held.has(name) === holds) return;
    if (holds) this.#held.add(name);
    else this.#held.delete(name);
    this.#onChange(this.names);
  }

  /** Those that hold, sorted. */
  get names(): readonly ConditionName[] {
    return [...this.#held].toSorted();
  }
}

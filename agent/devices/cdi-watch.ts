/**
 * Watches whether the engine's CDI specification names every GPU of the machine. A specification that lacks one
 * predates a change of devices; starts on the missing GPUs need the hook.
 */
import type { GpuDrivers } from '../containers/cdi.ts';
import type { Conditions } from '../telemetry/conditions.ts';

/** Looks at the devices between two questions to the engine (five minutes); a change of devices causes one at once. */
const LOOKS_APART = 10;
const MOST_NAMED = 4;

export class CdiWatch {
  readonly #drivers: Pick<GpuDrivers, 'check' | 'lacks'>;
  readonly #conditions: Pick<Conditions, 'set'>;
  #before = '';
  #looks = 0;
  #isOutdated = false;

  constructor(drivers: Pick<GpuDrivers, 'check' | 'lacks'>, conditions: Pick<Conditions, 'set'>) {
    this.#drivers = drivers;
    this.#conditions = conditions;
  }

  looked(uuids: readonly string[]): void {
    const now = uuids.join();
    const isDue = now !== this.#before || this.#isOutdated || this.#looks % LOOKS_APART === 0;
    this.#looks += 1;
    this.#before = now;
    // A machine without GPUs asks no engine.
    if (!isDue || (uuids.length === 0 && !this.#isOutdated)) return;
    void this.#drivers.check().then(() => {
      const lacking = this.#drivers.lacks(uuids);
      this.#isOutdated = lacking.length > 0;
      const more = lacking.length > MOST_NAMED ? ` and ${lacking.length - MOST_NAMED} more` : '';
      this.#conditions.set('CdiOutdated', this.#isOutdated, `${lacking.slice(0, MOST_NAMED).join(', ')}${more}`);
    });
  }
}

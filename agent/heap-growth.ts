/**
 * How V8 lets the agent's heap grow. At rest the setting favours memory (`--optimize-for-size`,
 * shared/agent-process.ts): V8 collects before it asks for more. Under many tasks that costs a tenth of the agent's
 * processor time, most of it for marking the same live objects again. V8 then favours speed until few tasks pass.
 * Started by the composition root.
 */
import { setFlagsFromString } from 'node:v8';

const LOOK_MS = 5_000;
/** Tasks between two looks from which on V8 favours speed. */
const MANY_TASKS = 500;

export class HeapGrowth {
  readonly #taken: () => number;
  readonly #setFlag: (flag: string) => void;
  #before: number;
  #isFree = false;

  /** @param taken - tasks ever taken by this process */
  constructor(taken: () => number, setFlag: (flag: string) => void = setFlagsFromString) {
    this.#taken = taken;
    this.#setFlag = setFlag;
    this.#before = taken();
  }

  /** Looks every five seconds. @returns a function that ends it */
  start(): () => void {
    const timer = setInterval(() => this.check(), LOOK_MS);
    timer.unref();
    return () => clearInterval(timer);
  }

  /** Sets V8's flag when the load has changed sides. */
  check(): void {
    const taken = this.#taken();
    const isBusy = taken - this.#before >= MANY_TASKS;
    this.#before = taken;
    if (isBusy === this.#isFree) return;
    this.#isFree = isBusy;
    this.#setFlag(isBusy ? '--no-optimize-for-size' : '--optimize-for-size');
  }
}

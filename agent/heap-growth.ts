/**
 * How V8 lets the agent's heap grow. At rest it favours memory (`--optimize-for-size`, shared/agent-process.ts): it collects before it asks for more. While many tasks pass that costs an agent a tenth of
 * its processor time, most of it marking the same live objects again and again; then it is told otherwise, until few pass. Started by the composition root.
 */
import { setFlagsFromString } from 'node:v8';

const LOOK_MS = 5_000;
/** Of one look. */
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

  /** Looks every five seconds. @returns how to end it */
  start(): () => void {
    const timer = setInterval(() => this.look(), LOOK_MS);
    timer.unref();
    return () => clearInterval(timer);
  }

  /** Says it to V8 when it is to be otherwise than before. */
  look(): void {
    const taken = this.#taken();
    const isBusy = taken - this.#before >= MANY_TASKS;
    this.#before = taken;
    if (isBusy === this.#isFree) return;
    this.#isFree = isBusy;
    this.#setFlag(isBusy ? '--no-optimize-for-size' : '--optimize-for-size');
  }
}

// Measures how many machines this scheduler accepts in a second, while several send hello at once. From that follows
// the window within which all of them are told to dial again, so that they come no faster. Machines that come faster
// all the same, because many links broke together, are sent away until their moment in the window.
import type { Clock } from '#shared/clock.ts';

/**
 * Hellos per second that are assumed until a rate was measured. A machine with ten attempts costs 13 ms of processor,
 * its TLS handshake included, most of it in one thread.
 */
export const FIRST_PER_SECOND = 100;
/** With fewer hellos under way the scheduler waits for machines, not the machines for it. */
const BUSY = 8;
const SAMPLE = 20;
/** Hellos taken up at once. */
export const MOST_AT_ONCE = 64;
/** Weight of a new sample: a sample taken in a bad moment neither doubles nor halves the window. */
const WEIGHT = 0.3;
const SHORTEST_MS = 500;
const LONGEST_MS = 60_000;
/** Longest window of one that is sent away: a machine that is sent away twice must not count as lost. */
export const LONGEST_LATER_MS = 20_000;

/**
 * Window for redials, in milliseconds. Pure.
 * @param machines - the number that would dial if this scheduler restarted
 */
export function reconnectWindowMs(machines: number, perSecond: number): number {
  return Math.round(Math.min(LONGEST_MS, Math.max(SHORTEST_MS, (machines / perSecond) * 1000)));
}

export class AcceptRate {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #perSecond = FIRST_PER_SECOND;
  #open = 0;
  #done = 0;
  #busySinceMs: number | undefined;
  /** Agents that were told to dial again and have not had the time that their hellos take, and when this was so. */
  #toDial = 0;
  #toDialAtMs = 0;

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  get perSecond(): number {
    return this.#perSecond;
  }

  /**
   * A machine said hello.
   * @returns a function to be called once, when the machine is accepted or refused; undefined: too many are under way
   */
  begin(): (() => void) | undefined {
    if (this.#open >= MOST_AT_ONCE) return undefined;
    this.#open += 1;
    if (this.#open === BUSY) this.#restart();
    return () => this.#end();
  }

  /**
   * A link is given up because its agent does not answer. Where many are, the agents or this scheduler have too much to
   * do. If all agents dialled within half a second, their hellos would keep the next pings from being answered.
   * @returns the number of agents that are about to dial, this one included
   */
  gaveUp(): number {
    const nowMs = this.#clock.monotonicMs();
    const since = ((nowMs - this.#toDialAtMs) / 1000) * this.#perSecond;
    this.#toDial = Math.max(0, this.#toDial - since) + 1;
    this.#toDialAtMs = nowMs;
    return this.#toDial;
  }

  #end(): void {
    this.#open -= 1;
    if (this.#busySinceMs === undefined) return;
    this.#done += 1;
    if (this.#done === SAMPLE) {
      const seconds = Math.max(1, this.#clock.monotonicMs() - this.#busySinceMs) / 1000;
      this.#perSecond += WEIGHT * (SAMPLE / seconds - this.#perSecond);
      this.#restart();
    }
    if (this.#open < BUSY) this.#busySinceMs = undefined;
  }

  #restart(): void {
    this.#busySinceMs = this.#clock.monotonicMs();
    this.#done = 0;
  }
}

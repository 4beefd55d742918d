/**
 * The connections of one container's runner processes, and the attempts of each: which one can take an attempt, which
 * one holds it, and which attempts a departed process held. Owned by the container's slots (container-slots.ts). Used
 * for every task, so nothing here waits, except for the end of the last connection.
 * Must stay true: an attempt is held by one process at most, or counts as away with it.
 */
import type { RunnerConnection } from './connection.ts';

/** A reload replaces a process. */
export interface Retirement {
  readonly sinceMs: number;
  /** Time that it has to end its attempts. */
  readonly graceMs: number;
}

export class RunnerProcesses {
  readonly #connections = new Set<RunnerConnection>();
  /** Attempts of processes that went away, by process: the process may return with them. */
  readonly #away = new Map<number, Set<string>>();
  /** Processes that take no further attempts and end those that they have, by number, until their exit. */
  readonly #retired = new Map<number, Retirement>();
  #control: RunnerConnection | undefined;
  #onNone: (() => void)[] = [];

  add(connection: RunnerConnection): void {
    this.#connections.add(connection);
  }

  /** The connection of the first process, which speaks for all of them. */
  get control(): RunnerConnection | undefined {
    return this.#control;
  }

  /** Number of processes that take attempts. */
  get serving(): number {
    let serving = 0;
    for (const connection of this.#connections) if (this.#takes(connection)) serving += 1;
    return serving;
  }

  #takes({ slots, process }: RunnerConnection): boolean {
    return slots > 0 && !this.#retired.has(process);
  }

  /** A process takes no further attempts. @returns its connection; undefined: it is away */
  retire(process: number, graceMs: number): RunnerConnection | undefined {
    if (!this.#retired.has(process)) this.#retired.set(process, { sinceMs: performance.now(), graceMs });
    for (const one of this.#connections) if (one.process === process && !one.control) return one;
    return undefined;
  }

  retirementOf(process: number): Retirement | undefined {
    return this.#retired.get(process);
  }

  /** Number of attempts that retired processes hold. */
  get retiredAttempts(): number {
    let attempts = 0;
    for (const { process, control, inHand } of this.#connections)
      if (!control && this.#retired.has(process)) attempts += inHand.size;
    for (const process of this.#retired.keys()) attempts += this.#away.get(process)?.size ?? 0;
    return attempts;
  }

  /** Whether that process serves again: its next start may arrive before the end of the process with this pid. */
  servesAgain(process: number, endedPid: number): boolean {
    for (const one of this.#connections)
      if (one.process === process && one.slots > 0 && one.pid !== endedPid) return true;
    return false;
  }

  [Symbol.iterator](): IterableIterator<RunnerConnection> {
    return this.#connections.values();
  }

  /**
   * The connection's hello named its process. An older connection of that process has not ended yet; its attempts count
   * as away until the process names them.
   */
  greeted(connection: RunnerConnection): void {
    for (const other of this.#connections) {
      if (other === connection || other.control !== connection.control || other.process !== connection.process)
        continue;
      if (other.inHand.size > 0) for (const key of other.inHand) this.#awayOf(other.process).add(key);
      other.inHand.clear();
      other.destroy();
    }
    if (!connection.control) return;
    this.#control = connection;
    // The first process names retired ones anew, because the connection before may have heard of an end.
    this.#retired.clear();
  }

  /** The connection has ended. */
  closed(connection: RunnerConnection): void {
    this.#connections.delete(connection);
    if (this.#control === connection) this.#control = undefined;
    if (this.#connections.size === 0) for (const done of this.#onNone.splice(0)) done();
  }

  /** The attempts that a departed process held, as a set for the caller to change. */
  #awayOf(process: number): Set<string> {
    const known = this.#away.get(process);
    if (known !== undefined) return known;
    const away = new Set<string>();
    this.#away.set(process, away);
    return away;
  }

  /** Notes an attempt that went away with its process. @returns a function that withdraws the note */
  goesAway(process: number, key: string): () => void {
    const away = this.#awayOf(process);
    away.add(key);
    return () => void away.delete(key);
  }

  /** Returns and forgets the attempts that went away with a process: it is back, or never will be. */
  takeAway(process: number): ReadonlySet<string> {
    const away = this.#away.get(process) ?? new Set<string>();
    this.#away.delete(process);
    return away;
  }

  /** A process has ended. @returns every attempt that it held */
  exited(process: number, pid: number): ReadonlySet<string> {
    this.#retired.delete(process);
    const keys = new Set(this.takeAway(process));
    for (const connection of this.#connections) {
      if (connection.process !== process || connection.control) continue;
      for (const key of connection.inHand) keys.add(key);
      if (connection.pid !== pid) continue;
      // The end of the connection is read later, and no attempt may go there until then.
      connection.slots = 0;
      connection.destroy();
    }
    return keys;
  }

  /** The process with a free slot and the fewest attempts. */
  pick(): RunnerConnection | undefined {
    let best: RunnerConnection | undefined;
    for (const connection of this.#connections) {
      if (connection.inHand.size >= connection.slots || !this.#takes(connection)) continue;
      if (best === undefined || connection.inHand.size < best.inHand.size) best = connection;
      if (best.inHand.size === 0) return best;
    }
    return best;
  }

  connectionOf(key: string): RunnerConnection | undefined {
    for (const connection of this.#connections) if (connection.inHand.has(key)) return connection;
    return undefined;
  }

  /**
   * Tells a process that it may drop an acknowledged attempt. Nobody waits for this, so it travels with the next frame.
   */
  tellAcked(process: number, single: boolean, header: { readonly taskId: string; readonly token: string }): void {
    let told = false;
    for (const one of this.#connections) {
      if (one.process !== process || one.control !== single) continue;
      one.sendLater('acked', header);
      told = true;
    }
    // The process is away just now, or back under another number: all processes are told, and the one that has it drops
    // it.
    if (!told) for (const one of this.#connections) one.sendLater('acked', header);
  }

  /** Waits until nobody is connected, for `ms` at most. */
  async none(ms: number): Promise<void> {
    if (this.#connections.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#onNone.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Ends every connection: what the processes have sent is read, for `ms` at most. */
  async endAll(ms: number): Promise<void> {
    for (const connection of this.#connections) connection.end();
    await this.none(ms);
  }

  destroyAll(): void {
    for (const connection of this.#connections) connection.destroy();
  }
}

/**
 * The connections of one container's runner processes, and which attempts each holds: who can take one, who has it, and what a process that went away still had.
 * Owned by the container's slots (container-slots.ts); asked for every task, so nothing here waits, but for the end of the last connection.
 * Must stay true: an attempt is in one process's hand at most, or away with it.
 */
import type { RunnerConnection } from './connection.ts';

export class RunnerProcesses {
  readonly #connections = new Set<RunnerConnection>();
  /** Attempts of processes that went away, by process: they may come back with them. */
  readonly #away = new Map<number, Set<string>>();
  #control: RunnerConnection | undefined;
  #onNone: (() => void)[] = [];

  add(connection: RunnerConnection): void {
    this.#connections.add(connection);
  }

  /** The first process's connection, which speaks for all of them. */
  get control(): RunnerConnection | undefined {
    return this.#control;
  }

  /** How many processes take attempts. */
  get serving(): number {
    let serving = 0;
    for (const connection of this.#connections) if (connection.slots > 0) serving += 1;
    return serving;
  }

  /** Whether that process serves again: its next start may be heard before the end of the one with this pid. */
  servesAgain(process: number, endedPid: number): boolean {
    for (const one of this.#connections)
      if (one.process === process && one.slots > 0 && one.pid !== endedPid) return true;
    return false;
  }

  [Symbol.iterator](): IterableIterator<RunnerConnection> {
    return this.#connections.values();
  }

  /** The connection has said whose it is. An older one of the same process just has not ended yet: what it held is away until the process says that it holds it. */
  greeted(connection: RunnerConnection): void {
    for (const other of this.#connections) {
      if (other === connection || other.control !== connection.control || other.process !== connection.process)
        continue;
      if (other.inHand.size > 0) for (const key of other.inHand) this.#awayOf(other.process).add(key);
      other.inHand.clear();
      other.destroy();
    }
    if (connection.control) this.#control = connection;
  }

  /** The connection has ended. */
  closed(connection: RunnerConnection): void {
    this.#connections.delete(connection);
    if (this.#control === connection) this.#control = undefined;
    if (this.#connections.size === 0) for (const done of this.#onNone.splice(0)) done();
  }

  /** What a process that went away held, to be kept up by the caller. */
  #awayOf(process: number): Set<string> {
    const known = this.#away.get(process);
    if (known !== undefined) return known;
    const away = new Set<string>();
    this.#away.set(process, away);
    return away;
  }

  /** Its attempt went away with it. @returns how to take that back */
  goesAway(process: number, key: string): () => void {
    const away = this.#awayOf(process);
    away.add(key);
    return () => void away.delete(key);
  }

  /** The process is back, or never will be: what had gone away with it. */
  takeAway(process: number): ReadonlySet<string> {
    const away = this.#away.get(process) ?? new Set<string>();
    this.#away.delete(process);
    return away;
  }

  /** A process has ended. @returns every attempt it had */
  exited(process: number, pid: number): ReadonlySet<string> {
    const keys = new Set(this.takeAway(process));
    for (const connection of this.#connections) {
      if (connection.process !== process || connection.control) continue;
      for (const key of connection.inHand) keys.add(key);
      if (connection.pid === pid) connection.destroy();
    }
    return keys;
  }

  /** The one with a free slot and the least in hand. */
  pick(): RunnerConnection | undefined {
    let best: RunnerConnection | undefined;
    for (const connection of this.#connections) {
      if (connection.inHand.size >= connection.slots) continue;
      if (best === undefined || connection.inHand.size < best.inHand.size) best = connection;
      if (best.inHand.size === 0) return best;
    }
    return best;
  }

  holderOf(key: string): RunnerConnection | undefined {
    for (const connection of this.#connections) if (connection.inHand.has(key)) return connection;
    return undefined;
  }

  /** Tells a process that what it keeps of an attempt may go; nobody waits for this, so it travels with the next frame. */
  tellAcked(process: number, single: boolean, header: { readonly taskId: string; readonly token: string }): void {
    let told = false;
    for (const one of this.#connections) {
      if (one.process !== process || one.control !== single) continue;
      one.sendLater('acked', header);
      told = true;
    }
    // Away just now, or back under another number: whoever keeps it drops it.
    if (!told) for (const one of this.#connections) one.sendLater('acked', header);
  }

  /** Waits until nobody is connected, at most so long. */
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

  destroyAll(): void {
    for (const connection of this.#connections) connection.destroy();
  }
}

// Deliveries of a webhook that wait for another try, counted by subject: new events of such a subject come behind them.
export class WaitingDeliveries {
  #bySubject: Map<string, number>;
  #total: number;
  #version = 0;

  constructor(bySubject: ReadonlyMap<string, number>) {
    this.#bySubject = new Map(bySubject);
    this.#total = sumOf(bySubject);
  }

  get total(): number {
    return this.#total;
  }

  /** Grows with each change. */
  get version(): number {
    return this.#version;
  }

  has(subject: string): boolean {
    return this.#bySubject.has(subject);
  }

  /** Takes numbers that were counted anew. */
  replace(bySubject: ReadonlyMap<string, number>): void {
    this.#bySubject = new Map(bySubject);
    this.#total = sumOf(bySubject);
  }

  change(subject: string, by: number): void {
    if (by === 0) return;
    this.#version += 1;
    this.#total = Math.max(0, this.#total + by);
    const left = (this.#bySubject.get(subject) ?? 0) + by;
    if (left > 0) this.#bySubject.set(subject, left);
    else this.#bySubject.delete(subject);
  }
}

const sumOf = (bySubject: ReadonlyMap<string, number>): number =>
  [...bySubject.values()].reduce((sum, one) => sum + one, 0);

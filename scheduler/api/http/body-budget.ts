// Bytes of request bodies that this process holds at once, in total and
// per payer. Pure bookkeeping; bodies.ts asks before it keeps a chunk.

export interface BudgetRules {
  /** Bound on the bytes of all payers together. */
  readonly totalBytes: number;
  /** Bound on the bytes of one payer: the rest stays for the others. */
  readonly payerBytes: number;
}

export class BodyBudget {
  readonly #rules: BudgetRules;
  readonly #byPayer = new Map<string, number>();
  #usedBytes = 0;

  constructor(rules: BudgetRules) {
    this.#rules = rules;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Books bytes for a payer. @returns false: the bytes exceed the total or the payer's share, and nothing is booked */
  take(payer: string, bytes: number): boolean {
    const own = (this.#byPayer.get(payer) ?? 0) + bytes;
    if (this.#usedBytes + bytes > this.#rules.totalBytes || own > this.#rules.payerBytes) return false;
    this.#usedBytes += bytes;
    this.#byPayer.set(payer, own);
    return true;
  }

  giveBack(payer: string, bytes: number): void {
    this.#usedBytes -= bytes;
    const left = (this.#byPayer.get(payer) ?? 0) - bytes;
    if (left > 0) this.#byPayer.set(payer, left);
    else this.#byPayer.delete(payer);
  }
}

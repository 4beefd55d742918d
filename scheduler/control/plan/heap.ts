/** Binary heap: the first item in the given order comes out first. */
export class Heap<T> {
  readonly #before: (a: T, b: T) => boolean;
  #items: T[] = [];

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  get size(): number {
    return this.#items.length;
  }

  /** The items as the heap keeps them: the first one first, the others in no particular order. */
  get items(): readonly T[] {
    return this.#items;
  }

  first(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    this.#items.push(item);
    this.#up(this.#items.length - 1);
  }

  pop(): T | undefined {
    const [first] = this.#items;
    const last = this.#items.pop();
    if (last !== undefined && this.#items.length > 0) {
      this.#items[0] = last;
      this.#down(0);
    }
    return first;
  }

  /** Drops the items that the condition does not hold for. */
  keep(condition: (item: T) => boolean): void {
    this.#items = this.#items.filter(condition);
    for (let at = (this.#items.length >> 1) - 1; at >= 0; at -= 1) this.#down(at);
  }

  #up(from: number): void {
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#swapsInto(parent, at)) return;
      at = parent;
    }
  }

  #down(from: number): void {
    let at = from;
    for (;;) {
      const left = 2 * at + 1;
      const right = left + 1;
      if (left >= this.#items.length) return;
      const child = right < this.#items.length && this.#before(this.#at(right), this.#at(left)) ? right : left;
      if (!this.#swapsInto(at, child)) return;
      at = child;
    }
  }

  /** Swaps a parent with its child when the child comes before it. */
  #swapsInto(parent: number, child: number): boolean {
    const [above, below] = [this.#at(parent), this.#at(child)];
    if (!this.#before(below, above)) return false;
    this.#items[parent] = below;
    this.#items[child] = above;
    return true;
  }

  #at(index: number): T {
    return this.#items[index] as T;
  }
}

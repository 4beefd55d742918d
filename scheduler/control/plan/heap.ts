/** Binary heap: the first item in the given order comes out first. */
export class Heap<T> {
  readonly #before: (a: T, b: T) => boolean;
  readonly #isAt: (item: T, at: number) => void;
  #items: T[] = [];

  /** @param isAt - told where an item is, by which it can be moved or removed */
  constructor(before: (a: T, b: T) => boolean, isAt: (item: T, at: number) => void = () => undefined) {
    this.#before = before;
    this.#isAt = isAt;
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
    this.#isAt(item, this.#items.length - 1);
    this.#up(this.#items.length - 1);
  }

  pop(): T | undefined {
    const [first] = this.#items;
    if (first !== undefined) this.removeAt(0);
    return first;
  }

  /** Puts the item there where it belongs now, because its order changed. */
  moveAt(at: number): void {
    const item = this.#at(at);
    this.#up(at);
    if (this.#at(at) === item) this.#down(at);
  }

  removeAt(at: number): void {
    const last = this.#items.pop();
    if (last === undefined || at >= this.#items.length) return;
    this.#items[at] = last;
    this.#isAt(last, at);
    this.moveAt(at);
  }

  clear(): void {
    this.#items = [];
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
    this.#isAt(below, parent);
    this.#isAt(above, child);
    return true;
  }

  #at(index: number): T {
    return this.#items[index] as T;
  }
}

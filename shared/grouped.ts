// Values by key, several for each key, so that a question about one key costs what that key has and no more.

export class Grouped<K, V> {
  readonly #byKey = new Map<K, Set<V>>();

  add(key: K, value: V): void {
    const values = this.#byKey.get(key);
    if (values === undefined) this.#byKey.set(key, new Set([value]));
    else values.add(value);
  }

  /** A key without values is not kept. */
  delete(key: K, value: V): void {
    const values = this.#byKey.get(key);
    if (values?.delete(value) === true && values.size === 0) this.#byKey.delete(key);
  }

  /** Values of the key, in the order in which they came; they may change while they are walked. */
  of(key: K): ReadonlySet<V> {
    return this.#byKey.get(key) ?? NONE;
  }

  keys(): MapIterator<K> {
    return this.#byKey.keys();
  }
}

const NONE: ReadonlySet<never> = new Set();

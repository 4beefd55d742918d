// Input of a program in a container, from the first byte on whose arrival is not known. Pure.

/** Input that was read and that the container has not counted yet. */
export class KeptInput {
  #pieces: Buffer[] = [];
  /** Places of the first byte that is kept, and of the next one that comes. */
  #from = 0;
  #end = 0;

  get bytes(): number {
    return this.#end - this.#from;
  }

  add(data: Buffer): void {
    this.#pieces.push(data);
    this.#end += data.length;
  }

  /**
   * The container has the bytes before this place.
   * @returns false: it cannot have them, or lacks bytes that are not kept
   */
  taken(place: number): boolean {
    if (place < this.#from || place > this.#end) return false;
    let done = 0;
    for (const { length } of this.#pieces) {
      if (this.#from + length > place) break;
      this.#from += length;
      done += 1;
    }
    this.#pieces.splice(0, done);
    const first = this.#pieces[0];
    if (first !== undefined) this.#pieces[0] = first.subarray(place - this.#from);
    this.#from = place;
    return true;
  }

  /** Bytes that the container does not have. */
  get pieces(): readonly Buffer[] {
    return this.#pieces;
  }
}

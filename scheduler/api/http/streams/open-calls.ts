// Streamed calls under way at this replica, so that none is left without an answer when the process stops.

export interface OpenCall {
  readonly protocol: 'http' | 'websocket';
  /** Answers the caller that this process stops, where no answer has begun; the task is cancelled. */
  refuse(): void;
  /** Cuts an answer that has begun, so that its caller sees that it is not whole. */
  cut(): void;
}

export class OpenCalls {
  readonly #open = new Set<OpenCall>();
  #isStopping = false;

  /** This process takes nothing new: no other replica reaches it any more. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** @returns a function for the end of the call */
  add(call: OpenCall): () => void {
    this.#open.add(call);
    return () => void this.#open.delete(call);
  }

  /** A WebSocket that is accepted from now on would be closed at once, so those that wait are refused. */
  refuseWebSockets(): void {
    this.#isStopping = true;
    for (const call of [...this.#open]) if (call.protocol === 'websocket') call.refuse();
  }

  /** Every call without an answer is refused, before its connection is cut. */
  refuseAll(): void {
    for (const call of [...this.#open]) call.refuse();
  }

  /** Every answer that still goes on is cut. */
  cutAll(): void {
    for (const call of [...this.#open]) call.cut();
  }
}

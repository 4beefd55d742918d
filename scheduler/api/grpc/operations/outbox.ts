/** Messages on their way to one caller: bounded, in order. */
export class Outbox<Message> {
  /** Messages that wait above which their source has to wait. */
  readonly #most: number;
  readonly #waiting: Message[] = [];
  #failure: { readonly error: unknown } | undefined;
  #wakeReader: (() => void) | undefined;
  #room: PromiseWithResolvers<void> | undefined;

  constructor(most = 64) {
    this.#most = most;
  }

  /** @returns resolves when there is room again; undefined: there is */
  put(message: Message): Promise<void> | undefined {
    this.#waiting.push(message);
    this.#wakeReader?.();
    if (this.#waiting.length < this.#most) return undefined;
    this.#room ??= Promise.withResolvers<void>();
    return this.#room.promise;
  }

  /** Has the reader fail behind the messages that wait. */
  fail(error: unknown): void {
    this.#failure ??= { error };
    this.#wakeReader?.();
  }

  /** The next message; undefined: the signal came first. @throws what {@link fail} was given */
  async next(signal: AbortSignal): Promise<Message | undefined> {
    for (;;) {
      const message = this.#waiting.shift();
      if (this.#waiting.length < this.#most) {
        this.#room?.resolve();
        this.#room = undefined;
      }
      if (message !== undefined || signal.aborted) return message;
      if (this.#failure !== undefined) throw this.#failure.error;
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          signal.removeEventListener('abort', wake);
          this.#wakeReader = undefined;
          resolve();
        };
        this.#wakeReader = wake;
        signal.addEventListener('abort', wake, { once: true });
      });
    }
  }
}

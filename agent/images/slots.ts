import { SharedPlaces } from '#shared/places.ts';

/**
 * Places for pulls on this machine. A workspace has at most as many as are left, so registries that hang or crawl for
 * one workspace leave room for others. Nobody holds a place while it waits for anything else.
 */
export class PullSlots {
  readonly #places: SharedPlaces<'pulls', string>;
  #waiting: (() => void)[] = [];

  /** @param width - pulls of this machine at once */
  constructor(width: number) {
    this.#places = new SharedPlaces(width);
  }

  /** Whether the workspace would get a place now. */
  isFree(workspaceId: string): boolean {
    const giveBack = this.#places.take('pulls', workspaceId);
    giveBack?.();
    return giveBack !== undefined;
  }

  /** Returns when the workspace would get a place; others may be faster. */
  async untilFree(workspaceId: string, signal: AbortSignal): Promise<void> {
    while (!this.isFree(workspaceId) && !signal.aborted)
      await new Promise<void>((resolve) => {
        signal.addEventListener('abort', () => resolve(), { once: true });
        this.#waiting.push(resolve);
      });
  }

  /** Takes a place. @returns a function that gives it back; undefined: the workspace gets none */
  take(workspaceId: string): (() => void) | undefined {
    const giveBack = this.#places.take('pulls', workspaceId);
    if (giveBack === undefined) return undefined;
    return () => {
      giveBack();
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const wake of waiting) wake();
    };
  }
}

// Answers that a screen keeps fresh. A resource has one request at a time, which ends with the screen. Nothing runs in
// a hidden tab, and a failure keeps what was read before, with its time.
import { useEffect, useRef, useState } from 'preact/hooks';
import { apiErrorOf } from '../api/client.ts';
import type { ApiError } from '../api/client.ts';

export interface Resource<T> {
  /** undefined: nothing was read yet. */
  readonly value: T | undefined;
  /** Why the last try failed; undefined: it did not. */
  readonly failure: ApiError | undefined;
  /** When the value was read, in epoch milliseconds. */
  readonly atMs: number;
  readonly again: () => void;
}

/** The last reading, with its key. */
export type Read<T> = Omit<Resource<T>, 'again'> & { readonly key: string };

/** The resource of a key: nothing is known of it if another key was read last. */
export const resourceOf = <T>(last: Read<T> | undefined, key: string, again: () => void): Resource<T> =>
  last?.key === key
    ? { value: last.value, failure: last.failure, atMs: last.atMs, again }
    : { value: undefined, failure: undefined, atMs: 0, again };

const LONGEST_MS = 60_000;

/**
 * Reads now and then again.
 * @param key - what is read: another key forgets the value
 * @param everyMs - 0: once
 */
export function useResource<T>(key: string, read: (signal: AbortSignal) => Promise<T>, everyMs: number): Resource<T> {
  const [state, setState] = useState<Read<T>>();
  const [turn, setTurn] = useState(0);
  const reader = useRef(read);
  reader.current = read;
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    const next = (ms: number): void => {
      clearTimeout(timer);
      if (!abort.signal.aborted && document.visibilityState === 'visible') timer = setTimeout(() => void round(), ms);
    };
    const round = async (): Promise<void> => {
      try {
        const value = await reader.current(abort.signal);
        if (abort.signal.aborted) return;
        failures = 0;
        setState({ key, value, failure: undefined, atMs: Date.now() });
      } catch (error) {
        if (abort.signal.aborted) return;
        failures += 1;
        const failure = apiErrorOf(error);
        setState((before) => ({
          key,
          value: before?.key === key ? before.value : undefined,
          failure,
          atMs: before?.atMs ?? 0,
        }));
        const asked = (failure.retryAfterSeconds ?? 0) * 1000;
        // A stale page tries again by itself, ever more seldom.
        return next(Math.max(asked, Math.min(LONGEST_MS, 1000 * 2 ** failures)));
      }
      if (everyMs > 0) next(everyMs);
    };
    const onVisible = (): void => {
      if (document.visibilityState === 'visible') void round();
      else clearTimeout(timer);
    };
    document.addEventListener('visibilitychange', onVisible);
    void round();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key, everyMs, turn]);
  return resourceOf(state, key, () => setTurn((before) => before + 1));
}

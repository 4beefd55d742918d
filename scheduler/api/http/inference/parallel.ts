// Parts of a request that are sent side by side, at most some at a time. Pure but for the calls that it makes.
// Invariants: results keep the order of their parts. A failure ends the parts under way, and is thrown when all have
// ended. A part that was refused beside others is sent again after them: only the refusal of a lone part is a failure.

export interface Parallel<T> {
  /** Number of parts. */
  readonly parts: number;
  /** Most parts at a time. */
  readonly most: number;
  readonly signal: AbortSignal;
  readonly run: (part: number, signal: AbortSignal) => Promise<T>;
  /** Whether nothing of the part was done, because too much is under way. */
  readonly isRefusal: (error: unknown) => boolean;
}

export async function inParallel<T>({ parts, most, signal, run, isRefusal }: Parallel<T>): Promise<readonly T[]> {
  const results = new Map<number, T>();
  const waiting = Array.from({ length: parts }, (_, at) => at).toReversed();
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal]);
  let underWay = 0;
  let failure: { readonly error: unknown } | undefined;

  const lane = async (): Promise<void> => {
    for (let part = waiting.pop(); part !== undefined; part = waiting.pop()) {
      const beganBeside = underWay > 0;
      underWay += 1;
      try {
        results.set(part, await run(part, either));
        underWay -= 1;
      } catch (error) {
        underWay -= 1;
        if (failure !== undefined) return;
        if (isRefusal(error) && (beganBeside || underWay > 0) && !signal.aborted) {
          waiting.push(part);
          // Another lane goes on with it.
          if (underWay > 0) return;
          continue;
        }
        failure = { error };
        ending.abort(error);
        return;
      }
      if (failure !== undefined) return;
    }
  };
  await Promise.all(Array.from({ length: Math.min(most, parts) }, lane));
  if (failure !== undefined) throw failure.error;
  return Array.from({ length: parts }, (_, at) => results.get(at) as T);
}

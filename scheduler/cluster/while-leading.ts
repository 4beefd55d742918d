import type { LeaderLease } from './leader.ts';

/**
 * Begins work whenever this replica leads, and aborts its signal when this replica leads no more.
 * @returns a function that ends it for good
 */
export function whileLeading(
  leader: Pick<LeaderLease, 'isLeader' | 'onChange'>,
  work: (signal: AbortSignal) => void,
): () => void {
  let leading: AbortController | undefined;
  const follow = (isLeading: boolean): void => {
    if (isLeading === (leading !== undefined)) return;
    leading?.abort();
    leading = isLeading ? new AbortController() : undefined;
    if (leading !== undefined) work(leading.signal);
  };
  const stopListening = leader.onChange(({ kind }) => follow(kind === 'leading'));
  follow(leader.isLeader());
  return () => {
    stopListening();
    follow(false);
  };
}

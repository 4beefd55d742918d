// States as a shape and a word, never as a colour alone.

type Tone = 'good' | 'calm' | 'wait' | 'bad';

const SHAPES: Readonly<Record<Tone, string>> = { good: '●', calm: '○', wait: '◐', bad: '✕' };

const TONES: Readonly<Record<string, Tone>> = {
  HEALTHY: 'good',
  COMPLETE: 'good',
  RUNNING: 'good',
  ACTIVE: 'good',
  IDLE: 'calm',
  STOPPED: 'calm',
  CANCELLED: 'calm',
  DELETED: 'calm',
  SCALING: 'wait',
  BUSY: 'wait',
  PENDING: 'wait',
  RETRY: 'wait',
  STOPPING: 'wait',
  DELETING: 'wait',
  FAILING: 'bad',
  DEGRADED: 'bad',
  ERROR: 'bad',
  TIMEOUT: 'bad',
  EXPIRED: 'bad',
};

export const toneOf = (state: string): Tone => TONES[state] ?? 'wait';

export function State({ state }: { readonly state: string }) {
  const tone = toneOf(state);
  return (
    <span class={`state ${tone}`}>
      <span aria-hidden="true">{SHAPES[tone]} </span>
      {state}
    </span>
  );
}

/** Places in a list of states, the worst first. */
const RANKS: Readonly<Record<string, number>> = {
  FAILING: 0,
  DEGRADED: 1,
  PENDING: 2,
  SCALING: 3,
  BUSY: 4,
  STOPPING: 5,
  HEALTHY: 6,
  IDLE: 7,
  STOPPED: 8,
};
/** A deployment that somebody should do something about stands before those that are well, whatever its state. */
const NEEDS_STEP = 4;
export const rankOf = (state: string | undefined, needsStep: boolean): number => {
  const rank = state === undefined ? 6.5 : (RANKS[state] ?? 5);
  return needsStep ? Math.min(rank, NEEDS_STEP) : rank;
};

// States as a shape and a word, never as a colour alone.

type Tone = 'good' | 'calm' | 'wait' | 'bad';

const SHAPES: Readonly<Record<Tone, string>> = { good: '●', calm: '○', wait: '◐', bad: '✕' };

const TONES: Readonly<Record<string, Tone>> = {
  HEALTHY: 'good',
  COMPLETE: 'good',
  RUNNING: 'good',
  ACTIVE: 'good',
  IDLE: 'calm',
  READY: 'good',
  BUILDING: 'wait',
  FAILED: 'bad',
  LOST: 'bad',
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

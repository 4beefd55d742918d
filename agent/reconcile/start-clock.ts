// Measures the duration of each step of a container's start. Owned by executor-context.ts.
import type { StartPhase as StartPhaseReport } from '#shared/protocol/generated/messages.ts';

/** The steps of a start in their order; together they cover all of it. */
export const START_PHASES = [
  'proceed',
  'prepare',
  'turn',
  'holder',
  'mounts',
  'create',
  'start',
  'hello',
  'on_start',
] as const;
export type StartPhase = (typeof START_PHASES)[number];

interface Running {
  readonly fromMs: number;
  cache: 'hit' | 'miss';
  lastMs: number;
  readonly phases: Partial<Record<StartPhase, number>>;
}

export interface StartTimes {
  readonly totalMs: number;
  /** Whether the image was here. */
  readonly cache: 'hit' | 'miss';
  /** Milliseconds per step; a skipped step is absent. */
  readonly phases: Readonly<Partial<Record<StartPhase, number>>>;
}

/** The steps as the agent reports them, in their order. */
export const reportedPhases = ({ phases }: Pick<StartTimes, 'phases'>): readonly StartPhaseReport[] =>
  START_PHASES.flatMap((name) => {
    const ms = phases[name];
    return ms === undefined ? [] : [{ name, durationMs: Math.round(ms) }];
  });

export class StartClock {
  readonly #running = new Map<string, Running>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** The container's assignment was taken. */
  begin(containerId: string): void {
    const now = this.#nowMs();
    this.#running.set(containerId, { fromMs: now, cache: 'hit', lastMs: now, phases: {} });
  }

  /** The container's image has to be pulled. */
  missed(containerId: string): void {
    const running = this.#running.get(containerId);
    if (running !== undefined) running.cache = 'miss';
  }

  /** Ends a step; the times of a repeated step add up. */
  mark(containerId: string, phase: StartPhase): void {
    const running = this.#running.get(containerId);
    if (running === undefined) return;
    // The program did something before the engine answered: the step ended then.
    if (phase === 'start' && running.phases.hello !== undefined) return;
    if (phase === 'hello') this.#endStart(containerId, running);
    const now = this.#nowMs();
    running.phases[phase] = (running.phases[phase] ?? 0) + now - running.lastMs;
    running.lastMs = now;
  }

  #endStart(containerId: string, { phases }: Running): void {
    if (phases.create !== undefined && phases.start === undefined) this.mark(containerId, 'start');
  }

  /** The container is ready: the start's duration. Undefined when another agent began the start. */
  end(containerId: string): StartTimes | undefined {
    const running = this.#running.get(containerId);
    if (running === undefined) return undefined;
    this.#endStart(containerId, running);
    this.mark(containerId, 'on_start');
    this.#running.delete(containerId);
    return { totalMs: running.lastMs - running.fromMs, cache: running.cache, phases: running.phases };
  }

  forget(containerId: string): void {
    this.#running.delete(containerId);
  }
}

// How long each step of a container's start takes. Owned by workbench.ts.

/** The steps of a start, one after the other; together they are all of it. */
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
  /** Whether its image was here. */
  readonly cache: 'hit' | 'miss';
  /** Milliseconds; a step that was passed over is absent. */
  readonly phases: Readonly<Partial<Record<StartPhase, number>>>;
}

export class StartClock {
  readonly #running = new Map<string, Running>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** Its assignment was taken. */
  begin(containerId: string): void {
    const now = this.#nowMs();
    this.#running.set(containerId, { fromMs: now, cache: 'hit', lastMs: now, phases: {} });
  }

  /** Its image has to be fetched. */
  missed(containerId: string): void {
    const running = this.#running.get(containerId);
    if (running !== undefined) running.cache = 'miss';
  }

  /** A step has ended; done twice, both times count. */
  mark(containerId: string, phase: StartPhase): void {
    const running = this.#running.get(containerId);
    if (running === undefined) return;
    const now = this.#nowMs();
    running.phases[phase] = (running.phases[phase] ?? 0) + now - running.lastMs;
    running.lastMs = now;
  }

  /** It is ready: how long it took. Undefined when its beginning was another agent's. */
  end(containerId: string): StartTimes | undefined {
    this.mark(containerId, 'on_start');
    const running = this.#running.get(containerId);
    this.#running.delete(containerId);
    if (running === undefined) return undefined;
    return { totalMs: running.lastMs - running.fromMs, cache: running.cache, phases: running.phases };
  }

  forget(containerId: string): void {
    this.#running.delete(containerId);
  }
}

// The start of a container as its events tell it: the time that it took, and its steps. Pure.
import type { EventRow } from '../../stores/store/queries/events.ts';

export interface ContainerStart {
  readonly durationMs: number;
  /** Whether the app has an `on_start`. */
  readonly hasOnStart: boolean;
  /** In their order, with the wait for a machine; steps that nobody measured are absent. */
  readonly steps: readonly { readonly id: string; readonly durationMs: number }[];
}

const WHOLE = 'container.startup';
const READY = 'serve.ready';
/** Steps in words. Source: the table of steps in docs/events.md. */
const STEP_TEXTS: Readonly<Record<string, string>> = {
  'scheduler.backlog_wait': 'until it had a machine',
  'worker.queue_receive': 'until the machine began',
  'image.load': 'image and code',
  'worker.turn': 'other starts there',
  'network.setup': 'network',
  'mount.setup': 'volumes and files',
  'runtime.create': 'creation by the engine',
  'runtime.start_to_pid': 'start by the engine',
  'runner.connect': 'Python and imports',
  'serve.ready': 'until the app was loaded',
};
/** Share of the start below which a step is not named. */
const LEAST_SHARE = 0.01;

/**
 * The newest start that worked.
 * @param events - `container.lifecycle` of one container, in order
 * @param hasOnStart - whether its app has an `on_start`
 * @returns undefined: none is told
 */
export function lastStart(events: readonly EventRow[], hasOnStart: boolean): ContainerStart | undefined {
  const whole = events.findLast(({ data }) => data['id'] === WHOLE && data['success'] === true);
  if (whole === undefined) return undefined;
  const epoch = epochOf(whole);
  const steps = events
    .filter((event) => epochOf(event) === epoch && String(event.data['id']) in STEP_TEXTS)
    .map(({ data }) => ({ id: String(data['id']), durationMs: Number(data['duration_ms']) }));
  return { durationMs: Number(whole.data['duration_ms']), hasOnStart, steps };
}

const epochOf = ({ data }: EventRow): unknown => (data['attrs'] as Readonly<Record<string, unknown>> | null)?.['epoch'];

/** `took 4.2 s: 0.3 s until it had a machine, 3.1 s image and code, 0.8 s `on_start``. */
export function startTimes({ durationMs, hasOnStart, steps }: ContainerStart): string {
  // Milliseconds, or tenths of a second.
  const unitMs = Math.round(durationMs) < 1_000 ? 1 : 100;
  const units = (ms: number): number => Math.round(ms / unitMs);
  const text = (count: number): string => (unitMs === 1 ? `${count} ms` : `${(count / 10).toFixed(1)} s`);
  const nameOf = (id: string): string => (id === READY && hasOnStart ? '`on_start`' : (STEP_TEXTS[id] ?? id));
  const texts: string[] = [];
  let toMs = 0;
  for (const step of steps) {
    const fromMs = toMs;
    toMs += step.durationMs;
    // The ends of steps are rounded, and not each step, so that the steps never add up to more than the start.
    const count = units(toMs) - units(fromMs);
    if (count > 0 && step.durationMs >= LEAST_SHARE * durationMs) texts.push(`${text(count)} ${nameOf(step.id)}`);
  }
  return `took ${text(units(durationMs))}${texts.length === 0 ? '' : `: ${texts.join(', ')}`}`;
}

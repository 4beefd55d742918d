// Starts of containers, put together from their events. Pure.
import type { EventRecord } from '#shared/api/rest/events.ts';

/** Phases in their order, as people read them. */
export const PHASES = [
  { id: 'scheduler.backlog_wait', title: 'waiting for a machine' },
  { id: 'worker.queue_receive', title: 'the order to the machine' },
  { id: 'image.load', title: 'image and code' },
  { id: 'worker.turn', title: 'waiting for other starts' },
  { id: 'network.setup', title: 'the network' },
  { id: 'mount.setup', title: 'volumes and files' },
  { id: 'runtime.create', title: 'creating the container' },
  { id: 'runtime.start_to_pid', title: 'starting the container' },
  { id: 'runner.connect', title: 'Python and imports' },
  { id: 'serve.ready', title: 'on_start' },
] as const;

const WHOLE = 'container.startup';

export interface Start {
  readonly containerId: string;
  readonly endedAt: string;
  readonly isReady: boolean;
  readonly tookMs: number;
  /** Why it failed; empty: it did not. */
  readonly why: string;
  /** Milliseconds by phase. */
  readonly phases: ReadonlyMap<string, number>;
}

/** @param events - of kind `container.lifecycle` @returns the newest first */
export function startsOf(events: readonly EventRecord[]): readonly Start[] {
  const byStart = Map.groupBy(events, (event) => `${event.container_id ?? ''} ${event.attrs?.['epoch'] ?? ''}`);
  const starts = [...byStart.values()].flatMap((own): Start[] => {
    const whole = own.find(({ event_id: id }) => id === WHOLE) ?? own.find(({ success }) => success === false);
    if (whole === undefined) return [];
    const phases = own.flatMap(({ event_id: id = '', duration_ms: ms }): [string, number][] =>
      ms === undefined || !PHASES.some((phase) => phase.id === id) ? [] : [[id, ms]],
    );
    return [
      {
        containerId: whole.container_id ?? '',
        endedAt: whole.end_time ?? whole.timestamp,
        isReady: whole.success !== false,
        tookMs: whole.duration_ms ?? 0,
        why: whole.success === false ? (whole.reason ?? whole.attrs?.['reason'] ?? whole.message ?? '') : '',
        phases: new Map(phases),
      },
    ];
  });
  return starts.toSorted((a, b) => Date.parse(b.endedAt) - Date.parse(a.endedAt));
}

export interface Spread {
  readonly count: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

/** How long starts that got ready took, and each of their phases, the longest first. */
export function phasesOf(starts: readonly Start[]) {
  const ready = starts.filter(({ isReady }) => isReady);
  const phases = PHASES.map(({ id, title }) => ({
    id,
    title,
    ...spreadOf(ready.flatMap((start) => start.phases.get(id) ?? [])),
  })).filter(({ count }) => count > 0);
  return { all: spreadOf(ready.map(({ tookMs }) => tookMs)), phases: phases.toSorted((a, b) => b.p50Ms - a.p50Ms) };
}

function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
  return { count: sorted.length, p50Ms: at(0.5), p95Ms: at(0.95) };
}

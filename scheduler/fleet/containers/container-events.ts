// Events of containers, made of the moves of their rows, and of the steps of a start that the machine's agent measured.
// Pure. Source: REST §9.2.
import { timestampOf } from '#shared/api/fields.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { containerFact, domainOf, idsOf, subjectOf } from '../../workspaces/events/container-fact.ts';
import type { EventGiven } from '../../workspaces/events/writer.ts';
import { ADMIN_PREEMPTED, ADMIN_PREEMPTED_WITH_CALLS, YIELDED } from './spec.ts';
import type { StoredSpec } from './spec.ts';

type MovedRow = Omit<ContainerRow, 'spec'>;

/** Resources of a container, where its recipe is known. */
export type Recipe = Pick<StoredSpec, 'cpuMillicores' | 'gpuCount'>;

/** A step of a start as the agent measured it. */
export interface StartPhase {
  readonly name: string;
  readonly durationMs: number;
}

/** Ids of an agent's steps as events; others are not told. */
const PHASE_IDS: Readonly<Record<string, string>> = {
  proceed: 'worker.queue_receive',
  prepare: 'image.load',
  turn: 'worker.turn',
  holder: 'network.setup',
  mounts: 'mount.setup',
  create: 'runtime.create',
  start: 'runtime.start_to_pid',
  hello: 'runner.connect',
  on_start: 'serve.ready',
};
const MOST_PHASES = 20;

/** Who wanted a stop, by the reason in the row. */
const STOP_REASONS: Readonly<Record<string, string>> = {
  user_stop: 'USER',
  admin_stop: 'ADMIN',
  [ADMIN_PREEMPTED]: 'ADMIN',
  [ADMIN_PREEMPTED_WITH_CALLS]: 'ADMIN',
  deployment_stopped: 'USER',
  deployment_deleted: 'USER',
  scaled_to_zero: 'USER',
  scaled_in: 'SCHEDULER',
  superseded: 'SCHEDULER',
  preempted: 'SCHEDULER',
  [YIELDED]: 'SCHEDULER',
  drained: 'ADMIN',
  ttl: 'TTL',
};

const MOST_MESSAGE = 500;

/** Whether a move between these states tells anything: others are written without a transaction of their own. */
export const isTold = (from: readonly string[], to: string): boolean =>
  (to === 'RUNNING' && from.includes('STARTING')) || to === 'STOPPING' || to === 'FAILED' || to === 'STOPPED';

/**
 * Events of a move.
 * @param from - the states of which the row was in one
 * @param row - as it is now
 * @param phases - of its start, in their order, until it was ready
 */
export function eventsOfMove(
  from: readonly string[],
  row: MovedRow,
  recipe: Recipe | undefined,
  nowMs: number,
  phases: readonly StartPhase[] = [],
): readonly EventGiven[] {
  const wasStarting = from.includes('STARTING');
  switch (row.state) {
    case 'RUNNING':
      return wasStarting ? startup(row, nowMs, true, phases) : [];
    case 'STOPPING':
      return [stopRequested(row, recipe, nowMs)];
    case 'STOPPED':
    case 'FAILED': {
      const failed = row.state === 'FAILED' && wasStarting ? startup(row, nowMs, false) : [];
      // A container that was never on a machine has no program that could exit.
      if (row.exitCode === null) return failed;
      return [...failed, ...exited(row, recipe, row.endedAtMs ?? nowMs)];
    }
    default:
      return [];
  }
}

/**
 * Phases of a start: all of it; the wait for a machine; the start there, until the container is ready.
 * @param endMs - when the scheduler heard of the end. Times of the machine are by another clock, and what it has as the
 * begin of the program is before the app was loaded
 */
function startup(
  row: MovedRow,
  endMs: number,
  success: boolean,
  phases: readonly StartPhase[] = [],
): readonly EventGiven[] {
  const reason = success ? '' : (row.reason ?? '');
  const whole = phase(row, 'container.startup', '', row.createdAtMs, endMs, { success, reason });
  const placedMs = row.scheduledAtMs;
  if (placedMs === null) return [whole];
  return [
    phase(row, 'scheduler.backlog_wait', 'container.startup', row.createdAtMs, placedMs, { success: true }),
    ...stepsOf(row, placedMs, endMs, phases),
    phase(row, 'worker.start', 'container.startup', placedMs, endMs, { success, reason }),
    whole,
  ];
}

/** Steps on the machine: the last ended when the container was ready, and each begins where the one before ended. */
function stepsOf(row: MovedRow, placedMs: number, endMs: number, phases: readonly StartPhase[]): readonly EventGiven[] {
  const told: EventGiven[] = [];
  let toMs = endMs;
  for (const { name, durationMs } of phases.slice(0, MOST_PHASES).toReversed()) {
    // Times of day may be set: no step begins before the container was placed.
    const fromMs = Math.max(placedMs, toMs - durationMs);
    const id = PHASE_IDS[name];
    if (id !== undefined)
      told.unshift(phase(row, id, 'worker.start', fromMs, toMs, { success: true, source: 'agent' }));
    toMs = fromMs;
  }
  return told;
}

function phase(
  row: MovedRow,
  id: string,
  parent: string,
  startMs: number,
  endMs: number,
  {
    success,
    reason = '',
    source = 'scheduler',
  }: { readonly success: boolean; readonly reason?: string; readonly source?: 'scheduler' | 'agent' },
): EventGiven {
  return {
    ...subjectOf(row),
    type: 'container.lifecycle',
    atMs: endMs,
    data: {
      id,
      domain: domainOf(id),
      parent_id: parent,
      start_time: timestampOf(startMs),
      end_time: timestampOf(endMs),
      // Two replicas' clocks may differ by a little.
      duration_ms: Math.max(0, endMs - startMs),
      ...idsOf(row),
      success,
      source,
      attrs: { epoch: String(row.epoch), ...(reason === '' ? {} : { reason }) },
    },
  };
}

const stopRequested = (row: MovedRow, recipe: Recipe | undefined, atMs: number): EventGiven =>
  containerFact(row, recipe, 'scheduler.stop_requested', atMs, {
    reason: STOP_REASONS[row.reason ?? ''] ?? 'UNKNOWN',
    attrs: { ...(row.reason === null ? {} : { reason: row.reason }) },
  });

function exited(row: MovedRow, recipe: Recipe | undefined, atMs: number): readonly EventGiven[] {
  const reason = row.reason ?? '';
  const message = (row.message ?? '').slice(-MOST_MESSAGE);
  const attrs = { exit_code: String(row.exitCode) };
  const end = containerFact(row, recipe, 'runtime.exited', atMs, { reason, message, attrs });
  return reason === 'oom' ? [containerFact(row, recipe, 'runtime.oom_killed', atMs, { reason, attrs }), end] : [end];
}

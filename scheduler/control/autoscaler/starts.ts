// Rules for which ends of containers count against their queue's starts, and which containers prove that starts work.
import type { ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { isUserCause } from '../../fleet/observe.ts';
import type { StartFailure } from './breaker.ts';

/** Milliseconds after being ready within which an exit with nothing done counts as a failed start. */
export const EARLY_EXIT_MS = 60_000;

export interface FailedStart extends StartFailure {
  /** True when the container was never ready. */
  readonly neverReady: boolean;
}

/**
 * Judges the end of a container.
 * @param completed - tasks that it completed, as far as is known
 * @returns undefined: its end says nothing about starts, or a host was the cause
 */
export function failedStart(
  { entry, from, to }: ContainerEntryChange,
  completed: number,
  nowMs: number,
): FailedStart | undefined {
  if (from === null || !(to === 'FAILED' || (to === 'STOPPED' && from === 'RUNNING'))) return undefined;
  const { row } = entry;
  // Changes by another replica may be heard of some moves later; the row tells whether the container was ever ready.
  const neverReady = row.startedAtMs === null && from !== 'RUNNING';
  const upMs = (row.endedAtMs ?? nowMs) - (row.startedAtMs ?? nowMs);
  const fellEarly = !neverReady && from !== 'DRAINING' && completed === 0 && upMs < EARLY_EXIT_MS;
  const reason = row.reason ?? 'user_error';
  if (!(neverReady || fellEarly) || !isUserCause(reason)) return undefined;
  const message = row.message ?? row.reason ?? 'the container did not start';
  return { containerId: row.id, createdAtMs: row.createdAtMs, atMs: nowMs, reason, message, neverReady };
}

/** Whether the container has been up for longer than an early exit takes. */
export const stayedUp = ({ row }: ContainerEntry, nowMs: number): boolean =>
  row.state === 'RUNNING' && row.startedAtMs !== null && nowMs - row.startedAtMs >= EARLY_EXIT_MS;

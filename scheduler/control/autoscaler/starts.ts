// Rules for which ends of containers count against their queue's starts, and which containers prove that starts work.
import type { ContainerState } from '#shared/domain/status.ts';
import type { ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { isUserCause } from '../../fleet/observe.ts';
import type { StartFailure } from './breaker.ts';

/** Milliseconds after being ready within which an exit without an attempt counts as a failed start. */
export const EARLY_EXIT_MS = 60_000;

export interface FailedStart extends StartFailure {
  /** True when the container was never ready. */
  readonly neverReady: boolean;
}

/**
 * Judges the end of a container. A container that was ready and was handed an attempt has started: its end is the
 * attempt's doing, or that of the code, and says nothing about starts.
 * @returns undefined: its end says nothing about starts, or a host was the cause
 */
export function failedStart(
  { entry, from, to }: ContainerEntryChange,
  served: boolean,
  nowMs: number,
): FailedStart | undefined {
  if (from === null || !hasEnded(from, to)) return undefined;
  const { row } = entry;
  // Changes by another replica may be heard of some moves later; the row tells whether the container was ever ready.
  const neverReady = row.startedAtMs === null && from !== 'RUNNING';
  const upMs = (row.endedAtMs ?? nowMs) - (row.startedAtMs ?? nowMs);
  const fellEarly = !neverReady && from !== 'DRAINING' && !served && upMs < EARLY_EXIT_MS;
  const reason = row.reason ?? 'user_error';
  if (!(neverReady || fellEarly) || !isUserCause(reason)) return undefined;
  const message = row.message ?? row.reason ?? 'the container did not start';
  return { containerId: row.id, createdAtMs: row.createdAtMs, atMs: nowMs, reason, message, neverReady };
}

/** Whether a move is the end of a container that nobody ordered. */
const hasEnded = (from: ContainerState, to: ContainerState): boolean =>
  to === 'FAILED' || (to === 'STOPPED' && from === 'RUNNING');

/** Whether the container has been up for longer than an early exit takes. */
export const stayedUp = ({ row }: ContainerEntry, nowMs: number): boolean =>
  row.state === 'RUNNING' && row.startedAtMs !== null && nowMs - row.startedAtMs >= EARLY_EXIT_MS;

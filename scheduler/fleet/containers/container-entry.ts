// A container as a process remembers it: its row and what only its link tells.
import { newContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { StartPhase } from './container-events.ts';
import type { ContainerRow, NewContainer } from '../../stores/store/queries/containers.ts';
import type { InitialPlacement } from '../../stores/store/queries/container-placements.ts';
import type { ContainerChange } from '../../stores/store/queries/container-moves.ts';
import type { ContainerView } from './container-view.ts';
import type { StoredSpec } from './spec.ts';
import { slotsOf, specOf, ttlOf } from './spec.ts';
import { publicStatus } from './state.ts';

export interface ContainerEntry {
  row: ContainerRow;
  /** The recipe in the row. */
  spec: StoredSpec;
  /** How machines refuse it while it waits; absent: this process does not place it. */
  refusal?: Refusal | undefined;
  tail: Promise<unknown>;
  /** How its start goes on; absent: it does not start, or nothing is known (start-progress.ts). */
  start?: StartSigns;
  /** Steps of its start there, as the agent measured them. */
  startPhases?: readonly StartPhase[];
  /** Whether the container was handed an attempt. Known when it ends. */
  served?: boolean;
}

/** How machines refuse a container that waits. */
export interface Refusal {
  /** Whether it was tried, and no machine took it. */
  readonly isKnown: boolean;
  /** Counts the machines by their reason, which takes a look at all of them. */
  readonly count: () => Readonly<Record<string, number>>;
}

/** Whether machines were tried for the container that waits, and none took it. */
export const isRefused = ({ row, refusal }: Pick<ContainerEntry, 'row' | 'refusal'>): boolean =>
  refusal?.isKnown === true || row.rejections !== null;

/** Number of machines that refuse the container, by reason; null: none was tried, as far as this process knows. */
export const rejectionsOf = ({
  row,
  refusal,
}: Pick<ContainerEntry, 'row' | 'refusal'>): Readonly<Record<string, number>> | null =>
  refusal?.isKnown === true ? refusal.count() : row.rejections;

/** The last signs of a start. */
export interface StartSigns {
  /** Phase in its agent's words; empty: not reported yet. */
  readonly phase: string;
  /** Progress of its pull; empty: it pulls nothing. */
  readonly text: string;
  /** When something changed last, in monotonic milliseconds. */
  readonly atMs: number;
  /** When the other replicas were told last. */
  readonly toldAtMs: number;
  /** Bytes that the program had read, received and kept when this counted as progress last. */
  readonly loadedBytes: number;
  /** Processor time of the program when that counted as progress last. */
  readonly cpuMicroseconds: number;
  /** Bytes that the program has read from disks. */
  readonly readBytes: number;
}

/** Who asked for a container, where scaling did not. */
export interface CreateOptions {
  /** A warm-up. */
  readonly warmUp?: boolean;
  /** CreatePod: scaling leaves the container alone. */
  readonly byHand?: boolean;
}

export const newPlacements = (target: Target, count: number): InitialPlacement[] =>
  Array.from({ length: count }, () => ({ id: newContainerId(target.kind, target.stubId) }));

/** An entry that has no row yet: placement decides on it before its row is written. */
export function unwrittenEntry(target: Target, nowMs: number): ContainerEntry {
  const common = newContainersOf(target, {});
  return entryOf({
    ...common,
    id: newContainerId(target.kind, target.stubId),
    state: 'PENDING',
    machineId: null,
    assignmentId: null,
    epoch: 0,
    frozen: false,
    startFailures: 0,
    reason: null,
    exitCode: null,
    message: null,
    rejections: null,
    gpuUuids: [],
    stateBefore: null,
    ttlSeconds: null,
    exposedPorts: [],
    createdAtMs: nowMs,
    scheduledAtMs: null,
    startedAtMs: null,
    endedAtMs: null,
    revision: 0,
  });
}

export function newContainersOf(target: Target, { warmUp, byHand }: CreateOptions): Omit<NewContainer, 'id'> {
  return {
    workspaceId: target.workspaceId,
    stubId: target.stubId,
    deploymentId: target.deploymentId,
    spec: {
      ...specOf(target),
      ...(warmUp === true ? { warmUp: true } : {}),
      ...(byHand === true ? { byHand: true } : {}),
    },
    slots: slotsOf(target),
    ttlSeconds: byHand === true ? ttlOf(target.config.keepWarmSeconds) : null,
  };
}

export function entryOf(row: ContainerRow): ContainerEntry {
  return {
    row,
    spec: row.spec as StoredSpec,
    tail: Promise.resolve(),
  };
}

/**
 * Columns that follow from a move itself: back in the queue a
 * container holds no device, and UNKNOWN remembers the state before.
 */
export function besides(from: ContainerState, to: ContainerState): ContainerChange {
  if (to === 'PENDING') return { gpuUuids: [] };
  if (to === 'UNKNOWN') return { stateBefore: from };
  return from === 'UNKNOWN' ? { stateBefore: null } : {};
}

export function viewOf(entry: ContainerEntry): ContainerView | undefined {
  const { row, spec } = entry;
  const status = publicStatus(row.state, row.stateBefore);
  if (status === undefined) return undefined;
  return {
    containerId: row.id,
    workspaceId: row.workspaceId,
    stubId: row.stubId,
    deploymentId: row.deploymentId,
    state: row.state,
    status,
    machineId: row.machineId,
    scheduledAtMs: row.scheduledAtMs,
    startedAtMs: row.startedAtMs,
    cpuMillicores: spec.cpuMillicores,
    memoryMib: Math.round(spec.memoryBytes / (1024 * 1024)),
  };
}

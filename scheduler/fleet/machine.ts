// A machine as this process knows it: its row, its health, its agent's reports, and facts that follow from those alone.
// Health, intent and conditions are kept apart; isSchedulable() combines them.
import { conditionOf } from '#shared/domain/conditions.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { CachedVolume__Output, Inventory__Output } from '#shared/protocol/generated/messages.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { gpuFactsOf, gpuModelsOf, gpusOf } from './capacity.ts';
import type { Capacity } from './capacity.ts';
import { labelProblem, mergedLabels, MOST_LABELS, readLabels } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import { hostOf } from './host-facts.ts';
import type { MachineView } from './machine-service.ts';
import type { Health } from './state.ts';

export interface Machine {
  row: MachineRow;
  health: Health;
  inventory: Inventory__Output | null;
  conditions: readonly string[];
  /** Id of the current session with this replica; messages of older sessions change nothing. */
  sessionId: string | undefined;
  /** Start of the silence in epoch milliseconds, for people. */
  suspectSinceMs: number | null;
  /** The same instant in monotonic milliseconds of this process, for decisions. */
  silentFromMs: number | null;
  lastSeenAtMs: number | null;
  /** Whether this session began after a boot: containers from before do not run. */
  rebooted: boolean;
  /**
   * Containers that the agent still has although no row places them there: they take up capacity until they are gone.
   */
  orphans: ReadonlyMap<ContainerId, Orphan>;
  /** Free bytes of the file system that holds images, as the agent last told this process; null: not known here. */
  diskFreeBytes: number | null;
}

/**
 * A container that an agent has and the container registry does not know there: it ended here, was
 * lost long ago, or has an older assignment. Once exited it holds its devices only.
 */
export interface Orphan {
  readonly containerId: ContainerId;
  readonly assignmentId: string;
  readonly epoch: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpuUuids: readonly string[];
}

/** Time for which lists show that a machine's identity was used twice, or in another host. */
const CONTESTED_MS = 3_600_000;

/** The machine as lists show it. */
export function viewOf(machine: Machine, capacity: Capacity, nowMs: number): MachineView {
  return {
    machineId: machine.row.id,
    poolName: machine.row.poolName,
    requiresPoolSelector: machine.row.poolSettings.requiresPoolSelector,
    status: publicMachineStatus(machine),
    conditions: conditionsOf(machine, nowMs),
    conditionWords: isCopied(machine, nowMs)
      ? { ...conditionWordsOf(machine), CopiedDisk: machine.row.refusedWords }
      : conditionWordsOf(machine),
    hostname: machine.row.hostname ?? '',
    cpuMillicores: machine.inventory?.cpuMillicores ?? 0,
    memoryMib: Math.floor((machine.inventory?.memoryBytes ?? 0) / (1024 * 1024)),
    labels: labelsOf(machine),
    ownLabels: machine.row.labels,
    gpuModels: gpuModelsOf(machine),
    gpus: gpusOf(machine).map(gpuFactsOf),
    gpuCount: gpusOf(machine).length,
    freeGpuCount: capacity.freeGpus,
    agentVersion: machine.row.agentVersion ?? '',
    createdAtMs: machine.row.createdAtMs,
    lastSeenAtMs: machine.lastSeenAtMs,
    freeCpuMillicores: Math.max(0, capacity.freeCpuMillicores),
    offeredCpuMillicores: capacity.totalCpuMillicores,
    offeredMemoryMib: Math.floor(capacity.totalMemoryBytes / (1024 * 1024)),
    freeMemoryMib: Math.max(0, Math.floor(capacity.freeMemoryBytes / (1024 * 1024))),
    containerCount: capacity.containers,
    host: hostOf(machine.inventory),
  };
}

/**
 * Conditions that the agent reports; for an hour, `Unauthorized` after two agents spoke as this machine, and
 * `CopiedDisk` after another host came with its disk.
 */
export function conditionsOf(machine: Machine, nowMs: number): readonly string[] {
  const isContested = isRecent(machine.row.contestedAtMs, nowMs);
  const seenHere = [...(isContested ? ['Unauthorized'] : []), ...(isCopied(machine, nowMs) ? ['CopiedDisk'] : [])];
  return seenHere.length === 0 ? machine.conditions : [...machine.conditions, ...seenHere];
}

const isRecent = (atMs: number | null, nowMs: number): boolean => atMs !== null && nowMs - atMs < CONTESTED_MS;
const isCopied = (machine: Machine, nowMs: number): boolean => isRecent(machine.row.refusedAtMs, nowMs);

/**
 * Public status: not joined: pending; not active, or its preflight failed:
 * disabled; READY: available; joined but not connected: registered.
 */
export function publicMachineStatus(machine: Machine): MachineView['status'] {
  if (machine.health === 'PENDING' || machine.health === 'EXPIRED') return 'pending';
  if (!isInService(machine.row) || machine.conditions.includes('Preflight')) return 'disabled';
  return machine.health === 'READY' ? 'available' : 'registered';
}

/** Labels of the machine: its pool's, before them its agent's, and first of all those that an operator gave it. */
export function labelsOf({ row, inventory }: Pick<Machine, 'row' | 'inventory'>): Labels {
  return mergedLabels(readLabels(row.poolSettings.labels ?? ''), inventory?.labels ?? {}, row.labels);
}

/** Labels that an agent told, as far as they are labels. */
export const boundedLabels = (told: Labels = {}): Record<string, string> =>
  Object.fromEntries(
    Object.entries(told)
      .filter(([key, value]) => labelProblem(key, value) === undefined)
      .slice(0, MOST_LABELS),
  );

const MOST_CONDITIONS = 32;

/**
 * Valid condition names among those an agent reports, at most
 * MOST_CONDITIONS. Names that only a newer agent knows are kept.
 */
export const namedConditions = (names: readonly string[]): readonly string[] =>
  names.filter((name) => /^[A-Za-z][A-Za-z0-9]{0,63}$/.test(name)).slice(0, MOST_CONDITIONS);

const MAX_WORDS = 500;
/** Replaces control characters: the words are shown on terminals. */
const printable = (text: string): string => text.replaceAll(/\p{Cc}+/gu, ' ');

/** An agent's words about its present conditions. */
export const wordsAbout = (
  conditions: readonly string[],
  words: Readonly<Record<string, string>> | undefined,
): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(words ?? {})
      .filter(([name, text]) => text !== '' && conditions.includes(name))
      .map(([name, text]) => [name, printable(text).slice(0, MAX_WORDS)]),
  );

const MOST_WORKSPACES = 1_000;
const MOST_CACHES = 1_000;

/**
 * Bytes of the volumes on a machine's disk, by workspace, as the agent
 * reports them. On a machine of one workspace, only that workspace counts.
 */
export function volumeBytesOf(
  machine: Pick<Machine, 'row'>,
  bytes: Readonly<Record<string, number>>,
): Record<string, number> {
  const { poolWorkspaceId: owner } = machine.row;
  const counted = Object.entries(bytes).filter(
    ([workspace, count]) => (owner === null || workspace === owner) && Number.isSafeInteger(count) && count >= 0,
  );
  return Object.fromEntries(counted.slice(0, MOST_WORKSPACES));
}

/** Bytes of the volumes on this machine's disk. */
export const volumeBytesHere = ({ inventory }: Pick<Machine, 'inventory'>): Readonly<Record<string, number>> =>
  inventory?.volumeBytes ?? {};

/** Pattern of ids as an agent may have them. */
const VOLUME_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,100}$/;

/** Cache volumes on a machine's disk, as its agent reports them. On a machine of one workspace, only its own count. */
export const cachesOf = (
  { row }: Pick<Machine, 'row'>,
  volumes: readonly CachedVolume__Output[],
): CachedVolume__Output[] =>
  volumes
    .filter(({ workspaceId }) => row.poolWorkspaceId === null || row.poolWorkspaceId === workspaceId)
    .filter(({ volumeId, bytes }) => VOLUME_ID.test(volumeId) && Number.isSafeInteger(bytes) && bytes >= 0)
    .slice(0, MOST_CACHES);

/** Cache volumes on this machine's disk. */
export const cachesHere = ({ inventory }: Pick<Machine, 'inventory'>): readonly CachedVolume__Output[] =>
  inventory?.caches ?? [];

/** The agent's words about the machine's conditions. */
export const conditionWordsOf = ({ inventory }: Pick<Machine, 'inventory'>): Readonly<Record<string, string>> =>
  inventory?.conditionWords ?? {};

export const orphansOf = (row: MachineRow): ReadonlyMap<ContainerId, Orphan> =>
  new Map((row.orphans as readonly Orphan[]).map((one) => [one.containerId, one]));

export const diskFreeOf = (inventory: Inventory__Output | null): number | null =>
  inventory !== null && inventory.diskTotalBytes > 0 ? inventory.diskFreeBytes : null;

/** Whether the machine is in service: active, and its host does not go down. */
export const isInService = (row: Pick<MachineRow, 'intent' | 'hostDrainUntilMs'>): boolean =>
  row.intent === 'active' && row.hostDrainUntilMs === null;

/** Whether the machine's containers are to leave. */
export const isDraining = (row: Pick<MachineRow, 'intent' | 'hostDrainUntilMs'>): boolean =>
  row.intent === 'draining' || row.hostDrainUntilMs !== null;

/** Whether new containers may be placed there (I5). */
export const isSchedulable = (machine: Machine): boolean =>
  machine.health === 'READY' &&
  isInService(machine.row) &&
  !machine.row.systemCordon &&
  blockingConditions(machine).length === 0;

/** Conditions that keep new containers away. */
export function blockingConditions(machine: Pick<Machine, 'conditions'>): readonly string[] {
  return machine.conditions.filter((name) => conditionOf(name)?.blocks === true);
}

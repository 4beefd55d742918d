/**
 * Restores lost journal entries from the engine: each container carries its entry's content as a label, without
 * secrets. Runs before the first message to a scheduler, so that no running container is reported missing and its
 * resources are not given away.
 */
import type { RuntimeContainer } from '../containers/runtime.ts';
import { LABELS } from '../containers/runtime.ts';
import { shortIdOf } from '../containers/spec.ts';
import type { JournalEntry } from './journal.ts';

/** The fixed part of an entry, which no other label has. */
const FACTS = [
  'image',
  'codeSha256',
  'workers',
  'concurrentRequests',
  'timeoutMs',
  'startTimeoutMs',
  'stopAfterDisconnectMs',
  'bootId',
  'cpuMillicores',
  'memoryBytes',
  'gpuUuids',
  'secretNames',
  'kind',
] as const satisfies readonly (keyof JournalEntry)[];
type Facts = Pick<JournalEntry, (typeof FACTS)[number]>;

/** The label of a container that is about to be created. */
export const factsLabel = (entry: JournalEntry): string =>
  JSON.stringify(Object.fromEntries(FACTS.map((name) => [name, entry[name]])));

/**
 * Entries for containers that the journal lacks, or has with an older epoch only; among several of one container the
 * newest epoch wins. Pure.
 * @param known - the journal's entry of a container
 */
export function lostEntries(
  containers: readonly RuntimeContainer[],
  known: (containerId: string) => JournalEntry | undefined,
): JournalEntry[] {
  const lost = new Map<string, JournalEntry>();
  for (const container of containers) {
    const entry = entryOf(container);
    if (entry === undefined) continue;
    const { containerId, epoch } = entry;
    const newest = Math.max(known(containerId)?.epoch ?? -1, lost.get(containerId)?.epoch ?? -1);
    if (epoch > newest) lost.set(containerId, entry);
  }
  return [...lost.values()];
}

function entryOf({ labels, state, dockerId, startedAtMs }: RuntimeContainer): JournalEntry | undefined {
  const containerId = labels[LABELS.container];
  const assignmentId = labels[LABELS.assignment];
  const epoch = Number(labels[LABELS.epoch] ?? NaN);
  const facts = factsOf(labels[LABELS.facts]);
  if (containerId === undefined || assignmentId === undefined || !Number.isSafeInteger(epoch) || facts === undefined)
    return undefined;
  return {
    ...facts,
    containerId,
    assignmentId,
    epoch,
    // A container that was never started is created anew, if it is still desired.
    stage: state === 'created' ? 'creating' : 'created',
    shortId: shortIdOf(containerId, epoch),
    deploymentId: labels[LABELS.deployment] ?? '',
    dockerId,
    startedAtMs: startedAtMs || Date.now(),
  };
}

function factsOf(label: string | undefined): Facts | undefined {
  try {
    const facts = JSON.parse(label ?? '') as Partial<Record<keyof Facts, unknown>>;
    const isWhole =
      typeof facts === 'object' &&
      ['image', 'codeSha256', 'bootId'].every((name) => typeof facts[name as keyof Facts] === 'string') &&
      ['workers', 'concurrentRequests', 'timeoutMs', 'startTimeoutMs'].every(
        (name) => typeof facts[name as keyof Facts] === 'number',
      );
    return isWhole ? (facts as Facts) : undefined;
  } catch {
    return undefined;
  }
}

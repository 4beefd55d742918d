/**
 * What the journal has lost, taken from the engine: each container carries what its entry must say as a label, without anything secret. Done before the first word to
 * a scheduler, so that nothing that runs is reported missing and nothing it holds is given to another.
 */
import type { RuntimeContainer } from '../containers/runtime.ts';
import { LABELS } from '../containers/runtime.ts';
import { shortIdOf } from '../containers/spec.ts';
import type { JournalEntry } from './journal.ts';

/** The part of an entry that never changes, and that no other label says. */
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
] as const satisfies readonly (keyof JournalEntry)[];
type Facts = Pick<JournalEntry, (typeof FACTS)[number]>;

/** The label of a container that is about to be made. */
export const factsLabel = (entry: JournalEntry): string =>
  JSON.stringify(Object.fromEntries(FACTS.map((name) => [name, entry[name]])));

/**
 * Entries for containers that the journal does not know, or knows by an older epoch only; of several of one container the newest epoch. Pure.
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
    // One that was never started is made anew, if it is still wanted.
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
    // Made by an older agent, which wrote none.
    return undefined;
  }
}

/**
 * Recovers what an earlier agent left on this machine: its journal, containers that the journal lacks, and leftovers of
 * a crash. Called by the composition root before the loop starts and before the scheduler hears anything. Must stay
 * true: only objects with this machine's label are looked at; nothing is removed that a running container may still
 * use.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isPythonBase } from '../containers/python-base.ts';
import { LABELS } from '../containers/runtime.ts';
import { Journal } from '../reconcile/journal.ts';
import { lostEntries } from '../reconcile/rebuild.ts';
import { NFS_PREFIX } from '../volumes/nfs.ts';
import { removeUnused } from '../volumes/open.ts';
import type { Host } from './host.ts';
import type { Parts } from './parts.ts';

/** Opens the journal. An unreadable one is set aside; `rebuildJournal` makes a new one. */
export async function openJournal({ stateDir, metrics, log }: Host): Promise<Journal> {
  const journal = new Journal(join(stateDir, 'journal.json'), () => metrics.journalErrors.inc());
  const damaged = await journal.open();
  if (damaged !== undefined)
    log.error({ damaged }, 'the journal cannot be read and was set aside; it is rebuilt from the containers');
  return journal;
}

/** Restores journal entries of containers that the engine has and the journal lost. */
export async function rebuildJournal(
  { runtime, log }: Host,
  journal: Journal,
  machineIds: readonly string[],
): Promise<void> {
  for (const machineId of machineIds) {
    const containers = await runtime.list({ [LABELS.managed]: '1', [LABELS.machine]: machineId });
    for (const entry of lostEntries(containers, (containerId) => journal.get(containerId))) {
      await journal.put(entry);
      log.warn({ containerId: entry.containerId, stage: entry.stage }, 'a container that the journal had lost');
    }
  }
}

/** Removes leftovers of a crash that no journal entry covers. Adopts the pause containers that exist. */
export async function removeLeftovers(
  { runtime, stateDir, log }: Host,
  journal: Journal,
  machineId: string,
  { views, pauseContainers }: Pick<Parts, 'views' | 'pauseContainers'>,
): Promise<void> {
  const own = { [LABELS.managed]: '1', [LABELS.machine]: machineId };
  const containers = await runtime.list(own);
  const removals: Promise<void>[] = [];
  for (const one of containers) {
    if (one.labels[LABELS.container] !== undefined || one.labels[LABELS.pauseContainer] !== undefined) continue;
    // A removal may never end, as that of a probe of a broken GPU, and must not keep the agent from its containers.
    const stays = (error: unknown): void =>
      log.warn({ err: error, container: one.name }, 'a leftover container stays until the next start');
    removals.push(runtime.remove(one.dockerId).catch(stays));
  }
  await pauseContainers.open(containers);
  // A running container without a journal entry may be adopted; everything below then stays.
  const hasOrphan = containers.some((one) => {
    const containerId = one.labels[LABELS.container];
    return containerId !== undefined && journal.get(containerId) === undefined;
  });
  if (hasOrphan) return;
  const live = [...journal.all()].filter((entry) => entry.stage !== 'gone');
  const kept = new Set(live.map((entry) => entry.shortId));
  const volumes = new Set(live.map((entry) => views.volumeName(entry.containerId)));
  const found = await runtime.listVolumes(own);
  const used = await removeUnused(
    runtime,
    found.filter((name) => !volumes.has(name) && !isPythonBase(name)),
  );
  // A leftover container that is just being removed may mount one.
  const mounted = used.filter((name) => !name.startsWith(NFS_PREFIX));
  if (mounted.length > 0)
    void Promise.all(removals)
      .then(() => removeUnused(runtime, mounted))
      .catch((error: unknown) =>
        log.warn({ err: error, volumes: mounted }, 'leftover volumes stay until the next start'),
      );
  for (const name of await views.list()) if (!kept.has(name)) await views.remove(name);
  for (const name of await readdir(join(stateDir, 's')))
    if (!kept.has(name)) await rm(join(stateDir, 's', name), { recursive: true, force: true });
}

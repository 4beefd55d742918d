/**
 * Endings that remove something, while an ordinary stop leaves everything. `endAllContainers` removes this machine's
 * containers and their network; `leaveInstallation` removes the state of a deleted machine. Called by the composition
 * root. Must stay true: a deleted machine forgets its identity before anything else that can fail.
 */
import { rm } from 'node:fs/promises';
import { sleep } from '#shared/backoff.ts';
import { StartupError } from '#shared/errors.ts';
import { isPythonBase } from '../containers/python-base.ts';
import type { Journal } from '../reconcile/journal.ts';
import { removeUnused, removeUnusedNfs } from '../volumes/open.ts';
import type { Host } from './host.ts';
import type { Member } from './member.ts';
import type { Parts } from './parts.ts';

/** How long containers may take to leave when they are stopped with the agent. */
const STOP_CONTAINERS_MS = 45_000;
const STOP_GRACE_MS = 10_000;

/**
 * Ends every container of the journal, then removes what was made for them; the loop must be running. The scheduler is
 * told first and no new work is taken: otherwise waiting tasks would start new containers meanwhile.
 */
export async function endAllContainers(
  { config, runtime, log }: Host,
  { labels }: Member,
  journal: Journal,
  {
    agentState,
    executor,
    hostDrain,
    loop,
    pauseContainers,
  }: Pick<Parts, 'agentState' | 'executor' | 'hostDrain' | 'loop' | 'pauseContainers'>,
): Promise<void> {
  agentState.isLeaving = true;
  hostDrain.begin(STOP_CONTAINERS_MS / 1000);
  const until = performance.now() + STOP_CONTAINERS_MS;
  const left = (): string[] => [...journal.all()].flatMap((one) => (one.stage === 'gone' ? [] : one.containerId));
  for (let ids = left(); ids.length > 0 && performance.now() < until; ids = left()) {
    for (const containerId of ids) executor.end(containerId, 'killed', STOP_GRACE_MS);
    await sleep(20);
  }
  if (left().length > 0) log.error({ containers: left() }, 'containers did not end in time, and are left');
  const volumes = await runtime.listVolumes(labels());
  await removeUnusedNfs(runtime, volumes);
  await removeUnused(runtime, volumes.filter(isPythonBase));
  // The sweep also finds containers that the engine was still creating for an agent that was killed.
  await loop.sweep();
  await pauseContainers.close();
  await runtime.removeNetwork(config.LONGSHORE_AGENT_NETWORK);
}

/**
 * The machine was deleted: its containers end, the agent stops, and the agent's state is removed.
 * @param endContainers - a failure of it is logged and stops nothing
 * @returns why the agent has ended, with the exit code that keeps a service from starting it again
 */
export async function leaveInstallation(
  { log, stateDir }: Host,
  { identity, machineId }: Member,
  endContainers: () => Promise<void>,
  stopAll: () => Promise<void>,
): Promise<StartupError> {
  const id = machineId();
  log.error({ machineId: id }, 'this machine was deleted from its installation: ending its containers');
  await endContainers().catch((error: unknown) => log.error({ err: error }, 'containers did not all stop'));
  await stopAll();
  // The identity goes first: anything that cannot be removed afterwards then belongs to no machine.
  await identity.wipe();
  await rm(stateDir, { recursive: true, force: true }).catch((error: unknown) =>
    log.warn({ err: error, stateDir }, 'not all of the state could be removed'),
  );
  return new StartupError(
    'machine_revoked',
    `machine ${id} was deleted from its installation: its containers were ended and its identity is forgotten; to have it back, create a machine and start the agent with its join token`,
    { exitCode: 78 },
  );
}

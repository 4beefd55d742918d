// The steps of a deletion, in order: what runs ends, then data goes. Each step takes a bounded part of what is left.
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { messageOf } from '#shared/errors.ts';
import type { Db } from '../../stores/store/db.ts';
import { MOST_COMPUTE_ROWS, writeComputeRows } from '../../stores/store/queries/compute-ledger.ts';
import { deleteDeployment } from '../../stores/store/queries/deployments.ts';
import { listVolumes } from '../../stores/store/queries/volumes.ts';
import {
  containersLeft,
  deleteStubs,
  deploymentsLeft,
  endBuildsOf,
  imagesLeft,
  machinesLeft,
  openDeferredCallsLeft,
  openTasksLeft,
  poolsLeft,
  stubsLeft,
} from '../../stores/store/queries/workspace-deletion.ts';
import {
  BATCHED,
  deleteAppsOf,
  deleteObjects,
  deleteRowsOf,
  deleteTasksOf,
  objectsLeft,
} from '../../stores/store/queries/workspace-rows.ts';
import { deleteInputsOf } from '../../stores/store/queries/task-inputs.ts';
import type { BatchedTable } from '../../stores/store/queries/workspace-rows.ts';
import type { DeletionNeeds } from './needs.ts';

const DEPLOYMENTS = 20;
const TASKS = 500;
const AT_ONCE = 20;
const STUBS = 50;
const VOLUMES = 5;
const MOST_VOLUMES = 1_000;
const IMAGES = 50;
const OBJECTS = 50;
const MACHINES = 20;
const ROWS = 500;
/** Least time between two batches. Else a batch is followed by a pause as long as it took. */
const LEAST_PAUSE_MS = 2;
const MOST_NAMED = 3;
/** Age above which a container has its rows of the ledger, as for the leader that writes them. */
const LEDGER_BACK_MS = 7 * 86_400_000;

/** How far a step came. */
export interface Step {
  /** Things that cannot go now, for people. */
  readonly holds: readonly string[];
  /** Whether the next round finds less than this one, however soon it comes. */
  readonly isMoving: boolean;
}

/** Ends what runs; no holds: nothing runs. */
export async function endWork(db: Db, needs: DeletionNeeds, id: WorkspaceId, mayGoOn: () => boolean): Promise<Step> {
  await endBuildsOf(db, id);
  const stopped = await each('container', needs.runningContainers(id), (one) => needs.stopContainer(one), mayGoOn);
  const tasks = await openTasksLeft(db, id, TASKS);
  const cancelled = await each('task', tasks, (one) => needs.cancelTask(one), mayGoOn);
  const calls = await openDeferredCallsLeft(db, id, TASKS);
  const ended = await each('call', calls, (one) => needs.cancelDeferredCall(one), mayGoOn);
  const failures = [...stopped, ...cancelled, ...ended];
  // Rows lag behind tasks that ended a moment ago: they are looked at again in the next round.
  if (tasks.length > 0 || calls.length > 0)
    return { holds: [...failures, 'tasks end'], isMoving: failures.length < tasks.length + calls.length };
  const deployments = await deploymentsLeft(db, id, DEPLOYMENTS);
  for (const deployment of deployments) {
    await needs.endQueue(queueNameOf(deployment.id, deployment.stubId));
    await deleteDeployment(db, id, deployment.id);
    // Other replicas answer callers of the deployment that wait there.
    await needs.deploymentChanged(deployment.id);
  }
  if (deployments.length === DEPLOYMENTS) return { holds: [...failures, 'deployments end'], isMoving: true };
  const containers = await containersLeft(db, id);
  const left = containers.length === 0 ? [] : [containersText(containers)];
  return { holds: [...failures, ...left], isMoving: deployments.length > 0 };
}

/** Does something with each, several at once; a failure keeps no other back. @returns the failures, for people */
async function each<T extends string>(
  kind: string,
  items: readonly T[],
  run: (item: T) => Promise<unknown>,
  mayGoOn: () => boolean,
): Promise<readonly string[]> {
  const failures: string[] = [];
  for (let from = 0; from < items.length && mayGoOn(); from += AT_ONCE) {
    const some = items.slice(from, from + AT_ONCE).map(async (item) => {
      try {
        await run(item);
      } catch (error) {
        failures.push(`${kind} ${item}: ${messageOf(error)}`);
      }
    });
    await Promise.all(some);
  }
  return failures;
}

function containersText(containers: Awaited<ReturnType<typeof containersLeft>>): string {
  const named = containers
    .slice(0, MOST_NAMED)
    .map((one) => (one.machineId === null ? one.id : `${one.id} on machine ${one.machineId}`));
  return `${containers.length} containers stop: ${named.join(', ')}${containers.length > MOST_NAMED ? ', …' : ''}`;
}

export interface Removed extends Step {
  /** Number of rows that went. */
  readonly removed: number;
  /** Whether nothing was left when it was looked for. */
  readonly isEmpty: boolean;
}

export interface Turn {
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly mayGoOn: () => boolean;
  readonly signal: AbortSignal;
}

/** Removes files, images, bytes and rows, as far as the turn lasts. */
export async function removeData(db: Db, needs: DeletionNeeds, id: WorkspaceId, turn: Turn): Promise<Removed> {
  const volumes = await removeVolumes(db, needs, id, turn.signal);
  const holds = [...volumes.holds, ...(await removePools(db, needs, id))];
  const images = await imagesLeft(db, id, IMAGES);
  for (const image of images) await needs.deleteImage(id, image);
  const isMoving = volumes.isMoving || images.length > 0;
  let removed = 0;
  for (const batch of batchesOf(db, needs, id, turn)) {
    for (;;) {
      if (!turn.mayGoOn()) return { holds, removed, isEmpty: false, isMoving: true };
      const startedMs = turn.clock.monotonicMs();
      const { gone, isDone, hold } = await batch();
      removed += gone;
      if (hold !== undefined && isDone) holds.push(hold);
      // The pause leaves the database to its other users for at least half of the time.
      if (gone > 0) await sleep(Math.max(LEAST_PAUSE_MS, turn.clock.monotonicMs() - startedMs), turn.signal);
      if (isDone) break;
    }
  }
  return { holds, removed, isEmpty: images.length === 0, isMoving: isMoving || removed > 0 };
}

/** `hold`: rows that stay, and why, for people. */
type Batch = () => Promise<{ readonly gone: number; readonly isDone: boolean; readonly hold?: string }>;

/** Batches in an order that references between tables allow. */
function batchesOf(db: Db, needs: DeletionNeeds, id: WorkspaceId, turn: Turn): readonly Batch[] {
  const byCount = (gone: number, limit: number) => ({ gone, isDone: gone < limit });
  const tasks: Batch = async () => {
    const { gone, resultObjectIds } = await deleteTasksOf(db, id, ROWS);
    // The row goes first. If the store does not answer, the object collector finds the remaining bytes.
    await Promise.allSettled(resultObjectIds.map((one) => needs.removeBytes(one)));
    return byCount(gone, ROWS);
  };
  const inputs: Batch = async () => {
    const { gone, large } = await deleteInputsOf(db, id, ROWS);
    await Promise.allSettled(large.map((taskId) => needs.removeInput(taskId)));
    return byCount(gone, ROWS);
  };
  const stubs: Batch = async () => {
    const ids = await stubsLeft(db, id, STUBS);
    // Functions, pods and sandboxes have queues of their stubs.
    for (const stub of ids) await needs.endQueue(queueNameOf(null, stub));
    if (ids.length > 0) await db.transaction((tx) => deleteStubs(tx, ids));
    return byCount(ids.length, STUBS);
  };
  const objects: Batch = async () => {
    const ids = await objectsLeft(db, id, OBJECTS);
    // Nobody reaches these objects any more, so their bytes may go before the rows that find them again.
    const tried = await Promise.allSettled(ids.map((one) => needs.removeBytes(one)));
    const gone = ids.filter((_, at) => tried[at]?.status === 'fulfilled');
    if (gone.length > 0) await deleteObjects(db, gone);
    const failed = tried.find((one) => one.status === 'rejected');
    const isDone = ids.length < OBJECTS || gone.length === 0;
    if (failed === undefined) return { gone: gone.length, isDone };
    const hold = `${ids.length - gone.length} objects: ${messageOf(failed.reason)}`;
    return { gone: gone.length, isDone, hold };
  };
  const containers: Batch = async () => {
    // The ledger gets the time that the last containers ran before their rows go.
    const nowMs = turn.clock.nowMs();
    const range = { sinceMs: nowMs - LEDGER_BACK_MS, nowMs, isWithRunning: false, workspaceId: id };
    const written = await writeComputeRows(db, range);
    if (written === MOST_COMPUTE_ROWS) return { gone: written, isDone: false };
    return byCount(await deleteRowsOf(db, 'containers', id, ROWS), ROWS);
  };
  const rows = (Object.keys(BATCHED) as BatchedTable[]).map((table): Batch => {
    if (table === 'containers') return containers;
    return async () => byCount(await deleteRowsOf(db, table, id, ROWS), ROWS);
  });
  return [tasks, inputs, ...rows, stubs, objects, async () => byCount(await deleteAppsOf(db, id, ROWS), ROWS)];
}

async function removeVolumes(db: Db, needs: DeletionNeeds, id: WorkspaceId, signal: AbortSignal): Promise<Step> {
  const all = await listVolumes(db, id, '', MOST_VOLUMES);
  // Any of them have their turn: those that cannot be reached now do not keep the others.
  const volumes = all.toSorted(() => Math.random() - 0.5).slice(0, VOLUMES);
  let failed = 0;
  const holds = await Promise.all(
    volumes.map(async (volume) => {
      try {
        if (!(await until(needs.emptyVolume(volume), signal)))
          return `volume ${volume.name}: its files are being removed`;
        await needs.forgetVolume(volume);
        return '';
      } catch (error) {
        failed += 1;
        return `volume ${volume.name}: ${messageOf(error)}`;
      }
    }),
  );
  const left = holds.filter((hold) => hold !== '');
  const isRest = left.length === 0 && all.length > volumes.length;
  return { holds: isRest ? ['volumes are being removed'] : left, isMoving: failed < volumes.length };
}

/** Waits for work, and no longer than this process runs. */
async function until<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const stopping = Promise.withResolvers<never>();
  const stop = (): void => stopping.reject(new Error('the scheduler stops'));
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, stopping.promise]);
  } finally {
    signal.removeEventListener('abort', stop);
    // The work may fail after nobody waits for it any more.
    work.catch(() => undefined);
  }
}

/**
 * Removes pools. The begin refuses a workspace with machines. A machine that is there all the same goes first, since
 * nobody has a token any more to delete it.
 */
async function removePools(db: Db, needs: DeletionNeeds, id: WorkspaceId): Promise<readonly string[]> {
  const holds: string[] = [];
  for (const machine of await machinesLeft(db, id, MACHINES)) {
    try {
      if (!(await needs.deleteMachine(id, machine))) holds.push(`machine ${machine} is being deleted`);
    } catch (error) {
      holds.push(`machine ${machine}: ${messageOf(error)}`);
    }
  }
  for (const name of await poolsLeft(db, id))
    if (!(await needs.deletePool(id, name))) holds.push(`pool ${name}: its machines are being deleted`);
  return holds;
}

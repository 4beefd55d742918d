// Deletion of workspaces: the parts of other rooms that end work and remove data, and the leader's rounds.
import type { Part } from '#shared/lifecycle.ts';
import { DEPLOYMENT_DELETED } from '../domain/endings.ts';
import { VolumeCalls } from '../fleet/volume-calls.ts';
import type { ContainerRow } from '../stores/store/queries/containers.ts';
import { deleteVolume, volumeHomes } from '../stores/store/queries/volumes.ts';
import { inputKeyOf } from '../tasks/dispatch/bodies.ts';
import { WorkspaceDeletion } from '../workspaces/deletion/deletion.ts';
import type { DeletionNeeds } from '../workspaces/deletion/needs.ts';
import { DeletionRounds } from '../workspaces/deletion/rounds.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { ActionParts } from './actions.ts';
import type { BuildParts } from './builds.ts';
import type { ClusterState } from './cluster-state.ts';
import type { DeferredParts } from './deferred-calls.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { ObjectParts } from './objects.ts';
import type { PoolParts } from './pools.ts';
import type { Records } from './records.ts';
import type { WorkerParts } from './workers.ts';
import type { VolumeFileParts } from './volume-files.ts';

export interface WorkspaceDeletionSetup {
  readonly infrastructure: Infrastructure;
  readonly identity: Identity;
  readonly clusterState: ClusterState;
  readonly events: Pick<Events, 'writer'>;
  readonly targets: Targets;
  readonly objects: ObjectParts['objects'];
  readonly records: Pick<Records, 'records'>;
  readonly actionParts: Pick<ActionParts, 'cancellation' | 'deploymentStops' | 'containerActions'>;
  readonly deferredParts: Pick<DeferredParts, 'deferredCalls'>;
  readonly volumeFileParts: Pick<VolumeFileParts, 'volumeFiles' | 'cacheVolumes'>;
  readonly buildParts: Pick<BuildParts, 'imageCollector'>;
  readonly poolParts: Pick<PoolParts, 'pools'>;
  readonly workerParts: Pick<WorkerParts, 'workers'>;
}

export interface WorkspaceDeletionParts {
  readonly workspaceDeletion: WorkspaceDeletion;
  readonly deletionRounds: DeletionRounds & Part;
}

export function openWorkspaceDeletion(setup: WorkspaceDeletionSetup): WorkspaceDeletionParts {
  const { db, clock, log } = setup.infrastructure;
  const { invalidation } = setup.identity;
  const { machines, isLeader } = setup.clusterState;
  return {
    workspaceDeletion: new WorkspaceDeletion({
      db,
      events: setup.events.writer,
      invalidation,
      clock,
      volumeBytes: (id) => machines.volumeBytes(id),
    }),
    deletionRounds: new DeletionRounds({ db, needs: needsOf(setup), invalidation, isLeader, clock, log }),
  };
}

/** A container of a lost machine has the state UNKNOWN. Told again, it would change between the two in every round. */
const wasToldToStop = ({ state, stateBefore }: ContainerRow): boolean =>
  (state === 'UNKNOWN' ? stateBefore : state) === 'STOPPING';

function needsOf(setup: WorkspaceDeletionSetup): DeletionNeeds {
  const { actionParts, clusterState, deferredParts, volumeFileParts, buildParts, poolParts, targets, objects } = setup;
  const { db } = setup.infrastructure;
  const { containers, machines } = clusterState;
  const { cancellation, deploymentStops, containerActions } = actionParts;
  const { volumeFiles, cacheVolumes } = volumeFileParts;
  return {
    endQueue: async (queue) => void (await deploymentStops.deleted(queue)),
    deploymentChanged: async (id) => void (await targets.changed(id)),
    cancelTask: (id) => cancellation.cancel(id, DEPLOYMENT_DELETED),
    cancelDeferredCall: async (taskId) => {
      await deferredParts.deferredCalls.cancel({ taskId }, DEPLOYMENT_DELETED);
    },
    runningContainers: (id) =>
      [...containers.all()].flatMap(({ row }) => (row.workspaceId === id && !wasToldToStop(row) ? [row.id] : [])),
    stopContainer: (id) => containerActions.stopFor(id, 'admin_stop'),
    deleteMachine: async (workspaceId, id) =>
      (await setup.workerParts.workers.deleteMachine({ workspaceId }, id, '', true)) === 'deleted',
    deletePool: async (workspaceId, name) => (await poolParts.pools.delete({ workspaceId }, name)).kind !== 'occupied',
    emptyVolume: async (volume) => {
      if (!(await volumeFiles.hasFiles(volume))) return true;
      const home = (await volumeHomes(db, [volume.id])).get(volume.id);
      // The directory of a machine that was deleted is out of reach for good.
      if (volume.driver === 'local' && home !== undefined && (await machines.byId(home)) === undefined) return true;
      const calls = new VolumeCalls({ open: (_id, signal) => volumeFiles.openOf(volume, signal) });
      const answer = await calls.ask(volume.id, { purpose: 'remove', path: '', recursive: true });
      return answer['complete'] === true;
    },
    forgetVolume: async ({ id, workspaceId, driver }) => {
      if ((await deleteVolume(db, workspaceId, id)) && driver === 'cache') cacheVolumes.deleted(id);
    },
    deleteImage: (workspaceId, imageId) => buildParts.imageCollector.delete(workspaceId, imageId),
    removeBytes: (id) => objects.removeBytes(id),
    removeInput: (taskId) => objects.removeBytes(inputKeyOf(taskId)),
    recordsCaughtUp: () => setup.records.records.caughtUp(),
  };
}

import { Done } from '#shared/api/fields.ts';
import { ChangeMachineGpuRequest, ListMachineGpusResponse, OneMachineRequest } from '#shared/api/machines.ts';
import { AppError } from '#shared/errors.ts';
import { GPU_ACTIONS } from '#shared/domain/gpus.ts';
import type { GpuAction } from '#shared/domain/gpus.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { ContainerChanges } from '../../fleet/inside/changes.ts';
import type { WorkerService } from '../../fleet/worker-service.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import { ownerOf } from './machines.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

const NOT_FOUND = 'machine not found';
const WITHIN_MS = 15_000;
/** The agent's unit tries a reset for two minutes. */
const RESET_WITHIN_MS = 130_000;

export type GpuChanges = Pick<ContainerChanges, 'changeGpu'>;

export function listMachineGpus(workers: Pick<WorkerService, 'gpusOf'>): Operation {
  return operation({
    name: 'ListMachineGpus',
    http: 'GET /machines/{machineId}/gpus',
    scope: 'full',
    grants: { scopes: ['read'] },
    request: OneMachineRequest,
    response: ListMachineGpusResponse,
    handle: (caller, { machineId }) => {
      const gpus = workers.gpusOf(ownerOf(caller), machineId);
      return gpus === undefined
        ? { ok: false, errMsg: NOT_FOUND, gpus: [] }
        : { ok: true, errMsg: '', gpus: gpus.map((gpu) => ({ ...gpu })) };
    },
  });
}

export function changeMachineGpu(
  workers: Pick<WorkerService, 'gpusOf' | 'gpuOrdered'>,
  changes: GpuChanges,
): Operation {
  return operation({
    name: 'ChangeMachineGpu',
    http: 'POST /machines/{machineId}/gpus',
    scope: 'full',
    request: ChangeMachineGpuRequest,
    response: Done,
    handle: async (caller, { machineId, uuid, action }, { from }) => {
      const owner = ownerOf(caller);
      const gpus = workers.gpusOf(owner, machineId);
      if (gpus === undefined) return { ok: false, errMsg: NOT_FOUND };
      if (!isAction(action)) return { ok: false, errMsg: `action must be one of ${GPU_ACTIONS.join(', ')}` };
      if (!gpus.some((gpu) => gpu.uuid === uuid || gpu.parentUuid === uuid))
        return { ok: false, errMsg: 'machine has no GPU with that uuid' };
      const withinMs = action === 'reset' ? RESET_WITHIN_MS : WITHIN_MS;
      const refusal = await changes
        .changeGpu(machineId as MachineId, { uuid, action }, withinMs)
        .catch((error: unknown) => {
          if (error instanceof AppError) return error.message;
          throw error;
        });
      // A refusal is written, too: an agent that is cut off, or answers late, may have done it.
      await workers.gpuOrdered(owner, machineId, { uuid, action, outcome: refusal }, actorOf(caller, from));
      return { ok: refusal === '', errMsg: refusal };
    },
  });
}

const isAction = (text: string): text is GpuAction => GPU_ACTIONS.some((action) => action === text);

// Facts about containers as events `container.event`, and the ids that all events of containers have. Pure.
// Source: REST §9.2.
import { timestampOf } from '#shared/api/fields.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { EventGiven } from './writer.ts';

/** A container, and where it belongs. */
type Subject = Pick<ContainerRow, 'id' | 'workspaceId' | 'stubId' | 'deploymentId' | 'machineId'>;

/** A fact about a container. */
export function containerFact(
  row: Subject,
  recipe: { readonly cpuMillicores: number; readonly gpuCount: number } | undefined,
  id: string,
  atMs: number,
  told: {
    readonly reason: string;
    readonly message?: string;
    readonly taskId?: TaskId;
    readonly attrs: Readonly<Record<string, string>>;
  },
): EventGiven {
  return {
    ...subjectOf(row),
    ...(told.taskId === undefined ? {} : { taskId: told.taskId }),
    type: 'container.event',
    atMs,
    data: {
      id,
      domain: domainOf(id),
      timestamp: timestampOf(atMs),
      ...idsOf(row),
      ...(told.taskId === undefined ? {} : { task_id: told.taskId }),
      cpu: recipe?.cpuMillicores ?? null,
      gpu_count: recipe?.gpuCount ?? null,
      reason: told.reason,
      source: 'scheduler',
      message: told.message ?? '',
      attrs: told.attrs,
    },
  };
}

export const domainOf = (id: string): string => id.split('.', 1)[0] ?? '';

export const subjectOf = (row: Subject): Omit<EventGiven, 'type' | 'atMs' | 'data'> => ({
  workspaceId: row.workspaceId,
  stubId: row.stubId,
  containerId: row.id,
  ...(row.deploymentId === null ? {} : { deploymentId: row.deploymentId }),
  ...(row.machineId === null ? {} : { machineId: row.machineId }),
});

export const idsOf = (row: Subject) => ({
  container_id: row.id,
  stub_id: row.stubId,
  deployment_id: row.deploymentId ?? '',
  workspace_id: row.workspaceId,
  worker_id: row.machineId ?? '',
  machine_id: row.machineId ?? '',
});

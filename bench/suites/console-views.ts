// Requests of each view of the console, as console/screens/ makes them: the routes that it reads, and those that answer
// the topics that it follows. Lists are those of a first look.
import type { ConsolePlane } from './console-data.ts';

export interface View {
  readonly name: string;
  readonly paths: readonly string[];
  /** Whether its first load is bounded in bytes. */
  readonly isList?: boolean;
}

const HOUR_MS = 3_600_000;

export function viewsOf({ ids }: ConsolePlane): readonly View[] {
  const { workspaceId: ws, name, deploymentId, stubId, taskId } = ids;
  const day = new Date(Date.now() - 24 * HOUR_MS).toISOString();
  const hour = new Date(Date.now() - HOUR_MS).toISOString();
  const of = (path: string, query: Readonly<Record<string, string>> = {}): string =>
    `/api/v1${path}?${new URLSearchParams(query).toString()}`;
  return [
    { name: 'overview', paths: [of(`/deployment-health/${ws}`, { limit: '200' })], isList: true },
    {
      name: 'deployment',
      paths: [
        of(`/explain/${ws}/${name}`),
        of(`/deployment/${ws}`, { name, limit: '100', show_deleted: 'true' }),
        of(`/task-stats/${ws}`, { deployment_ids: deploymentId }),
        of(`/task-summary/${ws}`, { deployment_name: name, limit: '10' }),
        of(`/metrics/${ws}/stub-timeseries`, {
          stub_id: stubId,
          start: hour,
          end: new Date().toISOString(),
          interval: 'minute',
        }),
        of(`/events/${ws}/history`, { event_types: 'container.lifecycle', stub_id: stubId, limit: '500' }),
      ],
    },
    { name: 'tasks', paths: [of(`/task-summary/${ws}`, { limit: '50' })], isList: true },
    { name: 'failed tasks', paths: [of(`/task-summary/${ws}`, { limit: '50', status: 'ERROR' })], isList: true },
    {
      name: 'tasks of a name',
      paths: [of(`/task-summary/${ws}`, { limit: '50', deployment_name: name })],
      isList: true,
    },
    {
      name: 'task',
      paths: [
        of(`/task/${ws}/${taskId}`, { short: 'true' }),
        of(`/explain/${ws}/${taskId}`),
        of(`/logs/${ws}`, { task_id: taskId, limit: '200' }),
      ],
    },
    { name: 'logs', paths: [of(`/logs/${ws}`, { deployment_id: deploymentId, limit: '100' })] },
    { name: 'containers', paths: [of(`/container/${ws}`), of('/gateway/containers')], isList: true },
    { name: 'ended containers', paths: [of(`/ended-container/${ws}`, { limit: '100' })], isList: true },
    { name: 'volumes', paths: [of(`/volume/${ws}`, { limit: '100' })], isList: true },
    { name: 'secrets', paths: [of(`/secret/${ws}`, { limit: '100' })], isList: true },
    { name: 'images', paths: [of(`/image/${ws}`, { limit: '100' })], isList: true },
    { name: 'usage', paths: [of(`/usage/${ws}`, { by: 'deployment,gpu_model', from: day })] },
    { name: 'events', paths: [of(`/events/${ws}/history`, { limit: '100' })], isList: true },
    { name: 'search', paths: [of(`/search/${ws}`, { q: name.slice(0, -1) })], isList: true },
    { name: 'tokens', paths: [of(`/token/${ws}`, { limit: '100' })], isList: true },
    { name: 'webhooks', paths: [of(`/webhook/${ws}`, { limit: '100' })], isList: true },
    { name: 'limits', paths: [of(`/workspace/${ws}/limits`)] },
    { name: 'GPU map', paths: [of('/gpu-map')], isList: true },
    { name: 'machines', paths: [of('/gateway/machines'), of('/gateway/workers')], isList: true },
    { name: 'waiting', paths: [of('/waiting')], isList: true },
    { name: 'pools', paths: [of('/gateway/pools'), of('/provider')], isList: true },
    { name: 'workspaces', paths: [of('/workspace', { limit: '1000' })], isList: true },
    { name: 'alerts', paths: [of('/alerts')], isList: true },
    { name: 'audit', paths: [of(`/events/${ws}/history`, { event_types: 'audit.*', limit: '500' })], isList: true },
  ];
}

/** Reads that were there before the console, as programs make them. */
export function olderReads({ ids: { workspaceId: ws } }: ConsolePlane): readonly string[] {
  return [
    `/api/v1/task/${ws}?limit=1000`,
    `/api/v1/deployment/${ws}?limit=1000`,
    `/api/v1/events/${ws}/history?limit=1000`,
    `/api/v1/logs/${ws}?limit=1000`,
    `/api/v1/container/${ws}`,
  ];
}

/** Topics that a tab follows while it shows a view with as many as any. */
export const topicsOf = ({ ids: { name, deploymentId } }: ConsolePlane): readonly string[] => [
  'overview',
  `deployment:${name}`,
  `stats:deployment_ids=${deploymentId}`,
  `tasks:deployment_name=${name}&limit=10`,
];

// The records of the REST API as JSON: snake_case, with the
// gateway's spelling beside it where published clients read that.
import { timestampOf } from '#shared/api/fields.ts';
import type { AppRecord } from '#shared/api/rest/app-record.ts';
import type { ContainerRecord, EndedContainer } from '#shared/api/rest/containers.ts';
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import type { StubRecord } from '#shared/api/rest/stubs.ts';
import type { RestTask, TaskSummary } from '#shared/api/rest/tasks.ts';
import type { WorkspaceRecord } from '#shared/api/rest/workspaces.ts';
import { isEventStream, itemsText } from '#shared/domain/event-stream.ts';
import { jsonTextOf, stringifyExactly } from '#shared/json-text.ts';
import type { JsonText } from '#shared/json-text.ts';
import type { ContainerView } from '../../../fleet/containers/container-view.ts';
import type { StoredSpec } from '../../../fleet/containers/spec.ts';
import { rolloutOf } from '../../operations/rollout.ts';
import { poolNameOf } from '../../../domain/pools.ts';
import { storedConfig } from '../../../domain/stub-config.ts';
import type { StubConfig } from '../../../domain/stub-config.ts';
import type { AppRow } from '../../../stores/store/queries/apps.ts';
import type { ContainerRow } from '../../../stores/store/queries/containers.ts';
import type { DeploymentRow } from '../../../stores/store/queries/deployments.ts';
import type { StubRow } from '../../../stores/store/queries/stubs.ts';
import type { WorkspaceRow } from '../../../stores/store/queries/workspaces.ts';
import { attemptRecord, attemptsOf, errorLine } from '../../../tasks/records/attempts-of.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import { limitsOf } from '../../../workspaces/identity/limits.ts';
import { servingRecord } from './serving-record.ts';

/** A workspace as JSON. @param signingKey - null for callers who may not sign in the workspace's name */
export function workspaceRecord(row: WorkspaceRow, signingKey: string | null): WorkspaceRecord {
  const { gpu_limit, cpu_millicore_limit } = limitsOf(row.limits).concurrency;
  const isBounded = gpu_limit !== null || cpu_millicore_limit !== null;
  return {
    id: row.id,
    external_id: row.id,
    name: row.name,
    created_at: timestampOf(row.createdAtMs),
    updated_at: timestampOf(row.updatedAtMs),
    ...(row.deletingAtMs === null ? {} : { deleting_at: timestampOf(row.deletingAtMs) }),
    signing_key: signingKey,
    // Every workspace may have volumes of driver `cache`.
    volume_cache_enabled: true,
    multi_gpu_enabled: true,
    ...(isBounded ? { concurrency_limit: { gpu_limit, cpu_millicore_limit } } : {}),
  };
}

export const stubRecord = (row: StubRow): StubRecord => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  type: row.type,
  config: stringifyExactly(configRecord(storedConfig(row.config))),
  config_version: row.configVersion,
  public: row.public,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});

export const appRecord = (row: AppRow): AppRecord => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  description: row.description,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
  deleted_at: null,
});

const secondsOf = (ms: number | null): number => (ms === null ? 0 : Math.floor(ms / 1000));

/** A container as JSON: times are unix seconds, 0 when not yet. */
export function containerRecord(view: ContainerView, stub: StubRow | undefined): ContainerRecord {
  const config = stub?.config as StubConfig | undefined;
  return {
    container_id: view.containerId,
    stub_id: view.stubId,
    workspace_id: view.workspaceId,
    app_id: stub?.appId ?? '',
    deployment_id: view.deploymentId ?? '',
    worker_id: view.machineId ?? '',
    machine_id: view.machineId ?? '',
    status: view.status,
    scheduled_at: secondsOf(view.scheduledAtMs),
    started_at: secondsOf(view.startedAtMs),
    gpu: config?.gpu[0] ?? '',
    gpu_count: config?.gpuCount ?? 0,
    cpu: view.cpuMillicores,
    memory: view.memoryMib,
  };
}

export function endedContainer(row: ContainerRow, stub: StubRow | undefined): EndedContainer {
  const spec = row.spec as StoredSpec;
  return {
    container_id: row.id,
    stub_id: row.stubId,
    stub_name: stub?.name ?? '',
    app_id: stub?.appId ?? '',
    deployment_id: row.deploymentId ?? '',
    machine_id: row.machineId ?? '',
    state: row.state as EndedContainer['state'],
    reason: row.reason ?? '',
    exit_code: row.exitCode,
    message: row.message ?? '',
    gpu: spec.gpu[0] ?? '',
    gpu_count: spec.gpuCount,
    cpu: spec.cpuMillicores,
    memory: Math.round(spec.memoryBytes / 1024 / 1024),
    created_at: timestampOf(row.createdAtMs),
    started_at: timestampOf(row.startedAtMs),
    ended_at: timestampOf(row.endedAtMs),
  };
}

export function deploymentRecord(
  row: DeploymentRow,
  related: {
    readonly stub: StubRow | undefined;
    readonly app: AppRow | undefined;
    readonly workspace: WorkspaceRow | undefined;
    readonly invokeUrl: string;
  },
): DeploymentRecord {
  const createdAt = timestampOf(row.createdAtMs);
  const updatedAt = timestampOf(row.updatedAtMs);
  const { stub, app, workspace, invokeUrl } = related;
  return {
    id: row.id,
    external_id: row.id,
    name: row.name,
    active: row.active,
    subdomain: row.subdomain,
    stub_type: row.stubType,
    version: row.version,
    created_at: createdAt,
    updated_at: updatedAt,
    deleted_at: timestampOf(row.deletedAtMs),
    stub_id: row.stubId,
    app_id: row.appId,
    workspace_id: row.workspaceId,
    stub: stub === undefined ? null : stubRecord(stub),
    app: app === undefined ? null : appRecord(app),
    workspace: workspace === undefined ? null : workspaceRecord(workspace, null),
    stub_name: stub?.name ?? '',
    workspace_name: workspace?.name ?? '',
    url: invokeUrl,
    invoke_url: invokeUrl,
    stubId: row.stubId,
    stubType: row.stubType,
    stubName: stub?.name ?? '',
    workspaceId: row.workspaceId,
    workspaceName: workspace?.name ?? '',
    createdAt,
    updatedAt,
    appId: row.appId,
    rollout: rolloutOf(row, stub?.config),
    object_id: stub?.objectId ?? '',
  };
}

export interface TaskRelated {
  readonly stub: StubRow | undefined;
  /** Absent in lists. */
  readonly app?: AppRow | undefined;
  readonly workspace: WorkspaceRow | undefined;
  /** The workspace that called, where it is not the task's own. */
  readonly caller?: WorkspaceRow | undefined;
  readonly deployment: Pick<DeploymentRow, 'id' | 'name' | 'version'> | undefined;
  readonly stats: { readonly active_containers: number; readonly queue_depth: number } | null;
  /** The result as stored: JSON text, or other text. */
  readonly resultText: string | undefined;
  /** Whether the answer has no result, because it is long. */
  readonly isResultLeftOut?: boolean;
  /** Whether its input can be had; absent in lists, which have no attempts either. */
  readonly input?: RestTask['input'];
  /** Files that the task saved, with signed addresses; absent: not looked for. */
  readonly outputs?: readonly { readonly name: string; readonly url: string; readonly expires_in: number }[];
}

export function taskRecord(record: TaskRecord, related: TaskRelated): RestTask {
  const startedAt = timestampOf(record.startedAtMs);
  const endedAt = timestampOf(record.endedAtMs);
  const createdAt = timestampOf(record.createdAtMs);
  const updatedAt = timestampOf(record.endedAtMs ?? record.startedAtMs ?? record.createdAtMs);
  const { stub, app, workspace, caller, deployment } = related;
  return {
    id: record.taskId,
    external_id: record.taskId,
    status: record.status,
    failure_reason: record.failureReason,
    container_id: record.containerId ?? '',
    started_at: startedAt,
    ended_at: endedAt,
    created_at: createdAt,
    updated_at: updatedAt,
    deployment: {
      id: deployment?.id ?? record.deploymentId,
      name: deployment?.name ?? null,
      version: deployment?.version ?? null,
    },
    stub: stub === undefined ? null : stubRecord(stub),
    app: app === undefined ? null : appRecord(app),
    workspace: workspace === undefined ? null : workspaceRecord(workspace, null),
    // The limits of a caller's workspace are not the owner's to see.
    external_workspace: caller === undefined ? null : workspaceRecord({ ...caller, limits: {} }, null),
    outputs: [...(related.outputs ?? [])],
    stats: related.stats,
    attempts: related.input === undefined ? [] : attemptsOf(record, related.resultText).map(attemptRecord),
    input: related.input ?? null,
    rerun_of: record.rerunOf ?? '',
    redriven_from: record.redrivenFrom ?? '',
    ...(related.isResultLeftOut === true
      ? { result: null, result_left_out: true }
      : { result: resultJson(related.resultText) }),
    handler: stub === undefined ? '' : (storedConfig(stub.config).handler ?? ''),
    stub_id: record.stubId,
    stub_name: stub?.name ?? '',
    workspace_id: record.workspaceId,
    workspace_name: workspace?.name ?? '',
    containerId: record.containerId ?? '',
    startedAt,
    endedAt,
    createdAt,
    updatedAt,
    stubId: record.stubId,
    stubName: stub?.name ?? '',
    workspaceId: record.workspaceId,
    workspaceName: workspace?.name ?? '',
  };
}

/** The task in short. @param record - with its result where it failed, if that is short */
export function taskSummary(
  record: TaskRecord,
  stub: TaskRelated['stub'],
  deployment: TaskRelated['deployment'],
): TaskSummary {
  const { createdAtMs, startedAtMs, endedAtMs } = record;
  return {
    id: record.taskId,
    status: record.status,
    failure_reason: record.failureReason,
    error: errorLine(record, record.result),
    attempt: record.attempt,
    sync: record.sync,
    stub_id: record.stubId,
    stub_name: stub?.name ?? '',
    stub_type: stub?.type ?? '',
    deployment_id: record.deploymentId ?? '',
    deployment_name: deployment?.name ?? '',
    deployment_version: deployment?.version ?? null,
    container_id: record.containerId ?? '',
    created_at: timestampOf(createdAtMs),
    started_at: timestampOf(startedAtMs),
    ended_at: timestampOf(endedAtMs),
    waited_ms: startedAtMs === null ? null : Math.max(0, Math.round(startedAtMs - createdAtMs)),
    duration_ms: startedAtMs === null || endedAtMs === null ? null : Math.max(0, Math.round(endedAtMs - startedAtMs)),
    rerun_of: record.rerunOf ?? '',
  };
}

/**
 * Result as JSON: JSON text as it is, a generator's events as
 * the list of its items, any other text as base64 of its bytes.
 */
export function resultJson(text: string | undefined): JsonText | { readonly base64: string } | null {
  if (text === undefined) return null;
  const found = jsonTextOf((isEventStream(text) ? itemsText(text) : text).trim());
  return found ?? { base64: Buffer.from(text, 'utf8').toString('base64') };
}

/** A stub's configuration, with the names that clients of the REST API know. */
function configRecord(config: StubConfig) {
  const { autoscaler, extra } = config;
  return {
    runtime: {
      cpu: config.cpuMillicores,
      memory: config.memoryMib,
      gpu: config.gpu[0] ?? '',
      gpus: config.gpu,
      gpu_count: config.gpuCount,
      image_id: config.imageId,
    },
    handler: config.handler,
    on_start: config.onStart,
    on_deploy: extra['onDeploy'] ?? '',
    python_version: config.pythonVersion,
    keep_warm_seconds: config.keepWarmSeconds,
    max_pending_tasks: config.maxPendingTasks,
    callback_url: config.callbackUrl,
    task_policy: {
      max_retries: config.retries,
      timeout: config.timeoutSeconds,
      expires: null,
      ttl: config.ttlSeconds,
    },
    workers: config.workers,
    concurrent_requests: config.concurrentRequests,
    authorized: config.authorized,
    volumes: config.volumes.map((volume) => ({ id: volume.volumeId, mount_path: volume.mountPath })),
    secrets: config.secrets.map((name) => ({ name })),
    env: config.env,
    autoscaler: {
      type: autoscaler.type,
      max_containers: autoscaler.maxContainers,
      tasks_per_container: autoscaler.tasksPerContainer,
      min_containers: autoscaler.minContainers,
      ...(autoscaler.windowSeconds === undefined ? {} : { window_seconds: autoscaler.windowSeconds }),
      ...(autoscaler.scaleInPerMinute === undefined ? {} : { scale_in_per_minute: autoscaler.scaleInPerMinute }),
      ...(autoscaler.warm === undefined ? {} : { warm: autoscaler.warm }),
    },
    extra: extra['extra'] ?? {},
    checkpoint_enabled: extra['checkpointEnabled'] ?? false,
    work_dir: '',
    entry_point: config.pod?.entrypoint ?? extra['entrypoint'] ?? [],
    ports: config.pod?.ports ?? extra['ports'] ?? [],
    pricing: extra['pricing'] ?? null,
    inputs: extra['inputs'] ?? null,
    outputs: extra['outputs'] ?? null,
    tcp: extra['tcp'] ?? false,
    block_network: config.blockNetwork,
    allow_list: config.allowList,
    is_service: extra['isService'] === true,
    serving: servingRecord(config),
    pool: poolNameOf(extra),
    disks: extra['disks'] ?? [],
  };
}

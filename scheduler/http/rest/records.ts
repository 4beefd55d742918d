// The records of the REST API as JSON (REST reference §2): snake_case, with the gateway's spelling beside it where published clients read that.
import { timestampOf } from '#shared/api/fields.ts';
import type { DeploymentRow } from '../../store/queries/deployments.ts';
import type { StubRow } from '../../store/queries/stubs.ts';
import type { WorkspaceRow } from '../../store/queries/workspaces.ts';
import type { TaskRecord } from '../../tasks/records.ts';

/** @param signingKey - only for whoever may sign in the workspace's name; else null */
export const workspaceRecord = (row: WorkspaceRow, signingKey: string | null) => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
  signing_key: signingKey,
  volume_cache_enabled: false,
  multi_gpu_enabled: true,
});

export const stubRecord = (row: StubRow) => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  type: row.type,
  config: JSON.stringify(snakeKeys(row.config)),
  config_version: row.configVersion,
  public: row.public,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});

export function deploymentRecord(
  row: DeploymentRow,
  related: {
    readonly stub: StubRow | undefined;
    readonly workspace: WorkspaceRow | undefined;
    readonly invokeUrl: string;
  },
) {
  const createdAt = timestampOf(row.createdAtMs);
  const updatedAt = timestampOf(row.updatedAtMs);
  const { stub, workspace, invokeUrl } = related;
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
  };
}

export interface TaskRelated {
  readonly stub: StubRow | undefined;
  readonly workspace: WorkspaceRow | undefined;
  readonly deployment: Pick<DeploymentRow, 'id' | 'name' | 'version'> | undefined;
  readonly stats: { readonly active_containers: number; readonly queue_depth: number } | null;
  /** As stored: JSON text, or something that is none. */
  readonly resultText: string | undefined;
}

export function taskRecord(record: TaskRecord, related: TaskRelated) {
  const startedAt = timestampOf(record.startedAtMs);
  const endedAt = timestampOf(record.endedAtMs);
  const createdAt = timestampOf(record.createdAtMs);
  const updatedAt = timestampOf(record.endedAtMs ?? record.startedAtMs ?? record.createdAtMs);
  const { stub, workspace, deployment } = related;
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
    app: null,
    workspace: workspace === undefined ? null : workspaceRecord(workspace, null),
    external_workspace: null,
    outputs: [],
    stats: related.stats,
    result: parsedResult(related.resultText),
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

/** JSON as it is; what is no JSON as base64 of its bytes. */
export function parsedResult(text: string | undefined): unknown {
  if (text === undefined) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return { base64: Buffer.from(text, 'utf8').toString('base64') };
  }
}

function snakeKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeKeys);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, item]) => [
    key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    // What people sent as free JSON keeps its names.
    key === 'extra' ? item : snakeKeys(item),
  ]);
  return Object.fromEntries(entries) as unknown;
}

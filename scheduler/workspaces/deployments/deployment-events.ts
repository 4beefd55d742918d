// Events of deployments and stubs, for the transaction that changes their rows. Pure.
import { timestampOf } from '#shared/api/fields.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import { storedConfig } from '../../domain/stub-config.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import type { QueueControl } from '../../domain/flow.ts';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import { auditEvent } from '../events/audit.ts';
import type { Actor } from '../events/audit.ts';
import type { EventGiven } from '../events/writer.ts';

/** Most characters of a stub's configuration in an event; a longer one is left out. */
const MOST_CONFIG = 64 * 1024;

/** A stub is run without a deployment. */
export const ran = (stub: StubRow, atMs: number): EventGiven => ofStub('stub.run', stub, atMs);

/** A development server of the stub began. */
export const served = (stub: StubRow, atMs: number): EventGiven => ofStub('stub.serve', stub, atMs);

const ofStub = (type: string, stub: StubRow, atMs: number): EventGiven => ({
  workspaceId: stub.workspaceId,
  appId: stub.appId,
  stubId: stub.id,
  stubType: stub.type,
  type,
  atMs,
  data: stubData(stub),
});

function stubData(stub: StubRow) {
  const config = stringifyExactly(storedConfig(stub.config));
  return {
    id: stub.id,
    stub_type: stub.type,
    workspace_id: stub.workspaceId,
    stub_config: config.length > MOST_CONFIG ? '' : config,
    parent_stub_id: '',
  };
}

/** The deployment was made: `stub.deploy` for everybody, and the trail's own. */
export function deployed(row: DeploymentRow, stub: StubRow, by: Actor, atMs: number): readonly EventGiven[] {
  return [
    {
      ...subjectOf(row),
      type: 'stub.deploy',
      atMs,
      data: {
        ...stubData(stub),
        deployment_id: row.id,
        deployment_name: row.name,
        deployment_version: row.version,
      },
    },
    audited('audit.deployment.created', row, by, atMs),
  ];
}

export const started = (row: DeploymentRow, by: Actor, atMs: number): readonly EventGiven[] => [
  told('deployment.started', row, atMs),
  audited('audit.deployment.started', row, by, atMs),
];

export const stopped = (row: DeploymentRow, by: Actor, atMs: number): readonly EventGiven[] => [
  told('deployment.stopped', row, atMs),
  audited('audit.deployment.stopped', row, by, atMs),
];

/** A new version of a schedule stopped this one. */
export const superseded = (row: DeploymentRow, atMs: number): EventGiven =>
  told('deployment.stopped', row, atMs, { reason: 'superseded' });

/** The rollout of this version began or ended: its row says how. */
export const rolledOut = (row: DeploymentRow, atMs: number): EventGiven =>
  told('deployment.rollout', row, atMs, { state: row.rollout, reason: row.rolloutWhy });

/** A person rolled the name back to this version. */
export const rolledBack = (row: DeploymentRow, by: Actor, atMs: number): readonly EventGiven[] => [
  rolledOut(row, atMs),
  audited('audit.deployment.rolled_back', row, by, atMs),
];

export const deleted = (row: DeploymentRow, by: Actor, atMs: number): readonly EventGiven[] => [
  told('deployment.deleted', row, atMs),
  audited('audit.deployment.deleted', row, by, atMs),
];

/** @param containers - the number that was asked for */
export const scaled = (row: DeploymentRow, containers: number, by: Actor, atMs: number): readonly EventGiven[] => [
  told('deployment.scaled', row, atMs, { containers }),
  audited('audit.deployment.scaled', row, by, atMs, { containers }),
];

/** Somebody paused or bounded the queue of a name, or let it go on. */
export const queueControlled = (
  row: DeploymentRow,
  { paused, limit }: QueueControl,
  by: Actor,
  atMs: number,
): readonly EventGiven[] => [audited('audit.deployment.queue_controlled', row, by, atMs, { paused, limit })];

const subjectOf = (row: DeploymentRow) => ({
  workspaceId: row.workspaceId,
  appId: row.appId,
  stubId: row.stubId,
  stubType: row.stubType,
  deploymentId: row.id,
});

const told = (
  type: string,
  row: DeploymentRow,
  atMs: number,
  more: Readonly<Record<string, unknown>> = {},
): EventGiven => ({
  ...subjectOf(row),
  type,
  atMs,
  data: {
    id: row.id,
    name: row.name,
    active: row.active,
    version: row.version,
    subdomain: row.subdomain,
    stub_id: row.stubId,
    stub_type: row.stubType,
    app_id: row.appId,
    workspace_id: row.workspaceId,
    min_containers: row.scaleMin,
    max_containers: row.scaleMax,
    created_at: timestampOf(row.createdAtMs),
    updated_at: timestampOf(row.updatedAtMs),
    deleted_at: timestampOf(row.deletedAtMs),
    ...more,
  },
});

const audited = (
  type: Parameters<typeof auditEvent>[1],
  row: DeploymentRow,
  by: Actor,
  atMs: number,
  attrs: Readonly<Record<string, number | boolean | null>> = {},
): EventGiven =>
  auditEvent(
    by,
    type,
    {
      ...subjectOf(row),
      target: { type: 'deployment', id: row.id, name: row.name },
      attrs: { version: row.version, ...attrs },
    },
    atMs,
  );

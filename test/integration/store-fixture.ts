/** An open, migrated database of either kind, for the tests of the stores. */
import { pino } from 'pino';
import { newContainerId, newId, queueNameOf } from '#shared/domain/ids.ts';
import type { AppId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { openDb } from '../../scheduler/stores/store/db.ts';
import type { Db } from '../../scheduler/stores/store/db.ts';
import { migrate } from '../../scheduler/stores/store/migrate.ts';
import { getOrCreateApp } from '../../scheduler/stores/store/queries/apps.ts';
import { insertDeployment } from '../../scheduler/stores/store/queries/deployments.ts';
import type { DeploymentRow } from '../../scheduler/stores/store/queries/deployments.ts';
import { EVENT_COLUMNS, eventsOf } from '../../scheduler/stores/store/queries/events.ts';
import type { EventRow, RawEvent } from '../../scheduler/stores/store/queries/events.ts';
import { insertStub } from '../../scheduler/stores/store/queries/stubs.ts';
import type { StubRow } from '../../scheduler/stores/store/queries/stubs.ts';
import type { TaskRecordRow } from '../../scheduler/stores/store/queries/tasks.ts';
import { insertWorkspace } from '../../scheduler/stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../scheduler/stores/store/queries/workspaces.ts';
import { aPostgres, tempDirectory } from '../helpers/services.ts';

export const KINDS = ['pglite', 'postgres'] as const;
export const silent = pino({ level: 'silent' });

export interface OpenedDb {
  readonly db: Db;
  readonly dataDir: string;
  stop(): Promise<void>;
}

export async function aDb(kind: (typeof KINDS)[number]): Promise<OpenedDb> {
  const directory = tempDirectory('db');
  const server = kind === 'postgres' ? await aPostgres() : undefined;
  const db = await openDb({ databaseUrl: server?.url, dataDir: directory.path, log: silent });
  await migrate(db);
  return {
    db,
    dataDir: directory.path,
    stop: async () => {
      await db.close();
      await server?.stop();
      directory.remove();
    },
  };
}

export function aWorkspace(db: Db): Promise<WorkspaceRow> {
  return insertWorkspace(db, {
    id: newId<WorkspaceId>(),
    name: 'w',
    signingKey: new Uint8Array([1]),
    isAdmin: false,
  });
}

/** All events of a workspace, in order, as its rows have them. */
export async function storedEvents(db: Db, workspaceId: WorkspaceId): Promise<readonly EventRow[]> {
  const sql = `select ${EVENT_COLUMNS} from events where workspace_id = $1 order by seq`;
  return (await db.query<RawEvent>(sql, [workspaceId])).rows.flatMap(eventsOf);
}

export async function aStub(db: Db, workspaceId: WorkspaceId, name = 'stub'): Promise<StubRow> {
  const app = await getOrCreateApp(db, workspaceId, 'app', newId<AppId>());
  return insertStub(db, {
    id: newId<StubId>(),
    workspaceId,
    appId: app.id,
    name,
    type: 'endpoint/deployment',
    objectId: null,
    config: { handler: 'app:handler' },
    configHash: 'c',
    public: false,
  });
}

export function aDeployment(db: Db, stub: StubRow, name = 'named'): Promise<DeploymentRow> {
  return insertDeployment(db, {
    id: newId<DeploymentId>(),
    workspaceId: stub.workspaceId,
    appId: stub.appId,
    stubId: stub.id,
    name,
    stubType: stub.type,
    subdomain: `${name}-${newId().slice(0, 7)}`,
  });
}

export function aRecord(over: Partial<TaskRecordRow> = {}): TaskRecordRow {
  const stubId = newId<StubId>();
  const deploymentId = newId<DeploymentId>();
  return {
    taskId: newId<TaskId>(),
    workspaceId: newId<WorkspaceId>(),
    stubId,
    deploymentId,
    queue: queueNameOf(deploymentId, stubId),
    kind: 'endpoint',
    sync: true,
    status: 'PENDING',
    attempt: 0,
    rank: 0,
    containerId: null,
    failureReason: '',
    createdAtMs: 1_800_000_000_123,
    startedAtMs: null,
    endedAtMs: null,
    durationMs: null,
    deadlineMs: null,
    ...over,
  };
}

export const aContainerId = () => newContainerId('endpoint', newId<StubId>());

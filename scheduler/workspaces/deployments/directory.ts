// Records behind ids, for answers that show more than the record asked for: workspaces,
// stubs, deployments, objects. Reads only; callers have checked that the id may be seen.
// A stub never changes, and workspaces and deployments keep their names, so these are cached, bounded.
import { isUuid } from '#shared/domain/ids.ts';
import type { AppId, ContainerId, DeploymentId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import { appById, appsByIds, pageOfApps } from '../../stores/store/queries/apps.ts';
import type { AppRow } from '../../stores/store/queries/apps.ts';
import {
  deploymentById,
  hasDeployment,
  hasDeploymentNamed,
  latestDeploymentsOfApps,
  namesOfDeployments,
} from '../../stores/store/queries/deployments.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import { containerByEnd, endedContainers, machinesOfContainers } from '../../stores/store/queries/containers.ts';
import type { ContainerRow, EndedFilter } from '../../stores/store/queries/containers.ts';
import { mayKnowMachine } from '../../stores/store/queries/machines.ts';
import { objectById } from '../../stores/store/queries/objects.ts';
import { servingAmong, servingIds } from '../../stores/store/queries/rollouts.ts';
import { idsFrom, namesWith } from '../../stores/store/queries/search.ts';
import type { Found } from '../../stores/store/queries/search.ts';
import { latestStubsOfApps, stubById } from '../../stores/store/queries/stubs.ts';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import { workspaceById } from '../../stores/store/queries/workspaces.ts';
import { wasDeleted } from '../../stores/store/queries/workspace-rows.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';
import { BoundedMap } from './bounded-map.ts';

const MAX_STUBS = 2_000;
const MAX_WORKSPACES = 1_000;
const MAX_DEPLOYMENTS = 5_000;
/** Most look-ups at a time for one list. */
const AT_ONCE = 20;
const MOST_FOUND = 20;
/** End of a container's id, as lists show it. */
const END_OF_ID = /^[0-9a-f]{4,8}$/;

export class Directory {
  readonly #db: Pick<Db, 'query' | 'reads'>;
  readonly #stubs = new BoundedMap<StubId, StubRow>(MAX_STUBS);
  readonly #workspaceNames = new BoundedMap<string, string>(MAX_WORKSPACES);
  readonly #deploymentNames = new BoundedMap<DeploymentId, string>(MAX_DEPLOYMENTS);

  constructor(db: Pick<Db, 'query' | 'reads'>) {
    this.#db = db;
  }

  async workspace(id: string): Promise<WorkspaceRow | undefined> {
    return isUuid(id) ? workspaceById(this.#db, id) : undefined;
  }

  /** Whether there was a workspace of that id, which is deleted. */
  async wasDeleted(id: string): Promise<boolean> {
    return isUuid(id) && (await wasDeleted(this.#db, id));
  }

  async workspaceName(id: string): Promise<string> {
    const known = this.#workspaceNames.get(id);
    if (known !== undefined) return known;
    const name = (await this.workspace(id))?.name;
    if (name !== undefined) this.#workspaceNames.set(id, name);
    return name ?? '';
  }

  async stub(id: StubId): Promise<StubRow | undefined> {
    const known = this.#stubs.get(id);
    if (known !== undefined) return known;
    const row = await stubById(this.#db, id);
    if (row !== undefined) this.#stubs.set(id, row);
    return row;
  }

  async stubs(ids: readonly StubId[]): Promise<ReadonlyMap<StubId, StubRow>> {
    const distinct = [...new Set(ids)];
    const out = new Map<StubId, StubRow>();
    for (let from = 0; from < distinct.length; from += AT_ONCE) {
      const rows = await Promise.all(distinct.slice(from, from + AT_ONCE).map((id) => this.stub(id)));
      for (const row of rows) if (row !== undefined) out.set(row.id, row);
    }
    return out;
  }

  deployment(id: string): Promise<DeploymentRow | undefined> {
    return deploymentById(this.#db, id);
  }

  /** Names of deployments, of any workspace: one statement for those that are not known yet. */
  async deploymentNames(ids: readonly DeploymentId[]): Promise<ReadonlyMap<DeploymentId, string>> {
    const out = new Map<DeploymentId, string>();
    const unknown: DeploymentId[] = [];
    for (const id of new Set(ids)) {
      const name = this.#deploymentNames.get(id);
      if (name === undefined) unknown.push(id);
      else out.set(id, name);
    }
    if (unknown.length === 0) return out;
    for (const [id, name] of await namesOfDeployments(this.#db, unknown)) {
      this.#deploymentNames.set(id, name);
      out.set(id, name);
    }
    return out;
  }

  apps(filter: Parameters<typeof pageOfApps>[1]): Promise<readonly AppRow[]> {
    return pageOfApps(this.#db.reads.of(filter.workspaceId), filter);
  }

  /** Apps of the workspace by id. */
  async appsOf(workspaceId: WorkspaceId, ids: readonly AppId[]): Promise<ReadonlyMap<AppId, AppRow>> {
    const distinct = [...new Set(ids)];
    if (distinct.length === 0) return new Map();
    const rows = await appsByIds(this.#db.reads.of(workspaceId), workspaceId, distinct);
    return new Map(rows.map((row) => [row.id, row]));
  }

  app(workspaceId: WorkspaceId, id: string): Promise<AppRow | undefined> {
    return appById(this.#db, workspaceId, id);
  }

  /** The deployment of each app that was made last and is not deleted. */
  async latestDeployments(
    workspaceId: WorkspaceId,
    appIds: readonly AppId[],
  ): Promise<ReadonlyMap<AppId, DeploymentRow>> {
    const rows = await latestDeploymentsOfApps(this.#db.reads.of(workspaceId), workspaceId, appIds);
    return new Map(rows.map((row) => [row.appId, row]));
  }

  /**
   * The versions that calls of these rows' names reach.
   * @param hasAllVersions - the rows hold every version of their names, so that the database need not be asked
   */
  async servingDeployments(
    workspaceId: WorkspaceId,
    rows: readonly DeploymentRow[],
    hasAllVersions: boolean,
  ): Promise<ReadonlySet<DeploymentId>> {
    if (hasAllVersions) return servingAmong(rows);
    const names = rows.map(({ name }) => name);
    return await servingIds(this.#db.reads.of(workspaceId), workspaceId, names);
  }

  /** The stub of each app that was made last. */
  async latestStubs(workspaceId: WorkspaceId, appIds: readonly AppId[]): Promise<ReadonlyMap<AppId, StubRow>> {
    const rows = await latestStubsOfApps(this.#db.reads.of(workspaceId), workspaceId, appIds);
    return new Map(rows.map((row) => [row.appId, row]));
  }

  /** Whether the workspace has, or had, the deployment. */
  hasDeployment(workspaceId: WorkspaceId, id: DeploymentId): Promise<boolean> {
    return hasDeployment(this.#db, workspaceId, id);
  }

  /** Whether the workspace has, or had, a deployment of that name. @param appId - absent: in any app */
  hasDeploymentNamed(workspaceId: WorkspaceId, name: string, appId?: AppId): Promise<boolean> {
    return hasDeploymentNamed(this.#db, workspaceId, name, appId);
  }

  /** Whether a machine is the workspace's own, or ran a container of it. An administrator knows shared ones, too. */
  hasMachine(
    reader: { readonly workspaceId: WorkspaceId; readonly isAdmin: boolean },
    id: MachineId,
  ): Promise<boolean> {
    return mayKnowMachine(this.#db, reader, id);
  }

  /** Containers that ended, as far as their rows are kept; those that were made last first. */
  endedContainers(filter: EndedFilter): Promise<readonly ContainerRow[]> {
    return endedContainers(this.#db.reads.of(filter.workspaceId), filter);
  }

  /** Things that a person looks for, 20 at most: those named so first, else by an id. */
  async search(workspaceId: WorkspaceId, text: string): Promise<readonly Found[]> {
    const db = this.#db.reads.of(workspaceId);
    const id = text.toLowerCase();
    const isStart = /^[a-z]*-?[0-9a-f][0-9a-f-]{5,}$/.test(id);
    const [named, started, ended] = await Promise.all([
      namesWith(db, workspaceId, text, MOST_FOUND),
      isStart ? idsFrom(db, workspaceId, id, MOST_FOUND) : [],
      END_OF_ID.test(id) ? containerByEnd(db, workspaceId, id) : undefined,
    ]);
    const byEnd: readonly Found[] =
      ended === undefined ? [] : [{ kind: 'container', id: ended.id, name: '', detail: ended.state }];
    const all = new Map([...named, ...started, ...byEnd].map((one) => [one.id, one]));
    return [...all.values()].slice(0, MOST_FOUND);
  }

  /** The machine where each container was last, as far as their rows are kept. */
  machinesOf(
    workspaceId: WorkspaceId,
    containerIds: readonly ContainerId[],
  ): Promise<ReadonlyMap<ContainerId, MachineId>> {
    return machinesOfContainers(this.#db.reads.of(workspaceId), workspaceId, containerIds);
  }

  /** The deployments among these ids that are known and not deleted. */
  async deployments(ids: readonly string[]): Promise<ReadonlyMap<string, DeploymentRow>> {
    const distinct = [...new Set(ids)];
    const out = new Map<string, DeploymentRow>();
    for (let from = 0; from < distinct.length; from += AT_ONCE) {
      const rows = await Promise.all(distinct.slice(from, from + AT_ONCE).map((id) => this.deployment(id)));
      for (const row of rows) if (row !== undefined) out.set(row.id, row);
    }
    return out;
  }

  /** Hash of the bytes that an object has now; null: none yet, or no such object. */
  async sha256OfObject(id: string): Promise<string | null> {
    return (await objectById(this.#db, id))?.sha256 ?? null;
  }
}

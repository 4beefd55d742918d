// Deployments: numbered versions of a name, each with a URL. Called by the deployment operations and the REST surface. Must stay true: a version number
// is given once; every change is told to targets.ts before the caller is answered, so that the next call sees it.
import { isUuid, newId } from '#shared/domain/ids.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Caller } from '../identity/caller.ts';
import type { Db } from '../store/db.ts';
import { deploymentById, insertDeployment, listDeployments } from '../store/queries/deployments.ts';
import type { DeploymentRow } from '../store/queries/deployments.ts';
import { objectById } from '../store/queries/objects.ts';
import type { StubRow } from '../store/queries/stubs.ts';
import type { Stubs } from './stubs.ts';
import type { Targets } from './targets.ts';
import { sanitiseName, subdomainOf } from './urls.ts';
import type { UrlTarget } from './urls.ts';

export type DeployOutcome =
  | { readonly kind: 'deployed'; readonly deployment: DeploymentRow; readonly stub: StubRow }
  | { readonly kind: 'refused'; readonly why: 'stub_not_found' | 'empty_name' | 'no_code' };

/** What ListDeployments and the REST list can ask for. */
export interface DeploymentFilter {
  readonly limit: number;
  /** Case-sensitive part of the name. */
  readonly nameContains?: string;
  readonly active?: boolean;
  readonly version?: number;
  readonly stubTypes?: readonly string[];
  readonly subdomain?: string;
}

const MAX_NAME = 255;
/** What one list may read, whatever is filtered out of it here. */
const MAX_LIST = 1_000;

export interface DeploymentsParts {
  readonly db: Db;
  readonly stubs: Stubs;
  readonly targets: Targets;
}

export class Deployments {
  readonly #parts: DeploymentsParts;

  constructor(parts: DeploymentsParts) {
    this.#parts = parts;
  }

  /** Makes the next version of `name`; older ones stay active. */
  async deploy(caller: Caller, stubId: string, name: string): Promise<DeployOutcome> {
    const { db, stubs, targets } = this.#parts;
    const stub = await stubs.find(caller, stubId);
    if (stub === undefined) return { kind: 'refused', why: 'stub_not_found' };
    if (sanitiseName(name) === '' || name.length > MAX_NAME) return { kind: 'refused', why: 'empty_name' };
    if (stub.objectId !== null) {
      const object = await objectById(db, stub.objectId);
      if (object === undefined || object.sha256 === null) return { kind: 'refused', why: 'no_code' };
    }
    const deployment = await insertDeployment(db, {
      id: newId<DeploymentId>(),
      workspaceId: caller.workspaceId,
      appId: stub.appId,
      stubId: stub.id,
      name,
      stubType: stub.type,
      subdomain: subdomainOf(name, stub.type, caller.workspaceDbId),
    });
    await targets.changed(deployment.id);
    return { kind: 'deployed', deployment, stub };
  }

  async find(caller: Pick<Caller, 'workspaceId'>, deploymentId: string): Promise<DeploymentRow | undefined> {
    if (!isUuid(deploymentId)) return undefined;
    const row = await deploymentById(this.#parts.db, deploymentId.toLowerCase());
    return row?.workspaceId === caller.workspaceId ? row : undefined;
  }

  /** Newest first. */
  async list(caller: Pick<Caller, 'workspaceId'>, filter: DeploymentFilter): Promise<readonly DeploymentRow[]> {
    const { nameContains, limit, ...exact } = filter;
    const found = await listDeployments(this.#parts.db, {
      workspaceId: caller.workspaceId,
      limit: nameContains === undefined ? limit : MAX_LIST,
      ...exact,
    });
    if (nameContains === undefined) return found;
    return found.filter((row) => row.name.includes(nameContains)).slice(0, limit);
  }
}

export const urlTargetOf = (
  stub: Pick<StubRow, 'id' | 'type' | 'public'>,
  deployment: Pick<DeploymentRow, 'name' | 'version' | 'subdomain'> | null,
): UrlTarget => ({ stubId: stub.id, stubType: stub.type, public: stub.public, deployment });

// Deployments: numbered versions of a name, each with a URL. Called by the deployment operations and the REST surface.
// Invariant: a version number is given once. Every change is announced to
// targets.ts before the caller is answered, so that the next call sees it.
import { nameProblem } from '#shared/domain/deployment-names.ts';
import { isUuid, newId, queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import { isMadeByHand } from './kinds.ts';
import { SYSTEM } from '../events/audit.ts';
import type { Actor } from '../events/audit.ts';
import type { EventGiven, EventWriter } from '../events/writer.ts';
import { deleted, deployed, queueControlled, scaled, started, stopped, superseded } from './deployment-events.ts';
import type { Caller } from '../identity/caller.ts';
import { readWhen } from '../../domain/ticks.ts';
import { ROLLED_OUT_KINDS } from '../../domain/rollouts.ts';
import type { Db, Queryable, Transaction } from '../../stores/store/db.ts';
import { deleteBreaker } from '../../stores/store/queries/breakers.ts';
import {
  countDeployments,
  deleteDeployment,
  deploymentById,
  insertDeployment,
  listDeployments,
  setDeploymentActive,
  setDeploymentScale,
  setQueueControl,
} from '../../stores/store/queries/deployments.ts';
import type { DeploymentRow, NewDeployment } from '../../stores/store/queries/deployments.ts';
import type { QueueControl } from '../../domain/flow.ts';
import { objectById } from '../../stores/store/queries/objects.ts';
import { stopVersionsBefore } from '../../stores/store/queries/schedules.ts';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import { volumesByIds } from '../../stores/store/queries/volumes.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import { storedConfig } from '../../domain/stub-config.ts';
import type { StubConfig } from '../../domain/stub-config.ts';
import { Rollouts } from './rollouts.ts';
import type { Stubs } from './stubs.ts';
import type { Targets } from './targets.ts';
import { portOf, sanitiseName, subdomainOf } from './urls.ts';
import type { UrlTarget } from './urls.ts';
import type { DeploymentEffects, Resolution } from './needs.ts';
import { DEFAULT_LIMITS } from './stub-limits.ts';
import type { StubLimits } from './stub-limits.ts';

export type DeployOutcome =
  | {
      readonly kind: 'deployed';
      readonly deployment: DeploymentRow;
      readonly stub: StubRow;
      /** Known risks of the deployment; empty: none. */
      readonly warning: string;
    }
  | { readonly kind: 'refused'; readonly why: 'stub_not_found' | 'empty_name' | 'no_code' }
  /**
   * Other reasons of a refusal. name: an address or a command would read it as something else.
   * image: no registry has the image, or none gives it to us. schedule: its times cannot be read.
   * limit: the workspace has as many deployments as it may. Also a kind that no part of the platform runs, a host label
   * that another name holds, and a volume that was deleted.
   */
  | {
      readonly kind: 'refused';
      readonly why: 'name' | 'image' | 'schedule' | 'limit' | 'kind' | 'volume';
      readonly text: string;
    };

/** Outcome of a change to a deployment; a refusal's text is the gateway's. */
export type ChangeOutcome =
  | { readonly kind: 'changed'; readonly deployment: DeploymentRow }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'refused'; readonly text: string };

export type DeleteOutcome =
  | Exclude<ChangeOutcome, { kind: 'changed' }>
  | { readonly kind: 'changed'; readonly deployment: DeploymentRow; readonly cancelledTasks: number };

/** Filters of ListDeployments and the REST list. */
export interface DeploymentFilter {
  readonly limit: number;
  /** Case-sensitive part of the name. */
  readonly nameContains?: string;
  readonly active?: boolean;
  readonly version?: number;
  readonly stubTypes?: readonly string[];
  readonly subdomain?: string;
  readonly ids?: readonly string[];
  readonly stubIds?: readonly string[];
  readonly appId?: string;
  readonly minContainers?: number;
  readonly createdFromMs?: number;
  readonly createdToMs?: number;
  readonly showDeleted?: boolean;
  readonly offset?: number;
  /** Last row of the page before: only older deployments are returned. */
  readonly before?: { readonly createdAtMs: number; readonly id: string };
}

const MAX_NAME = 255;
/**
 * Kinds that can be invoked. A stub of any kind may be made,
 * because clients make one before they ask for a refused operation.
 */
const RUNNABLE: ReadonlySet<string> = new Set(['endpoint', 'asgi', 'taskqueue', 'function', 'schedule', 'pod']);
/** Kinds with a queue of tasks for which nobody waits. */
const QUEUED: ReadonlySet<string> = new Set(['taskqueue', 'function']);
/** Kinds whose number of containers a person may set. */
const SCALABLE: ReadonlySet<string> = new Set(['endpoint', 'asgi', 'taskqueue', 'pod']);
const NOT_FOUND = { kind: 'not_found' } as const satisfies ChangeOutcome;

export interface DeploymentsParts {
  readonly db: Db;
  readonly stubs: Stubs;
  readonly targets: Targets;
  readonly effects: DeploymentEffects;
  readonly images: { resolve(workspaceId: WorkspaceId, config: StubConfig): Promise<Resolution> };
  /** Key of host labels: the same in every replica, and for as long as the installation lives. */
  readonly labelKey: Uint8Array;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly nowMs: () => number;
  /** Whether a container of the queue serves calls. */
  readonly isServed: (queue: QueueName) => boolean;
  readonly limitsOf?: (caller: Caller) => StubLimits | Promise<StubLimits>;
}

export class Deployments {
  readonly #parts: DeploymentsParts;
  readonly rollouts: Rollouts;

  constructor(parts: DeploymentsParts) {
    this.#parts = parts;
    this.rollouts = new Rollouts(parts);
  }

  /**
   * Makes the next version of `name`. Older versions stay active, except a schedule's, whose place the new one takes.
   * Where the version that calls of the name reach has ready containers, they go on to it until the new one has one.
   * @param how - `now`: calls reach the new version at once
   */
  async deploy(
    caller: Caller,
    stubId: string,
    name: string,
    by: Actor = SYSTEM,
    how: { readonly now?: boolean } = {},
  ): Promise<DeployOutcome> {
    const { db, stubs, targets, events, nowMs } = this.#parts;
    const stub = await stubs.find(caller, stubId);
    if (stub === undefined) return { kind: 'refused', why: 'stub_not_found' };
    const kind = kindOf(stub.type);
    if (!RUNNABLE.has(kind)) {
      const text = `deployments of ${kind} are not available in this version; those of ${[...RUNNABLE].join(', ')} are`;
      return { kind: 'refused', why: 'kind', text };
    }
    if (isMadeByHand(stub.type)) {
      const text = `a stub of type ${stub.type} runs by CreatePod: deploy one of type pod/deployment`;
      return { kind: 'refused', why: 'kind', text };
    }
    if (sanitiseName(name) === '' || name.length > MAX_NAME) return { kind: 'refused', why: 'empty_name' };
    const meaning = nameProblem(name);
    if (meaning !== undefined) return { kind: 'refused', why: 'name', text: meaning };
    if (stub.objectId !== null) {
      const object = await objectById(db, stub.objectId);
      if (object === undefined || object.sha256 === null) return { kind: 'refused', why: 'no_code' };
    }
    const volumes = await this.#volumesProblem(stub);
    if (volumes !== undefined) return { kind: 'refused', why: 'volume', text: volumes };
    const { maxDeployments } = (await this.#parts.limitsOf?.(caller)) ?? DEFAULT_LIMITS;
    // Asked before machines are asked about the image. The transaction below counts for good.
    if (await isFull(db, caller, maxDeployments)) return tooMany(maxDeployments);
    if (kindOf(stub.type) === 'schedule') {
      // The schedule was checked when the stub was made, perhaps by another version of this code. Without one the
      // deployment makes no tasks until it is told.
      const { schedule } = storedConfig(stub.config);
      const when = schedule === undefined ? undefined : readWhen({ ...schedule });
      if (typeof when === 'string') return { kind: 'refused', why: 'schedule', text: when };
    }
    // The machines may be others than when the stub was made.
    const python = stubs.pythonProblem(caller, stub);
    if (python !== undefined) return { kind: 'refused', why: 'image', text: python };
    const image = await this.#parts.images.resolve(caller.workspaceId, storedConfig(stub.config));
    if (image.kind === 'refused') return { kind: 'refused', why: 'image', text: image.text };
    const holder = { workspaceId: caller.workspaceId, name, stubType: stub.type };
    const made = {
      id: newId<DeploymentId>(),
      ...holder,
      appId: stub.appId,
      stubId: stub.id,
      subdomain: subdomainOf(this.#parts.labelKey, holder),
      imageDigest: image.digest,
    };
    if (kindOf(stub.type) === 'schedule') {
      const replacing = await this.#replace(made, stub, by, maxDeployments);
      if (replacing === undefined) return tooMany(maxDeployments);
      return { kind: 'deployed', deployment: replacing, stub, warning: image.warning };
    }
    const added = await events.transaction(db, async (tx, emit) => {
      if (!(await hasRoom(tx, caller, maxDeployments))) return undefined;
      const waits = how.now !== true && (await this.rollouts.waits(tx, made));
      const row = await insertDeployment(tx, { ...made, waits });
      deployed(row, stub, by, nowMs()).forEach(emit);
      return { deployment: row, ended: await this.rollouts.begun(tx, row, emit) };
    });
    if (added === undefined) return tooMany(maxDeployments);
    const { deployment, ended } = added;
    for (const { id } of [deployment, ...ended]) await targets.changed(id);
    return { kind: 'deployed', deployment, stub, warning: image.warning };
  }

  /**
   * Makes a new version in place of those before it, so that no tick belongs to both.
   * Tasks of the earlier versions that run or wait are left to end (decision 0063).
   * @returns undefined: the workspace has `most` deployments
   */
  async #replace(
    made: NewDeployment,
    stub: StubRow,
    by: Actor,
    most: number | null,
  ): Promise<DeploymentRow | undefined> {
    const { db, targets, events, nowMs } = this.#parts;
    const added = await events.transaction(db, async (tx, emit) => {
      if (!(await hasRoom(tx, made, most))) return undefined;
      const row = await insertDeployment(tx, made);
      const ids = await stopVersionsBefore(tx, row);
      deployed(row, stub, by, nowMs()).forEach(emit);
      for (const id of ids) {
        const before = await deploymentById(tx, id);
        if (before !== undefined) emit(superseded(before, nowMs()));
      }
      return { deployment: row, replaced: ids };
    });
    if (added === undefined) return undefined;
    const { deployment, replaced } = added;
    await targets.changed(deployment.id);
    for (const id of replaced) await targets.changed(id);
    return deployment;
  }

  async find(caller: Pick<Caller, 'workspaceId'>, deploymentId: string): Promise<DeploymentRow | undefined> {
    if (!isUuid(deploymentId)) return undefined;
    const row = await deploymentById(this.#parts.db, deploymentId.toLowerCase());
    return row?.workspaceId === caller.workspaceId ? row : undefined;
  }

  /** Refuses invocations from here on and stops running containers; a repetition is harmless. */
  async stop(caller: Pick<Caller, 'workspaceId'>, deploymentId: string, by: Actor = SYSTEM): Promise<ChangeOutcome> {
    const row = await this.#activate(caller.workspaceId, deploymentId, false, (changed) =>
      stopped(changed, by, this.#parts.nowMs()),
    );
    if (row === undefined) return NOT_FOUND;
    await this.#parts.effects.stopped(queueNameOf(row.id, row.stubId));
    return { kind: 'changed', deployment: row };
  }

  /** Makes the deployment invocable again; the containers of `minContainers` start. Other versions are left alone. */
  async start(caller: Pick<Caller, 'workspaceId'>, deploymentId: string, by: Actor = SYSTEM): Promise<ChangeOutcome> {
    const found = await this.find(caller, deploymentId);
    const stub = found === undefined ? undefined : await this.#parts.stubs.find(caller, found.stubId);
    const volumes = stub === undefined ? undefined : await this.#volumesProblem(stub);
    if (volumes !== undefined) return { kind: 'refused', text: volumes };
    const row = await this.#activate(
      caller.workspaceId,
      deploymentId,
      true,
      (changed) => started(changed, by, this.#parts.nowMs()),
      (tx, changed, emit) => this.rollouts.again(tx, changed, emit),
      // An operator who starts it wants another try: starts that failed before do not count any more.
      async (changed) => {
        await deleteBreaker(this.#parts.db, queueNameOf(changed.id, changed.stubId));
      },
    );
    return row === undefined ? NOT_FOUND : { kind: 'changed', deployment: row };
  }

  /**
   * Exactly `containers` from here on; 0: running containers stop,
   * and the queue decides again. The bounds end with this version.
   */
  async scale(caller: Caller, deploymentId: string, containers: number, by: Actor = SYSTEM): Promise<ChangeOutcome> {
    const { db, targets, effects, events, nowMs, limitsOf } = this.#parts;
    const row = await this.find(caller, deploymentId);
    if (row === undefined) return NOT_FOUND;
    if (!SCALABLE.has(kindOf(row.stubType))) {
      return { kind: 'refused', text: 'This type of deployment cannot be scaled directly.' };
    }
    const { maxContainers } = (await limitsOf?.(caller)) ?? DEFAULT_LIMITS;
    if (containers > maxContainers) return { kind: 'refused', text: `replicas must be ${maxContainers} or less` };
    const max = containers === 0 ? await this.#mostContainers(caller, row) : containers;
    const changed = await events.transaction(db, async (tx, emit) => {
      const written = await setDeploymentScale(tx, caller.workspaceId, row.id, { min: containers, max });
      if (written !== undefined) scaled(written, containers, by, nowMs()).forEach(emit);
      return written;
    });
    if (changed === undefined) return NOT_FOUND;
    await targets.changed(changed.id);
    if (containers === 0) await effects.scaledToZero(queueNameOf(changed.id, changed.stubId));
    return { kind: 'changed', deployment: changed };
  }

  /** Pauses or bounds the queue of a name, all its versions, or lets it go on. What is not given stays as it is. */
  async controlQueue(
    caller: Pick<Caller, 'workspaceId'>,
    deploymentId: string,
    asked: Partial<QueueControl>,
    by: Actor = SYSTEM,
  ): Promise<ChangeOutcome> {
    const { db, targets, effects, events, nowMs } = this.#parts;
    const row = await this.find(caller, deploymentId);
    if (row === undefined) return NOT_FOUND;
    if (!QUEUED.has(kindOf(row.stubType)))
      return { kind: 'refused', text: 'This type of deployment has no queue that can be paused or bounded.' };
    const control = { paused: row.queuePaused, limit: row.queueLimit, ...asked };
    const changed = await events.transaction(db, async (tx, emit) => {
      const written = await setQueueControl(tx, row, control);
      const [newest] = written;
      if (newest !== undefined) queueControlled(newest, control, by, nowMs()).forEach(emit);
      return written;
    });
    for (const { id } of changed) await targets.changed(id);
    for (const { id, stubId } of changed) await effects.queueControlled(queueNameOf(id, stubId), control);
    const deployment = changed.find(({ id }) => id === row.id);
    return deployment === undefined ? NOT_FOUND : { kind: 'changed', deployment };
  }

  /** Stops the deployment, cancels its queued tasks, and deletes it except for its version number. */
  async delete(caller: Pick<Caller, 'workspaceId'>, deploymentId: string, by: Actor = SYSTEM): Promise<DeleteOutcome> {
    const { db, targets, effects, events, nowMs } = this.#parts;
    let cancelledTasks = 0;
    // This begins before the change is told: replicas answer callers of a stopped deployment, and would not count them.
    const endCallers = async (changed: DeploymentRow): Promise<void> => {
      cancelledTasks += await effects.deleting(queueNameOf(changed.id, changed.stubId));
    };
    const row = await this.#activate(caller.workspaceId, deploymentId, false, () => [], undefined, endCallers);
    if (row === undefined) return NOT_FOUND;
    // Effects come before the row's deletion: a caller who tries again after a failure here still finds the row.
    cancelledTasks += await effects.deleted(queueNameOf(row.id, row.stubId));
    const { gone, heirs } = await events.transaction(db, async (tx, emit) => {
      const written = await deleteDeployment(tx, caller.workspaceId, row.id);
      if (written === undefined) return { gone: row, heirs: [] };
      deleted(written, by, nowMs()).forEach(emit);
      return { gone: written, heirs: await this.rollouts.inherit(tx, written, emit) };
    });
    for (const { id } of [row, ...heirs]) await targets.changed(id);
    return { kind: 'changed', deployment: gone, cancelledTasks };
  }

  /**
   * Calls of the name reach this version from here on. Newer versions stay active, and are reached by their number.
   */
  async rollBack(
    caller: Pick<Caller, 'workspaceId'>,
    deploymentId: string,
    by: Actor = SYSTEM,
  ): Promise<ChangeOutcome> {
    const row = await this.find(caller, deploymentId);
    if (row === undefined) return NOT_FOUND;
    if (!ROLLED_OUT_KINDS.has(kindOf(row.stubType))) {
      return {
        kind: 'refused',
        text: `deployments of ${kindOf(row.stubType)} cannot be rolled back: deploy the code of before`,
      };
    }
    if (!row.active) {
      return { kind: 'refused', text: `${row.name} v${row.version} is stopped: start it first` };
    }
    const changed = await this.rollouts.rollBack(row, by);
    return changed === undefined ? NOT_FOUND : { kind: 'changed', deployment: changed };
  }

  /** Deployments that match the filter, newest first. */
  list(caller: Pick<Caller, 'workspaceId'>, filter: DeploymentFilter): Promise<readonly DeploymentRow[]> {
    return listDeployments(this.#parts.db.reads.of(caller.workspaceId), { workspaceId: caller.workspaceId, ...filter });
  }

  async #activate(
    workspaceId: WorkspaceId,
    id: string,
    active: boolean,
    eventsOf: (row: DeploymentRow) => readonly EventGiven[],
    also: (tx: Queryable, row: DeploymentRow, emit: (event: EventGiven) => void) => Promise<DeploymentRow> = (_, row) =>
      Promise.resolve(row),
    beforeTold?: (row: DeploymentRow) => Promise<void>,
  ): Promise<DeploymentRow | undefined> {
    if (!isUuid(id)) return undefined;
    const { db, events } = this.#parts;
    const row = await events.transaction(db, async (tx, emit) => {
      const changed = await setDeploymentActive(tx, workspaceId, id.toLowerCase(), active);
      if (changed === undefined) return undefined;
      eventsOf(changed).forEach(emit);
      return also(tx, changed, emit);
    });
    if (row === undefined) return undefined;
    // Nobody lets calls in while it goes on, so it is not awaited here.
    const begun = Promise.resolve(beforeTold?.(row));
    begun.catch(() => undefined);
    await this.#parts.targets.changed(row.id);
    await begun;
    return row;
  }

  /** Why the stub cannot run any more: a volume of it was deleted. @returns undefined: all are there */
  async #volumesProblem({ workspaceId, config }: Pick<StubRow, 'workspaceId' | 'config'>): Promise<string | undefined> {
    const volumes = storedConfig(config).volumes.filter(({ bucket }) => bucket === undefined);
    if (volumes.length === 0) return undefined;
    const ids = volumes.map(({ volumeId }) => volumeId);
    const there = new Set((await volumesByIds(this.#parts.db, workspaceId, ids)).map(({ id }) => id));
    const gone = volumes.find(({ volumeId }) => !there.has(volumeId));
    return gone === undefined ? undefined : `the volume at ${gone.mountPath} was deleted: deploy the app again`;
  }

  /** Upper bound of the deployment's containers when the caller names none. */
  async #mostContainers(caller: Caller, row: DeploymentRow): Promise<number> {
    if (row.scaleMax !== null) return Math.max(1, row.scaleMax);
    const stub = await this.#parts.stubs.find(caller, row.stubId);
    const config = stub?.config as StubConfig | undefined;
    return Math.max(1, config?.autoscaler.maxContainers ?? 1);
  }
}

export function urlTargetOf(
  stub: Pick<StubRow, 'id' | 'type' | 'public' | 'config'>,
  deployment: Pick<DeploymentRow, 'name' | 'version' | 'subdomain'> | null,
): UrlTarget {
  const { ports } = (stub.config as Partial<StubConfig>).extra ?? {};
  const port = portOf(stub.type, Array.isArray(ports) ? (ports as number[]) : []);
  const target = { stubId: stub.id, stubType: stub.type, public: stub.public, deployment };
  return port === undefined ? target : { ...target, port };
}

type Owner = Pick<Caller, 'workspaceId'>;

const isFull = async (db: Queryable, { workspaceId }: Owner, most: number | null): Promise<boolean> =>
  most !== null && (await countDeployments(db, workspaceId, most)) >= most;

/** Counts while no other deployment of the workspace is made. */
async function hasRoom(tx: Transaction, owner: Owner, most: number | null): Promise<boolean> {
  if (most === null) return true;
  await lockCounts(tx, owner.workspaceId);
  return !(await isFull(tx, owner, most));
}

const tooMany = (most: number | null): DeployOutcome => ({
  kind: 'refused',
  why: 'limit',
  text: `this workspace may have ${most} deployments: delete versions that nobody calls`,
});

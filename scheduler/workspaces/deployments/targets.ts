// Targets of invocations, kept in memory: the invoke path and the scaling loop ask here and read no SQL. Entries are
// read from the database on first use, and replaced the moment a deployment changes (here at once, on other replicas by
// message). A change touches the entries of its own name. All are dropped when messages may have been missed.
// Invariant: an entry that was read before a change is never kept after it. An
// unknown name is not remembered as unknown. The number of entries is bounded.
import type { DeploymentId, ObjectId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Queryable } from '../../stores/store/db.ts';
import * as rows from '../../stores/store/queries/targets.ts';
import type { QueueControl } from '../../domain/flow.ts';
import type { TargetRow } from '../../stores/store/queries/targets.ts';
import type { Invalidation } from '../identity/invalidation.ts';
import { storedConfig } from '../../domain/stub-config.ts';
import type { Target } from '../../domain/stub-config.ts';
import { isSyncKind } from './kinds.ts';
import { labelKey, nameKey, queueKey, stubKey, TargetCache } from './target-cache.ts';
import type { NamedTarget } from './target-cache.ts';

/** A deployment was made, started, stopped, scaled or deleted; `target` is undefined when it is gone. */
export interface TargetChange {
  readonly deploymentId: DeploymentId;
  readonly target: Target | undefined;
}

export interface TargetsParts {
  readonly db: Queryable;
  readonly log: Log;
  /** Messages to other replicas; absent: this process is alone. */
  readonly invalidation?: Pick<Invalidation, 'publish' | 'on' | 'onReset' | 'isLive'>;
  readonly maxEntries?: number;
}

const MAX_ENTRIES = 30_000;

export class Targets {
  readonly name = 'targets';
  readonly #parts: TargetsParts;
  /** By name, host label, stub (the newest deployment, else the stub itself) and queue. */
  readonly #cache: TargetCache;
  /** Active deployments that may want containers without work; never evicted (one per such deployment). */
  readonly #warm = new Map<DeploymentId, Target>();
  readonly #listeners = new Set<(change: TargetChange) => void>();
  /** The message that is being announced. */
  #own: string | null = null;
  /** Counts changes: a read that began before one is not kept. */
  #generation = 0;

  constructor(parts: TargetsParts) {
    this.#parts = parts;
    this.#cache = new TargetCache(parts.maxEntries ?? MAX_ENTRIES);
  }

  /** Reads the scaling loop's initial targets, and listens to the other replicas from here on. */
  async start(): Promise<void> {
    const { invalidation } = this.#parts;
    invalidation?.on('deployment', (message) => this.#heard(message));
    invalidation?.on('code', (id) => this.#inBackground(this.#codeReplaced(id as ObjectId)));
    invalidation?.on('workspace_deleted', (id) => this.#closed(id as WorkspaceId));
    invalidation?.onReset(() => {
      this.forgetAll();
      this.#inBackground(this.refreshAll());
    });
    await this.refreshAll();
  }

  /**
   * The deployment that a name means, active or not; synchronous when it is known.
   * @param version - null: the one that calls of the name reach
   */
  byName(
    workspaceId: WorkspaceId,
    kind: string,
    name: string,
    version: number | null,
  ): Target | Promise<Target | undefined> {
    return this.#find(nameKey(workspaceId, kind, name, version), (db) =>
      rows.targetByName(db, workspaceId, kind, name, version),
    );
  }

  /**
   * The target of a host label, of any workspace: callers compare it.
   * @param version - null: the one that calls of the label reach
   */
  bySubdomain(subdomain: string, version: number | null): Target | Promise<Target | undefined> {
    return this.#find(labelKey(subdomain, version), (db) => rows.targetBySubdomain(db, subdomain, version));
  }

  /** The target of a stub invoked by its own id, of any workspace: callers compare it. */
  byStub(stubId: string): Target | Promise<Target | undefined> {
    return this.#find(stubKey(stubId), (db) => rows.targetOfStub(db, stubId));
  }

  /** The target of a deployment, of any workspace: callers compare it. */
  byDeployment(deploymentId: string): Target | Promise<Target | undefined> {
    const queue = queueNameOf(deploymentId as DeploymentId, '' as StubId);
    return this.#find(queueKey(queue), (db) => rows.targetOfDeployment(db, deploymentId));
  }

  /** The target of a queue; undefined for the queue of a deployment that is gone. */
  byQueue(queue: QueueName): Target | Promise<Target | undefined> {
    const id = queue.slice('tq-'.length);
    return this.#find(
      queueKey(queue),
      async (db) => (await rows.targetOfDeployment(db, id)) ?? rows.targetOfPlainStub(db, id),
    );
  }

  /**
   * Active deployments that want containers without work (`minContainers`, a rollout), or have bounds set by Scale, or
   * a queue that is paused or bounded.
   */
  activeTargets(): IterableIterator<Target> {
    return this.#warm.values();
  }

  /** Adds a listener. @returns a function that removes it */
  onChange(listener: (change: TargetChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Announces a change; call it after every committed change of a
   * deployment. When it resolves, every replica sees the change.
   */
  async changed(deploymentId: DeploymentId): Promise<Target | undefined> {
    const target = await this.refresh(deploymentId);
    const { invalidation } = this.#parts;
    if (invalidation === undefined) return target;
    // The message comes back to this process too, which has applied the change already.
    this.#own = changeText(deploymentId, target);
    const heard = invalidation.publish('deployment', this.#own);
    this.#own = null;
    await heard;
    return target;
  }

  /** Announces that an object which stubs may already use has other bytes now. */
  codeChanged(objectId: ObjectId): void {
    const { invalidation } = this.#parts;
    if (invalidation === undefined) this.#inBackground(this.#codeReplaced(objectId));
    else void invalidation.publish('code', objectId);
  }

  /** Reads one deployment anew. */
  async refresh(deploymentId: DeploymentId): Promise<Target | undefined> {
    const queue = queueNameOf(deploymentId, '' as StubId);
    this.#forget(deploymentId, this.#cache.get(queueKey(queue)));
    const row = await rows.targetOfDeployment(this.#parts.db, deploymentId).catch((error: unknown) => {
      // Any entry may be older than the change, because its name may not be known here.
      this.forgetAll();
      throw error;
    });
    const target = row === undefined ? undefined : targetOf(row);
    // Entries that were read during this query may be older than its row.
    this.#forget(deploymentId, target);
    if (target !== undefined) this.#cache.set(queueKey(target.queue), target);
    this.#keepWarm(deploymentId, target);
    this.#tell({ deploymentId, target });
    return target;
  }

  /** Reads everything anew, since changes may have been missed. */
  async refreshAll(): Promise<void> {
    this.forgetAll();
    const warm = (await rows.warmTargets(this.#parts.db)).map(targetOf);
    const before = new Set(this.#warm.keys());
    for (const target of warm) {
      if (target.deploymentId === null) continue;
      before.delete(target.deploymentId);
      this.#warm.set(target.deploymentId, target);
      this.#tell({ deploymentId: target.deploymentId, target });
    }
    for (const gone of before) {
      this.#warm.delete(gone);
      this.#tell({ deploymentId: gone, target: undefined });
    }
  }

  /** Drops all entries read so far. */
  forgetAll(): void {
    this.#generation++;
    this.#cache.clear();
  }

  /** Forgets before this replica acknowledges the message; what there is now is read in the background. */
  #heard(message: string): void {
    if (message === this.#own) return;
    const { deploymentId, named } = changeOf(message);
    this.#forget(deploymentId, named);
    this.#inBackground(this.refresh(deploymentId));
  }

  async #codeReplaced(objectId: ObjectId): Promise<void> {
    this.#generation++;
    this.#cache.forgetCode(objectId);
    const warm = [...this.#warm].filter(([, target]) => target.code?.objectId === objectId);
    for (const [deploymentId] of warm) await this.refresh(deploymentId);
  }

  /** Nothing of that workspace is a target any more: its statement finds none, and the known ones go. */
  #closed(workspaceId: WorkspaceId): void {
    this.#generation++;
    const gone = this.#cache.forgetWorkspace(workspaceId);
    for (const [deploymentId, target] of this.#warm) if (target.workspaceId === workspaceId) gone.add(deploymentId);
    for (const deploymentId of gone) {
      this.#warm.delete(deploymentId);
      this.#tell({ deploymentId, target: undefined });
    }
  }

  #inBackground(work: Promise<unknown>): void {
    work.catch((error: unknown) => {
      // Forgotten entries are read again on use; only the scaling
      // loop may work with an old entry until the next change.
      this.#parts.log.warn({ err: error }, 'deployments could not be read again');
    });
  }

  /** A known target, else the one in the database. While messages do not arrive, no known one can be trusted. */
  #find(key: string, read: (db: Queryable) => Promise<TargetRow | undefined>): Target | Promise<Target | undefined> {
    const isLive = this.#parts.invalidation?.isLive ?? true;
    return (isLive ? this.#cache.get(key) : undefined) ?? this.#load(key, read);
  }

  #forget(deploymentId: DeploymentId, named: NamedTarget | undefined): void {
    this.#generation++;
    this.#cache.forget(deploymentId, named);
  }

  #keepWarm(deploymentId: DeploymentId, target: Target | undefined): void {
    const warm =
      target !== undefined &&
      target.active &&
      (target.scale !== null ||
        target.rollout === 'waiting' ||
        target.queueControl !== undefined ||
        target.config.autoscaler.minContainers > 0);
    if (warm) this.#warm.set(deploymentId, target);
    else this.#warm.delete(deploymentId);
  }

  async #load(key: string, read: (db: Queryable) => Promise<TargetRow | undefined>): Promise<Target | undefined> {
    const generation = this.#generation;
    const row = await read(this.#parts.db);
    if (row === undefined) return undefined;
    const target = targetOf(row);
    if (generation === this.#generation) this.#cache.set(key, target);
    return target;
  }

  #tell(change: TargetChange): void {
    for (const listener of this.#listeners) {
      try {
        listener(change);
      } catch (error) {
        this.#parts.log.error({ err: error, reason: messageOf(error) }, 'a listener of deployment changes failed');
      }
    }
  }
}

/** Message about a changed deployment: with what other replicas may know it by, unless it is gone. */
const changeText = (deploymentId: DeploymentId, target: Target | undefined): string =>
  target === undefined
    ? deploymentId
    : [deploymentId, target.workspaceId, target.stubId, target.deploymentName].join('\n');

function changeOf(message: string): { readonly deploymentId: DeploymentId; readonly named: NamedTarget | undefined } {
  const [id = '', workspaceId, stubId, ...name] = message.split('\n');
  const deploymentId = id as DeploymentId;
  if (workspaceId === undefined || stubId === undefined) return { deploymentId, named: undefined };
  const deploymentName = name.join('\n');
  return {
    deploymentId,
    named: { workspaceId: workspaceId as WorkspaceId, stubId: stubId as StubId, deploymentName },
  };
}

const isControlled = ({ paused, limit }: QueueControl): boolean => paused || limit !== null;

/** The target of a row. normalise.ts has made the stored configuration. */
export function targetOf(row: TargetRow): Target {
  const kind = kindOf(row.stubType);
  return {
    workspaceId: row.workspaceId,
    appId: row.appId,
    stubId: row.stubId,
    deploymentId: row.deployment?.id ?? null,
    deploymentName: row.deployment?.name ?? '',
    subdomain: row.deployment?.subdomain ?? null,
    version: row.deployment?.version ?? 0,
    kind,
    sync: isSyncKind(kind),
    active: row.deployment?.active ?? true,
    supersededBy: row.deployment?.supersededBy ?? null,
    rollout: row.deployment?.rollout ?? null,
    queue: queueNameOf(row.deployment?.id ?? null, row.stubId),
    code: row.code,
    config: storedConfig(row.config),
    imageDigest: row.deployment?.imageDigest ?? '',
    scale: row.deployment?.scale ?? null,
    ...(row.deployment !== null && isControlled(row.deployment.queueControl)
      ? { queueControl: row.deployment.queueControl }
      : {}),
  };
}

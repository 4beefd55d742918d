// Targets by the keys under which they were asked for. The least recently used leaves first. An index finds what the
// change of one deployment, name or object touches, so that it costs nothing to the others.
import type { DeploymentId, ObjectId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { Grouped } from '#shared/grouped.ts';
import { BoundedMap } from './bounded-map.ts';
import type { Target } from '../../domain/stub-config.ts';

/** @param version - null: the one that calls of the name reach */
export const nameKey = (workspaceId: string, kind: string, name: string, version: number | null): string =>
  `${workspaceId}\n${kind}\n${version ?? ''}\n${name}`;
/** @param version - null: the one that calls of the label reach */
export const labelKey = (subdomain: string, version: number | null): string => `\n\n${version ?? ''}\n${subdomain}`;
export const stubKey = (stubId: string): string => `stub\n${stubId}`;
export const queueKey = (queue: QueueName): string => `queue\n${queue}`;

/** Whether the key names no version of its name or label: another version may answer to it after a change. */
const isOfServing = (key: string): boolean => key.split('\n', 3)[2] === '';

export type NamedTarget = Pick<Target, 'workspaceId' | 'deploymentName' | 'stubId'>;

export class TargetCache {
  readonly #targets: BoundedMap<string, Target>;
  readonly #ofDeployment = new Grouped<DeploymentId, string>();
  readonly #ofName = new Grouped<string, string>();
  readonly #ofCode = new Grouped<ObjectId, string>();

  constructor(limit: number) {
    this.#targets = new BoundedMap(limit);
  }

  get(key: string): Target | undefined {
    return this.#targets.get(key);
  }

  set(key: string, target: Target): void {
    this.#delete(key);
    const left = this.#targets.set(key, target);
    if (left !== undefined) this.#unindex(...left);
    if (target.deploymentId !== null) {
      this.#ofDeployment.add(target.deploymentId, key);
      this.#ofName.add(nameOf(target), key);
    }
    if (target.code !== null) this.#ofCode.add(target.code.objectId, key);
  }

  /**
   * Drops what a change of the deployment touches: its own entries, and those of its name and stub that may mean
   * another version now. A name with a version always means the same deployment.
   * @param named - what others may know the deployment by; undefined: it is gone, and its own entries say all
   */
  forget(deploymentId: DeploymentId, named: NamedTarget | undefined): void {
    for (const key of this.#ofDeployment.of(deploymentId)) this.#delete(key);
    if (named === undefined) return;
    for (const key of this.#ofName.of(nameOf(named))) if (isOfServing(key)) this.#delete(key);
    this.#delete(stubKey(named.stubId));
  }

  forgetCode(objectId: ObjectId): void {
    for (const key of this.#ofCode.of(objectId)) this.#delete(key);
  }

  /** @returns the deployments whose entries were dropped */
  forgetWorkspace(workspaceId: WorkspaceId): Set<DeploymentId> {
    const gone = new Set<DeploymentId>();
    for (const [key, target] of [...this.#targets]) {
      if (target.workspaceId !== workspaceId) continue;
      if (target.deploymentId !== null) gone.add(target.deploymentId);
      this.#delete(key);
    }
    return gone;
  }

  clear(): void {
    for (const [key] of [...this.#targets]) this.#delete(key);
  }

  #delete(key: string): void {
    const target = this.#targets.get(key);
    if (target === undefined) return;
    this.#targets.delete(key);
    this.#unindex(key, target);
  }

  #unindex(key: string, target: Target): void {
    if (target.deploymentId !== null) {
      this.#ofDeployment.delete(target.deploymentId, key);
      this.#ofName.delete(nameOf(target), key);
    }
    if (target.code !== null) this.#ofCode.delete(target.code.objectId, key);
  }
}

const nameOf = ({ workspaceId, deploymentName }: Pick<Target, 'workspaceId' | 'deploymentName'>): string =>
  `${workspaceId}\n${deploymentName}`;

// The containers that a caller may reach into.
// Invariant: a container of another workspace is not found, as one that does not exist.
import { AppError } from '#shared/errors.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { isServe } from '#shared/domain/status.ts';
import { Places } from '#shared/places.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { StoredSpec } from '../containers/spec.ts';
import type { Waited } from '../containers/waits.ts';
import type { RunningContainer } from './inside.ts';

/** A container that runs, with the facts that operations need. */
export interface ReachedContainer extends RunningContainer {
  readonly stubId: StubId;
  readonly row: ContainerRow;
}

export interface Reaching {
  /** The caller's workspace; null: any (the administrator). */
  readonly workspaceId: WorkspaceId | null;
  /** Pods and sandboxes alone. */
  readonly onlyPods?: boolean;
  /** Stub that the container must have; empty: any. */
  readonly stubId?: string;
  /** Time to wait for it to run. */
  readonly withinMs: number;
  readonly signal?: AbortSignal;
}

export interface AccessParts {
  readonly waits: {
    find(containerId: string, workspaceId: WorkspaceId | null): Promise<ContainerRow | undefined>;
    waitUntilRunning(containerId: string, withinMs: number, signal?: AbortSignal): Promise<Waited>;
  };
  readonly mostWaiting?: number;
}

const MOST_ID = 200;
/** Most callers of a workspace who wait at this replica until a container runs. */
const MOST_WAITING = 512;

export class Access {
  readonly #parts: AccessParts;
  readonly #waiting: Places<WorkspaceId>;

  constructor(parts: AccessParts) {
    this.#parts = parts;
    this.#waiting = new Places(parts.mostWaiting ?? MOST_WAITING);
  }

  /** The container in any state. @throws AppError `container_not_found` */
  async find(
    containerId: string,
    { workspaceId, onlyPods = false, stubId = '' }: Omit<Reaching, 'withinMs'>,
  ): Promise<ContainerRow> {
    const id = containerId.slice(0, MOST_ID);
    const row = id === containerId ? await this.#parts.waits.find(id, workspaceId) : undefined;
    if (row === undefined || (onlyPods && !isPod(row))) {
      throw new AppError('container_not_found', `Container not found: ${id}`);
    }
    if (stubId !== '' && row.stubId !== stubId) {
      throw new AppError('container_not_found', `container ${id} is not one of stub ${stubId.slice(0, MOST_ID)}`);
    }
    return row;
  }

  /**
   * The container once it runs.
   * @throws AppError `container_not_found`, `container_not_running`, `too_many_connections`
   */
  async reach(containerId: string, reaching: Reaching): Promise<ReachedContainer> {
    const { id, workspaceId: owner } = await this.find(containerId, reaching);
    const done = this.#waiting.take(owner);
    if (done === undefined) {
      const text = `${this.#waiting.most} callers of this workspace wait here for containers to run: try again later`;
      throw new AppError('too_many_connections', text, { details: { retryAfterSeconds: 5 } });
    }
    let waited: Waited;
    try {
      waited = await this.#parts.waits.waitUntilRunning(id, reaching.withinMs, reaching.signal);
    } finally {
      done();
    }
    if (!waited.ok)
      throw new AppError('container_not_running', waited.reason, { details: { passes: waited.why === 'late' } });
    const { row } = waited;
    const { machineId, workspaceId, stubId } = row;
    if (machineId === null) throw new AppError('container_not_running', `container ${id} does not run`);
    return { containerId: id, workspaceId, machineId, stubId, row };
  }
}

const specOf = ({ spec }: Pick<ContainerRow, 'spec'>): StoredSpec => spec as StoredSpec;

/** Whether a container is a pod or a sandbox: its supervisor is its first program. */
export const isPod = (row: Pick<ContainerRow, 'spec'>): boolean =>
  specOf(row).kind === 'pod' || specOf(row).kind === 'sandbox';

/** Whether the container is a development server's, which loads changed files anew. */
export const isDevelopmentServer = (row: Pick<ContainerRow, 'spec'>): boolean =>
  isServe(specOf(row).wire.stubType ?? '');

/** Ports that callers may reach: those of the stub, and those that were exposed since. */
export const portsOf = (row: Pick<ContainerRow, 'spec' | 'exposedPorts'>): readonly number[] => [
  ...new Set([...(specOf(row).wire.ports ?? []), ...row.exposedPorts]),
];

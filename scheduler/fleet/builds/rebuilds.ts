/**
 * Builds images again that a container wants and that no machine able to run it has: their machine is gone, or the
 * app's local volume is on another one. Placement at the leader says what is wanted.
 * Invariant: an image has one such build at a time, and waits longer after each that failed.
 */
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { backoffMs } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { imagePlaces, imagesInRegistry } from '../../stores/store/queries/images.ts';
import type { HostedWork } from '../images/hosts.ts';
import { mayHost } from '../images/hosts.ts';
import type { Machine } from '../machine.ts';
import { isInService } from '../machine.ts';
import type { RegistryMetrics } from '../registry/metrics.ts';
import type { Builds } from './builds.ts';
import { decideRebuild } from './decide-rebuild.ts';

export interface RebuildsParts {
  readonly db: Db;
  readonly machines: { all(): Iterable<Machine> };
  readonly builds: Pick<Builds, 'again'>;
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  readonly hasRegistry: boolean;
  readonly isLeader: () => boolean;
  readonly nowMs: () => number;
  readonly metrics: RegistryMetrics;
  readonly log: Log;
}

/** An image that a container wants. */
export interface WantedImage {
  readonly image: string;
  readonly work: HostedWork;
  /** Homes of the local volumes that the container mounts. */
  readonly homes: readonly MachineId[];
}

interface Try {
  readonly failures: number;
  /** Monotonic milliseconds before which nothing is tried. */
  readonly notBeforeMs: number;
  readonly isRunning: boolean;
}

/** Time between two looks at an image that is not to be built. */
const LOOK_EVERY_MS = 5_000;
const RETRY = { baseMs: 60_000, capMs: 30 * 60_000 };
const MOST_REMEMBERED = 1000;
/** Builds of all images at once. */
const MOST_AT_ONCE = 8;

export class Rebuilds {
  readonly #parts: RebuildsParts;
  readonly #tries = new Map<string, Try>();
  #running = 0;
  #onBuilt: () => void = () => undefined;

  constructor(parts: RebuildsParts) {
    this.#parts = parts;
  }

  /** Called when a machine has an image again. */
  onBuilt(handler: () => void): void {
    this.#onBuilt = handler;
  }

  /** A container found no machine, and its image is a cause. */
  wanted(wanted: WantedImage): void {
    const { isLeader, nowMs, log } = this.#parts;
    const key = `${wanted.image} ${[...wanted.homes].toSorted().join(' ')}`;
    const before = this.#tries.get(key);
    if (!isLeader() || this.#running >= MOST_AT_ONCE) return;
    if (before !== undefined && (before.isRunning || nowMs() < before.notBeforeMs)) return;
    const failures = before?.failures ?? 0;
    this.#remember(key, { failures, notBeforeMs: 0, isRunning: true });
    this.#running += 1;
    this.#look(wanted)
      .then(
        (outcome) => {
          const isFailed = outcome === 'failed';
          const waitMs = isFailed ? backoffMs(failures + 1, RETRY) : LOOK_EVERY_MS;
          this.#remember(key, {
            failures: isFailed ? failures + 1 : outcome === 'built' ? 0 : failures,
            notBeforeMs: nowMs() + waitMs,
            isRunning: false,
          });
          if (outcome === 'built') this.#onBuilt();
        },
        (error: unknown) => {
          log.warn({ err: error, image: wanted.image }, 'an image that is wanted was not looked for');
          this.#remember(key, { failures, notBeforeMs: nowMs() + RETRY.baseMs, isRunning: false });
        },
      )
      .finally(() => (this.#running -= 1));
  }

  async #look({ image, work, homes }: WantedImage): Promise<'none' | 'built' | 'failed'> {
    const { db, machines, builds, cpuWorkAllowed, hasRegistry, metrics, log } = this.#parts;
    const [places, stored] = await Promise.all([imagePlaces(db, [image]), imagesInRegistry(db, [image])]);
    const has = new Set(places.map(({ machineId }) => machineId));
    const holders = [...machines.all()].filter(
      (machine) => has.has(machine.row.id) && isStaying(machine) && mayHost(machine, work, cpuWorkAllowed),
    );
    const isInRegistry = hasRegistry && stored.length > 0;
    const decision = decideRebuild({ holders: holders.map(({ row }) => row.id), homes, isInRegistry });
    if (decision.kind === 'none') return 'none';
    const workspaceId: WorkspaceId = work.workspaceId;
    log.info({ image, workspaceId, machineId: decision.only }, 'an image that no machine can serve is built again');
    const errMsg = await builds.again(workspaceId, image, work, decision.only);
    if (errMsg === undefined) return 'none';
    metrics.rebuilds.inc({ result: errMsg === '' ? 'ok' : 'failed' });
    if (errMsg !== '') log.warn({ image, workspaceId, why: errMsg.slice(0, 1000) }, 'an image was not built again');
    return errMsg === '' ? 'built' : 'failed';
  }

  #remember(key: string, last: Try): void {
    this.#tries.delete(key);
    this.#tries.set(key, last);
    const [oldest] = this.#tries.keys();
    if (this.#tries.size > MOST_REMEMBERED && oldest !== undefined) this.#tries.delete(oldest);
  }
}

/** Whether a machine is there, or only away for a moment, and its containers do not have to leave. */
const isStaying = ({ health, row }: Machine): boolean =>
  (health === 'READY' || health === 'RECONCILING' || health === 'SUSPECT') && isInService(row);

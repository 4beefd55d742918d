// Leases of development servers. A session of `longshore serve` renews the lease of its stub; while the lease lives,
// the stub has one container and takes calls. Every replica knows all leases: Redis has them, messages tell changes.
// Invariant: a lease that ran out, or was ended, is told once by the leader, which then stops the container. A lease
// that Redis lost comes back with the next renewal.
import type { Clock } from '#shared/clock.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { ServeLease, ServeLeaseStore } from '../../stores/queues/serve-leases.ts';
import { isServe } from '#shared/domain/status.ts';
import type { Target } from '../../domain/stub-config.ts';

/** Lease of a session that does not say how long. */
export const SERVE_LEASE_SECONDS = 60;
export const LEAST_LEASE_SECONDS = 10;
export const MOST_LEASE_SECONDS = 600;
/** Development servers of a workspace at once. */
const MOST_OF_WORKSPACE = 32;
/** Interval of looks at leases that ran out. */
const LOOK_MS = 2_000;

export interface ServeLeasesParts {
  readonly store: Pick<ServeLeaseStore, 'all' | 'remove' | 'write'>;
  readonly bus: Pick<Bus, 'on' | 'onGap' | 'publish'>;
  readonly channel: string;
  readonly isLeader: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
  readonly mostOfWorkspace?: number;
  readonly lookMs?: number;
}

export type Renewed = { readonly kind: 'began' | 'renewed' } | { readonly kind: 'full'; readonly most: number };

export class ServeLeases {
  readonly name = 'serve leases';
  readonly #parts: ServeLeasesParts;
  readonly #leases = new Map<StubId, ServeLease>();
  readonly #changed = new Listeners<[QueueName]>();
  readonly #over = new Listeners<[QueueName, StubId]>();
  #looks: NodeJS.Timeout | undefined;

  constructor(parts: ServeLeasesParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#note(message as ServeLease));
    parts.bus.onGap(() => void this.#read());
  }

  async start(): Promise<void> {
    await this.#read();
    this.#looks = setInterval(() => void this.#look(), this.#parts.lookMs ?? LOOK_MS);
    this.#looks.unref();
  }

  stop(): void {
    clearInterval(this.#looks);
  }

  /** Told when a development server began, or its lease ended. */
  onChange(listener: (queue: QueueName) => void): void {
    this.#changed.add(listener);
  }

  /** Told at one replica when a lease is over, so that its container and calls end. */
  onOver(listener: (queue: QueueName, stubId: StubId) => void): void {
    this.#over.add(listener);
  }

  /** Whether the stub has a development server now. */
  isServed(stubId: StubId): boolean {
    return (this.#leases.get(stubId)?.untilMs ?? 0) > this.#parts.clock.nowMs();
  }

  /** Queues of development servers, for the scaling loop. */
  *queues(): IterableIterator<QueueName> {
    for (const { stubId } of this.#leases.values()) if (this.isServed(stubId)) yield queueNameOf(null, stubId);
  }

  /** Reason why a call to the target is refused; undefined: it may be served. */
  refusal({ config, stubId }: Pick<Target, 'config' | 'stubId'>): string | undefined {
    if (!isServe(config.stubType) || this.isServed(stubId)) return undefined;
    return 'the development server of this address has ended: start it with `longshore serve`, which prints a new one';
  }

  /**
   * Begins or renews a lease.
   * @returns full: the workspace has as many as it may; `most` is their number
   */
  async renew(workspaceId: WorkspaceId, stubId: StubId, seconds: number): Promise<Renewed> {
    const isNew = !this.isServed(stubId);
    const most = this.#parts.mostOfWorkspace ?? MOST_OF_WORKSPACE;
    if (isNew && this.#countOf(workspaceId) >= most) return { kind: 'full', most };
    const lease = { workspaceId, stubId, untilMs: this.#parts.clock.nowMs() + seconds * 1000 };
    await this.#parts.store.write(lease);
    this.#tell(lease);
    return { kind: isNew ? 'began' : 'renewed' };
  }

  /** Ends a lease now. @returns false: there was none */
  async end(workspaceId: WorkspaceId, stubId: StubId): Promise<boolean> {
    if (!(await this.#parts.store.remove({ workspaceId, stubId }))) return false;
    this.#tell({ workspaceId, stubId, untilMs: 0 });
    this.#over.tell(queueNameOf(null, stubId), stubId);
    return true;
  }

  #countOf(workspaceId: WorkspaceId): number {
    let count = 0;
    for (const lease of this.#leases.values())
      if (lease.workspaceId === workspaceId && this.isServed(lease.stubId)) count += 1;
    return count;
  }

  #tell(lease: ServeLease): void {
    this.#note(lease);
    this.#parts.bus.publish(this.#parts.channel, lease);
  }

  #note(lease: ServeLease): void {
    const was = this.isServed(lease.stubId);
    if (lease.untilMs === 0) this.#leases.delete(lease.stubId);
    else this.#leases.set(lease.stubId, lease);
    if (this.isServed(lease.stubId) !== was) this.#changed.tell(queueNameOf(null, lease.stubId));
  }

  async #read(): Promise<void> {
    try {
      const leases = await this.#parts.store.all();
      const known = new Set(leases.map(({ stubId }) => stubId));
      for (const lease of leases) this.#note(lease);
      for (const lease of [...this.#leases.values()])
        if (!known.has(lease.stubId)) this.#note({ ...lease, untilMs: 0 });
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'leases of development servers not read, renewals will tell them');
    }
  }

  /** Ends those that ran out: at the leader their containers and calls, elsewhere what is known of them. */
  async #look(): Promise<void> {
    const nowMs = this.#parts.clock.nowMs();
    for (const lease of [...this.#leases.values()]) {
      if (lease.untilMs > nowMs) continue;
      const queue = queueNameOf(null, lease.stubId);
      this.#changed.tell(queue);
      if (!this.#parts.isLeader()) continue;
      try {
        await this.#parts.store.remove(lease);
        this.#tell({ ...lease, untilMs: 0 });
        this.#over.tell(queue, lease.stubId);
      } catch (error) {
        this.#parts.log.info({ err: error }, 'a lease that ran out is removed later');
        return;
      }
    }
  }
}

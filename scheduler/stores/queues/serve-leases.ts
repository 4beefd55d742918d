// Leases of development servers in Redis: one sorted set, scored by the time at which each runs out.
import type { Redis } from 'ioredis';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Keys } from './keys.ts';

export interface ServeLease {
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  /** Time until which it lives. */
  readonly untilMs: number;
}

const memberOf = ({ workspaceId, stubId }: Omit<ServeLease, 'untilMs'>): string => `${workspaceId}:${stubId}`;

export class ServeLeaseStore {
  readonly #redis: Redis;
  readonly #key: string;

  constructor(redis: Redis, keys: Keys) {
    this.#redis = redis;
    this.#key = keys.serveLeases;
  }

  async write(lease: ServeLease): Promise<void> {
    await this.#redis.zadd(this.#key, lease.untilMs, memberOf(lease));
  }

  /** @returns whether it was there: of several who end it, one is told so */
  async remove(lease: Omit<ServeLease, 'untilMs'>): Promise<boolean> {
    return (await this.#redis.zrem(this.#key, memberOf(lease))) > 0;
  }

  /** All leases, those that ran out included. */
  async all(): Promise<readonly ServeLease[]> {
    const found = await this.#redis.zrange(this.#key, '0', '-1', 'WITHSCORES');
    const leases: ServeLease[] = [];
    for (let at = 0; at + 1 < found.length; at += 2) {
      const [workspaceId = '', stubId = ''] = (found[at] ?? '').split(':');
      leases.push({
        workspaceId: workspaceId as WorkspaceId,
        stubId: stubId as StubId,
        untilMs: Number(found[at + 1]),
      });
    }
    return leases;
  }
}

// Rates and throttles of flow control in Redis (lua/take-pace.lua), asked before a call is accepted.
import type { Redis } from 'ioredis';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { everyMsOf, rateControl, throttlesOfQueue } from '../../domain/flow.ts';
import type { Pace } from '../../domain/flow-settings.ts';
import type { Keys } from './keys.ts';
import { defineScript } from './scripts.ts';
import type { Script } from './scripts.ts';

/** Most paces that a workspace has at a time: keys of its rates and throttles that were used lately. */
export const MOST_PACES = 100_000;

export interface PacedCall {
  readonly workspaceId: WorkspaceId;
  readonly queue: QueueName;
  readonly key: string;
  /** Absent: calls are taken at any pace. */
  readonly rate?: Pace | undefined;
  /** Least milliseconds between two starts of the key. Absent: none. */
  readonly everyMs?: number | undefined;
}

export type PaceAnswer =
  /** `atMs`: the turn of the task; undefined: at once. `next`: when the next turn is; it gives this one back. */
  | { readonly kind: 'taken'; readonly atMs: number | undefined; readonly next: string }
  | { readonly kind: 'too_often'; readonly afterMs: number }
  /** The workspace has {@link MOST_PACES}. */
  | { readonly kind: 'too_many_keys' };

export class FlowPaces {
  readonly #keys: Pick<Keys, 'flowPaces'>;
  readonly #take: Script;
  readonly #giveBack: Script;
  readonly #most: number;

  constructor(client: Redis, keys: Pick<Keys, 'flowPaces'>, most = MOST_PACES) {
    this.#keys = keys;
    this.#take = defineScript(client, 'longshoreTakePace');
    this.#giveBack = defineScript(client, 'longshoreGiveTurnBack');
    this.#most = most;
  }

  /** @throws the client's error */
  async take({ workspaceId, queue, key, rate, everyMs }: PacedCall, nowMs: number): Promise<PaceAnswer> {
    const rated = rate === undefined ? ['', 0, 0] : [rateControl(queue, key), everyMsOf(rate), rate.perMs];
    const throttled = everyMs === undefined ? ['', 0] : [`${throttlesOfQueue(queue)}${key}`, everyMs];
    const answer = await this.#take.run(this.#keys.flowPaces(workspaceId), nowMs, this.#most, ...rated, ...throttled);
    const [kind, number, next = ''] = answer as readonly [kind: number, number: number, next?: string];
    if (kind === 2) return { kind: 'too_many_keys' };
    if (kind === 1) return { kind: 'too_often', afterMs: number };
    return { kind: 'taken', atMs: number === 0 ? undefined : number, next };
  }

  /** Gives the turn of a call back that got no task, unless another call has a later one by now. */
  async giveBack({ workspaceId, queue, key, everyMs = 0 }: PacedCall, next: string): Promise<void> {
    await this.#giveBack.run(this.#keys.flowPaces(workspaceId), `${throttlesOfQueue(queue)}${key}`, next, everyMs);
  }
}

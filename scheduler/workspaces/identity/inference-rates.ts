// Requests to models and their tokens that a workspace may send in a minute, counted in Redis for all replicas. A rate
// fills up evenly. A request takes its largest tokens at its begin, and is corrected at its end.
// Invariant: a Redis that does not answer delays and refuses no request.
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import type { Limits } from './workspace-limits.ts';

const WITHIN_MS = 250;

/** Answer headers that tell rates, by their names. */
export type RateHeaders = Readonly<Record<string, string>>;

export interface RateTaken {
  readonly kind: 'taken';
  readonly headers: RateHeaders;
  /** Tells the tokens that were used, once; never waits. */
  readonly used: (tokens: number) => void;
}

export interface RateLimited {
  readonly kind: 'limited';
  /** The rate that was exceeded. */
  readonly which: 'requests' | 'tokens';
  readonly retryAfterMs: number;
  readonly message: string;
  readonly headers: RateHeaders;
}

export interface InferenceRatesParts {
  /** undefined: no rate is counted. */
  readonly redis: Redis | undefined;
  readonly keys: Pick<Keys, 'inferenceRate'>;
  readonly limits: Pick<Limits, 'of'>;
  readonly onLimited: (limit: 'inference' | 'inference_tokens') => void;
}

const UNCOUNTED: RateTaken = { kind: 'taken', headers: {}, used: () => undefined };

export class InferenceRates {
  readonly #parts: InferenceRatesParts;
  readonly #script: Script | undefined;

  constructor(parts: InferenceRatesParts) {
    this.#parts = parts;
    this.#script = parts.redis && defineScript(parts.redis, 'longshoreTakeInferenceRate');
  }

  /** Counts a request. @param tokens - the most that its prompt and its answer can have */
  async take(workspaceId: WorkspaceId, tokens: number): Promise<RateTaken | RateLimited> {
    const { rate } = await this.#parts.limits.of(workspaceId);
    const limits = [rate.inference_per_minute ?? 0, rate.inference_tokens_per_minute ?? 0] as const;
    if (limits[0] === 0 && limits[1] === 0) return UNCOUNTED;
    const most = Math.max(0, Math.ceil(tokens));
    const answer = await this.#run(workspaceId, limits, 1, most);
    if (answer === undefined) return UNCOUNTED;
    const [refused = 0, waitMs = 0] = answer;
    const headers = headersOf(limits, answer);
    if (refused === 0) return { kind: 'taken', headers, used: this.#correction(workspaceId, limits, most) };
    const which = refused === 1 ? 'requests' : 'tokens';
    this.#parts.onLimited(refused === 1 ? 'inference' : 'inference_tokens');
    const bound = refused === 1 ? `${limits[0]} requests to models` : `${limits[1]} tokens of models`;
    const message = `this workspace may use ${bound} a minute: wait ${Math.max(1, Math.ceil(waitMs / 1000))} s`;
    return { kind: 'limited', which, retryAfterMs: Math.max(1, waitMs), message, headers };
  }

  /**
   * Corrects the tokens of a request that was counted earlier, perhaps by another replica. Never throws.
   * @param most - as it was counted
   */
  async correct(workspaceId: WorkspaceId, most: number, used: number): Promise<void> {
    try {
      const { rate } = await this.#parts.limits.of(workspaceId);
      const limits = [rate.inference_per_minute ?? 0, rate.inference_tokens_per_minute ?? 0] as const;
      this.#correction(workspaceId, limits, Math.max(0, Math.ceil(most)))(used);
    } catch {
      // The rate fills up by itself.
    }
  }

  #correction(workspaceId: WorkspaceId, limits: readonly [number, number], most: number): (tokens: number) => void {
    let isTold = false;
    return (tokens) => {
      if (isTold || limits[1] === 0 || !Number.isFinite(tokens)) return;
      isTold = true;
      // A request that could use more than a minute's tokens took those of a minute.
      const difference = Math.ceil(tokens) - Math.min(most, limits[1]);
      if (difference !== 0) void this.#run(workspaceId, limits, 0, difference);
    };
  }

  async #run(
    workspaceId: WorkspaceId,
    limits: readonly [number, number],
    requests: number,
    tokens: number,
  ): Promise<readonly number[] | undefined> {
    const { redis, keys } = this.#parts;
    if (this.#script === undefined || redis?.status !== 'ready') return undefined;
    const running = this.#script.run(keys.inferenceRate(workspaceId), limits[0], limits[1], requests, tokens);
    const answer = withDeadline(running, WITHIN_MS, () => new Error('redis is slow'));
    return answer.then((numbers) => numbers as readonly number[]).catch(() => undefined);
  }
}

function headersOf(limits: readonly [number, number], answer: readonly number[]): RateHeaders {
  const [, , requestsLeft = 0, tokensLeft = 0, requestsMs = 0, tokensMs = 0] = answer;
  return {
    ...(limits[0] === 0 ? {} : rateOf('requests', limits[0], requestsLeft, requestsMs)),
    ...(limits[1] === 0 ? {} : rateOf('tokens', limits[1], tokensLeft, tokensMs)),
  };
}

const rateOf = (of: 'requests' | 'tokens', limit: number, left: number, fullMs: number): RateHeaders => ({
  [`x-ratelimit-limit-${of}`]: String(limit),
  [`x-ratelimit-remaining-${of}`]: String(left),
  [`x-ratelimit-reset-${of}`]: durationText(fullMs),
});

/** A duration as clients of the API read it: `12ms`, `1.5s`, `6m0s`. @internal exported for its test */
export function durationText(ms: number): string {
  const whole = Math.max(0, Math.ceil(ms));
  if (whole < 1_000) return `${whole}ms`;
  const minutes = Math.floor(whole / 60_000);
  const seconds = Math.ceil((whole - minutes * 60_000) / 10) / 100;
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds}s`;
}

// The rates and the credits that a call of a model takes before anything reaches a model.
import type { FastifyReply } from 'fastify';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { ChargeRequest, Charging } from '../../../domain/inference.ts';
import type { InferenceRates } from '../../../workspaces/identity/inference-rates.ts';
import { InferenceError } from './errors.ts';

/**
 * Takes a call from the rates of its workspace, which every answer tells.
 * @returns is told the tokens that were used
 * @throws InferenceError `rate_limit_exceeded`
 */
export async function takeRate(
  reply: FastifyReply,
  rates: Pick<InferenceRates, 'take'>,
  workspaceId: WorkspaceId,
  tokens: number,
): Promise<(tokens: number) => void> {
  const rate = await rates.take(workspaceId, tokens);
  void reply.headers(rate.headers);
  if (rate.kind === 'taken') return rate.used;
  const headers = {
    'retry-after': String(Math.ceil(rate.retryAfterMs / 1000)),
    'retry-after-ms': String(rate.retryAfterMs),
  };
  throw new InferenceError(429, 'rate_limit_exceeded', rate.message, { type: rate.which, headers });
}

/** Holds the largest cost of a call. @throws InferenceError 402 */
export async function holdCost(charging: Pick<Charging, 'reserve'>, request: ChargeRequest): Promise<void> {
  const admitted = await charging.reserve(request);
  if (admitted.kind === 'refused') throw new InferenceError(402, admitted.code, admitted.message);
}

// `/metrics` for Prometheus: open to this host itself (where no proxy may
// stand in front), an administrator, or a caller with LONGSHORE_METRICS_TOKEN.
import { timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Registry } from '#shared/metrics.ts';
import { isLoopback, tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';

export interface MetricsPageParts {
  readonly registry: Registry;
  readonly authenticator: Authenticator;
  readonly metricsToken: string | null;
  /** Whether a request from this host itself needs no token. */
  readonly trustsLoopback: boolean;
}

export function registerMetrics(app: FastifyInstance, parts: MetricsPageParts): void {
  app.get('/metrics', async (request, reply) => {
    if (!(await mayReadMetrics(request, parts))) throw new AppError('unauthorized', 'Unauthorized');
    const text = await parts.registry.metrics();
    return reply.header('content-type', parts.registry.contentType).send(text);
  });
}

export async function mayReadMetrics(
  request: FastifyRequest,
  parts: Omit<MetricsPageParts, 'registry'>,
): Promise<boolean> {
  if (parts.trustsLoopback && isLoopback(request)) return true;
  const token = tokenOf(request.headers.authorization);
  if (token === null) return false;
  const caller = await parts.authenticator.authenticate(token);
  if (caller !== null) return caller.isAdmin;
  const { authenticator, metricsToken } = parts;
  if (metricsToken === null || metricsToken === '') {
    authenticator.refused?.(request.ip);
    return false;
  }
  authenticator.mayGuess?.(GUESSED, request.ip);
  if (isSame(token, metricsToken)) return true;
  authenticator.guessed?.(GUESSED, request.ip);
  return false;
}

/** The secret that wrong tokens here count as guesses of. */
const GUESSED = 'LONGSHORE_METRICS_TOKEN';

/** Compares in constant time. */
const isSame = (a: string, b: string): boolean => timingSafeEqual(Buffer.from(sha256Hex(a)), Buffer.from(sha256Hex(b)));

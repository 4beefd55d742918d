// `GET …/health` of an endpoint or a web application: whether this very version answers calls. Published clients wait
// for it after a deploy. Invariant: asking starts no container.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Target } from '../../../domain/stub-config.ts';
import { splitTarget } from '../streams/head.ts';
import { upgradeOf } from '../streams/upgrades.ts';
import { send } from './refusal.ts';

/** Which version answers; the header's name is the client's. */
const HEADER = 'x-beta9-stub-id';
export const HEALTH_PATH = '/health';
/** The body where calls are answered. */
export const HEALTHY = JSON.stringify({ status: 'ok' });
const STARTING = JSON.stringify({ status: 'starting' });

export interface HealthParts {
  /** Whether a container of the queue runs. */
  readonly isServed: (queue: QueueName) => boolean;
}

/** Whether a request asks for the health of a deployment whose URL begins so. */
export const asksHealth = ({ method, originalUrl, raw }: FastifyRequest, rootPath: string): boolean =>
  method === 'GET' && splitTarget(originalUrl).path === `${rootPath}${HEALTH_PATH}` && upgradeOf(raw) === undefined;

/** Names the version that answers. */
export const nameVersion = (reply: FastifyReply, { stubId }: Target): void => void reply.header(HEADER, stubId);

/**
 * Answers for the application: calls start containers where none have to run. Where some have to, the version is
 * healthy once a container runs.
 */
export function answerHealth(target: Target, reply: FastifyReply, { isServed }: HealthParts): void {
  const { minContainers } = target.scale ?? target.config.autoscaler;
  const isHealthy = minContainers === 0 || isServed(target.queue);
  nameVersion(reply, target);
  send(reply, isHealthy ? 200 : 503, isHealthy ? HEALTHY : STARTING);
}

// The time to live of a pod or sandbox.
import { PodDone, PodTtlRequest } from '#shared/api/pods.ts';
import { AppError } from '#shared/errors.ts';
import { podOperation } from './pod-operation.ts';
import type { PodParts } from './pod-operation.ts';
import type { Operation } from '../operation.ts';

export interface LifeParts extends PodParts {
  /** @param seconds - null: it is not stopped for want of use @returns false: it has ended */
  readonly setTtl: (containerId: string, seconds: number | null) => Promise<boolean>;
}

const MOST_TTL_SECONDS = 365 * 86_400;

export function lifeOperations(parts: LifeParts): readonly Operation[] {
  // A published client sends PATCH, and the published gateway has POST.
  return [
    ['SandboxUpdateTTL', 'POST /ttl'],
    ['SandboxPatchTTL', 'PATCH /ttl'],
  ].map(([name = '', route = '']) =>
    podOperation(parts, {
      name,
      route,
      request: PodTtlRequest,
      response: PodDone,
      problem: ({ ttl }) =>
        ttl === -1 || (ttl >= 1 && ttl <= MOST_TTL_SECONDS)
          ? undefined
          : `ttl must be seconds from 1 to ${MOST_TTL_SECONDS}, or -1 for no end`,
      handle: async ({ containerId }, { ttl }) => {
        if (!(await parts.setTtl(containerId, ttl === -1 ? null : ttl)))
          throw new AppError('container_not_running', `container ${containerId} has ended`);
        return {};
      },
    }),
  );
}

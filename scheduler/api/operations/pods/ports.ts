// Ports of a sandbox that callers outside may reach.
import { PodPortRequest, PodRequest, PodUrlResponse, PodUrlsResponse } from '#shared/api/pods.ts';
import { AppError } from '#shared/errors.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import { podOperation } from './pod-operation.ts';
import type { PodParts } from './pod-operation.ts';
import type { Operation } from '../operation.ts';

export interface PortParts extends PodParts {
  /** @returns false: it has as many exposed ports as it may, or has ended */
  readonly exposePort: (containerId: string, port: number) => Promise<boolean>;
  /** Ports that callers may reach, listed and exposed ones. */
  readonly portsOf: (container: ReachedContainer) => readonly number[];
  readonly urlOf: (baseUrl: string, container: ReachedContainer, port: number) => string;
}

const MOST_PORT = 65_535;

export function portOperations(parts: PortParts): readonly Operation[] {
  const { exposePort, portsOf, urlOf } = parts;
  return [
    podOperation(parts, {
      name: 'SandboxExposePort',
      route: 'POST /ports/expose',
      request: PodPortRequest,
      response: PodUrlResponse,
      problem: ({ port }) => (port >= 1 && port <= MOST_PORT ? undefined : `port must be from 1 to ${MOST_PORT}`),
      handle: async (container, { port }, { baseUrl }) => {
        if (!portsOf(container).includes(port) && !(await exposePort(container.containerId, port)))
          throw new AppError('bad_request', `port ${port}: the container has as many exposed ports as it may`);
        return { url: urlOf(baseUrl, container, port) };
      },
    }),
    podOperation(parts, {
      name: 'SandboxListUrls',
      route: 'GET /urls',
      request: PodRequest,
      response: PodUrlsResponse,
      handle: async (container, _request, { baseUrl }) => ({
        urls: Object.fromEntries(portsOf(container).map((port) => [String(port), urlOf(baseUrl, container, port)])),
      }),
    }),
  ];
}

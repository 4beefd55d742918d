// Pages by which Prometheus finds the fleet: `GET /api/v1/discovery/prometheus` lists every page there is (http_sd).
// `/metrics/machines/{id}` is a machine's page, fetched through its agent's link. Access is as for `/metrics`: this
// host itself, an administrator, or a caller with LONGSHORE_METRICS_TOKEN.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Machine } from '../../../fleet/machine.ts';
import type { MachinePages } from '../../../fleet/machine-pages.ts';
import { mayReadMetrics } from './metrics-page.ts';
import type { MetricsPageParts } from './metrics-page.ts';

export interface DiscoveryParts extends Omit<MetricsPageParts, 'registry'> {
  readonly machines: { all(): Iterable<Machine> };
  readonly pages: Pick<MachinePages, 'page'>;
  /** Addresses where the scheduler processes listen, as far as they announce them; empty when this is the only one. */
  readonly replicas: () => readonly string[];
  /** Base URL by which the requester reached this server. */
  readonly baseUrlOf: (request: FastifyRequest) => string;
  /** Scheme of the schedulers' own addresses. */
  readonly scheme: 'http' | 'https';
}

/** An entry of Prometheus' http_sd format. */
interface TargetGroup {
  readonly targets: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

export function registerDiscovery(app: FastifyInstance, parts: DiscoveryParts): void {
  const guard = async (request: FastifyRequest): Promise<void> => {
    if (!(await mayReadMetrics(request, parts))) throw new AppError('unauthorized', 'Unauthorized');
  };
  app.get('/api/v1/discovery/prometheus', async (request, reply) => {
    await guard(request);
    const groups = targetsOf(parts.baseUrlOf(request), parts.replicas(), parts.machines.all(), parts.scheme);
    return reply.header('content-type', 'application/json').send(JSON.stringify(groups));
  });
  app.get<{ Params: { id: string } }>('/metrics/machines/:id', async (request, reply) => {
    await guard(request);
    const page = await parts.pages.page(request.params.id);
    return reply.header('content-type', 'text/plain; version=0.0.4; charset=utf-8').send(page);
  });
}

/**
 * The pages of the schedulers and of every machine that has joined,
 * under the names that the rules and the dashboard use. Pure.
 */
export function targetsOf(
  baseUrl: string,
  replicas: readonly string[],
  machines: Iterable<Machine>,
  replicaScheme: 'http' | 'https' = 'http',
): readonly TargetGroup[] {
  const { host, protocol } = new URL(baseUrl);
  const scheme = protocol.replace(':', '');
  // The standard port is left out of a URL's host, and Prometheus does without it as well.
  const schedulers = replicas.length > 1 ? replicas : [host];
  const groups: TargetGroup[] = [
    {
      targets: schedulers,
      labels: { job: 'longshore-scheduler', __scheme__: replicas.length > 1 ? replicaScheme : scheme },
    },
  ];
  for (const { row, health } of machines) {
    if (health === 'PENDING' || health === 'EXPIRED') continue;
    groups.push({
      targets: [host],
      labels: {
        job: 'longshore-agent',
        instance: row.id,
        __scheme__: scheme,
        __metrics_path__: `/metrics/machines/${row.id}`,
        __meta_longshore_pool: row.poolName,
        __meta_longshore_hostname: row.hostname ?? '',
      },
    });
  }
  return groups;
}

// The providers of machines, for the administrator: what is known of each, and a check of one.
import { hostname } from 'node:os';
import { timestampOf } from '#shared/api/fields.ts';
import { PROVIDER_VERBS, ProviderCheckRecord, ProviderList } from '#shared/api/rest/providers.ts';
import type { ProviderRecord } from '#shared/api/rest/providers.ts';
import type { ProviderCheck } from '../../../fleet/provisioning/provider-checks.ts';
import type { ProviderService } from '../../../fleet/provisioning/provider-service.ts';
import type { ProviderView } from '../../../fleet/provisioning/provider-views.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

/** Longest deadline that a providers file may give, and some time to compare. */
const CHECK_WITHIN_MS = 620_000;

export interface ProviderRouteParts {
  readonly providerAdmin: ProviderService;
}

export function providerRoutes(parts: ProviderRouteParts): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /provider',
      grants: NOT_LIMITED,
      tag: 'installation',
      summary: 'Providers of machines, with their pools, machines and last calls (administrator)',
      scope: 'admin',
      answer: ProviderList,
      handle: async () => ({ data: (await parts.providerAdmin.list()).map(providerRecord), next: '' }),
    }),
    restRoute({
      http: 'POST /provider/{providerName}/check',
      tag: 'installation',
      summary: 'Run list of a provider now, and compare it with its machines; changes nothing (administrator)',
      scope: 'admin',
      withinMs: CHECK_WITHIN_MS,
      answer: ProviderCheckRecord,
      errors: ['provider_not_found'],
      handle: async ({ params }) => checkRecord(await parts.providerAdmin.check(params['providerName'] ?? '')),
    }),
  ];
}

function providerRecord(view: ProviderView): ProviderRecord {
  const listing = view.calls.find(({ listedAtMs }) => listedAtMs !== null);
  return {
    name: view.name,
    kind: view.settings === null ? null : 'command',
    known: view.settings !== null,
    program: view.settings?.command[0] ?? '',
    timeout_seconds: view.settings?.timeoutSeconds ?? 0,
    pools: view.pools.map((pool) => ({
      name: pool.name,
      workspace_id: pool.workspaceId,
      machines: pool.machines,
      back_off_until: timestampOf(pool.backOffUntilMs),
      failure: pool.failure ?? '',
    })),
    pool_count: view.poolCount,
    machines: view.machines,
    hourly_cost: view.hourlyCost,
    calls: PROVIDER_VERBS.flatMap((verb) => {
      const call = view.calls.find((one) => one.verb === verb);
      if (call === undefined) return [];
      const { calledAtMs, failure, failures } = call;
      return [{ verb, called_at: timestampOf(calledAtMs), ok: failure === null, failure: failure ?? '', failures }];
    }),
    listed_at: timestampOf(listing?.listedAtMs),
    instances: listing?.instances ?? null,
  };
}

const checkRecord = (check: ProviderCheck): ProviderCheckRecord => ({
  name: check.name,
  ok: check.problem === null,
  problem: check.problem ?? '',
  cure: check.cure,
  output: check.output,
  host: hostname(),
  took_ms: Math.round(check.tookMs),
  instances: check.instances,
  listed: check.listed.map((instance) => ({
    instance_id: instance.instanceId,
    state: instance.state,
    address: instance.address,
    hourly_cost: instance.hourlyCost,
    ends_at: timestampOf(instance.endsAtMs),
    machine_id: instance.machineId,
  })),
  missing: check.missing.map(({ machineId, poolName, instanceId }) => ({
    machine_id: machineId,
    pool_name: poolName,
    instance_id: instanceId ?? '',
  })),
});

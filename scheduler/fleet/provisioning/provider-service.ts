// Providers for the surfaces: all of them as operators see them, and a check of one. Any replica answers, from the
// database and its own file.
import type { PoolRow } from '../../stores/store/queries/pools.ts';
import type { ProviderCall } from '../../stores/store/queries/provider-calls.ts';
import { ProviderChecks } from './provider-checks.ts';
import type { ProviderCheck, ProviderChecksParts } from './provider-checks.ts';
import { providerViews } from './provider-views.ts';
import type { ProviderView } from './provider-views.ts';

export interface ProviderService {
  /** Providers that the file, a pool or a machine names, by name. */
  list(): Promise<readonly ProviderView[]>;
  /**
   * Looks at the program and calls its `list`, which takes as long as the provider's deadline.
   * @throws AppError `provider_not_found`
   */
  check(name: string): Promise<ProviderCheck>;
}

export interface ProviderServiceParts extends ProviderChecksParts {
  /** Pools that name a provider. */
  readonly pools: () => Promise<readonly PoolRow[]>;
  readonly calls: () => Promise<readonly ProviderCall[]>;
}

export function providerService(parts: ProviderServiceParts): ProviderService {
  const { providers, clock } = parts;
  const checks = new ProviderChecks(parts);
  return {
    list: async () => {
      const [pools, rows, calls] = await Promise.all([parts.pools(), parts.rows(), parts.calls()]);
      const configured = new Map(
        providers.names().flatMap((name) => {
          const settings = providers.settingsOf(name);
          return settings === undefined ? [] : [[name, settings] as const];
        }),
      );
      return providerViews({ configured, pools, rows, calls, nowMs: clock.nowMs() });
    },
    check: (name) => checks.check(name),
  };
}

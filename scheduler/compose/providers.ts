// The providers that the file of an operator names, and how operators look at them.
import { join } from 'node:path';
import type { SchedulerSettings } from '../config.ts';
import { Providers } from '../fleet/provisioning/providers.ts';
import { readProvidersFile } from '../fleet/provisioning/providers-file.ts';
import type { ProvidersFile } from '../fleet/provisioning/providers-file.ts';
import { providerService } from '../fleet/provisioning/provider-service.ts';
import type { ProviderService } from '../fleet/provisioning/provider-service.ts';
import { readRows } from '../fleet/provisioning/rows.ts';
import { poolsWithProvider } from '../stores/store/queries/pools.ts';
import { noteProviderCall, providerCalls } from '../stores/store/queries/provider-calls.ts';
import { installationTag } from '../stores/store/queries/provisioned.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface ProviderParts {
  readonly providers: Providers;
  readonly providerAdmin: ProviderService;
  /** Reads the file again; a bad file changes nothing, and is logged. */
  readonly readProvidersAgain: () => Promise<void>;
}

/** Reads the providers file before anything else is opened. @throws StartupError `bad_config` */
export async function openProvidersFile({
  LONGSHORE_PROVIDERS_FILE: path,
}: SchedulerSettings): Promise<ProvidersFile | undefined> {
  return path === undefined ? undefined : await readProvidersFile(path);
}

export function openProviders(
  { db, clock, log, settings }: Infrastructure,
  file: ProvidersFile | undefined,
): ProviderParts {
  const { LONGSHORE_PROVIDERS_FILE: path, LONGSHORE_DATA_DIR: dataDir } = settings;
  const providers = new Providers(
    {
      home: join(dataDir, 'providers'),
      env: process.env,
      log,
      onCalled: (provider, verb, failure, instances) => {
        noteProviderCall(db, { provider, verb, failure, instances, atMs: clock.nowMs() }).catch((error: unknown) =>
          log.warn({ err: error, provider }, 'the last call of a provider is not noted'),
        );
      },
    },
    file,
  );
  return {
    providers,
    providerAdmin: providerService({
      providers,
      clock,
      installationId: () => installationTag(db),
      rows: () => readRows(db, clock.nowMs()),
      pools: () => poolsWithProvider(db),
      calls: () => providerCalls(db),
    }),
    readProvidersAgain: async () => (path === undefined ? undefined : providers.readAgain(path)),
  };
}

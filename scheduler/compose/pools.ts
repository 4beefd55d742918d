// The shared pools, and the file by which an operator declares them.
import type { Part } from '#shared/lifecycle.ts';
import type { SchedulerSettings } from '../config.ts';
import { PoolDirectory } from '../fleet/pool-directory.ts';
import { readPoolsFile } from '../fleet/pools-file.ts';
import type { PoolsFile } from '../fleet/pools-file.ts';
import { Pools } from '../fleet/pools.ts';
import type { ProviderNames } from '../fleet/provisioning/provider-names.ts';
import { secondsText, SHARING_SECONDS } from '../workspaces/identity/sharing.ts';
import { SYSTEM } from '../workspaces/events/audit.ts';
import { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { RuntimeSettingParts } from './runtime-settings.ts';
import { guaranteeWarningsOf } from './shares.ts';

export interface PoolParts {
  readonly pools: Pools;
  /** Pools with a provider, as this replica knows them. */
  readonly poolDirectory: PoolDirectory;
  /** Part that declares the pools of the file. */
  readonly declaring: Part;
  /** Reads the file again; a bad file changes nothing, and is logged. */
  readonly readAgain: () => Promise<void>;
}

/** Reads the pools file before anything else is opened. @throws StartupError `bad_config` */
export async function openPoolsFile({ LONGSHORE_POOLS_FILE: path }: SchedulerSettings): Promise<PoolsFile | undefined> {
  return path === undefined ? undefined : await readPoolsFile(path);
}

export function openPools(
  infrastructure: Infrastructure,
  clusterState: ClusterState,
  file: PoolsFile | undefined,
  { writer }: Pick<Events, 'writer'>,
  identity: Pick<Identity, 'shares'>,
  { runtimeSettings, sharing }: RuntimeSettingParts,
  providers: ProviderNames,
): PoolParts {
  const { db, clock, log, keys, settings } = infrastructure;
  const { machines, bus, mostPoolsOf } = clusterState;
  const { LONGSHORE_POOLS_FILE: path } = settings;
  const poolDirectory = new PoolDirectory({ db, bus, channel: keys.poolsChannel, log });
  const pools = new Pools({
    db,
    machines,
    log,
    written: () => poolDirectory.written(),
    trail: new InstallationTrail(db, writer, () => clock.nowMs()),
    providers,
    shares: identity.shares,
    setSharing: async (said) => {
      const set = (name: string, text: string): Promise<unknown> => runtimeSettings.set(name, text, SYSTEM);
      if (said.order !== undefined && said.order !== sharing.now.order) await set('sharing_order', said.order);
      for (const [name, { part }] of Object.entries(SHARING_SECONDS)) {
        const seconds = said[part];
        if (seconds !== undefined && seconds !== sharing.now[part]) await set(name, secondsText(seconds));
      }
    },
    guaranteeWarnings: guaranteeWarningsOf(infrastructure, identity, clusterState),
    mostOf: mostPoolsOf,
  });
  return {
    pools,
    poolDirectory,
    declaring: { name: 'pools', start: async () => (file === undefined ? undefined : pools.declare(file)) },
    readAgain: async () => (path === undefined ? undefined : pools.readAgain(path)),
  };
}

// The registry that holds built images: rights of machines, their requests, and what leaves it.
import type { Part } from '#shared/lifecycle.ts';
import { Allowance } from '../fleet/registry/allowance.ts';
import { RegistryAccess } from '../fleet/registry/access.ts';
import { RegistryClient } from '../fleet/registry/client.ts';
import { RegistryMetrics } from '../fleet/registry/metrics.ts';
import { RegistryProxy } from '../fleet/registry/proxy.ts';
import { RegistrySweep } from '../fleet/registry/sweep.ts';
import { forgetDigest } from '../stores/store/queries/images.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';

const HOUR_MS = 3_600_000;

export interface RegistryParts {
  readonly registryMetrics: RegistryMetrics;
  /** Absent: LONGSHORE_REGISTRY names none, and images stay on the machines that built them. */
  readonly builtRegistry?: {
    readonly client: RegistryClient;
    readonly access: RegistryAccess;
    readonly proxy: RegistryProxy;
    readonly sweeping: Part;
  };
}

export function openRegistry(
  { db, clock, log, registry, settings }: Infrastructure,
  { installation, limits }: Pick<Identity, 'installation' | 'limits'>,
  { machines, leaderLoop }: Pick<ClusterState, 'machines' | 'leaderLoop'>,
): RegistryParts {
  const metrics = new RegistryMetrics(registry);
  if (settings.LONGSHORE_REGISTRY === undefined) return { registryMetrics: metrics };
  const client = new RegistryClient(settings.LONGSHORE_REGISTRY);
  const nowMs = (): number => clock.nowMs();
  const allowance = new Allowance({
    db,
    mostBytes: async (workspaceId) => (await limits.of(workspaceId)).bytes.images,
  });
  const access = new RegistryAccess({ db, keys: installation, machines, allowance, nowMs });
  const proxy = new RegistryProxy({
    client,
    keys: installation,
    allowance,
    isMachine: (machineId) => machines.get(machineId) !== undefined,
    onMissing: (workspaceId, digest) => {
      forgetDigest(db, workspaceId, digest).then(
        (isLost) => {
          if (isLost) log.warn({ workspaceId, digest }, 'the registry has lost a built image');
        },
        (error: unknown) => log.warn({ err: error, workspaceId, digest }, 'a lost image could not be noted'),
      );
    },
    nowMs,
    metrics,
    log,
  });
  const sweep = new RegistrySweep({ db, client, metrics, log });
  const sweeping = leaderLoop({
    name: 'registry sweep',
    everyMs: HOUR_MS,
    round: (signal) => sweep.round(signal),
    failed: 'the registry was not looked through, trying again',
  });
  return { registryMetrics: metrics, builtRegistry: { client, access, proxy, sweeping } };
}

/** Closes the connections to the registry, the scheduler's own last. */
export const closingRegistry = ({
  builtRegistry,
}: RegistryParts): { readonly name: string; stop(): Promise<void> } => ({
  name: 'registry',
  stop: async () => {
    builtRegistry?.proxy.close();
    await builtRegistry?.client.close();
  },
});

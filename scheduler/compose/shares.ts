// Sentences about shares beyond what machines have, for the surfaces and the pools file.
import { capacityByMarket, warningsOf } from '../control/placement/market-capacity.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import { cpuPoolsOf } from './placement.ts';

export function guaranteeWarningsOf(
  { settings }: Pick<Infrastructure, 'settings'>,
  { shares }: Pick<Identity, 'shares'>,
  { machines }: Pick<ClusterState, 'machines'>,
): () => Promise<readonly string[]> {
  const cpuWorkAllowed = cpuPoolsOf(settings.LONGSHORE_CPU_WORK_ON_GPU_POOLS);
  return async () => warningsOf(await shares.guaranteed(), capacityByMarket(machines, cpuWorkAllowed));
}

// Machines that providers make: the part that carries out what pools want.
import { sha256Hex } from '#shared/domain/ids.ts';
import type { JoinPlace } from '#shared/join-line.ts';
import { joinTexts } from '#shared/user-data.ts';
import { hostAddress, reachableAt } from '../api/ops/host-address.ts';
import { Releases } from '../api/ops/releases.ts';
import type { SchedulerSettings } from '../config.ts';
import { shapeOf } from '../fleet/pool-settings.ts';
import { tellProvisioned } from '../fleet/provisioning/machine-events.ts';
import { machineFactsOf } from '../fleet/provisioning/machine-facts.ts';
import { Provisioner } from '../fleet/provisioning/provisioner.ts';
import type { Providers } from '../fleet/provisioning/providers.ts';
import type { Workers } from '../fleet/workers.ts';
import { machineById } from '../stores/store/queries/machines.ts';
import { poolById } from '../stores/store/queries/pools.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LinkParts } from './links.ts';

export function openProvisioned(
  { db, clock, log, settings }: Infrastructure,
  { sealer }: Pick<Identity, 'sealer'>,
  { machines, containers, joining, fence }: ClusterState,
  workers: Workers,
  links: Pick<LinkParts['links'], 'address'>,
  { writer }: Pick<Events, 'writer'>,
  providers: Providers,
): Provisioner {
  return new Provisioner({
    db,
    clock,
    log,
    fence,
    sealer,
    providers,
    poolOf: async (id) => {
      const pool = await poolById(db, id);
      const shape = pool === undefined ? undefined : shapeOf(pool.settings);
      if (pool === undefined || shape === undefined || pool.settings.provider === null) return undefined;
      return { id, name: pool.name, workspaceId: pool.workspaceId, provider: pool.settings.provider, shape };
    },
    joining,
    workers,
    machineOf: (id) => {
      const machine = machines.get(id);
      if (machine === undefined) return undefined;
      const [placed] = containers.ofMachine(id);
      return machineFactsOf(machine, placed !== undefined, clock.monotonicMs());
    },
    isDeleted: async (id) => (await machineById(db, id)) === undefined,
    joinOf: async (token) => joinTexts(await placeOf(settings, links.address), token),
    told: tellProvisioned(db, writer, () => clock.nowMs()),
  });
}

/** Where the instances of providers get their agent, and where it dials. */
async function placeOf(settings: SchedulerSettings, agentAddress: string): Promise<JoinPlace> {
  const releases = new Releases({
    directory: settings.LONGSHORE_RELEASES_DIR,
    dataDir: settings.LONGSHORE_DATA_DIR,
    channel: settings.LONGSHORE_RELEASE_CHANNEL,
  });
  const script = await releases.installer();
  const scheme = settings.LONGSHORE_HTTP_TLS_CERT === undefined ? 'http' : 'https';
  return {
    baseUrl: settings.LONGSHORE_EXTERNAL_URL ?? `${scheme}://${reachableAt(settings.LONGSHORE_HTTP_ADDRESS)}`,
    upstream: `grpcs://${settings.LONGSHORE_EXTERNAL_AGENT_ADDRESS ?? reachableAt(agentAddress, hostAddress())}`,
    channel: '',
    scriptSha256: script === undefined ? null : sha256Hex(script),
  };
}

import type { ContainerRuntime, NetworkFacts } from '../runtime.ts';
import { EngineError, LABELS } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { statusOf, translate } from './errors.ts';

type NetworkCalls = Pick<ContainerRuntime, 'ensureNetwork' | 'lookAtNetwork' | 'removeNetwork'>;

export function networkCalls(engine: EngineClient): NetworkCalls {
  const calls: NetworkCalls = {
    async ensureNetwork(name: string): Promise<NetworkFacts> {
      const there = await calls.lookAtNetwork(name);
      if (there !== undefined) return there;
      try {
        await engine.call('create_network', () =>
          engine.docker.createNetwork({
            Name: name,
            CheckDuplicate: true,
            Driver: 'bridge',
            // Containers of different workspaces share the bridge: traffic between them is off.
            Options: { 'com.docker.network.bridge.enable_icc': 'false' },
            Labels: { [LABELS.managed]: '1' },
          }),
        );
      } catch (error) {
        // Another agent of this host created the network meanwhile.
        if (statusOf(error) !== 409) throw translate(error, `cannot create network ${name}`);
      }
      return (await calls.lookAtNetwork(name)) ?? { bridge: '', gateways: [], subnets: [] };
    },

    async lookAtNetwork(name: string): Promise<NetworkFacts | undefined> {
      let found: {
        Id?: string;
        Driver?: string;
        Options?: Record<string, string>;
        IPAM?: { Config?: { Gateway?: string; Subnet?: string }[] };
      };
      try {
        found = (await engine.call('inspect_network', () => engine.docker.getNetwork(name).inspect())) as typeof found;
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, `cannot look for network ${name}`);
      }
      if (found.Driver !== 'bridge' || found.Options?.['com.docker.network.bridge.enable_icc'] !== 'false')
        throw new EngineError(
          'refused',
          `the Docker network ${name} is not one that keeps containers apart; remove it (docker network rm ${name}), or name another in LONGSHORE_AGENT_NETWORK`,
        );
      const ranges = found.IPAM?.Config ?? [];
      return {
        bridge: found.Options['com.docker.network.bridge.name'] ?? `br-${(found.Id ?? '').slice(0, 12)}`,
        gateways: ranges.flatMap(({ Gateway }) => Gateway?.replace(/\/\d+$/, '') ?? []),
        subnets: ranges.flatMap(({ Subnet }) => Subnet ?? []),
      };
    },

    async removeNetwork(name: string): Promise<void> {
      try {
        await engine.call('remove_network', () => engine.docker.getNetwork(name).remove());
      } catch (error) {
        if (statusOf(error) !== 404 && statusOf(error) !== 403) throw translate(error, `cannot remove network ${name}`);
      }
    },
  };
  return calls;
}

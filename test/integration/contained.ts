/** A live container of the own workspace, with its credential, on a platform whose other containers find no machine. */
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import type { SimulatedAgentOptions } from '../helpers/simulated-agent.ts';
import { waitFor } from '../helpers/programs.ts';
import type { Json, Platform } from './verbs-fixture.ts';

export interface Contained {
  readonly agent: SimulatedAgent;
  readonly containerId: string;
  readonly stubId: string;
  readonly deploymentId: string;
  readonly machineId: string;
  readonly token: string;
  stop(): Promise<void>;
}

/** Containers made so far, by platform: test files share this module, and names are in kept output. */
const counts = new WeakMap<Platform, number>();

export async function aContained(
  platform: Platform,
  said: Json = {},
  options: Partial<SimulatedAgentOptions> = {},
): Promise<Contained> {
  const by = { token: platform.admin.token };
  const count = (counts.get(platform) ?? 0) + 1;
  counts.set(platform, count);
  const made = await platform.gateway('POST /machines', { poolName: `held-${count}` }, by);
  const machineId = String((made.json['machine'] as Json)['id']);
  const agent = new SimulatedAgent({
    addresses: () => [platform.agentAddress],
    ...options,
    joinToken: String(made.json['agentUpstreamToken']),
  });
  await agent.start();
  const autoscaler = { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 };
  const name = `held-${count}`;
  const { id: deploymentId, stubId } = await platform.deploy(name, { autoscaler, ...said });
  const containerId = await waitFor(
    () => agent.running.find((id) => id.includes(stubId)),
    'the container runs',
    20_000,
  );
  // The cordon keeps all other containers off the machine.
  await platform.gateway(`POST /workers/${machineId}/cordon`, {}, by);
  return {
    agent,
    containerId,
    stubId,
    deploymentId,
    machineId,
    token: agent.tokens.get(containerId) ?? '',
    stop: () => agent.stop(),
  };
}

// Many simulated machines in this process. The caller that joined them owns them; `end` closes everything.
import { randomUUID } from 'node:crypto';
import { openChannel } from '#agent/upstream/channel.ts';
import { readTrustedCa } from '#agent/upstream/trust.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type { AgentLinkClient, JoinResponse__Output } from '#shared/protocol/generated/messages.ts';
import { SimulatedAgent } from './agent.ts';

/** Traits that all machines of a fleet share. */
export interface MachineKind {
  /** Slots of each container; 64 by default. */
  readonly slots?: number;
  /** GPUs of each machine, all of one model; none by default. */
  readonly gpus?: { readonly count: number; readonly model: string };
}

export interface FleetRequest extends MachineKind {
  /** host:port of the scheduler's agent port. */
  readonly address: string;
  readonly machines: number;
  /** A new join token, of the scheduler's own. */
  readonly joinToken: () => Promise<string>;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly signal: AbortSignal;
}

/** With two streams a machine, this stays below a server's limit per connection (1,000 streams). */
const MACHINES_PER_CONNECTION = 250;
const SLOTS = 64;
/** Machines that join at the same time. */
const AT_ONCE = 16;
const JOIN_MS = 20_000;

/** Arrival of a container's start order. */
export interface Start {
  readonly containerId: string;
  readonly deploymentId: string;
  readonly atMs: number;
}

export class SimulatedFleet {
  readonly #agents: SimulatedAgent[] = [];
  readonly #clients: AgentLinkClient[] = [];
  readonly #held = new Set<string>();
  readonly #workMs = new Map<string, number>();
  #listener: ((start: Start) => void) | undefined;

  /** Joins all machines and waits until the scheduler has taken them up. @throws when one cannot */
  static async join(request: FleetRequest): Promise<SimulatedFleet> {
    const fleet = new SimulatedFleet();
    try {
      const first = parse(await request.joinToken());
      const caPem = await readTrustedCa(request.address, first.fingerprint);
      const secrets = [first.secret];
      let joined = 0;
      const joiner = async (): Promise<void> => {
        for (let number = joined++; number < request.machines; number = joined++) {
          request.signal.throwIfAborted();
          const secret = secrets.pop() ?? parse(await request.joinToken()).secret;
          await fleet.#joinOne(request, fleet.#clientFor(number, request.address, caPem), secret);
        }
      };
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, request.machines) }, joiner));
      return fleet;
    } catch (error) {
      fleet.end();
      throw error;
    }
  }

  /** Sets the listener of start orders; there is one at a time. */
  listen(listener: ((start: Start) => void) | undefined): void {
    this.#listener = listener;
  }

  /** Number of containers that the machines know of now, in any phase. */
  get containers(): number {
    return this.#agents.reduce((sum, agent) => sum + agent.containers, 0);
  }

  /** Calls of that deployment take so long from now on. */
  takes(deploymentId: string, workMs: number): void {
    this.#workMs.set(deploymentId, workMs);
  }

  /** Containers of that deployment stay in their start until they are released. */
  hold(deploymentId: string): void {
    this.#held.add(deploymentId);
  }

  release(deploymentId: string): void {
    this.#held.delete(deploymentId);
    for (const agent of this.#agents) agent.release();
  }

  end(): void {
    for (const agent of this.#agents) agent.end();
    for (const client of this.#clients) client.close();
  }

  #clientFor(number: number, address: string, caPem: string): AgentLinkClient {
    const index = Math.floor(number / MACHINES_PER_CONNECTION);
    return (this.#clients[index] ??= openChannel(address, caPem));
  }

  async #joinOne(request: FleetRequest, client: AgentLinkClient, secret: string): Promise<void> {
    const { machineId, credential } = await joinWith(client, secret);
    const { cpuMillicores, memoryBytes, slots = SLOTS, gpus } = request;
    const agent = new SimulatedAgent(
      client,
      { machineId, credential, cpuMillicores, memoryBytes, slots, gpus },
      {
        onAssigned: (containerId, deploymentId, atMs) => this.#listener?.({ containerId, deploymentId, atMs }),
        mayRun: (deploymentId) => !this.#held.has(deploymentId),
        workMs: (deploymentId) => this.#workMs.get(deploymentId) ?? 0,
      },
    );
    this.#agents.push(agent);
    await agent.ready();
  }
}

function joinWith(client: AgentLinkClient, joinToken: string): Promise<JoinResponse__Output> {
  const request = {
    joinToken,
    nonce: randomUUID(),
    machineFingerprint: randomUUID(),
    hostname: 'simulated',
    publicKey: '',
    agentVersion: 'simulated',
    protocol: PROTOCOL_VERSION,
  };
  return new Promise((resolve, reject) => {
    client.join(request, { deadline: Date.now() + JOIN_MS }, (error, answer) => {
      if (error !== null) reject(error);
      else if (answer === undefined) reject(new Error('no answer'));
      else resolve(answer);
    });
  });
}

/** `lsj1.<fingerprint>.<secret>` */
function parse(token: string): { readonly fingerprint: string; readonly secret: string } {
  const [version, fingerprint, secret] = token.split('.');
  if (version !== 'lsj1' || fingerprint === undefined || secret === undefined) throw new Error('this is no join token');
  return { fingerprint, secret };
}

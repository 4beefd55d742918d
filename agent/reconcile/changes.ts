/**
 * Changes of containers that run, by order of the scheduler: the network of a sandbox, and images of a container's
 * files. Each order is answered once. The desired state names network rules, too, so that an agent that was away gets
 * those that it missed. Must stay true: a change that fails leaves the container as it was; changes of one container
 * follow each other; rules never give way to older ones; snapshots are bounded.
 */
import { BUILD_LABEL, BUILD_STEP_LABEL, BUILD_WORKSPACE_LABEL, isBuiltImageName } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import { GPU_ACTIONS } from '#shared/domain/gpus.ts';
import type { Log } from '#shared/log.ts';
import type {
  ChangeContainer__Output,
  ContainerChanged,
  NetworkRules__Output,
} from '#shared/protocol/generated/messages.ts';
import { Limiter } from '../containers/limiter.ts';
import { choiceProblem } from '../containers/network-filter.ts';
import type { PauseContainers } from '../containers/pause-containers.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { LABELS } from '../containers/runtime.ts';
import type { Gpus } from '../devices/gpus.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentState } from './agent-state.ts';
import type { JournalEntry } from './journal.ts';

/** Orders of one container that wait for each other. */
const MOST_WAITING = 16;
/** Snapshots at once: each reads and writes what a container wrote. */
const SNAPSHOTS_AT_ONCE = 2;

export interface ContainerChangesParts {
  readonly runtime: Pick<ContainerRuntime, 'inspect' | 'image' | 'removeImage' | 'snapshot'>;
  readonly pauseContainers: Pick<PauseContainers, 'change'>;
  readonly agentState: Pick<AgentState, 'journal' | 'running' | 'specOf'>;
  readonly conditions: Pick<Conditions, 'names'>;
  readonly machineId: () => string;
  readonly gpus: Pick<Gpus, 'order'>;
  readonly answer: (changed: ContainerChanged) => void;
  readonly log: Log;
}

export class ContainerChanges {
  readonly #parts: ContainerChangesParts;
  readonly #last = new Map<string, { readonly done: Promise<void>; readonly waiting: number }>();
  readonly #snapshots = new Limiter(SNAPSHOTS_AT_ONCE);
  /** Containers that get rules of the desired state. */
  readonly #following = new Set<string>();

  constructor(parts: ContainerChangesParts) {
    this.#parts = parts;
  }

  /** Carries an order out, behind earlier ones of its container, and answers it. */
  take(order: ChangeContainer__Output): void {
    const { requestId, containerId } = order;
    if (!this.#inTurn(containerId, () => this.#carryOut(order)))
      this.#parts.answer({ requestId, error: `${MOST_WAITING} changes of the container wait`, bytes: 0 });
  }

  /** A snapshot of the desired state came: sets network rules that are newer than those in force. */
  desired(): void {
    for (const { containerId } of this.#parts.agentState.journal.all()) this.follow(containerId);
  }

  /** Likewise for one container, which may have begun to run. Rules that cannot be set wait for the next snapshot. */
  follow(containerId: string): void {
    if (this.#newerRules(containerId) === undefined || this.#following.has(containerId)) return;
    this.#following.add(containerId);
    const follow = async (): Promise<void> => {
      this.#following.delete(containerId);
      const newer = this.#newerRules(containerId);
      if (newer === undefined) return;
      const { entry, rules } = newer;
      const { log } = this.#parts;
      try {
        await this.#setNetwork(entry, rules);
        log.info({ containerId, version: rules.version }, 'the network of a sandbox follows the desired state');
      } catch (error) {
        log.warn({ err: error, containerId }, 'the network of a sandbox is not as desired, trying again');
      }
    };
    if (!this.#inTurn(containerId, follow)) this.#following.delete(containerId);
  }

  /** Rules of the desired state for a sandbox that runs; undefined: it has them. */
  #newerRules(containerId: string): { readonly entry: JournalEntry; readonly rules: NetworkRules__Output } | undefined {
    const { agentState } = this.#parts;
    const entry = agentState.journal.get(containerId);
    if (entry?.stage !== 'created' || entry.exit !== undefined || entry.kind !== 'sandbox') return undefined;
    const spec = agentState.specOf(containerId, entry.epoch);
    if (spec === undefined || spec.networkVersion <= (entry.networkVersion ?? 0)) return undefined;
    const { blockNetwork, allowList, networkVersion: version } = spec;
    return { entry, rules: { blockNetwork, allowList, version } };
  }

  /** Runs behind earlier changes of the container. @returns false: too many wait */
  #inTurn(containerId: string, change: () => Promise<void>): boolean {
    const before = this.#last.get(containerId);
    const waiting = (before?.waiting ?? 0) + 1;
    if (waiting > MOST_WAITING) return false;
    const done = (before?.done ?? Promise.resolve()).then(change);
    const last = { done, waiting };
    this.#last.set(containerId, last);
    void done.then(() => {
      if (this.#last.get(containerId) === last) this.#last.delete(containerId);
    });
    return true;
  }

  async #carryOut(order: ChangeContainer__Output): Promise<void> {
    const { answer, log } = this.#parts;
    const { requestId, containerId } = order;
    try {
      answer({ requestId, error: '', bytes: await this.#change(order) });
    } catch (error) {
      log.info({ err: error, containerId }, 'a container could not be changed');
      answer({ requestId, error: messageOf(error).slice(0, 1000), bytes: 0 });
    }
  }

  /** @returns bytes of an image that was made */
  async #change({ containerId, network, snapshot, gpu }: ChangeContainer__Output): Promise<number> {
    const { agentState, gpus } = this.#parts;
    if (gpu) {
      const action = GPU_ACTIONS.find((one) => one === gpu.action);
      if (action === undefined) throw new Error(`this agent cannot ${gpu.action} a GPU: upgrade it`);
      await gpus.order(gpu.uuid, action);
      return 0;
    }
    const container = agentState.running().find((one) => one.containerId === containerId);
    const entry = agentState.journal.get(containerId);
    if (container === undefined || entry === undefined) throw new Error('the container does not run on this machine');
    if (network) await this.#setNetwork(entry, network);
    else if (snapshot) return this.#snapshots.run(() => this.#makeImage(container.dockerId, snapshot.image));
    else throw new Error('the order names no change that this agent knows');
    return 0;
  }

  async #setNetwork({ containerId, epoch, kind }: JournalEntry, rules: NetworkRules__Output): Promise<void> {
    if (kind !== 'sandbox') throw new Error('only the network of a sandbox changes while it runs');
    const problem = choiceProblem(rules);
    if (problem !== undefined) throw new Error(problem);
    const { pauseContainers, agentState } = this.#parts;
    const inForce = agentState.journal.get(containerId)?.networkVersion ?? 0;
    if (rules.version > 0 && rules.version <= inForce) return;
    await pauseContainers.change(containerId, epoch, rules);
    // An agent that dies before the write sets them once more.
    if (rules.version > 0) await agentState.journal.change(containerId, { networkVersion: rules.version });
  }

  async #makeImage(dockerId: string, name: string): Promise<number> {
    const { runtime, conditions, machineId } = this.#parts;
    if (!isBuiltImageName(name)) throw new Error(`image ${name} is no name of a built image`);
    if (conditions.names.includes('DiskPressure')) throw new Error('the machine has too little free disk for an image');
    const labels = (await runtime.inspect(dockerId))?.labels;
    if (labels === undefined) throw new Error('the container does not run on this machine');
    if ((await runtime.image(name)) !== undefined) throw new Error(`image ${name} is there already`);
    try {
      await runtime.snapshot(dockerId, name, {
        [BUILD_LABEL]: machineId(),
        [BUILD_WORKSPACE_LABEL]: labels[LABELS.workspace] ?? '',
        [BUILD_STEP_LABEL]: '',
      });
    } catch (error) {
      // An engine that answers late may have made it.
      await runtime.removeImage(name).catch(() => undefined);
      throw error;
    }
    return (await runtime.image(name))?.bytes ?? 0;
  }
}

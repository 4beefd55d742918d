/**
 * Shared context of starts and ends: the parts they work with, and each container's data between its steps (its
 * preparation, the timer of its start, its followed output). Owned by execute.ts. Must stay true: all data of a
 * container is dropped when it is gone.
 */
import type { Log } from '#shared/log.ts';
import type { ControlFromAgent } from '#shared/protocol/generated/messages.ts';
import type { Archives } from '../code/archives.ts';
import type { Views } from '../code/views.ts';
import type { GpuDrivers } from '../containers/cdi.ts';
import type { EngineTrials } from '../containers/engine-trials.ts';
import type { PythonBase } from '../containers/python-base.ts';
import type { PauseContainers } from '../containers/pause-containers.ts';
import type { Images } from '../images/images.ts';
import type { LogPositions } from '../containers/log-positions.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { ContainerRuntime, ImageConfig, Mount } from '../containers/runtime.ts';
import type { HostFacts } from '../containers/spec.ts';
import { TOKEN_NAME } from '../containers/spec.ts';
import type { Gpus } from '../devices/gpus.ts';
import type { GatewaySockets } from '../gateway/sockets.ts';
import type { RunnerSlots } from '../slots/slots.ts';
import type { Supervisors } from '../supervisors/supervisors.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { Volumes } from '../volumes/volumes.ts';
import type { AgentState } from './agent-state.ts';
import type { JournalEntry } from './journal.ts';
import { ContainerOutput } from './output.ts';
import { StartClock } from './start-clock.ts';

export interface ExecutorParts {
  readonly runtime: ContainerRuntime;
  readonly images: Images;
  readonly pauseContainers: PauseContainers;
  readonly archives: Archives;
  readonly views: Views;
  readonly volumes: Volumes;
  readonly slots: RunnerSlots;
  readonly gateway: Pick<GatewaySockets, 'add' | 'end'>;
  readonly supervisors: Pick<Supervisors, 'add' | 'end'>;
  readonly pythonBase: Pick<PythonBase, 'mount' | 'distrust'>;
  readonly agentState: AgentState;
  readonly logs: LogBuffer;
  readonly positions: LogPositions;
  readonly metrics: AgentMetrics;
  readonly conditions: Pick<Conditions, 'set' | 'names'>;
  readonly engineTrials: Pick<EngineTrials, 'blamed'>;
  readonly log: Log;
  readonly stateDir: string;
  readonly bootId: string;
  readonly startsAtOnce: number;
  readonly host: () => HostFacts;
  readonly imageOf: (image: string, pythonVersion: string) => string;
  /** Whether an image is one of the operator's base images. */
  readonly isBaseImage: (image: string) => boolean;
  readonly send: (message: ControlFromAgent) => void;
  readonly gpus: Pick<Gpus, 'beforeLease' | 'refusal' | 'release' | 'driver'>;
  readonly gpuDrivers: Pick<GpuDrivers, 'check' | 'driverFor' | 'refused'>;
}

/** Results of a start's preparation, which needs no permission. */
export interface Prepared {
  readonly lower: string;
  /** The engine's id of the image. */
  readonly imageId: string;
  readonly config: ImageConfig;
  /** The Python of the supervisor, for pods and sandboxes. */
  readonly base: Mount | undefined;
}

export class ExecutorContext {
  readonly parts: ExecutorParts;
  readonly output: ContainerOutput;
  /** Preparations by container id and epoch. */
  readonly preparing = new Map<string, Promise<Prepared>>();
  /** Ends what a preparation waits for, by container id and epoch, when its container goes. */
  readonly needs = new Map<string, AbortController>();
  /** Containers whose sockets are open although they are not adopted yet. */
  readonly openedAhead = new Set<string>();
  readonly clock = new StartClock();
  /** Containers that survive every step of the stop ladder. */
  readonly #stuck = new Set<string>();
  readonly #timers = new Map<string, NodeJS.Timeout>();
  #closed = false;

  constructor(parts: ExecutorParts) {
    this.parts = parts;
    this.output = new ContainerOutput(parts);
  }

  /**
   * Follows the output of a container that this process did not start, unless it already does. The values of its
   * secrets are only in its environment: its lines stay held back until the engine has returned that.
   */
  resumeOutput({ containerId, secretNames }: JournalEntry, dockerId: string): void {
    const { logs, runtime, agentState } = this.parts;
    if (this.#closed || this.output.isFollowing(containerId)) return;
    logs.holdBack(containerId);
    this.output.follow(containerId, dockerId, 'resume', async (ends) => {
      const env = await runtime.environment(dockerId);
      // Another container may have the id by now, with other secrets.
      if (ends.aborted) return;
      if (env !== undefined)
        logs.hide(
          containerId,
          [...secretNames, TOKEN_NAME].map((name) => env[name] ?? ''),
        );
      else if (!agentState.isOver(dockerId)) throw new Error('the engine does not know a container that runs');
    });
  }

  setStuck(containerId: string, stuck: boolean): void {
    if (stuck) this.#stuck.add(containerId);
    else this.#stuck.delete(containerId);
    this.parts.conditions.set('StuckContainer', this.#stuck.size > 0);
  }

  /** Ends a container by the agent's own decision. */
  end(containerId: string, reason: string, graceMs: number): void {
    const { agentState } = this.parts;
    if (agentState.ending.has(containerId) || agentState.journal.get(containerId) === undefined) return;
    agentState.ending.set(containerId, { graceMs, reason });
    agentState.changed(containerId);
  }

  /** Ends the container for this reason, unless disarmed in time. */
  arm(containerId: string, ms: number, reason: string, graceMs: number): void {
    this.disarm(containerId);
    const timer = setTimeout(() => this.end(containerId, reason, graceMs), Math.min(ms, 0x7fffffff));
    timer.unref();
    this.#timers.set(containerId, timer);
  }

  disarm(containerId: string): void {
    clearTimeout(this.#timers.get(containerId));
    this.#timers.delete(containerId);
  }

  /** Leaves containers as they are: timers off, logs no longer followed. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    await this.output.close();
  }
}

/**
 * What starting and ending containers share: the parts they work with, and what is remembered of a container between its steps (its preparation, the timer of its
 * start, its followed output). Owned by execute.ts. Must stay true: whatever is remembered here is dropped when the container is gone.
 */
import type { Log } from '#shared/log.ts';
import type { ControlFromAgent } from '#shared/protocol/generated/messages.ts';
import type { Archives } from '../code/archives.ts';
import type { Views } from '../code/views.ts';
import type { GpuDrivers } from '../containers/cdi.ts';
import type { EngineTrials } from '../containers/engine-trials.ts';
import type { Holders } from '../containers/holders.ts';
import type { Images } from '../images/images.ts';
import type { LogPositions } from '../containers/log-positions.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { HostFacts } from '../containers/spec.ts';
import { TOKEN_NAME } from '../containers/spec.ts';
import type { Gpus } from '../devices/gpus.ts';
import type { GatewaySockets } from '../gateway/sockets.ts';
import type { SlotTable } from '../slots/slots.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { Volumes } from '../volumes/volumes.ts';
import type { Books } from './books.ts';
import type { JournalEntry } from './journal.ts';
import { ContainerOutput } from './output.ts';
import { StartClock } from './start-clock.ts';

export interface ExecutorParts {
  readonly runtime: ContainerRuntime;
  readonly images: Images;
  readonly holders: Holders;
  readonly archives: Archives;
  readonly views: Views;
  readonly volumes: Volumes;
  readonly slots: SlotTable;
  readonly gateway: Pick<GatewaySockets, 'add' | 'end'>;
  readonly books: Books;
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
  readonly send: (message: ControlFromAgent) => void;
  readonly onImageUsed: (image: string) => void;
  readonly gpus: Pick<Gpus, 'refusal' | 'release'>;
  readonly gpuDrivers: Pick<GpuDrivers, 'look' | 'driverFor' | 'refused'>;
  /** An assignment names a device that it cannot have: what is here is told again. */
  readonly onLeaseRefused: () => void;
}

/** What a start needs that can be made before its permission comes. */
export interface Prepared {
  readonly lower: string;
}

export class Workbench {
  readonly parts: ExecutorParts;
  readonly output: ContainerOutput;
  /** By container id and epoch. */
  readonly preparing = new Map<string, Promise<Prepared>>();
  /** Containers whose sockets are open although they are not adopted yet. */
  readonly openedAhead = new Set<string>();
  readonly clock = new StartClock();
  /** Containers that do not die. */
  readonly #stuck = new Set<string>();
  readonly #timers = new Map<string, NodeJS.Timeout>();
  #closed = false;

  constructor(parts: ExecutorParts) {
    this.parts = parts;
    this.output = new ContainerOutput(parts);
  }

  /** Follows a container that this process did not start, unless it does. The values of its secrets are in its environment, and nowhere else here: no line of it goes out before the engine has told them. */
  resumeOutput({ containerId, secretNames = [] }: JournalEntry, dockerId: string): void {
    const { logs, runtime, books } = this.parts;
    if (this.#closed || this.output.isFollowing(containerId)) return;
    logs.holdBack(containerId);
    this.output.follow(containerId, dockerId, 'resume', async (ends) => {
      const env = await runtime.environment(dockerId);
      // Another container may have the id by now, with other values.
      if (ends.aborted) return;
      if (env !== undefined)
        logs.hide(
          containerId,
          [...secretNames, TOKEN_NAME].map((name) => env[name] ?? ''),
        );
      else if (!books.isOver(dockerId)) throw new Error('the engine does not know a container that runs');
    });
  }

  setStuck(containerId: string, stuck: boolean): void {
    if (stuck) this.#stuck.add(containerId);
    else this.#stuck.delete(containerId);
    this.parts.conditions.set('StuckContainer', this.#stuck.size > 0);
  }

  /** Ends a container on the agent's own account. */
  end(containerId: string, reason: string, graceMs: number): void {
    const { books } = this.parts;
    if (books.ending.has(containerId) || books.journal.get(containerId) === undefined) return;
    books.ending.set(containerId, { graceMs, reason });
    books.changed(containerId);
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

  /** Lets containers be: timers off, logs no longer followed. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    await this.output.close();
  }
}

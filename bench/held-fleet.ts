// A scheduler with simulated machines and tasks in flight that run longer than the benchmark. Each machine is an agent
// with a connection of its own, which dials and names its attempts as the product's agent does.
import { sleep } from '#shared/backoff.ts';
import { echo, SimulatedAgent } from '../test/helpers/simulated-agent.ts';
import { ControlPlane, until } from './control-plane.ts';
import type { Figures } from './measure.ts';
import { median } from './stats.ts';
import type { SuiteContext } from './suites/suite.ts';

const JOINED_AT_ONCE = 8;
const PUT_AT_ONCE = 32;
const READY_MS = 600_000;
const BACK_MS = 300_000;
/** The longest that the event loop was late since it was asked for last: each read begins a new time. */
const LONGEST_STOP = 'nodejs_eventloop_lag_max_seconds';
const SETTINGS = { LONGSHORE_MAX_CONTAINERS: '100000' };

export interface HeldTasks {
  readonly machines: number;
  /** Number of tasks that run on each machine, all in one container. */
  readonly inFlight: number;
  readonly slots: number;
}

/** A scheduler and its machines, each with tasks that run longer than the benchmark. */
export class HeldFleet {
  readonly #plane: ControlPlane;
  readonly #agents: readonly SimulatedAgent[];
  readonly #tasks: number;
  readonly #signal: AbortSignal;

  private constructor(plane: ControlPlane, agents: readonly SimulatedAgent[], tasks: number, signal: AbortSignal) {
    this.#plane = plane;
    this.#agents = agents;
    this.#tasks = tasks;
    this.#signal = signal;
  }

  /** Returns once every task runs. @param name - of its database; lower case letters */
  static async start(
    { place, postgres }: SuiteContext,
    name: string,
    { machines, inFlight, slots }: HeldTasks,
  ): Promise<HeldFleet> {
    const { signal } = place;
    const plane = await ControlPlane.start(place, await postgres(), name, SETTINGS);
    const agents: SimulatedAgent[] = [];
    place.later(async () => void (await Promise.all(agents.map((agent) => agent.stop()))));
    await inParallel(JOINED_AT_ONCE, machines, async () => {
      signal.throwIfAborted();
      const agent = new SimulatedAgent({
        addresses: () => [plane.agentAddress],
        joinToken: await plane.joinToken(),
        handle: echo,
        memoryBytes: 8 * 1024 ** 3,
      });
      agents.push(agent);
      await agent.start();
    });
    const [app] = await plane.deploy(1, 'held', {
      stubType: 'taskqueue/deployment',
      // Memory lets one container fill a machine, because CPU is given out several times over.
      memory: 5000,
      concurrentRequests: slots,
      timeout: 3600,
      maxPendingTasks: 100_000,
      autoscaler: { type: 'queue_depth', maxContainers: machines, tasksPerContainer: slots },
    });
    if (app === undefined) throw new Error('nothing was deployed');
    await plane.scale(app, machines);
    const running = (): number => agents.filter((agent) => agent.running.length === 1).length;
    await until(
      () => `${running()} of ${machines} containers run`,
      () => running() === machines,
      READY_MS,
      signal,
    );
    const tasks = machines * inFlight;
    await inParallel(PUT_AT_ONCE, tasks, () => plane.put(app, { sleepMs: 3_600_000 }));
    const fleet = new HeldFleet(plane, agents, tasks, signal);
    await until(
      () => `${fleet.#runs()} of ${tasks} tasks run`,
      () => fleet.#runs() >= tasks,
      READY_MS,
      signal,
    );
    fleet.#mayNotRepeat();
    return fleet;
  }

  /** Restarts the scheduler, and waits until every machine takes tasks again. */
  async restart(): Promise<Figures> {
    const plane = this.#plane;
    const stoppedMs = performance.now();
    const { healthyMs } = await plane.restartUntilHealthy();
    const beforeMs = plane.cpuMs();
    await plane.metric(LONGEST_STOP);
    const isBack = ({ takesTasksSinceMs, linkedTo }: SimulatedAgent): boolean =>
      takesTasksSinceMs > stoppedMs && linkedTo === plane.agentAddress;
    const what = `${this.#agents.length} machines take tasks again`;
    await until(what, () => this.#agents.every(isBack), BACK_MS, this.#signal);
    const processor = plane.cpuMs() - beforeMs;
    const block = (await plane.metric(LONGEST_STOP)) * 1_000;
    this.#mayNotRepeat();
    const times = this.#agents.map(({ takesTasksSinceMs }) => Math.max(0, takesTasksSinceMs - healthyMs));
    return { half: median(times), all: Math.max(...times), processor, block };
  }

  /** Waits that many milliseconds. @returns the longest time in them for which the event loop stood, in milliseconds */
  async longestBlockMs(ms: number): Promise<number> {
    await this.#plane.metric(LONGEST_STOP);
    await sleep(ms, this.#signal);
    this.#signal.throwIfAborted();
    this.#mayNotRepeat();
    return (await this.#plane.metric(LONGEST_STOP)) * 1_000;
  }

  #mayNotRepeat(): void {
    if (this.#runs() > this.#tasks) throw new Error(`${this.#runs() - this.#tasks} tasks ran a second time`);
  }

  #runs(): number {
    return this.#agents.reduce((sum, agent) => sum + agent.runs.length, 0);
  }
}

async function inParallel(atOnce: number, count: number, work: () => Promise<void>): Promise<void> {
  let left = count;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      await work();
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, count) }, worker));
}

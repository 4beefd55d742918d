// `restart`: a scheduler restarts under many machines with tasks in flight. Measures from its health route's first 200
// until the last machine takes tasks again, the processor time that this takes, and the longest that the scheduler
// answered nothing. Half as many machines, with a scheduler of their own, are the baseline: what grows faster than the
// fleet shows. Each machine is an agent with a connection of its own, which dials as the product's agent does.
import { echo, SimulatedAgent } from '../../test/helpers/simulated-agent.ts';
import { ControlPlane, until } from '../control-plane.ts';
import { measureOf } from '../measure.ts';
import type { Figures } from '../measure.ts';
import { median } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { machines: 1_000, inFlight: 20 } as const;
const QUICK = { machines: 50, inFlight: 10 } as const;
const SLOTS = 32;
const JOINED_AT_ONCE = 8;
const PUT_AT_ONCE = 32;
const READY_MS = 600_000;
const BACK_MS = 300_000;
/** The longest that the event loop was late since it was asked for last. */
const LONGEST_STOP = 'nodejs_eventloop_lag_max_seconds';
const SETTINGS = { LONGSHORE_MAX_CONTAINERS: '100000' };

export async function restart(context: SuiteContext): Promise<SuiteResult> {
  const { slack } = context;
  const { machines, inFlight } = context.isQuick ? QUICK : FULL;
  const half = await Fleet.start(context, 'half', machines / 2, inFlight);
  const whole = await Fleet.start(context, 'whole', machines, inFlight);
  const rounds = await context.runRounds('restart', async () => ({
    baseline: await half.restart(),
    product: await whole.restart(),
  }));
  return {
    measures: [
      measureOf('restart', 'half', 'ms', rounds, slack),
      measureOf('restart', 'all', 'ms', rounds, slack),
      measureOf('restart', 'processor', 'ms', rounds, slack),
      measureOf('restart', 'block', 'ms', rounds, slack),
    ],
    rounds,
  };
}

/** A scheduler and its machines, each with tasks that run longer than the benchmark. */
class Fleet {
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

  static async start(
    { place, postgres }: SuiteContext,
    name: string,
    machines: number,
    inFlight: number,
  ): Promise<Fleet> {
    const { signal } = place;
    const plane = await ControlPlane.start(place, await postgres(), `restart${name}`, SETTINGS);
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
      concurrentRequests: SLOTS,
      timeout: 3600,
      maxPendingTasks: 100_000,
      autoscaler: { type: 'queue_depth', maxContainers: machines, tasksPerContainer: SLOTS },
    });
    if (app === undefined) throw new Error('nothing was deployed');
    await plane.scale(app, machines);
    const run = (): boolean => agents.every(({ running }) => running.length === 1);
    await until(`${machines} containers run`, run, READY_MS, signal);
    const tasks = machines * inFlight;
    await inParallel(PUT_AT_ONCE, tasks, () => plane.put(app, { sleepMs: 3_600_000 }));
    const fleet = new Fleet(plane, agents, tasks, signal);
    await until(`${tasks} tasks run`, () => fleet.#runs() === tasks, READY_MS, signal);
    return fleet;
  }

  /** Restarts the scheduler, and waits until every machine takes tasks again. */
  async restart(): Promise<Figures> {
    const plane = this.#plane;
    const stoppedMs = performance.now();
    const { healthyMs } = await plane.restartUntilHealthy();
    const beforeMs = plane.cpuMs();
    // Each read begins a new time.
    await plane.metric(LONGEST_STOP);
    const isBack = ({ takesTasksSinceMs, linkedTo }: SimulatedAgent): boolean =>
      takesTasksSinceMs > stoppedMs && linkedTo === plane.agentAddress;
    const what = `${this.#agents.length} machines take tasks again`;
    await until(what, () => this.#agents.every(isBack), BACK_MS, this.#signal);
    const processor = plane.cpuMs() - beforeMs;
    const block = (await plane.metric(LONGEST_STOP)) * 1_000;
    if (this.#runs() !== this.#tasks) throw new Error(`${this.#runs() - this.#tasks} tasks ran a second time`);
    const times = this.#agents.map(({ takesTasksSinceMs }) => Math.max(0, takesTasksSinceMs - healthyMs));
    return { half: median(times), all: Math.max(...times), processor, block };
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

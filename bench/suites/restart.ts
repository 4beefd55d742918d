// `restart`: a scheduler restarts under many machines with tasks in flight. Measures from
// its health route's first 200 until the last machine takes tasks again. Each machine is
// an agent with a connection of its own, which dials as the product's agent does.
import { echo, SimulatedAgent } from '../../test/helpers/simulated-agent.ts';
import { ControlPlane, until } from '../control-plane.ts';
import { measureOf } from '../measure.ts';
import { median } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { machines: 500, inFlight: 10 } as const;
const QUICK = { machines: 50, inFlight: 10 } as const;
const SLOTS = 16;
const JOINED_AT_ONCE = 8;
const PUT_AT_ONCE = 32;
const READY_MS = 300_000;
const BACK_MS = 120_000;
const SETTINGS = { LONGSHORE_MAX_CONTAINERS: '100000' };

export async function restart(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const { signal } = place;
  const { machines, inFlight } = context.isQuick ? QUICK : FULL;
  const plane = await ControlPlane.start(place, await context.postgres(), 'restart', SETTINGS);
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
  await until(
    `${machines} containers run`,
    () => agents.every(({ running }) => running.length === 1),
    READY_MS,
    signal,
  );
  const tasks = machines * inFlight;
  await inParallel(PUT_AT_ONCE, tasks, () => plane.put(app, { sleepMs: 3_600_000 }));
  const runs = (): number => agents.reduce((sum, agent) => sum + agent.runs.length, 0);
  await until(`${tasks} tasks run`, () => runs() === tasks, READY_MS, signal);
  const rounds = await context.runRounds('restart', async () => {
    const stoppedMs = performance.now();
    const { healthyMs } = await plane.restartUntilHealthy();
    const isBack = ({ takesTasksSinceMs, linkedTo }: SimulatedAgent): boolean =>
      takesTasksSinceMs > stoppedMs && linkedTo === plane.agentAddress;
    await until(`${machines} machines take tasks again`, () => agents.every(isBack), BACK_MS, signal);
    const times = agents.map(({ takesTasksSinceMs }) => Math.max(0, takesTasksSinceMs - healthyMs));
    if (runs() !== tasks) throw new Error(`${runs() - tasks} tasks ran a second time`);
    return { baseline: undefined, product: { half: median(times), all: Math.max(...times) } };
  });
  return {
    measures: [measureOf('restart', 'half', 'ms', rounds, slack), measureOf('restart', 'all', 'ms', rounds, slack)],
    rounds,
  };
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

// `reconcile`: the agent's own cost, besides Docker, of bringing a machine with 200 containers
// to its desired state. `start`: the agent starts again beside the containers; from its first
// look at the engine until each is adopted (its runner can dial, and its calls and its end are
// heard). The baseline is the engine's own part: the same list, asked for by a plain client.
// `settled`: the processor time from the process's first moment to five seconds after its connection. Container output
// is taken up in that time, a few containers at a time.
// `pass`: one round of deciding over 200 containers that are wanted, known and seen, while nothing has to change.
import { sleep } from '#shared/backoff.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import { waitFor } from '../../test/helpers/programs.ts';
import type { BenchEngine } from '../engine.ts';
import { measureOf } from '../measure.ts';
import { processorMs } from '../processes.ts';
import type { Product } from '../product.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

/** Containers of each of two deployments: one may have a hundred. */
const FULL_EACH = 100;
const QUICK_EACH = 25;
const HANDLERS = ['handler', 'few'] as const;
const STARTED_MS = 600_000;
const GONE_MS = 120_000;
/** Window in which the engine is listed at least twice, and the whole desired state is told at least once. */
const REST_MS = 35_000;
/** Time after which a restarted agent has finished that work. */
const SETTLED_MS = 5_000;

export async function reconcile(context: SuiteContext): Promise<SuiteResult> {
  const { place, isQuick, slack } = context;
  const product = await context.product();
  const each = isQuick ? QUICK_EACH : FULL_EACH;
  const wanted = each * HANDLERS.length;
  const deployments: string[] = [];
  for (const handler of HANDLERS) {
    const { deploymentId } = await product.deploy(`bench/apps/rest/app.py:${handler}`);
    await product.client.gateway('POST', `/deployments/${deploymentId}/scale`, { containers: each });
    deployments.push(deploymentId);
  }
  const running = (): Promise<true | undefined> => isRunning(product, deployments, wanted);
  await waitFor(running, `${wanted} containers run`, STARTED_MS);
  await place.engine.noteContainers();
  // The first list is thrown away.
  await plainDocker(place.engine, product.machineId);
  const adopted: number[] = [];
  const rounds = await context.runRounds('reconcile', async (isBaselineFirst) => {
    place.signal.throwIfAborted();
    const first = isBaselineFirst ? await plainDocker(place.engine, product.machineId) : undefined;
    const started = await startedAgain(product);
    adopted.push(started.containers);
    await sleep(SETTLED_MS);
    const settled = processorMs(product.pids.agent);
    const plain = first ?? (await plainDocker(place.engine, product.machineId));
    await waitFor(running, 'all of them run still', STARTED_MS);
    const pass = await restingPass(product);
    return {
      baseline: { start: plain },
      product: { start: started.durationMs, processor: started.processorMs, settled, pass },
    };
  });
  for (const deploymentId of deployments) await product.client.gateway('POST', `/deployments/${deploymentId}/stop`, {});
  const left = async (): Promise<number> =>
    (await Promise.all(deployments.map((id) => place.engine.countOfDeployment(id)))).reduce((sum, one) => sum + one);
  await waitFor(async () => ((await left()) === 0 ? true : undefined), 'all of them are gone', GONE_MS);
  const alone = rounds.map((round) => ({ ...round, baseline: undefined }));
  return {
    measures: [
      measureOf('reconcile', 'start', 'ms', rounds, slack),
      measureOf('reconcile', 'processor', 'ms', alone, slack),
      measureOf('reconcile', 'settled', 'ms', alone, slack),
      measureOf('reconcile', 'pass', 'ms', alone, slack),
    ],
    rounds,
    checks: [
      {
        suite: 'reconcile',
        name: 'every container was adopted',
        isRight: adopted.every((count) => count === wanted),
        text: `${wanted} containers; adopted: ${adopted.join(', ')}`,
      },
    ],
  };
}

async function isRunning(
  { client }: Product,
  deployments: readonly string[],
  wanted: number,
): Promise<true | undefined> {
  const { containers } = (await client.gateway('GET', '/containers')) as unknown as {
    readonly containers: readonly { readonly status: string; readonly deploymentId: string }[];
  };
  const running = containers.filter((one) => deployments.includes(one.deploymentId) && one.status === 'RUNNING');
  return running.length === wanted || undefined;
}

interface Reconciled {
  readonly containers: number;
  readonly durationMs: number;
  readonly processorMs: number;
}

/** Sends kill -9 to the agent and starts another. @returns its log line about its first rounds */
async function startedAgain(product: Product): Promise<Reconciled> {
  await product.killAgent();
  await product.restartAgent(true);
  const line = product.agentLines().find((one) => one.includes('"containers reconciled"'));
  if (line === undefined) throw new Error('the agent did not say how its containers were reconciled');
  return JSON.parse(line) as Reconciled;
}

/**
 * Times the agent's query to the engine before adoption, asked
 * by a client that ignores the answer. @returns milliseconds
 */
async function plainDocker({ client }: BenchEngine, machineId: string): Promise<number> {
  const fromMs = performance.now();
  const filters = { label: [`${LABELS.managed}=1`, `${LABELS.machine}=${machineId}`] };
  await client.listContainers({ all: true, filters });
  return performance.now() - fromMs;
}

/** @returns mean milliseconds of a round of deciding in which nothing is to be done */
async function restingPass(product: Product): Promise<number> {
  const before = await passes(product);
  await sleep(REST_MS);
  const after = await passes(product);
  if (after.count === before.count) throw new Error('the agent did not go round');
  return ((after.seconds - before.seconds) / (after.count - before.count)) * 1000;
}

async function passes({ agentMetricsAddress }: Product): Promise<{ readonly seconds: number; readonly count: number }> {
  const answer = await fetch(`http://${agentMetricsAddress}/metrics`, { signal: AbortSignal.timeout(10_000) });
  const page = await answer.text();
  const value = (name: string): number =>
    Number(
      new RegExp(`^longshore_agent_reconcile_duration_seconds_${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(page)?.[1],
    );
  return { seconds: value('sum'), count: value('count') };
}

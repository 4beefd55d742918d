// `die` (G10): the process of a container is killed from outside. Three times count from the engine's own `die` event.
// The end is seen; the replacement's first row is being written; the start order has come to the agent, which logs the
// moment. No part of the way is left out. All three times are of this machine's one clock.
import { sleep } from '#shared/backoff.ts';
import type { Explanation } from '#shared/api/explain.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import { measureOf } from '../measure.ts';
import { readyLine } from '../phases.ts';
import type { DeployedApp, Product } from '../product.ts';
import { median } from '../stats.ts';
import { waitFor } from '../../test/helpers/programs.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL_KILLS = 6;
const QUICK_KILLS = 4;
const WAIT_MS = 30_000;
/** Pause between two kills, in which the engine finishes its work on the last one. */
const SETTLE_MS = 500;

export async function die(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  const app = await product.deploy('bench/apps/kept/app.py:handler');
  await oneKill(context, product, app);
  const rounds = await context.runRounds('die', async () => {
    const seen: number[] = [];
    const decided: number[] = [];
    const ordered: number[] = [];
    for (let kill = 0; kill < (context.isQuick ? QUICK_KILLS : FULL_KILLS); kill += 1) {
      const took = await oneKill(context, product, app);
      seen.push(took.seenMs);
      decided.push(took.decidedMs);
      ordered.push(took.orderedMs);
      await sleep(SETTLE_MS, context.place.signal);
    }
    return { baseline: undefined, product: { seen: median(seen), decided: median(decided), ordered: median(ordered) } };
  });
  await product.client.gateway('POST', `/deployments/${app.deploymentId}/stop`, {});
  const { slack } = context;
  return {
    measures: [measureOf('die', 'seen', 'ms', rounds, slack), measureOf('die', 'ordered', 'ms', rounds, slack)],
    rounds,
  };
}

/** Kills the deployment's running container; both times count from the engine's event. */
async function oneKill(
  { place }: SuiteContext,
  product: Product,
  app: DeployedApp,
): Promise<{ readonly seenMs: number; readonly decidedMs: number; readonly orderedMs: number }> {
  const { signal, engine } = place;
  const running = async (): Promise<string | undefined> => {
    const { containers } = (await product.client.gateway('GET', '/containers')) as unknown as {
      containers: readonly { containerId: string; status: string; deploymentId: string }[];
    };
    return containers.find((one) => one.deploymentId === app.deploymentId && one.status === 'RUNNING')?.containerId;
  };
  signal.throwIfAborted();
  const killed = await waitFor(running, 'a container runs', WAIT_MS);
  const filters = { label: [`${LABELS.container}=${killed}`] };
  const events = await engine.client.getEvents({ filters: { ...filters, event: ['die'] } });
  let diedMs: number | undefined;
  events.on('data', (line: Buffer) => {
    const { timeNano } = JSON.parse(line.toString('utf8')) as { timeNano: number };
    diedMs ??= timeNano / 1e6;
  });
  try {
    const [info] = await engine.client.listContainers({ filters });
    const { State } = await engine.client.getContainer(info?.Id ?? '').inspect();
    process.kill(State.Pid, 'SIGKILL');
    await waitFor(() => diedMs, 'the engine says that it died', WAIT_MS);
  } finally {
    (events as unknown as { destroy(): void }).destroy();
  }
  const another = async (): Promise<string | undefined> => {
    const found = await running();
    return found === killed ? undefined : found;
  };
  const next = await waitFor(another, 'another container runs', WAIT_MS);
  const seenMs = timeOf((await explained(product, killed)).container?.ended_at) - (diedMs ?? 0);
  const { container } = await explained(product, next);
  const decidedMs = timeOf(container?.created_at) - (diedMs ?? 0);
  return { seenMs, decidedMs, orderedMs: (await orderedAtMs(product, next)) - (diedMs ?? 0) };
}

/** Time at which the agent took the start order. */
async function orderedAtMs(product: Product, containerId: string): Promise<number> {
  const said = (): ReturnType<typeof readyLine> => {
    const line = product.agentLines().find((one) => one.includes(`"${containerId}"`) && readyLine(one) !== undefined);
    return line === undefined ? undefined : readyLine(line);
  };
  const { time, durationMs } = await waitFor(said, 'the agent says that it is ready', WAIT_MS);
  return time - durationMs;
}

async function explained({ client }: Product, containerId: string): Promise<Explanation> {
  return (await client.rest(`/explain/${await client.workspaceId()}/${containerId}`)) as unknown as Explanation;
}

function timeOf(text: string | null | undefined): number {
  if (text === null || text === undefined) throw new Error('a container has no such time');
  return Date.parse(text);
}

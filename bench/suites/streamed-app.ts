// A web application on both sides, for the benchmarks of streamed calls, and the memory of the daemons that carry its
// bytes.
import { readFileSync } from 'node:fs';
import { startAsgiServer } from '../baselines/asgi-server.ts';
import type { Round } from '../measure.ts';
import type { DeployedApp, Product } from '../product.ts';
import type { WebTarget } from '../streams-client.ts';
import type { SuiteContext } from './suite.ts';

export const MIB = 1024 * 1024;

export type Daemon = keyof Product['pids'];
export const DAEMONS: readonly Daemon[] = ['scheduler', 'agent'];

export interface StreamedApp {
  readonly product: Product;
  readonly app: DeployedApp;
  /** Headers of calls by way of Longshore. */
  readonly headers: WebTarget['headers'];
  readonly ours: WebTarget;
  /** A container that serves the same application: its own address. */
  readonly direct: WebTarget;
}

/** Deploys the application, and serves it directly; `warmUp` is run on both. */
export async function streamedApp(
  context: SuiteContext,
  warmUp: (target: WebTarget) => Promise<void>,
): Promise<StreamedApp> {
  const product = await context.product();
  const headers = { authorization: `Bearer ${product.client.context.token}` };
  const app = await product.deploy('bench/apps/streams/app.py:streams');
  const ours = { url: app.url, headers };
  await warmUp(ours);
  const spec = { image: product.image, network: product.network, cpuMillicores: 1000, memoryBytes: 512 * MIB };
  const direct = { url: await startAsgiServer(context.place.engine, spec), headers: {} };
  await warmUp(direct);
  return { product, app, headers, ours, direct };
}

/** Stops warm containers, because other suites need their cores. */
export async function stopAll(product: Product, deployed: readonly DeployedApp[]): Promise<void> {
  for (const { deploymentId } of deployed) await product.client.gateway('POST', `/deployments/${deploymentId}/stop`);
}

/** Rounds whose figures have nothing to compare with. */
export const withoutBaseline = (rounds: readonly Round[]): readonly Round[] =>
  rounds.map((round) => ({ ...round, baseline: undefined }));

const SAMPLE_MS = 50;

/** The largest growth of each daemon over its memory before the work. */
export async function growthDuring<T>(
  product: Product,
  work: () => Promise<T>,
): Promise<{ readonly value: T; readonly grown: Readonly<Record<Daemon, number>> }> {
  const before = residentMib(product);
  const grown = { scheduler: 0, agent: 0 };
  const sample = (): void => {
    const now = residentMib(product);
    for (const daemon of DAEMONS) grown[daemon] = Math.max(grown[daemon], now[daemon] - before[daemon]);
  };
  const timer = setInterval(sample, SAMPLE_MS);
  try {
    const value = await work();
    sample();
    return { value, grown };
  } finally {
    clearInterval(timer);
  }
}

/** Resident memory, in MiB. */
export function residentMib({ pids }: Product): Readonly<Record<Daemon, number>> {
  const of = (pid: number): number =>
    Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
  return { scheduler: of(pids.scheduler), agent: of(pids.agent) };
}

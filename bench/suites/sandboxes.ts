// `sandboxes`: from the call that makes a sandbox to the end of its first command, one at a time and a hundred at once.
// The image is there on both sides. The baseline is Docker's own create, start and exec.
import { sleep } from '#shared/backoff.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import { numberField, textField } from '#cli/json.ts';
import { firstCommand } from '../baselines/first-command.ts';
import type { ContainerBaseline } from '../baselines/container.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import { median } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const COMMAND = ['true'] as const;
/** Sandboxes of each side in one round, one after the other. */
const ALONE = 6;
const TOGETHER = 100;
const QUICK_TOGETHER = 20;
const CPU_MILLICORES = 100;
const MEMORY_MIB = 64;
const GONE_MS = 120_000;
const POLL_MS = 50;
/** The kernel takes a network namespace apart after the engine said that the container is gone. */
const SETTLE_MS = 300;

export async function sandboxes(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  const { engine } = context.place;
  const spec: ContainerBaseline = {
    image: product.image,
    network: product.network,
    cpuMillicores: CPU_MILLICORES,
    memoryBytes: MEMORY_MIB * 1024 ** 2,
  };
  const stubId = await stubOf(product);
  const together = context.isQuick ? QUICK_TOGETHER : TOGETHER;

  const ours: Side = { begin: () => used(product, stubId), end: (ids) => ended(context, product, ids) };
  const docker: Side = {
    begin: () => firstCommand(engine, spec, COMMAND),
    end: async (ids) => {
      await Promise.all(ids.map((id) => engine.remove(id)));
      await sleep(SETTLE_MS);
    },
  };
  // The first of each side is thrown away: it makes what the machine keeps for all of them.
  for (const side of [docker, ours]) await side.end([await side.begin()]);

  const figures = async (side: Side): Promise<Figures> => {
    const alone: number[] = [];
    for (let n = 0; n < ALONE; n += 1) {
      context.place.signal.throwIfAborted();
      const startedMs = performance.now();
      const id = await side.begin();
      alone.push(performance.now() - startedMs);
      await side.end([id]);
    }
    const startedMs = performance.now();
    const ids = await Promise.all(Array.from({ length: together }, () => side.begin()));
    const all = performance.now() - startedMs;
    await side.end(ids);
    return { p50: median(alone), all };
  };
  const rounds = await context.runRounds(
    'sandboxes',
    inTurn(
      () => figures(docker),
      () => figures(ours),
    ),
  );
  return {
    measures: ['p50', 'all'].map((name) => measureOf('sandboxes', name, 'ms', rounds, context.slack)),
    rounds,
  };
}

interface Side {
  /** Makes a container and runs the command in it. @returns the container */
  readonly begin: () => Promise<string>;
  readonly end: (ids: readonly string[]) => Promise<void>;
}

async function stubOf({ client }: Product): Promise<string> {
  const made = await client.gateway('POST', '/stubs', {
    name: 'bench-sandbox',
    stubType: 'sandbox',
    pythonVersion: 'python3.11',
    cpu: CPU_MILLICORES,
    memory: MEMORY_MIB,
    keepWarmSeconds: -1,
  });
  return textField(made, 'stubId');
}

/** Makes a sandbox and runs the command in it. @returns its id */
async function used({ client }: Product, stubId: string): Promise<string> {
  const containerId = textField(await client.gateway('POST', '/pods', { stubId }), 'containerId');
  const ran = await client.gateway('POST', `/pods/${containerId}/exec`, { command: COMMAND.join(' '), wait: true });
  if (ran['done'] !== true || numberField(ran, 'exitCode') !== 0)
    throw new Error(`the command in a sandbox did not end well: ${JSON.stringify(ran).slice(0, 300)}`);
  return containerId;
}

/** Stops sandboxes, and waits until the engine has nothing of them left. */
async function ended({ place }: SuiteContext, { client }: Product, ids: readonly string[]): Promise<void> {
  await Promise.all(ids.map((id) => client.gateway('POST', `/containers/${id}/stop`, {})));
  const deadlineMs = performance.now() + GONE_MS;
  const wanted = new Set(ids);
  for (;;) {
    place.signal.throwIfAborted();
    const there = await place.engine.client.listContainers({ all: true, filters: { label: [LABELS.container] } });
    if (!there.some(({ Labels }) => wanted.has(Labels[LABELS.container] ?? ''))) break;
    if (performance.now() > deadlineMs) throw new Error(`sandboxes were not gone after ${GONE_MS / 1000} s`);
    await sleep(POLL_MS);
  }
  await sleep(SETTLE_MS);
}

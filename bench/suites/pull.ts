// `pull` (G15): many containers at once of an image that is not on the machine. Measures
// the time until the image is there, beside the engine pulling it by itself, and how often
// its bytes were fetched. The registry is the run's own, so that its log can be counted.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { sleep } from '#shared/backoff.ts';
import { packFiles } from '#cli/deploy/archive.ts';
import { uploadArchive } from '#cli/deploy/upload.ts';
import { collectFiles } from '#cli/deploy/files.ts';
import { dockerRuntime } from '#agent/containers/engine/docker.ts';
import { realRegistry } from '../../test/helpers/registry.ts';
import { waitFor } from '../../test/helpers/programs.ts';
import type { BenchEngine } from '../engine.ts';
import { measureOf } from '../measure.ts';
import type { DeployedApp, Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import { median } from '../stats.ts';
import { scaled } from './scale.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const STARTS = 10;
const FULL_PULLS = 3;
const QUICK_PULLS = 2;
const WAIT_MS = 60_000;
const SETTLE_MS = 4000;

/** A pull's time, and the blobs that the registry was asked for. */
interface Pull {
  readonly ms: number;
  readonly blobs: readonly string[];
}

export async function pull(context: SuiteContext): Promise<SuiteResult> {
  const { place, isQuick, slack } = context;
  const product = await context.product();
  const storage = join(place.directory, 'registry');
  await mkdir(storage);
  const registry = await realRegistry(storage);
  place.later(() => registry.stop());
  const image = await pushedImage(place.engine, `${registry.host}/${place.runId}:1`, product.image, place.env);
  let isUsed = true;
  place.later(async () => {
    // Containers use the image where the suite broke off. Otherwise the next suite goes on with the product.
    if (isUsed) await product.stop();
    await image.remove();
  });
  const app = await deployed(product, image.reference);

  const counted = async (work: () => Promise<number>): Promise<Pull> => {
    place.signal.throwIfAborted();
    await image.remove();
    // Cleanup after the containers before (pause containers removed and made anew) does not count for this pull.
    await sleep(SETTLE_MS, place.signal);
    const before = registry.requests().length;
    const ms = await work();
    return {
      ms,
      blobs: registry
        .requests()
        .slice(before)
        .filter((one) => one.includes('/blobs/')),
    };
  };
  const plain = (): Promise<Pull> => counted(() => image.pull());
  const ours = async (): Promise<Pull> => {
    const done = await counted(async () => {
      const fromMs = Date.now();
      await product.client.gateway('POST', `/deployments/${app.deploymentId}/scale`, { containers: STARTS });
      return (await pulledAtMs(product, image.reference, fromMs)) - fromMs;
    });
    await scaled(context, product, app, STARTS);
    await scaled(context, product, app, 0);
    return done;
  };
  // A deployment has its image pulled ahead; the first of each side is thrown away.
  await scaled(context, product, app, 1);
  await scaled(context, product, app, 0);
  await plain();
  const all: Pull[] = [];
  const several = async (one: () => Promise<Pull>): Promise<readonly Pull[]> => {
    const pulls: Pull[] = [];
    for (let count = 0; count < (isQuick ? QUICK_PULLS : FULL_PULLS); count += 1) pulls.push(await one());
    return pulls;
  };
  const rounds = await context.runRounds(
    'pull',
    inTurn(
      async () => ({ pulled: median((await several(plain)).map(({ ms }) => ms)) }),
      async () => {
        const pulls = await several(ours);
        all.push(...pulls);
        return { pulled: median(pulls.map(({ ms }) => ms)) };
      },
    ),
  );
  await product.client.gateway('POST', `/deployments/${app.deploymentId}/stop`, {});
  isUsed = false;
  // The image consists of its configuration and its layer.
  const wanted = [...new Set(all.flatMap(({ blobs }) => blobs))].toSorted();
  return {
    measures: [measureOf('pull', 'pulled', 'ms', rounds, slack)],
    rounds,
    checks: [
      {
        suite: 'pull',
        name: 'however many starts, one pull',
        isRight: wanted.length === 2 && all.every(({ blobs }) => blobs.toSorted().join() === wanted.join()),
        text: `${all.length} times ${STARTS} starts at once; requests for its two blobs in each: ${[...new Set(all.map(({ blobs }) => blobs.length))].join(', ')}`,
      },
    ],
  };
}

/** The app of `scale`, on that image. */
async function deployed({ client }: Product, imageId: string): Promise<Pick<DeployedApp, 'deploymentId'>> {
  const found = await collectFiles(fileURLToPath(new URL('../apps/scale', import.meta.url)));
  const archive = await packFiles(found);
  const objectId = await uploadArchive(client, archive, () => undefined);
  await archive.remove();
  const recipe = { stubType: 'endpoint/deployment', handler: 'app:handler', cpu: 250, memory: 64, keepWarmSeconds: 0 };
  const stub = await client.gateway('POST', '/stubs', { ...recipe, name: 'bench-pull', objectId, imageId });
  const made = await client.gateway('POST', '/stubs/deploy', { stubId: stub['stubId'] ?? '', name: 'bench-pull' });
  return { deploymentId: String(made['deploymentId']) };
}

/** Time at which the agent had the image, by its log. */
function pulledAtMs(product: Product, reference: string, fromMs: number): Promise<number> {
  const name = reference.slice(0, reference.lastIndexOf(':'));
  return waitFor(
    () => {
      for (const line of product.agentLines()) {
        if (!line.includes('"image pulled"')) continue;
        const { time, image } = JSON.parse(line) as { readonly time: string | number; readonly image: string };
        const atMs = Number(time);
        if (image.startsWith(name) && atMs >= fromMs) return atMs;
      }
      return undefined;
    },
    `the agent pulls ${reference}`,
    WAIT_MS,
  );
}

interface PushedImage {
  readonly reference: string;
  /** Pulls by the engine alone. @returns milliseconds */
  pull(): Promise<number>;
  /** Removes the image from the engine, with its layers; the registry keeps it. */
  remove(): Promise<void>;
}

/** Pushes the base image's content as one layer that no other image has. */
async function pushedImage(
  { client }: BenchEngine,
  reference: string,
  base: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<PushedImage> {
  const container = await client.createContainer({ Image: base, Cmd: ['true'] });
  try {
    await dockerRuntime(env['DOCKER_HOST']).importImage(reference, (await container.export()) as Readable);
  } finally {
    await container.remove({ force: true, v: true });
  }
  const image = client.getImage(reference);
  const { Id } = await image.inspect();
  await ended(client, await image.push({ authconfig: { auth: '' } }));
  return {
    reference,
    pull: async () => {
      const fromMs = performance.now();
      const stream = await client.createImage({ fromImage: reference });
      await ended(client, stream);
      return performance.now() - fromMs;
    },
    remove: async () => {
      // The image is removed by its id, under each name, because a pull by digest gives no tag. Short-lived containers
      // that the agent makes for itself may use it a moment longer.
      await waitFor(() => isRemoved(client, Id), 'the image can be removed', WAIT_MS);
    },
  };
}

async function isRemoved(client: BenchEngine['client'], id: string): Promise<boolean> {
  try {
    await client.getImage(id).remove({ force: true });
    return true;
  } catch (error) {
    const status = error instanceof Error && 'statusCode' in error ? error.statusCode : undefined;
    if (status !== 404 && status !== 409) throw error;
    return status === 404;
  }
}

/** Waits until the engine has finished the work that the stream reports. @throws Error with its words */
function ended({ modem }: BenchEngine['client'], stream: NodeJS.ReadableStream): Promise<void> {
  return new Promise((resolve, reject) => {
    modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)));
  });
}

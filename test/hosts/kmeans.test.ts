// A library with OpenMP inside, fitted before the fork and after it: a fork of a process with threads would hang.
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { AppRequest, Deployment, Platform } from '../helpers/platform.ts';
import { pipImage } from '../helpers/pip-image.ts';
import { TEST_LABEL, waitFor } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';

const kmeansImage = ({ client, baseImage, label }: TestDocker): Promise<string> =>
  pipImage({
    client,
    baseImage,
    repository: 'longshore-test-kmeans',
    packages: 'scikit-learn==1.5.2',
    label: [TEST_LABEL, label],
  });

interface Served {
  readonly centers: number;
  readonly at_start: number;
  readonly pid: number;
  readonly thread: number;
}

const clusters = (name: string, imageId: string, fields: Partial<AppRequest> = {}): AppRequest => ({
  app: 'clusters.py',
  handler: 'handler',
  onStart: 'load',
  name,
  imageId,
  workers: 2,
  cpu: 1000,
  memory: 1024,
  timeout: 30,
  ...fields,
});

/** Pairs of calls until two slots answered; every answer must be right. A call that hangs ends 504 and fails here. */
async function bothSlots(platform: Platform, deployment: Deployment): Promise<readonly Served[]> {
  const all: Served[] = [];
  await waitFor(
    async () => {
      const pair = [1, 2].map((seed) => platform.invoke(deployment, { seed, seconds: 0.3 }));
      for (const answer of await Promise.all(pair)) {
        expect(answer).toMatchObject({ status: 200 });
        all.push(jsonOf<Served>(answer));
      }
      return new Set(all.map((one) => one.thread)).size === 2;
    },
    'both slots answered',
    60_000,
  );
  for (const one of all) expect(one).toMatchObject({ centers: 5, at_start: 5 });
  return all;
}

describe('KMeans in on_start and in every call', () => {
  test('answers from two processes', async ({ platform }) => {
    const image = await kmeansImage(platform.engine);
    const deployment = await platform.deploy(clusters('forked', image));
    const served = await bothSlots(platform, deployment);
    expect(new Set(served.map((one) => one.pid)).size).toBe(2);
    expect(await platform.containers(deployment)).toHaveLength(1);
  });

  test('answers from two threads of one process when OMP_NUM_THREADS is 2 and worker_mode is thread', async ({
    platform,
  }) => {
    const image = await kmeansImage(platform.engine);
    const deployment = await platform.deploy(
      clusters('threaded', image, { env: ['OMP_NUM_THREADS=2'], extra: '{"workerMode":"thread"}' }),
    );
    const served = await bothSlots(platform, deployment);
    expect(new Set(served.map((one) => one.pid)).size).toBe(1);
    expect(platform.agent.log()).toContain('"mode":"thread"');
  });
});

// An installation at its bounds: more callers than may be pending, and a disk that is
// full or cannot be written. The installation refuses, with a reason, requests beyond
// a bound. Running work goes on, and all is well again as soon as there is room.
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { jsonOf, Platform, test } from '../helpers/platform.ts';
import type { Answer, AppRequest, Deployment } from '../helpers/platform.ts';
import { docker, waitFor } from '../helpers/services.ts';

interface Slept {
  readonly slept: number;
  readonly container: string;
}

const MOST_CONTAINERS = 3;
const CALLS = 300;

const slow = (name: string, fields: Partial<AppRequest> = {}): AppRequest => ({
  app: 'examples/slow/app.py',
  handler: 'handler',
  name,
  keepWarmSeconds: 2,
  autoscaler: { type: 'queue_depth', maxContainers: MOST_CONTAINERS, tasksPerContainer: 1, minContainers: 0 },
  ...fields,
});

/** Each call sleeps a time of its own, so that no answer can belong to another call. */
const secondsOf = (index: number): number => 0.02 + index / 10_000;

/**
 * Makes 300 calls at once. Meanwhile watches the number of containers,
 * and the calls that are left when the last one has been refused.
 */
async function storm(
  platform: Platform,
  deployment: Deployment,
): Promise<{
  readonly answers: readonly Answer[];
  readonly leftAtLastRefusal: number;
  readonly mostContainers: number;
}> {
  let [open, leftAtLastRefusal, mostContainers] = [CALLS, 0, 0];
  const watching = (async () => {
    while (open > 0) mostContainers = Math.max(mostContainers, (await platform.containers(deployment)).length);
  })();
  const answers = await Promise.all(
    Array.from({ length: CALLS }, async (_, index) => {
      const answer = await platform.invoke(deployment, { seconds: secondsOf(index) }).finally(() => (open -= 1));
      if (answer.status === 429) leftAtLastRefusal = open;
      return answer;
    }),
  );
  await watching;
  return { answers, leftAtLastRefusal, mostContainers };
}

function expectRight(answers: readonly Answer[]): void {
  for (const [index, answer] of answers.entries())
    if (answer.status === 200) expect(jsonOf<Slept>(answer).slept).toBe(secondsOf(index));
}

describe('300 calls at once', () => {
  test('within the bound are all answered, by as many containers as are allowed, and by none after keep-warm', async ({
    platform,
  }) => {
    const deployment = await platform.deploy(slow('within', { maxPendingTasks: 500 }));
    expect(await platform.containers(deployment)).toEqual([]);
    const { answers, mostContainers } = await storm(platform, deployment);
    expect(answers.filter((one) => one.status !== 200)).toEqual([]);
    expectRight(answers);
    expect(new Set(answers.map((one) => jsonOf<Slept>(one).container)).size).toBe(MOST_CONTAINERS);
    expect(mostContainers).toBe(MOST_CONTAINERS);
    const listed = await waitFor(async () => {
      const tasks = await platform.tasks(deployment);
      return tasks.length === CALLS && tasks.every((task) => task.status === 'COMPLETE') && tasks;
    }, 'every task is recorded COMPLETE');
    expect(new Set(listed.map((task) => task.id))).toEqual(new Set(answers.map((one) => one.taskId)));
    await platform.noContainers(deployment, 20_000);
  });

  test('against a bound of 100 are answered or refused with 429, and never are more than 100 pending', async ({
    platform,
  }) => {
    const deployment = await platform.deploy(slow('above', { maxPendingTasks: 100 }));
    const { answers, leftAtLastRefusal } = await storm(platform, deployment);
    const refused = answers.filter((one) => one.status !== 200);
    expect(new Set(refused.map((one) => `${one.status} ${one.text}`))).toEqual(
      new Set(['429 {"error":"exceeded max pending tasks: 100"}']),
    );
    expectRight(answers);
    // A hundred calls wait, and the others are refused; those served meanwhile make room for more. A call that still
    // waits once all others are refused was accepted.
    expect(answers.length - refused.length).toBeGreaterThanOrEqual(100);
    expect(leftAtLastRefusal).toBeLessThanOrEqual(100);
    const accepted = await waitFor(async () => {
      const tasks = await platform.tasks(deployment);
      return tasks.length >= CALLS - refused.length && tasks.every((task) => task.status === 'COMPLETE') && tasks;
    }, 'every accepted task is recorded COMPLETE');
    expect(accepted).toHaveLength(CALLS - refused.length);
    await platform.noContainers(deployment, 20_000);
  });
});

/** A disk of a size of our own takes a mount. */
const mayMount = process.getuid?.() === 0;
const DISK_MIB = 256;

function mount(path: string, how: string): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', `${how},size=${DISK_MIB}m,mode=0700`, 'longshore-test', path]);
}

function unmount(path: string): void {
  execFileSync('umount', ['-l', path]);
}

/** An installation whose data directory is a disk of its own, in memory. */
async function withSmallDisk(work: (platform: Platform) => Promise<void>): Promise<void> {
  const platform = new Platform(await docker());
  mount(platform.dataDir, 'rw');
  try {
    await platform.start();
    await work(platform);
  } finally {
    await platform.stop(() => unmount(platform.dataDir));
  }
}

/** Writes until not a byte more fits. */
function fill(path: string): void {
  const file = openSync(path, 'w');
  try {
    for (const size of [1024 * 1024, 4096, 1]) for (;;) writeSync(file, Buffer.alloc(size));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    closeSync(file);
  }
}

describe('a disk that is full', () => {
  test.skipIf(!mayMount)('refuses what it would have to keep, and is well again when there is room', async () => {
    await withSmallDisk(async (platform) => {
      const deployment = await platform.deploy(slow('on-a-small-disk', { keepWarmSeconds: 30 }));
      expect(await platform.invoke(deployment, { seconds: 0.01 })).toMatchObject({ status: 200 });
      const [container] = await platform.containerIds(deployment);
      const running = platform.invoke(deployment, { seconds: 6 });
      await waitFor(
        async () => (await platform.tasks(deployment)).some((task) => task.status === 'RUNNING'),
        'it runs',
      );
      const content = Buffer.alloc(300_000, 'x');
      const size = String(content.byteLength);
      const object = await platform.gateway('/objects', {
        hash: 'f'.repeat(64),
        size,
        objectMetadata: { name: 'x', size },
      });
      const upload = (): Promise<Answer> =>
        platform.call(String(object['presignedUrl']), { method: 'PUT', body: content, token: '' });
      const filler = join(platform.dataDir, 'filler');
      fill(filler);
      const before = [platform.scheduler.pid, platform.agent.pid];

      const large = await platform.invoke(deployment, { seconds: 0.01, padding: 'x'.repeat(300_000) });
      expect([large.status, jsonOf(large)]).toEqual([
        507,
        { error: 'the disk that keeps objects is full', code: 'disk_full' },
      ]);
      const refused = await upload();
      expect([refused.status, jsonOf(refused)['code']]).toEqual([507, 'disk_full']);
      // Reads and the health page need no disk.
      expect((await platform.call('/api/v1/health/live')).status).toBe(200);

      rmSync(filler);
      expect(await running).toMatchObject({ status: 200 });
      await waitFor(
        async () => (await platform.invoke(deployment, { seconds: 0.01 })).status === 200,
        'it serves again',
        20_000,
      );
      expect((await upload()).status).toBe(200);
      await platform.taskIs((await platform.invoke(deployment, { seconds: 0.01 })).taskId, 'COMPLETE');
      expect((await platform.call('/api/v1/health')).status).toBe(200);
      expect([platform.scheduler.pid, platform.agent.pid]).toEqual(before);
      expect(await platform.containerIds(deployment)).toContain(container);
      expect(platform.scheduler.log()).not.toContain('embedded redis ended');
    });
  });
});

describe('a disk that cannot be written', () => {
  test.skipIf(!mayMount)('at the start ends the scheduler with a sentence', async () => {
    const platform = new Platform(await docker());
    mount(platform.dataDir, 'ro');
    try {
      await expect(platform.startScheduler()).rejects.toThrow(
        new RegExp(
          `longshore: cannot write to the data directory ${platform.dataDir}[^\\n]*EROFS[^\\n]*LONGSHORE_DATA_DIR`,
        ),
      );
    } finally {
      await platform.stop(() => unmount(platform.dataDir));
    }
  });

  test.skipIf(!mayMount)(
    'under a running installation refuses uploads and large inputs; the rest goes on',
    async () => {
      const platform = new Platform(await docker());
      const objects = join(platform.dataDir, 'objects');
      mkdirSync(objects, { mode: 0o700 });
      mount(objects, 'rw');
      try {
        await platform.start();
        const deployment = await platform.deploy(slow('read-only', { keepWarmSeconds: 30 }));
        expect(await platform.invoke(deployment, { seconds: 0.01 })).toMatchObject({ status: 200 });
        mount(objects, 'remount,ro');
        const large = { seconds: 0.01, padding: 'x'.repeat(300_000) };
        const refused = await platform.invoke(deployment, large);
        expect([refused.status, jsonOf(refused)]).toEqual([
          503,
          { error: 'the disk that keeps objects is read-only', code: 'disk_read_only' },
        ]);
        await expect(platform.upload({ 'app.py': Buffer.from('# new') })).rejects.toThrow('disk_read_only');
        expect(await platform.invoke(deployment, { seconds: 0.01 })).toMatchObject({ status: 200 });
        mount(objects, 'remount,rw');
        await platform.upload({ 'app.py': Buffer.from('# new') });
        // The handler takes no padding, so its error proves that the call reached it.
        expect(await platform.invoke(deployment, large)).toMatchObject({ status: 422 });
      } finally {
        await platform.stop(() => unmount(objects));
      }
    },
  );
});

test('a deployment that is deleted leaves no key of its queue in Redis', async ({ platform }) => {
  const deployment = await platform.deploy(slow('short-lived', { stubType: 'taskqueue/deployment' }));
  const accepted = await platform.invoke(deployment, { seconds: 0.01 });
  await platform.taskIs(jsonOf<{ task_id: string }>(accepted).task_id, 'COMPLETE', 60_000);
  const redis = platform.redis();
  const keys = (): Promise<string[]> => redis.keys(`ls:tq-${deployment.deploymentId}:*`);
  expect(await keys()).not.toEqual([]);
  const deleted = await platform.call(`/api/v1/gateway/deployments/${deployment.deploymentId}`, { method: 'DELETE' });
  expect(jsonOf(deleted)['ok']).toBe(true);
  await platform.noContainers(deployment, 40_000);
  expect(await keys()).toEqual([]);
});

// A daemon that stands still, or dies and comes back, while one task runs and another waits. No task runs twice or is
// lost, and the container is the same one afterwards.
import { setTimeout as pass } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Answer, Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Ran {
  readonly runs: number;
  readonly container: string;
  readonly key: string;
}

/** Deploys an app whose one container serves one task at a time, and waits until the container is there. */
async function warm(platform: Platform, name: string): Promise<{ deployment: Deployment; container: string }> {
  const deployment = await platform.deploy({
    app: 'counted.py',
    handler: 'either',
    name,
    keepWarmSeconds: 120,
    timeout: 60,
  });
  const answer = await platform.invoke(deployment, { key: 'first', seconds: 0 });
  expect(answer.status).toBe(200);
  return { deployment, container: jsonOf<Ran>(answer).container };
}

async function runsOf(platform: Platform, deployment: Deployment, key: string): Promise<number> {
  return jsonOf<Ran>(await platform.invoke(deployment, { key, only_count: true })).runs;
}

/** Waits until the deployment's task runs, as its row says. @returns its id */
const running = (platform: Platform, deployment: Deployment): Promise<string> =>
  waitFor(
    async () => (await platform.tasks(deployment)).find(({ status }) => status === 'RUNNING')?.id,
    'the task runs',
    10_000,
  );

/** Runs a shell command in the deployment's one container, to its end. */
async function inContainer(platform: Platform, deployment: Deployment, command: string): Promise<void> {
  const [container] = await platform.containers(deployment);
  const exec = await platform.engine.client.getContainer(container?.Id ?? '').exec({ Cmd: ['sh', '-c', command] });
  const stream = await exec.start({});
  stream.resume();
  // An exec that has not started yet does not run either, and has no exit code.
  const code = await waitFor(async () => (await exec.inspect()).ExitCode ?? undefined, `${command} ends`, 15_000);
  expect(code).toBe(0);
}

/** A shell command that waits for a file of the container. */
const untilThere = (path: string): string =>
  `for i in $(seq 200); do test -e ${path} && exit 0; sleep 0.05; done; exit 1`;

/** Waits until the handler is in the middle of the task: its container has noted the run. */
const inHand = (platform: Platform, deployment: Deployment): Promise<void> =>
  inContainer(platform, deployment, untilThere('/tmp/ran-hand'));

/** A handler that runs until it is let go. */
const HELD = { key: 'hand', seconds: 0, held: true };

/** Releases the handler, and waits for its end. */
const letGo = (platform: Platform, deployment: Deployment): Promise<void> =>
  inContainer(platform, deployment, `touch /tmp/go-hand; ${untilThere('/tmp/over-hand')}`);

async function expectServedOnce(
  platform: Platform,
  deployment: Deployment,
  container: string,
  key: string,
): Promise<void> {
  expect(await runsOf(platform, deployment, key)).toBe(1);
  expect(await platform.containerIds(deployment)).toEqual([container]);
}

describe('an agent that stands still', () => {
  for (const seconds of [1, 10]) {
    test(`for ${seconds} s answers what was called meanwhile, each once`, async ({ platform }) => {
      const { deployment, container } = await warm(platform, `still-${seconds}`);
      const first = platform.invoke(deployment, HELD);
      await inHand(platform, deployment);
      platform.agent.freeze();
      let answered = 0;
      const second = platform.invoke(deployment, { key: 'waiting', seconds: 0 });
      for (const call of [first, second]) void call.then(() => (answered += 1));
      try {
        await letGo(platform, deployment);
        // The time itself is the subject: how long the agent stands still.
        await pass(seconds * 1000);
        expect(answered).toBe(0);
      } finally {
        platform.agent.thaw();
      }
      for (const answer of await Promise.all([first, second])) {
        expect(answer).toMatchObject({ status: 200 });
        expect(jsonOf<Ran>(answer)).toMatchObject({ runs: 1, container });
        await platform.taskIs(answer.taskId, 'COMPLETE');
      }
      await expectServedOnce(platform, deployment, container, 'hand');
    });
  }
});

describe('a scheduler that was killed', () => {
  test('adopts the task that ran, which completes and ran once', async ({ platform }) => {
    const { deployment, container } = await warm(platform, 'adopted');
    const call = platform.invoke(deployment, HELD).catch((error: unknown) => error);
    const taskId = await running(platform, deployment);
    await inHand(platform, deployment);
    await platform.scheduler.kill();
    expect(await call).toBeInstanceOf(Error);
    await platform.startScheduler();
    expect(await platform.taskIs(taskId, 'RUNNING')).toMatchObject({ container_id: container });
    await letGo(platform, deployment);
    const task = await platform.taskIs(taskId, 'COMPLETE', 20_000);
    expect(task.result).toEqual({ runs: 1, container, key: 'hand' });
    await expectServedOnce(platform, deployment, container, 'hand');
  });

  test('takes the result of a task that ended while it was away', async ({ platform }) => {
    const { deployment, container } = await warm(platform, 'ended-meanwhile');
    const call = platform.invoke(deployment, HELD).catch((error: unknown) => error);
    const taskId = await running(platform, deployment);
    await inHand(platform, deployment);
    await platform.scheduler.kill();
    expect(await call).toBeInstanceOf(Error);
    await letGo(platform, deployment);
    await platform.startScheduler();
    expect((await platform.taskIs(taskId, 'COMPLETE', 20_000)).result).toEqual({ runs: 1, container, key: 'hand' });
    await expectServedOnce(platform, deployment, container, 'hand');
  });
});

describe('an agent that was killed', () => {
  test('finds its container again, and the next call needs no other', async ({ platform }) => {
    const { deployment, container } = await warm(platform, 'found');
    await platform.agent.kill();
    const call = platform.invoke(deployment, { key: 'after', seconds: 0 });
    await platform.agent.start();
    const answer = await call;
    expect(answer).toMatchObject({ status: 200 });
    expect(jsonOf<Ran>(answer)).toEqual({ runs: 1, container, key: 'after' });
    expect(await platform.containerIds(deployment)).toEqual([container]);
  });

  test('answers the task that was in hand, which ran once', async ({ platform }) => {
    const { deployment, container } = await warm(platform, 'in-hand');
    const call = platform.invoke(deployment, HELD);
    const taskId = await running(platform, deployment);
    await inHand(platform, deployment);
    await platform.agent.kill();
    await platform.agent.start();
    await letGo(platform, deployment);
    const answer: Answer = await call;
    expect(answer).toMatchObject({ status: 200, taskId });
    expect(jsonOf<Ran>(answer)).toEqual({ runs: 1, container, key: 'hand' });
    await platform.taskIs(taskId, 'COMPLETE');
    await expectServedOnce(platform, deployment, container, 'hand');
  });

  test('takes over the result of a task that ended while it was away', async ({ platform }) => {
    const { deployment, container } = await warm(platform, 'result-kept');
    const call = platform.invoke(deployment, HELD);
    const taskId = await running(platform, deployment);
    await inHand(platform, deployment);
    await platform.agent.kill();
    await letGo(platform, deployment);
    await platform.agent.start();
    expect(await call).toMatchObject({ status: 200, taskId });
    await platform.taskIs(taskId, 'COMPLETE');
    await expectServedOnce(platform, deployment, container, 'hand');
  });
});

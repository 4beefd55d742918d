// The log of a task says how the scheduler ended it, also where no container had it.
/* oxlint-disable no-empty-pattern */
import { join } from 'node:path';
import { runCommand } from '../helpers/command-line.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface World {
  readonly set: ReplicaSet;
  readonly replica: Replica;
  readonly put: (name: string) => Promise<string>;
  readonly statusOf: (taskId: string) => Promise<string>;
  /** Output of `longshore logs --task`. */
  readonly linesOf: (taskId: string) => Promise<string>;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const set = new ReplicaSet(postgres, redis);
  onCleanup(() => set.stop());
  const replica = await set.add();
  const json = async (path: string, body?: unknown): Promise<Readonly<Record<string, unknown>>> =>
    JSON.parse((await set.call(replica, path, body === undefined ? {} : { body })).text) as Readonly<
      Record<string, unknown>
    >;
  return {
    set,
    replica,
    put: async (name) => String((await json(`/taskqueue/${name}`, {}))['task_id']),
    statusOf: async (taskId) => String((await json(`/api/v1/task/${set.workspaceId}/${taskId}`))['status']),
    linesOf: async (taskId) => {
      const ended = await runCommand(['logs', '--task', taskId], {
        LONGSHORE_URL: replica.url,
        LONGSHORE_TOKEN: set.token,
        LONGSHORE_CONTEXT_FILE: join(set.directory, 'contexts.json'),
      });
      return ended.stdout;
    },
  };
});

test('that it expired, was cancelled, or lost its deployment', async ({ world }) => {
  const { set, replica, put, statusOf, linesOf } = world;
  await set.deploy(replica, 'late', {
    stubType: 'taskqueue/deployment',
    taskPolicy: { timeout: 0, maxRetries: 0, ttl: 1 },
  });
  const late = await put('late');
  await waitFor(async () => (await statusOf(late)) === 'EXPIRED', 'the task expires', 30_000);
  const unborn = await put('late');
  await set.gateway(replica, '/tasks/stop', { taskIds: [unborn] });
  await set.agent({
    handle: ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', () => resolve('{}'))),
  });
  const running = async (name: string): Promise<string> => {
    const taskId = await put(name);
    await waitFor(async () => (await statusOf(taskId)) === 'RUNNING', 'the task runs', 30_000);
    return taskId;
  };
  await set.deploy(replica, 'slow', { stubType: 'taskqueue/deployment' });
  const cancelled = await running('slow');
  await set.gateway(replica, '/tasks/stop', { taskIds: [cancelled] });
  const { deploymentId } = await set.deploy(replica, 'gone', { stubType: 'taskqueue/deployment' });
  const orphan = await running('gone');
  await set.call(replica, `/api/v1/gateway/deployments/${deploymentId}`, { method: 'DELETE' });
  for (const [taskId, says] of [
    [late, 'longshore: the task expired before a container took it (EXPIRED)'],
    [unborn, 'longshore: the task was cancelled (CANCELLED)'],
    [cancelled, 'longshore: the task was cancelled (CANCELLED)'],
    [orphan, 'longshore: the task was cancelled: its deployment was deleted (CANCELLED)'],
  ] as const)
    await waitFor(
      async () => {
        const lines = await linesOf(taskId);
        if (lines.split(says).length > 2) throw new Error(lines);
        return lines.includes(says) ? lines : undefined;
      },
      says,
      15_000,
    );
});

// Handlers of each kind that end their own process while another call waits, on a real scheduler, agent and engine. The
// end is that call's failure alone: its answer, its record and its log name it, and the call that waits is served next.
import { expect } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Answer, Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

/** A start takes about a second; the shortest wait of a breaker is a minute. */
const SOON_MS = 20_000;

const ENDS: readonly { readonly how: string; readonly error: string }[] = [
  { how: 'exit', error: 'process exited (code 9)' },
  { how: 'kill', error: 'process exited (code 137)' },
  { how: 'sys.exit', error: 'process exited (code 1)' },
  { how: 'memory', error: 'process ran out of memory' },
];

interface Kind {
  readonly app: { readonly handler: string } & Record<string, unknown>;
  /** Calls it; undefined: a call that is well. Asynchronous kinds answer before the handler runs. */
  readonly call: (platform: Platform, deployment: Deployment, how: string | undefined) => Promise<Answer>;
}

const byBody: Kind['call'] = (platform, deployment, how) =>
  platform.invoke(deployment, how === undefined ? {} : { how, seconds: 1 });

const KINDS: Readonly<Record<string, Kind>> = {
  endpoint: { app: { handler: 'may_die' }, call: byBody },
  'endpoint of two processes': { app: { handler: 'may_die', workers: 2, maxContainers: 1 }, call: byBody },
  function: { app: { handler: 'may_die', stubType: 'function/deployment' }, call: byBody },
  schedule: {
    app: { handler: 'may_die', stubType: 'schedule/deployment', extra: '{"when":"0 0 1 1 *"}' },
    call: byBody,
  },
  asgi: {
    app: { handler: 'site', stubType: 'asgi/deployment' },
    call: (platform, deployment, how) => platform.call(`${deployment.url}/?${how ?? ''}`),
  },
};

/** The answer of a call, or of its task where nobody waited for it. */
async function ended(platform: Platform, answer: Answer): Promise<{ taskId: string; status: number; text: string }> {
  const taskId = answer.taskId || jsonOf<{ task_id: string }>(answer).task_id;
  const isBegun = answer.text.includes('"task_id"');
  if (!isBegun) return { taskId, status: answer.status, text: answer.text };
  const task = await waitFor(
    async () => {
      const one = await platform.task(taskId);
      return /^(?:COMPLETE|ERROR)$/.test(one.status) && one;
    },
    `task ${taskId} ends`,
    SOON_MS,
  );
  return { taskId, status: task.status === 'COMPLETE' ? 200 : 500, text: JSON.stringify(task.result) };
}

test.for(Object.keys(KINDS))(
  'a handler that ends its process fails its own call alone: %s',
  async (name, { platform }) => {
    const { app, call } = KINDS[name] as Kind;
    const deployment = await platform.deploy({ app: 'failing.py', name: `ends-${name.replaceAll(' ', '-')}`, ...app });
    for (const { how, error } of ENDS) {
      const deadly = call(platform, deployment, how);
      await waitFor(
        async () => (await platform.tasks(deployment)).some((task) => task.status === 'RUNNING'),
        'it runs',
        SOON_MS,
      );
      const began = performance.now();
      const waiting = call(platform, deployment, undefined);
      const { taskId, status, text } = await ended(platform, await deadly);
      expect([how, status, JSON.parse(text)]).toEqual([how, 500, { error }]);
      expect(await ended(platform, await waiting)).toMatchObject({ status: 200 });
      expect(performance.now() - began).toBeLessThan(SOON_MS);
      expect(await platform.taskIs(taskId, 'ERROR')).toMatchObject({
        failure_reason: 'process_exited',
        result: { error },
      });
      await platform.logSays(`task_id=${taskId}`, `longshore: ${error}`);
      const explained = await platform.call(`/api/v1/explain/${platform.workspaceId}/${deployment.deploymentId}`);
      expect(jsonOf<Explanation>(explained).scaling?.breaker).toMatchObject({ phase: 'closed', failures: 0 });
    }
    await platform.gateway(`/deployments/${deployment.deploymentId}/stop`, {});
    await platform.noContainers(deployment, 30_000);
  },
);

test('an application that ends its process within its response breaks that response off alone', async ({
  platform,
}) => {
  const deployment = await platform.deploy({
    app: 'failing.py',
    handler: 'site',
    name: 'ends-begun',
    stubType: 'asgi/deployment',
  });
  const headers = { authorization: `Bearer ${platform.token}` };
  const broken = await fetch(new URL(`${deployment.url}/?exit,begun`, platform.url), { headers });
  const taskId = broken.headers.get('x-task-id') ?? '';
  expect(broken.status).toBe(200);
  const waiting = platform.call(`${deployment.url}/`);
  await expect(broken.text()).rejects.toThrow();
  expect(await waiting).toMatchObject({ status: 200 });
  await platform.taskIs(taskId, 'ERROR');
  await platform.logSays(`task_id=${taskId}`, 'longshore: process exited (code 9)');
});

// Every mistake of a handler, an app or a caller. Checked are the caller's answer, the end of the task, the words in
// the log, and a healthy installation afterwards.
import { request } from 'node:http';
import { afterEach, describe, expect } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import { jsonOf, test } from '../helpers/platform.ts';
import type { AppRequest, Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

/** A healthy deployment, made once for the file. */
let hello: Promise<Deployment> | undefined;

async function expectHealthy(platform: Platform): Promise<Deployment> {
  hello ??= platform.deploy({ app: 'failing.py', handler: 'hello', name: 'hello', keepWarmSeconds: 300 });
  const answer = await platform.invoke(await hello, { name: 'Ada' });
  expect(answer).toMatchObject({ status: 200, text: '{"greeting":"Hello, Ada!"}' });
  return hello;
}

afterEach<{ platform: Platform }>(async ({ platform }) => void (await expectHealthy(platform)));

const failing = (handler: string, fields: Partial<AppRequest> = {}): AppRequest => ({
  app: 'failing.py',
  handler,
  name: handler.replaceAll('_', '-'),
  keepWarmSeconds: 2,
  ...fields,
});

const explained = async (platform: Platform, { deploymentId }: Deployment): Promise<Explanation> =>
  jsonOf<Explanation>(await platform.call(`/api/v1/explain/${platform.workspaceId}/${deploymentId}`));

describe('a handler that fails', () => {
  const table: readonly {
    readonly what: string;
    readonly app: AppRequest;
    readonly error: string;
    readonly log: string;
  }[] = [
    {
      what: 'raises',
      app: failing('raises'),
      error: "KeyError: 'x'",
      log: 'return {}[key]',
    },
    {
      what: 'returns NaN',
      app: failing('not_a_number'),
      error:
        'ValueError: the handler returned a value that is not JSON: Out of range float values are not JSON compliant; put None in the place of NaN and infinity',
      log: 'Out of range float values',
    },
    {
      what: 'returns an object that is not JSON',
      app: failing('an_object'),
      error:
        'TypeError: the handler returned a value that is not JSON: Object of type object is not JSON serializable; return dictionaries, lists, texts, numbers, booleans and None',
      log: 'not JSON serializable',
    },
    {
      what: 'ends its process',
      app: failing('hard_exit'),
      error: 'process exited (code 3)',
      log: 'process exited (code 3)',
    },
    {
      what: 'calls sys.exit',
      app: failing('soft_exit'),
      error: 'process exited (code 3)',
      log: 'process exited (code 3)',
    },
    {
      what: 'ends its process, one of two',
      app: failing('hard_exit', { name: 'hard-exit-of-two', workers: 2 }),
      error: 'process exited (code 3)',
      log: 'ended with code 3; starting it again',
    },
    {
      what: 'takes more memory than it has',
      app: failing('eats_memory'),
      error: 'process ran out of memory',
      log: 'out of memory',
    },
  ];
  for (const { what, app, error, log } of table) {
    test(`because it ${what} is answered 500 with the reason, and its task is ERROR`, async ({ platform }) => {
      const deployment = await platform.deploy(app);
      const answer = await platform.invoke(deployment);
      expect([answer.status, jsonOf(answer)]).toEqual([500, { error }]);
      const task = await platform.taskIs(answer.taskId, 'ERROR');
      // The command line refers people to this log for the reason.
      await platform.logSays(`container_id=${task.container_id}`, log);
      // The next call is served as well as the first.
      const again = await platform.invoke(deployment);
      expect([again.status, jsonOf(again)]).toEqual([500, { error }]);
    });
  }

  test('has the output of its child processes under its task, in its place, also where it ends its process', async ({
    platform,
  }) => {
    for (const workers of [1, 2]) {
      const deployment = await platform.deploy(failing('children', { name: `children-${workers}`, workers }));
      for (const dies of [false, true]) {
        const { status, taskId } = await platform.invoke(deployment, { dies });
        expect(status).toBe(dies ? 500 : 200);
        await platform.logSays(`task_id=${taskId}`, 'errors of the child');
        const lines = await platform.logs(`task_id=${taskId}`);
        expect(dies ? lines.slice(0, 3) : lines).toEqual(['a print', 'from the child', 'errors of the child']);
      }
    }
  });

  test('is named by the explanation of its deployment, whatever its kind', async ({ platform }) => {
    const kinds: readonly { readonly app: AppRequest; readonly path?: string; readonly error: string }[] = [
      { app: failing('raises', { name: 'failing-endpoint' }), error: "KeyError: 'x'" },
      { app: failing('raises', { name: 'failing-function', stubType: 'function/deployment' }), error: "KeyError: 'x'" },
      { app: failing('raises', { name: 'failing-queue', stubType: 'taskqueue/deployment' }), error: "KeyError: 'x'" },
      {
        app: failing('raises', {
          name: 'failing-schedule',
          stubType: 'schedule/deployment',
          extra: '{"when":"* * * * * *"}',
        }),
        error: "KeyError: 'x'",
      },
      {
        app: { app: 'web.py', handler: 'app', name: 'failing-asgi', stubType: 'asgi/deployment', keepWarmSeconds: 2 },
        path: '/fail',
        error: 'ValueError: before the response',
      },
    ];
    const check = async ({ app, path = '', error }: (typeof kinds)[number]): Promise<void> => {
      const deployment = await platform.deploy(app);
      if (app['extra'] === undefined) await platform.call(`${deployment.url}${path}`, { method: 'POST', body: {} });
      const found = await waitFor(
        async () => {
          const one = await explained(platform, deployment);
          return one.state === 'FAILING' && one;
        },
        `${app.name} is FAILING`,
        90_000,
      );
      expect(found.summary).toMatch(/ is FAILING: the last (call|\d+ calls) failed; /);
      expect(found.details).toContainEqual(
        expect.stringMatching(new RegExp(`^task .* failed at .* \\(handler_error\\): ${error}$`)),
      );
      expect(found.next_steps).toContain(
        `\`longshore task list --deployment ${app.name} --status ERROR,TIMEOUT,EXPIRED\` lists calls that failed`,
      );
      await platform.gateway(`/deployments/${deployment.deploymentId}/stop`, {});
    };
    await Promise.all(kinds.map(check));
  });

  test('may tell callers its traceback', async ({ platform }) => {
    const deployment = await platform.deploy(failing('raises', { name: 'tells', extra: '{"tracebacks":true}' }));
    const answer = await platform.invoke(deployment);
    expect(answer.status).toBe(500);
    expect(jsonOf<{ error: string }>(answer).error).toMatch(/^KeyError: 'x'\n[^]*Traceback[^]*return \{\}\[key\]/);
  });

  test('because it never returns is answered 504, killed, and the next call is served', async ({ platform }) => {
    const deployment = await platform.deploy(failing('never_returns', { timeout: 1 }));
    const answer = await platform.invoke(deployment);
    expect(answer).toMatchObject({ status: 504, text: '{"error":"task ran longer than its limit of 1 s"}' });
    await platform.taskIs(answer.taskId, 'TIMEOUT');
    expect(await platform.invoke(deployment, { spin: false })).toMatchObject({ status: 200 });
  });
});

describe('a start that fails', () => {
  const table: readonly { readonly what: string; readonly app: AppRequest; readonly says: string }[] = [
    {
      what: 'on_start raises',
      app: failing('hello', { name: 'bad-start', onStart: 'bad_start' }),
      says: 'RuntimeError: the model is not there',
    },
    {
      what: 'on_start ends the process',
      app: failing('hello', { name: 'dying-start', onStart: 'dying_start' }),
      says: 'code 7',
    },
    {
      what: 'the import fails',
      app: { app: 'unimportable.py', handler: 'handler', name: 'unimportable' },
      says: "ModuleNotFoundError: No module named 'a_library_that_nobody_has'",
    },
    {
      what: 'the handler is not there',
      app: failing('nobody_wrote_this'),
      says: 'nobody_wrote_this',
    },
    {
      what: 'the image is not there',
      app: failing('hello', { name: 'no-image', imageId: '127.0.0.1:9/nobody/has-this:1' }),
      says: '127.0.0.1:9/nobody/has-this:1',
    },
  ];
  for (const { what, app, says } of table) {
    // The image that is not there is asked for again and again for some 15 s. The others have their turn meanwhile.
    test.concurrent(`because ${what} is told to who waits, with status 500, and the task is ERROR`, async ({
      platform,
    }) => {
      const deployment = await platform.deploy(app);
      const answer = await platform.invoke(deployment);
      expect(answer.status).toBe(500);
      expect(jsonOf<{ error: string }>(answer).error).toContain(says);
      const task = await platform.taskIs(answer.taskId, 'ERROR');
      expect(task.failure_reason).toBe('start_failed');
      await platform.logSays(`container_id=${task.container_id}`, says);
      const { state, details, deployment: shown } = await explained(platform, deployment);
      expect(state).not.toBe('IDLE');
      expect(details.join('\n')).toContain('the last call failed');
      expect([shown?.calls?.last_failed, shown?.calls?.last_error]).toEqual([
        answer.taskId,
        expect.stringContaining(says),
      ]);
      await platform.noContainers(deployment, 30_000);
    });
  }

  test('gives strangers its last line alone', async ({ platform }) => {
    const open = { app: 'unimportable.py', handler: 'handler', name: 'open-unimportable', authorized: false };
    const { url } = await platform.deploy(open);
    const answer = await fetch(url, { method: 'POST', body: '{}' });
    expect(answer.status).toBe(500);
    expect(await answer.json()).toEqual({ error: "ModuleNotFoundError: No module named 'a_library_that_nobody_has'" });
  });
});

describe('a call that cannot be made', () => {
  test('is refused with the reference text, and leaves no task', async ({ platform }) => {
    const deployment = await platform.deploy(failing('hello', { name: 'refusing' }));
    const to = async (path: string, body: unknown, token?: string) => {
      const options = token === undefined ? {} : { token };
      const { status, text } = await platform.call(path, { method: 'POST', body, ...options });
      return `${status} ${text}`;
    };
    expect(await to('/endpoint/refusing', {}, '')).toBe('401 {"message":"Unauthorized"}');
    expect(await to('/endpoint/refusing', {}, 'eyJhbGciOiJIUzI1NiJ9.e30.x')).toBe('401 {"message":"Unauthorized"}');
    expect(await to('/endpoint/nobody', {})).toBe('400 {"message":"Invalid deployment"}');
    expect(await to('/endpoint/refusing/v9', {})).toBe('400 {"message":"Invalid deployment"}');
    expect(await to('/endpoint/refusing/vx', {})).toBe('400 {"message":"Invalid deployment version"}');
    expect(await to('/endpoint/id/00000000-0000-4000-8000-000000000000', {})).toBe('400 {"message":"Invalid stub"}');
    for (const body of ['[1]', '"text"', '{"a":', 'name=Ada', '\u00ff{'])
      expect(await to('/endpoint/refusing', body)).toMatch(/^400 \{"error":"invalid request payload","detail":"[^"]+/);
    const { taskId } = await platform.invoke(deployment);
    await platform.taskIs(taskId, 'COMPLETE');
    const listed = await waitFor(async () => {
      const tasks = await platform.tasks(deployment);
      return tasks.length > 0 && tasks;
    }, 'the list has the one call that was made');
    expect(listed.map((task) => task.id)).toEqual([taskId]);
  });

  test('with a body that is too large is answered 413 naming the limit', async ({ platform }) => {
    await expectHealthy(platform);
    const limit = 16 * 1024 ** 2;
    const body = `{"name":"${'x'.repeat(limit)}"}`;
    // The refusal comes before the body is read: a client that is still writing may lose the connection first.
    const answer = await waitFor(
      () => platform.call('/endpoint/hello', { method: 'POST', body }).catch(() => undefined),
      'the refusal',
    );
    expect(answer.status).toBe(413);
    expect(jsonOf<{ error: string }>(answer).error).toContain(String(limit));
  });

  test('may carry a large body, and be answered with a large result', async ({ platform }) => {
    const deployment = await platform.deploy(failing('echo', { memory: 512 }));
    const input = { text: 'ä'.repeat(2 * 1024 ** 2) };
    const answer = await platform.invoke(deployment, input);
    expect(answer.status).toBe(200);
    expect(answer.text === JSON.stringify(input) || jsonOf<typeof input>(answer).text === input.text).toBe(true);
    const task = await platform.taskIs(answer.taskId, 'COMPLETE');
    expect((task.result as typeof input).text.length).toBe(input.text.length);
  });

  test("with another workspace's ids finds nothing", async ({ platform }) => {
    const deployment = await expectHealthy(platform);
    const answer = await platform.invoke(deployment);
    const other = '00000000-0000-4000-8000-000000000001';
    const read = async (path: string, token?: string) => {
      const { status, text } = await platform.call(path, token === undefined ? {} : { token });
      return [status, jsonOf<{ message: string }>({ status, text, taskId: '' }).message];
    };
    expect(await read(`/api/v1/task/${platform.workspaceId}/${answer.taskId}`, '')).toEqual([401, 'Unauthorized']);
    expect(await read(`/api/v1/task/${other}/${answer.taskId}`)).toEqual([400, 'there is no such workspace']);
    expect(await read(`/api/v1/task/${platform.workspaceId}/${other}`)).toEqual([404, 'task not found']);
  });

  test('and is hung up on while it is queued ends its task CANCELLED', async ({ platform }) => {
    const deployment = await platform.deploy(failing('sleeps', { timeout: 30 }));
    const first = platform.invoke(deployment, { seconds: 3 });
    await waitFor(
      async () => (await platform.tasks(deployment)).some((task) => task.status === 'RUNNING'),
      'the first one runs',
      20_000,
    );
    const target = new URL(deployment.url);
    const second = request(target, {
      method: 'POST',
      headers: { authorization: `Bearer ${platform.token}`, 'content-type': 'application/json' },
    });
    second.on('error', () => undefined);
    second.end('{"seconds":0}');
    const queued = await waitFor(
      async () => (await platform.tasks(deployment)).find((task) => task.status === 'PENDING'),
      'the second one waits',
    );
    second.destroy();
    expect(await platform.taskIs(queued.id, 'CANCELLED')).toMatchObject({ failure_reason: 'request_cancelled' });
    expect(await first).toMatchObject({ status: 200 });
    // The list is read from the database, which follows.
    const statuses = await waitFor(async () => {
      const all = (await platform.tasks(deployment)).map((task) => task.status);
      return !all.includes('RUNNING') && all.toSorted();
    }, 'both have ended');
    expect(statuses).toEqual(['CANCELLED', 'COMPLETE']);
  });
});

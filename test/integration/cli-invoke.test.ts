// `invoke` against the server of cli-gate.ts: answers, errors, keys, lost connections.
import { describe, expect, test } from 'vitest';
import { gate, run, TOKEN, useGate } from './cli-gate.ts';

useGate();

describe('invoke', () => {
  test('of a generator that fails ends with code 1, also with --json', async () => {
    gate.reply = () => ({ body: 'data: 1\n\nevent: error\ndata: no\n\n', type: 'text/event-stream' });
    for (const args of [
      ['invoke', 'sum'],
      ['--json', 'invoke', 'sum'],
    ])
      expect((await run(args)).code).toBe(1);
  });

  test("passes the input's bytes on and prints the answer's bytes", async () => {
    gate.reply = () => ({ body: '{"sum":  3}' });
    const ended = await run(['invoke', 'sum', '--version', '2', '--data', '-'], '{"a": 1,  "b": 2}');
    expect(ended).toMatchObject({ code: 0, stdout: '{"sum":  3}\n', stderr: '' });
    expect(gate.seen).toMatchObject([{ route: 'POST /endpoint/sum/v2', authorization: `Bearer ${TOKEN}` }]);
    expect(gate.seen[0]?.body.toString()).toBe('{"a": 1,  "b": 2}');
  });

  test('that fails prints the text and where its log is, with exit code 1', async () => {
    gate.reply = () => ({ status: 429, body: { error: 'exceeded max pending tasks: 5' } });
    const ended = await run(['invoke', 'sum']);
    expect(ended).toMatchObject({ code: 1, stdout: '' });
    expect(ended.stderr).toContain('sum answered 429: exceeded max pending tasks: 5');
    expect(ended.stderr).toContain('longshore logs --task t-1');
  });

  test.each([
    ['start_failed', 'endpoint-1-abcdef01', 'longshore logs --container endpoint-1-abcdef01\n'],
    ['start_failed', '', 'longshore logs sum\n'],
    ['poison_task', 'endpoint-1-abcdef01', 'longshore logs --container endpoint-1-abcdef01\n'],
    ['process_exited', 'endpoint-1-abcdef01', 'longshore logs --task t-1\n'],
    ['handler_error', 'endpoint-1-abcdef01', 'longshore logs --task t-1\n'],
  ])('that fails by %s in %j names whose log says why', async (failure, container, command) => {
    gate.reply = (route) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route !== 'GET /api/v1/task/w-1/t-1') return { status: 500, body: { error: 'RuntimeError: no model' } };
      return { body: { id: 't-1', status: 'ERROR', failure_reason: failure, container_id: container } };
    };
    expect((await run(['invoke', 'sum'])).stderr).toMatch(new RegExp(`output: ${command}$`));
  });

  test.each([
    ['process ran out of memory', 'give its handler more memory'],
    ['the container ran out of memory', "give its handler more memory than it has, such as `memory='2gi'`"],
    ['loading weights\nthe container ran out of memory', 'give its handler more memory'],
    ["ModuleNotFoundError: No module named 'numpy'", 'the container lacks numpy'],
  ])('that fails with %s says what to do', async (error, cure) => {
    gate.reply = () => ({ status: 500, body: { error } });
    expect((await run(['invoke', 'sum'])).stderr).toContain(`what to do: ${cure}`);
  });

  test.each([
    ['sum', 'POST /taskqueue/sum'],
    ['sum/v1', 'POST /taskqueue/sum/v1'],
    ['taskqueue/sum', 'POST /taskqueue/sum'],
    ['sum --kind taskqueue --version 1', 'POST /taskqueue/sum/v1'],
  ])('of %s goes to the kind that the name has', async (args, called) => {
    const deployments = [
      { id: 'd-1', name: 'sum', stubType: 'taskqueue/deployment', version: 1, active: true, stubId: 's-1' },
    ];
    gate.reply = (route) => {
      if (route === 'GET /api/v1/gateway/deployments') return { body: { ok: true, deployments } };
      return route === called
        ? { body: { task_id: 't-1' } }
        : { status: 400, body: { message: 'Invalid deployment' }, isNoTask: true };
    };
    expect(await run(['invoke', ...args.split(' ')])).toMatchObject({
      code: 0,
      stdout: '{"task_id":"t-1"}\n',
      stderr: 'its end and result: longshore task watch t-1\n',
    });
  });

  test('of a name and a flag that contradict each other is refused', async () => {
    const ended = await run(['invoke', 'sum/v1', '--version', '2']);
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringContaining('--version 2') as string });
    expect(gate.seen).toEqual([]);
  });

  test.each([
    ['sum --kind endpoint', 'Invalid deployment', 'sum is of another kind: invoke it with --kind taskqueue'],
    ['both', 'Invalid deployment', 'both is the name of several kinds: say --kind taskqueue or --kind function'],
    ['site', 'Invalid deployment', 'site is a pod: call its port, URL/pod/site/8000/ (docs'],
    ['sums', 'Invalid deployment', 'no deployment is named sums'],
    ['greet', 'Deployment is not active', 'greet is stopped: longshore deployment start greet'],
    ['older', 'Deployment is not active', 'older is stopped: longshore deployment start older'],
    ['greet --version 9', 'Invalid deployment', 'there is no greet/v9'],
  ])('of %s that finds nothing to call says what to do', async (args, message, advice) => {
    const deployments = [
      { id: 'd-1', name: 'sum', stubType: 'taskqueue/deployment', version: 1, active: true, stubId: 's-1' },
      { id: 'd-2', name: 'greet', stubType: 'endpoint/deployment', version: 2, active: false, stubId: 's-2' },
      { id: 'd-6', name: 'older', stubType: 'endpoint/deployment', version: 1, active: true, stubId: 's-6' },
      { id: 'd-7', name: 'older', stubType: 'endpoint/deployment', version: 2, active: false, stubId: 's-7' },
      { id: 'd-4', name: 'both', stubType: 'taskqueue/deployment', version: 2, active: true, stubId: 's-4' },
      { id: 'd-5', name: 'both', stubType: 'function/deployment', version: 1, active: true, stubId: 's-5' },
      { id: 'd-3', name: 'site', stubType: 'pod/deployment', version: 1, active: true, stubId: 's-3' },
    ];
    gate.reply = (route) => {
      if (route === 'GET /api/v1/gateway/deployments') return { body: { ok: true, deployments } };
      if (route === 'GET /api/v1/workspace/current') return { body: { external_id: 'w-1' } };
      if (route === 'GET /api/v1/deployment/w-1/d-3')
        return { body: { stub: { config: JSON.stringify({ ports: [8000] }) } } };
      return { status: 400, body: { message }, isNoTask: true };
    };
    const ended = await run(['invoke', ...args.split(' ')]);
    expect(ended).toMatchObject({ code: /^no deployment|^there is no/.test(advice) ? 4 : 1, stdout: '' });
    expect(ended.stderr).toContain(`longshore: ${advice.replace('URL', gate.url)}`);
    expect(ended.stderr).not.toContain(message);
  });

  test('with inputs that the handler does not take says which it takes', async () => {
    const detail = 'the handler takes n and optionally name';
    gate.reply = () => ({ status: 422, body: { error: 'n: is missing', detail } });
    const ended = await run(['invoke', 'sum']);
    expect(ended).toMatchObject({ code: 1, stdout: '' });
    expect(ended.stderr).toMatch(new RegExp(`longshore: sum answered 422: n: is missing\n${detail}\n$`));
  });

  test('of a path that an application lacks prints its words once', async () => {
    gate.reply = () => ({ status: 404, body: { detail: 'Not Found' } });
    const { stderr } = await run(['invoke', 'site']);
    expect(stderr.match(/Not Found/g)).toHaveLength(1);
    expect(stderr).toContain('longshore: site answered 404: Not Found\n');
  });

  test('with a token that is not accepted says how to choose another', async () => {
    gate.reply = () => ({ status: 401, body: { message: 'Unauthorized' }, isNoTask: true });
    const ended = await run(['invoke', 'sum']);
    expect(ended).toMatchObject({ code: 3, stdout: '' });
    expect(ended.stderr).toMatch(/does not accept the token \(Unauthorized\).*longshore login/);
  });

  test('of a misspelt name says which one was probably meant', async () => {
    const greet = {
      id: 'd-2',
      name: 'greet',
      stubType: 'endpoint/deployment',
      version: 2,
      active: true,
      stubId: 's-2',
    };
    gate.reply = (route, request) =>
      route === 'GET /api/v1/gateway/deployments'
        ? { body: { ok: true, deployments: request.url?.includes('filters=') === true ? [] : [greet] } }
        : { status: 400, body: { message: 'Invalid deployment' }, isNoTask: true };
    const ended = await run(['invoke', 'gret']);
    expect(ended).toMatchObject({ code: 4, stdout: '' });
    expect(ended.stderr).toContain('no deployment is named gret; did you mean greet? `longshore deployment list`');
  });

  test('that no handler answered points at the explanation', async () => {
    gate.reply = () => ({ status: 503, body: { error: 'deployment stopped' } });
    expect((await run(['invoke', 'sum'])).stderr).toContain('why: longshore explain t-1');
    gate.reply = (route) =>
      route === 'GET /api/v1/gateway/deployments'
        ? { body: { ok: true, deployments: [{ id: 'd', name: 'sum', stubType: 'endpoint/deployment', version: 1 }] } }
        : { status: 503, body: { error: 'no machine has it' }, isNoTask: true };
    expect((await run(['invoke', 'sum'])).stderr).toContain('why: longshore explain sum\n');
  });

  test('with a key sends it, and says after a lost connection that the same command has its answer', async () => {
    const keys: unknown[] = [];
    gate.reply = (_route, request) => {
      keys.push(request.headers['idempotency-key']);
      if (keys.length > 1) request.socket.destroy();
      return { body: '1' };
    };
    const args = ['invoke', 'sum', '--idempotency-key', 'order-7'];
    expect(await run(args)).toMatchObject({ code: 0, stdout: '1\n' });
    expect((await run(args)).stderr).toContain(
      '--deployment sum`; the same command with the same key gives its answer',
    );
    expect(keys).toEqual(['order-7', 'order-7']);
  });

  test('with a key that was used says whose answer it prints', async () => {
    gate.reply = () => ({ body: '1', isReplay: true });
    const args = ['invoke', 'sum', '--idempotency-key', 'order-7'];
    const ended = await run(args);
    expect(ended).toMatchObject({ code: 0, stdout: '1\n' });
    expect(ended.stderr).toContain('not run again: this is the answer to the first call with that key, task t-1');
    expect(JSON.parse((await run([...args, '--json'])).stdout)).toMatchObject({ isReplay: true, taskId: 't-1' });
  });

  test('whose connection is lost says that it may still complete, and where to look', async () => {
    gate.reply = (_route, request) => {
      request.socket.destroy();
      return undefined;
    };
    const ended = await run(['invoke', 'sum', '--version', '2']);
    expect(ended).toMatchObject({ code: 5, stdout: '' });
    expect(ended.stderr).toContain(
      `the connection to ${gate.url} was lost while the call ran; it may still complete: \`longshore task list --deployment sum/v2\``,
    );
    expect(ended.stderr).not.toContain('is the scheduler');
    // A command that only reads has nothing that may complete.
    expect((await run(['task', 'list'])).stderr).toMatch(/lost before it had answered \((UND_ERR_SOCKET|ECONNRESET)\)/);
  });

  test('that is not answered in time says so', async () => {
    gate.reply = () => 'silence';
    const ended = await run(['invoke', 'sum', '--timeout', '1']);
    expect(ended).toMatchObject({ code: 5 });
    expect(ended.stderr).toContain(`${gate.url} did not answer within 1 s`);
  });
});

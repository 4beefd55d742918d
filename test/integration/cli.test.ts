// The commands against a small real HTTP server that answers as the
// gateway does. The server shows behaviour that a healthy scheduler does not: refusals,
// odd answers, silence. The good path, against the real one, is in test/e2e/up.test.ts.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server } from 'node:http';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { tempDirectory, waitFor } from '../helpers/programs.ts';
import { terminal } from '../helpers/terminal.ts';

const MAIN = resolve(import.meta.dirname, '..', '..', 'cli', 'main.ts');
const TOKEN = 'eyJ.test';
const SANDBOX = 'sandbox-0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11-abcdef01';

interface Seen {
  readonly route: string;
  readonly authorization: string | undefined;
  readonly body: Buffer;
}
type Reply =
  | {
      readonly status?: number;
      readonly body: unknown;
      readonly isNoTask?: true;
      readonly isReplay?: true;
      readonly type?: string;
    }
  | undefined;

let server: Server;
let url = '';
let seen: Seen[] = [];
let reply: (route: string, request: IncomingMessage) => Reply = () => undefined;
let directory: ReturnType<typeof tempDirectory>;

beforeEach(async () => {
  seen = [];
  directory = tempDirectory('cli');
  server = createServer((request, response) => {
    void buffer(request).then((body) => {
      const route = `${request.method ?? ''} ${(request.url ?? '').split('?')[0] ?? ''}`;
      seen.push({ route, authorization: request.headers.authorization, body });
      const answer = reply(route, request);
      if (answer === undefined) {
        response.writeHead(404, { 'content-type': 'application/json' });
        response.end('{"code":5,"message":"Not Found","details":[]}');
        return;
      }
      response.writeHead(answer.status ?? 200, {
        'content-type': answer.type ?? 'application/json',
        ...(answer.isNoTask === true ? {} : { 'x-task-id': 't-1' }),
        ...(answer.isReplay === true ? { 'idempotency-replayed': 'true' } : {}),
      });
      response.end(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body));
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
  directory.remove();
});

const environment = () => ({
  LONGSHORE_URL: url,
  LONGSHORE_TOKEN: TOKEN,
  LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
});

function start(args: readonly string[], stdin = '', cwd = process.cwd()) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd,
    env: { ...process.env, ...environment() },
    stdio: 'pipe',
  });
  child.stdin.end(stdin);
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
  return { child, ended, stdout: () => stdout };
}
/** In this process, except where the command reads stdin or has a directory of its own. */
const run = (args: readonly string[], stdin = '', cwd?: string) =>
  stdin === '' && cwd === undefined ? runCommand(args, environment()) : start(args, stdin, cwd).ended;

/** A gateway that answers every route well, except for the answers in `special`. */
function gateway(special: Readonly<Record<string, Reply>> = {}) {
  return (route: string): Reply => {
    if (route in special) return special[route];
    if (route.startsWith('GET /api/v1/gateway/objects/')) return { body: { ok: true, exists: false } };
    if (route === 'POST /api/v1/gateway/objects')
      return { body: { ok: true, objectId: 'o-1', presignedUrl: `${url}/put/o-1?signature=x`, errorMsg: '' } };
    if (route === 'PUT /put/o-1') return { body: '' };
    if (route === 'POST /api/v1/gateway/stubs') return { body: { ok: true, stubId: 's-1', errMsg: '', warnMsg: '' } };
    if (route === 'POST /api/v1/gateway/stubs/deploy')
      return { body: { ok: true, deploymentId: 'd-1', version: 3, invokeUrl: `${url}/endpoint/sum/v3` } };
    return undefined;
  };
}

function anApp(
  text = 'from longshore import endpoint\n\n@endpoint(name="sum", cpu=2, memory="1Gi", gpu_count=8)\ndef add(a, b):\n    return a + b\n',
) {
  const file = join(directory.path, 'app.py');
  writeFileSync(file, text);
  return file;
}

describe('deploy', () => {
  test('uploads the archive without a bearer, makes the stub from the definition, and deploys it', async () => {
    reply = gateway();
    const ended = await run(['deploy', anApp(), '--json']);
    expect(ended).toMatchObject({ code: 0 });
    const deployed = { name: 'sum', version: 3, deploymentId: 'd-1', stubId: 's-1', requiredInputs: ['a', 'b'] };
    expect(JSON.parse(ended.stdout)).toMatchObject(deployed);
    expect(seen.map((one) => one.route.replace(/[0-9a-f]{64}/, '<sha256>'))).toEqual([
      'POST /api/v1/gateway/stubs/check',
      'GET /api/v1/gateway/objects/<sha256>',
      'POST /api/v1/gateway/objects',
      'PUT /put/o-1',
      'POST /api/v1/gateway/stubs',
      'POST /api/v1/gateway/stubs/deploy',
    ]);
    const [, , created, put, stub] = seen;
    expect(put?.authorization).toBeUndefined();
    expect(stub?.authorization).toBe(`Bearer ${TOKEN}`);
    expect(JSON.parse(created?.body.toString() ?? '')).toMatchObject({ size: String(put?.body.byteLength) });
    const recipe = JSON.parse(stub?.body.toString() ?? '') as Record<string, unknown>;
    expect(recipe).toMatchObject({ objectId: 'o-1', stubType: 'endpoint/deployment', handler: 'app:add', name: 'sum' });
    expect([Number(recipe['cpu']), Number(recipe['memory'])]).toEqual([2000, 1024]);
    expect(recipe).not.toHaveProperty('requiredInputs');
    expect(recipe).not.toHaveProperty('place');
  });

  test('says what the scheduler doubts as a warning', async () => {
    const made = { ok: true, stubId: 's-1', errMsg: '', warnMsg: 'No known GPU model: H1000.' };
    reply = gateway({ 'POST /api/v1/gateway/stubs': { body: made } });
    const ended = await run(['deploy', anApp()]);
    expect(ended.code).toBe(0);
    expect(ended.stderr).toMatch(/^warning: No known GPU model: H1000\.$/m);
  });

  test('uploads nothing that the installation has', async () => {
    reply = (route) =>
      route.startsWith('GET /api/v1/gateway/objects/')
        ? { body: { ok: true, exists: true, objectId: 'o-9' } }
        : gateway()(route);
    const ended = await run(['deploy', anApp()]);
    expect(ended.code).toBe(0);
    // A first call to fill in.
    expect(ended.stdout).toMatch(/ invoke sum --data '\{"a": …, "b": …\}'$/m);
    expect(seen.some((one) => one.route.startsWith('PUT'))).toBe(false);
  });

  test.for([
    [
      { 'POST /api/v1/gateway/stubs': { body: { ok: false, errMsg: 'extra.workerMode "x" is none' } } },
      'app.py:3: worker_mode "x" is none\n',
    ],
    [
      { 'POST /api/v1/gateway/stubs': { body: { ok: false, errMsg: 'CPU must be 1500 or less.' } } },
      "app.py:3: cpu: 2 cores, at most 1.5: it is this workspace's limit stub.cpu_millicores",
    ],
    [
      { 'POST /api/v1/gateway/stubs': { body: { ok: false, errMsg: 'Memory must be 0.5GiB or less.' } } },
      "memory: 1 GiB, at most 0.5 GiB: it is this workspace's limit stub.memory_mib, which `longshore workspace limits`",
    ],
    [
      { 'POST /api/v1/gateway/stubs': { body: { ok: false, errMsg: 'GPU count must be 2 or less.' } } },
      'An administrator raises it: `longshore workspace limits WORKSPACE --set stub.max_gpu_count=8`',
    ],
    [
      {
        'POST /api/v1/gateway/stubs': { body: { ok: false, errMsg: 'There is currently no GPU capacity for H100.' } },
      },
      'no GPU capacity for H100: `longshore machine list` shows the GPUs that there are',
    ],
    [{ 'PUT /put/o-1': { status: 413, body: { message: 'too large' } } }, 'the upload was refused with 413'],
    [
      { 'POST /api/v1/gateway/stubs': { status: 401, body: { code: 16, message: 'invalid or missing token' } } },
      'does not accept the token',
    ],
    [
      { 'POST /api/v1/gateway/stubs': { status: 502, body: '<html>bad gateway</html>' } },
      'something that is not a JSON object: <html>bad',
    ],
  ] as const)('that is refused says why: %j', async ([special, sentence]) => {
    reply = gateway(special);
    const ended = await run(['deploy', anApp()]);
    expect(ended).toMatchObject({ code: sentence.includes('token') ? 3 : 1, stdout: '' });
    expect(ended.stderr).toContain(sentence);
  });

  test.for([
    ['import no_such_library\n', 'Import it inside the handler'],
    ['x = 1\n', 'Decorate a function'],
    ['from longshore import endpoint\n\n@endpoint(name="a", cpu=-1)\ndef a():\n    pass\n', 'cpu'],
  ])('of a file that cannot be described says what to do: %j', async ([text, sentence]) => {
    const ended = await run(['deploy', anApp(text)]);
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain(sentence);
    expect(seen).toEqual([]);
  });

  test('of a file that is no Python says where, once', async () => {
    const file = anApp('import os\n\ndef f(:\n  pass\n');
    const ended = await run(['deploy', file]);
    expect(ended).toMatchObject({ code: 1, stderr: `longshore: ${file}:3: SyntaxError: invalid syntax\n` });
    const beside = await run(['deploy', 'app.py'], '', directory.path);
    expect(beside).toMatchObject({ code: 1, stderr: 'longshore: app.py:3: SyntaxError: invalid syntax\n' });
  });

  test('of one handler says how the others in its file are deployed', async () => {
    reply = gateway();
    const three = ['a', 'b', 'c'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`).join('\n');
    const file = anApp(`from longshore import endpoint\n\n${three}`);
    const ended = await run(['deploy', `${file}:b`]);
    expect(ended.code).toBe(0);
    expect(ended.stdout).toMatch(
      /\n\nOthers in this file:\n {2}\S+ deploy \S+app\.py:a\n {2}\S+ deploy \S+app\.py:c\n$/,
    );
    reply = gateway();
    expect((await run(['deploy', anApp()])).stdout).not.toContain('Others');
  });

  test('of a file with two handlers makes both, with one upload; prepare asks for one of them', async () => {
    reply = gateway();
    const two = ['a', 'b'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`).join('\n');
    const file = anApp(`from longshore import endpoint\n\n${two}`);
    const made = await run(['deploy', file]);
    expect(made.code).toBe(0);
    expect(made.stdout).toMatch(/\n\nCall them:\n {2}curl -X POST \S+ -H .*\n {2}\S+ invoke [ab]\n$/);
    expect(seen.filter(({ route }) => route === 'POST /api/v1/gateway/stubs/deploy')).toHaveLength(2);
    expect(seen.filter(({ route }) => route === 'PUT /put/o-1')).toHaveLength(1);
    const ended = await run(['prepare', file]);
    expect(ended.code).toBe(2);
    expect(ended.stderr).toContain(`several handlers (a, b): name one, as in ${file}:a`);
  });

  test('of two handlers with a token that is not accepted says so once, with the exit code of that', async () => {
    const refused = { status: 401, body: { code: 16, message: 'invalid or missing token' } };
    reply = gateway({ 'POST /api/v1/gateway/objects': refused });
    const two = ['a', 'b'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`).join('\n');
    const ended = await run(['deploy', anApp(`from longshore import endpoint\n\n${two}`)]);
    expect(ended).toMatchObject({ code: 3, stdout: '' });
    expect(ended.stderr.match(/does not accept the token/g)).toHaveLength(1);
  });
});

describe('invoke', () => {
  test('of a generator that fails ends with code 1, also with --json', async () => {
    reply = () => ({ body: 'data: 1\n\nevent: error\ndata: no\n\n', type: 'text/event-stream' });
    for (const args of [
      ['invoke', 'sum'],
      ['--json', 'invoke', 'sum'],
    ])
      expect((await run(args)).code).toBe(1);
  });

  test("passes the input's bytes on and prints the answer's bytes", async () => {
    reply = () => ({ body: '{"sum":  3}' });
    const ended = await run(['invoke', 'sum', '--version', '2', '--data', '-'], '{"a": 1,  "b": 2}');
    expect(ended).toMatchObject({ code: 0, stdout: '{"sum":  3}\n', stderr: '' });
    expect(seen).toMatchObject([{ route: 'POST /endpoint/sum/v2', authorization: `Bearer ${TOKEN}` }]);
    expect(seen[0]?.body.toString()).toBe('{"a": 1,  "b": 2}');
  });

  test('that fails prints the text and where its log is, with exit code 1', async () => {
    reply = () => ({ status: 429, body: { error: 'exceeded max pending tasks: 5' } });
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
    reply = (route) => {
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
    reply = () => ({ status: 500, body: { error } });
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
    reply = (route) => {
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
    expect(seen).toEqual([]);
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
    reply = (route) => {
      if (route === 'GET /api/v1/gateway/deployments') return { body: { ok: true, deployments } };
      if (route === 'GET /api/v1/workspace/current') return { body: { external_id: 'w-1' } };
      if (route === 'GET /api/v1/deployment/w-1/d-3')
        return { body: { stub: { config: JSON.stringify({ ports: [8000] }) } } };
      return { status: 400, body: { message }, isNoTask: true };
    };
    const ended = await run(['invoke', ...args.split(' ')]);
    expect(ended).toMatchObject({ code: /^no deployment|^there is no/.test(advice) ? 4 : 1, stdout: '' });
    expect(ended.stderr).toContain(`longshore: ${advice.replace('URL', url)}`);
    expect(ended.stderr).not.toContain(message);
  });

  test('with inputs that the handler does not take says which it takes', async () => {
    const detail = 'the handler takes n and optionally name';
    reply = () => ({ status: 422, body: { error: 'n: is missing', detail } });
    const ended = await run(['invoke', 'sum']);
    expect(ended).toMatchObject({ code: 1, stdout: '' });
    expect(ended.stderr).toMatch(new RegExp(`longshore: sum answered 422: n: is missing\n${detail}\n$`));
  });

  test('of a path that an application lacks prints its words once', async () => {
    reply = () => ({ status: 404, body: { detail: 'Not Found' } });
    const { stderr } = await run(['invoke', 'site']);
    expect(stderr.match(/Not Found/g)).toHaveLength(1);
    expect(stderr).toContain('longshore: site answered 404: Not Found\n');
  });

  test('with a token that is not accepted says how to choose another', async () => {
    reply = () => ({ status: 401, body: { message: 'Unauthorized' }, isNoTask: true });
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
    reply = (route, request) =>
      route === 'GET /api/v1/gateway/deployments'
        ? { body: { ok: true, deployments: request.url?.includes('filters=') === true ? [] : [greet] } }
        : { status: 400, body: { message: 'Invalid deployment' }, isNoTask: true };
    const ended = await run(['invoke', 'gret']);
    expect(ended).toMatchObject({ code: 4, stdout: '' });
    expect(ended.stderr).toContain('no deployment is named gret; did you mean greet? `longshore deployment list`');
  });

  test('that no handler answered points at the explanation', async () => {
    reply = () => ({ status: 503, body: { error: 'deployment stopped' } });
    expect((await run(['invoke', 'sum'])).stderr).toContain('why: longshore explain t-1');
    reply = (route) =>
      route === 'GET /api/v1/gateway/deployments'
        ? { body: { ok: true, deployments: [{ id: 'd', name: 'sum', stubType: 'endpoint/deployment', version: 1 }] } }
        : { status: 503, body: { error: 'no machine has it' }, isNoTask: true };
    expect((await run(['invoke', 'sum'])).stderr).toContain('why: longshore explain sum\n');
  });

  test('with a key sends it, and says after a lost connection that the same command has its answer', async () => {
    const keys: unknown[] = [];
    reply = (_route, request) => {
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
    reply = () => ({ body: '1', isReplay: true });
    const args = ['invoke', 'sum', '--idempotency-key', 'order-7'];
    const ended = await run(args);
    expect(ended).toMatchObject({ code: 0, stdout: '1\n' });
    expect(ended.stderr).toContain('not run again: this is the answer to the first call with that key, task t-1');
    expect(JSON.parse((await run([...args, '--json'])).stdout)).toMatchObject({ isReplay: true, taskId: 't-1' });
  });

  test('whose connection is lost says that it may still complete, and where to look', async () => {
    reply = (_route, request) => {
      request.socket.destroy();
      return undefined;
    };
    const ended = await run(['invoke', 'sum', '--version', '2']);
    expect(ended).toMatchObject({ code: 5, stdout: '' });
    expect(ended.stderr).toContain(
      `the connection to ${url} was lost while the call ran; it may still complete: \`longshore task list --deployment sum/v2\``,
    );
    expect(ended.stderr).not.toContain('is the scheduler');
    // A command that only reads has nothing that may complete.
    expect((await run(['task', 'list'])).stderr).toMatch(/lost before it had answered \((UND_ERR_SOCKET|ECONNRESET)\)/);
  });

  test('that is not answered in time says so', async () => {
    server.removeAllListeners('request');
    const ended = await run(['invoke', 'sum', '--timeout', '1']);
    expect(ended).toMatchObject({ code: 5 });
    expect(ended.stderr).toContain(`${url} did not answer within 1 s`);
  });
});

test('status names the deployment of each container, or its kind, and says ages as the lists do', async () => {
  const createdAt = new Date(Date.now() - 30_000).toISOString();
  const answers: Readonly<Record<string, unknown>> = {
    'GET /api/v1/health': { status: 'ok' },
    'GET /api/v1/gateway/machines': {
      ok: true,
      machines: [
        {
          ...{ id: 'm-1', poolName: 'default', status: 'available', cpu: 2000, memory: 24_700, gpuCount: 0 },
          offered: { cpu: '14400', memory: '24064' },
        },
      ],
    },
    'GET /api/v1/gateway/deployments': {
      ok: true,
      deployments: [{ id: 'd-1', name: 'sum', stubType: 'endpoint/deployment', version: 3, active: true, createdAt }],
    },
    'GET /api/v1/gateway/containers': {
      ok: true,
      containers: [
        { containerId: 'c-1', status: 'PENDING', deploymentId: 'd-1', scheduledAt: '' },
        { containerId: SANDBOX, status: 'RUNNING', deploymentId: '' },
      ],
    },
  };
  reply = (route) => ({ body: answers[route] });
  const { code, stdout } = await run(['status']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^m-1 +default +available +14\.4 +23\.5 GiB +-$/m);
  expect(stdout).toMatch(/^sum +v3 +yes +endpoint +3\ds$/m);
  const rows = [/^c-1 +PENDING +sum v3 +- +-/m, new RegExp(`^${SANDBOX} +RUNNING +sandbox +- +-`, 'm')];
  for (const row of rows) expect(stdout).toMatch(row);
  const listed = await run(['container', 'list']);
  for (const row of rows) expect(listed.stdout).toMatch(row);
});

test('`npm start -- --help` sets nothing up', async () => {
  const script = resolve(import.meta.dirname, '..', '..', 'scripts', 'start.mjs');
  const child = spawn(process.execPath, [script, '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr, [code]] = await Promise.all([
    buffer(child.stdout),
    buffer(child.stderr),
    once(child, 'close'),
  ]);
  // Each step of a set-up is a line on stderr.
  expect([code, stderr.toString()]).toEqual([0, '']);
  expect(stdout.toString()).toMatch(/npm start -- .*[^]*--data-dir/);
});

test('the line that upgrades a machine says when other machines cannot use it', async () => {
  reply = (route) => (route === 'GET /install/agent' ? { body: '#!/bin/sh' } : undefined);
  const ended = await run(['machine', 'upgrade']);
  expect(ended).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("install --from 'http://127.0.0.1") as string,
  });
  expect(ended.stderr).toMatch(/127\.0\.0\.1:\d+ can be dialled from this machine only/);
});

describe('volume', () => {
  test('cp takes no dash for a file', async () => {
    for (const paths of [
      ['models:a', '-'],
      ['-', 'models:a'],
    ])
      expect(await run(['volume', 'cp', ...paths])).toEqual({
        code: 2,
        stdout: '',
        stderr: 'longshore: a copy goes from file to file, and - is none: name a file (./- where that is its name)\n',
      });
    expect(seen).toEqual([]);
  });

  describe('delete', () => {
    const size = (files: number, next = '') => ({
      bytes: files * 3,
      disk_bytes: 0,
      files,
      folders: 0,
      others: 0,
      next,
    });
    const withFiles = (answer: Reply) => {
      reply = (route) => {
        if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
        if (route === 'GET /api/v1/volume/w-1/stuff/size') return answer;
        return route === 'DELETE /api/v1/volume/w-1/stuff' ? { body: { removed: 2, complete: true } } : undefined;
      };
    };
    const deletions = () => seen.filter(({ route }) => route.startsWith('DELETE')).length;

    test.each([
      ['two files', { body: size(2) }, 2, 'volume stuff has 2 files (6 B); without a terminal, say --yes'],
      ['more than one call counts', { body: size(2, 'x') }, 2, 'volume stuff has at least 2 files (6 B); without'],
      ['a first page without files', { body: size(0, 'x') }, 2, 'volume stuff has more than one call counts; without'],
      [
        'files that nobody counts',
        { status: 503, body: { message: 'm-1 is away' } },
        1,
        '; --yes deletes stuff without',
      ],
      ['nothing', { body: size(0) }, 0, ''],
    ])('without a terminal, of %s', async (_, answer, code, text) => {
      withFiles(answer);
      const ended = await run(['volume', 'delete', 'stuff'], '\n');
      expect([ended.code, ended.stderr, deletions()]).toEqual([
        code,
        expect.stringContaining(text),
        code === 0 ? 1 : 0,
      ]);
      expect(await run(['volume', 'delete', 'stuff', '--yes'])).toMatchObject({ code: 0 });
    });

    test.each([
      ['y', 0, 1],
      ['n', 1, 0],
    ])('on a terminal asks, and takes the answer %s', async (answer, code, deleted) => {
      withFiles({ body: size(1) });
      const child = spawn('python3', ['-c', terminal(), process.execPath, MAIN, 'volume', 'delete', 'stuff'], {
        env: { ...process.env, ...environment() },
      });
      let shown = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => (shown += text));
      const ended = once(child, 'close');
      await waitFor(() => shown.includes('1 file (3 B). Delete it with all in it? [y/N]'), 'it asks', 20_000);
      child.stdin.write(`${answer}\r`);
      expect([(await ended)[0], deletions()]).toEqual([code, deleted]);
    });
  });

  test('delete of one in use names the commands that stop its users', async () => {
    const told = (users: string) => async (): Promise<string> => {
      reply = (route) => {
        if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
        const message = `the volume is in use (${users}): stop them first`;
        return route.startsWith('DELETE') ? { status: 409, body: { code: 'volume_in_use', message } } : undefined;
      };
      return (await run(['volume', 'delete', 'models', '--yes'])).stderr;
    };
    expect(await told('deployments mount it: a/v1, b/v2, …')()).toBe(
      'longshore: the volume is in use (deployments mount it: a/v1, b/v2, …): stop them first: `longshore deployment stop a/v1`, `longshore deployment stop b/v2`\n',
    );
    expect(await told('2 containers mount it')()).toContain('stop them first: `longshore container list` shows');
  });
});

describe('secret delete', () => {
  test('says that there may be more users, and why, when the list of deployments breaks off', async () => {
    const user = { name: 'sum', version: 2, stub: { config: JSON.stringify({ secrets: [{ name: 'KEY' }] }) } };
    let isFirstPageThere = true;
    reply = (route, request) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'DELETE /api/v1/secret/w-1/KEY') return { status: 204, body: '' };
      if (route !== 'GET /api/v1/deployment/w-1') return undefined;
      const cursor = URL.parse(request.url ?? '', url)?.searchParams.get('cursor');
      return cursor === '' && isFirstPageThere
        ? { body: { data: [user], next: 'second' } }
        : { status: 403, body: { message: 'too many questions' } };
    };
    const partial = await run(['secret', 'delete', 'KEY']);
    expect(partial).toMatchObject({ code: 0, stdout: 'deleted secret KEY\n' });
    expect(partial.stderr).toMatch(
      /^warning: sum\/v2 named KEY: .*\nwarning: there may be more deployments that name KEY.*: too many questions\n$/,
    );
    const { used_by, used_by_complete } = JSON.parse((await run(['secret', 'delete', 'KEY', '--json'])).stdout) as {
      readonly used_by: unknown;
      readonly used_by_complete: unknown;
    };
    expect([used_by, used_by_complete]).toEqual([['sum/v2'], false]);

    isFirstPageThere = false;
    expect((await run(['secret', 'delete', 'KEY'])).stderr).toMatch(/^warning: there may be deployments that name KEY/);
  });
});

describe('logs', () => {
  test('of a container that has ended are found by the end of its id', async () => {
    const id = 'endpoint-1-c69a6597';
    reply = (route, request) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/gateway/containers') return { body: { ok: true, containers: [] } };
      if (route === 'GET /api/v1/explain/w-1/c69a6597') return { body: { kind: 'container', id } };
      const named = URL.parse(request.url ?? '', url)?.searchParams.get('container_id');
      return route === 'GET /api/v1/logs/w-1' && named === id
        ? {
            body: {
              logs: [{ seq_num: 1, timestamp: '2026-01-01T10:00:00.000Z', container_id: id, message: 'it was me' }],
            },
          }
        : undefined;
    };
    expect((await run(['logs', '--container', 'c69a6597'])).stdout).toBe(
      '2026-01-01 10:00:00.000 c69a6597 it was me\n',
    );
  });

  test('of a task that wrote nothing say how it stands, and where to look next', async () => {
    const explained = {
      summary: 'task t-1 of sum/v1 is ERROR (start_failed): no container could start for it',
      next_steps: ['`longshore logs --task t-1` shows what it wrote', '`longshore logs sum` shows more'],
    };
    reply = (route) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/explain/w-1/t-1') return { body: explained };
      return route === 'GET /api/v1/logs/w-1' ? { body: { logs: [] } } : undefined;
    };
    expect(await run(['logs', '--task', 't-1'])).toEqual({
      code: 0,
      stdout: '',
      stderr: `no line of task t-1: ${explained.summary}\nwhat to do:\n  - \`longshore logs sum\` shows more\n`,
    });
  });

  test('of a deployment that wrote nothing say how it stands', async () => {
    const explained = { summary: 'sum/v1 has no container: nobody calls it', next_steps: [] };
    reply = (route) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/gateway/deployments')
        return {
          body: { ok: true, deployments: [{ id: 'd-1', name: 'sum', stubType: 'endpoint', version: 1, active: true }] },
        };
      if (route === 'GET /api/v1/explain/w-1/d-1') return { body: explained };
      return route === 'GET /api/v1/logs/w-1' ? { body: { logs: [] } } : undefined;
    };
    expect(await run(['logs', 'sum'])).toEqual({
      code: 0,
      stdout: '',
      stderr: `no line of deployment sum: ${explained.summary}\nwhat to do:\n  - \`longshore explain sum\` says how it stands\n`,
    });
    expect(await run(['logs'])).toEqual({
      code: 0,
      stdout: '',
      stderr: 'no container of this workspace has written a line that is kept\n',
    });
  });

  test('that follow go on behind the last line, also after a lost connection, and print each line once', async () => {
    const lines = Array.from({ length: 5 }, (_unused, n) => ({
      seq_num: n + 1,
      timestamp: '2026-01-01T10:00:00.000Z',
      container_id: 'endpoint-1-abcdef01',
      message: `line ${n + 1}`,
    }));
    const starts: (readonly (string | undefined)[])[] = [];
    reply = (route, request) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/logs/w-1') return { body: { logs: lines.slice(0, 2) } };
      if (route !== 'GET /api/v1/logs/w-1/stream') return undefined;
      // Each stream has one line, and then it breaks off.
      const asked = URL.parse(request.url ?? '', url)?.searchParams.get('seq_num') ?? undefined;
      const last = request.headers['last-event-id']?.toString();
      starts.push([asked, last]);
      const line = lines[Number(asked ?? Number(last) + 1) - 1];
      const frame = line === undefined ? '' : `id: ${line.seq_num}\nevent: log\ndata: ${JSON.stringify(line)}\n\n`;
      return { body: `: connected\n\nretry: 3000\n\n${frame}`, type: 'text/event-stream' };
    };
    const following = start(['logs', '--task', 't-1', '--follow']);
    await waitFor(() => following.stdout().includes('line 5'), 'every line is printed', 20_000);
    following.child.kill('SIGINT');
    await following.ended;
    expect(following.stdout().match(/line \d/g)).toEqual(['line 1', 'line 2', 'line 3', 'line 4', 'line 5']);
    expect(starts.slice(0, 3)).toEqual([
      ['3', undefined],
      [undefined, '3'],
      [undefined, '4'],
    ]);
  });
});

test('containers without a deployment have their own name, and images the deployments that use them', async () => {
  const record = (name: string, version: number, image: string) => ({
    ...{ name, version },
    stub: { config: JSON.stringify({ runtime: { image_id: image } }) },
  });
  reply = (route) => {
    if (route === 'GET /api/v1/workspace/current') return { body: { external_id: 'w-1' } };
    if (route === 'GET /api/v1/gateway/containers')
      return {
        body: {
          ok: true,
          containers: ['notebook', 'sandbox', '', 'evil\u001b[2J'].map((stubName) => ({
            containerId: SANDBOX,
            stubName,
          })),
        },
      };
    if (route === 'GET /api/v1/gateway/deployments') return { body: { ok: true, deployments: [] } };
    if (route === 'GET /api/v1/image/w-1') return { body: { data: [{ id: 'i-1' }, { id: 'i-2' }], next: '' } };
    if (route === 'GET /api/v1/deployment/w-1')
      return { body: { data: ['a', 'b', 'c', 'd'].map((name) => record(name, 2, 'i-1')), next: '' } };
    return undefined;
  };
  const rows = (await run(['container', 'list'])).stdout.split('\n').slice(1, 5);
  expect(rows.map((row) => row.split(/ {2,}/)[1])).toEqual([
    'notebook (sandbox)',
    'sandbox',
    'sandbox',
    'evil\u{fffd}[2J (sandbox)',
  ]);
  const images = (await run(['image', 'list'])).stdout.split('\n');
  expect(images[1]).toMatch(/^i-1 .*a\/v2,b\/v2,c\/v2,… /);
  expect(images[2]).toMatch(/^i-2 +- /);
  expect(JSON.parse((await run(['image', 'list', '--json'])).stdout)).toMatchObject([
    { id: 'i-1', deployments: ['a/v2', 'b/v2', 'c/v2', 'd/v2'] },
    { id: 'i-2', deployments: [] },
  ]);
});

test('a name or an id that nothing has is answered with the one that was probably meant', async () => {
  const id = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';
  reply = (route) => {
    const list = (items: readonly object[], field = 'data') => ({ body: { ok: true, [field]: items } });
    if (route === 'GET /api/v1/workspace/current') return { body: { external_id: 'w-1' } };
    if (/^GET .*\/(volume|secret|stack)\/w-1$/.test(route)) return list([{ name: 'models' }]);
    if (route === 'GET /api/v1/gateway/deployments') return list([{ id, name: 'sum' }], 'deployments');
    if (/^GET .*\/gateway\/(machines|workers)$/.test(route)) {
      const field = route.slice(route.lastIndexOf('/') + 1);
      return list(seen.length > 1 ? [{ id: '1a2b3c4d' }] : [], field);
    }
    if (route.endsWith('/cordon')) return { body: { ok: false, errMsg: 'worker not found' } };
    return { status: 404, body: { code: route.includes('/volume/') ? 'volume_not_found' : '', message: 'Not Found' } };
  };
  const said = async (line: string): Promise<string> => {
    seen = [];
    const ended = await run(line.split(' '));
    expect(ended.code).toBe(4);
    return ended.stderr;
  };
  for (const line of ['volume show modles', 'volume ls modles:', 'secret delete modles', 'stack delete modles'])
    expect(await said(line)).toMatch(/^longshore: there is no \w+ modles in this workspace; did you mean models\? `/);
  expect(await said('machine show 1a2b3c4e')).toContain('there is no machine 1a2b3c4e; did you mean 1a2b3c4d?');
  expect(await said('worker cordon 1a2b3c4e')).toContain('there is no worker 1a2b3c4e; did you mean 1a2b3c4d?');
  expect(await said(`deployment start ${id.replace('6f0a', '6f0b')}`)).toContain(`did you mean ${id}?`);
  expect(await said('volume show unlike')).toBe(
    'longshore: there is no volume unlike in this workspace: `longshore volume list` shows them\n',
  );
});

test('run takes no words for a command unless they stand behind dashes', async () => {
  reply = gateway();
  const app = `${anApp()}:add`;
  for (const words of [['3'], ['python3', 'x.py'], ['[3]'], ['n=3']]) {
    const ended = await run(['run', app, ...words]);
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringContaining('inputs are a JSON object, such as') });
    expect(ended.stderr).toContain('a command comes behind --');
  }
  expect(seen).toEqual([]);
  await run(['run', app, '--', 'python3', 'x.py']);
  expect(seen.map(({ route }) => route)).toContain('POST /api/v1/gateway/pods');
});

describe('deploy of handlers that are known to be refused', () => {
  const changes = (): readonly string[] =>
    seen.map(({ route }) => route).filter((route) => !route.startsWith('GET ') && !route.endsWith('/stubs/check'));
  const handler = (name: string, deployment = name): string =>
    `\n\n@endpoint(name="${deployment}")\ndef ${name}():\n    return 1\n`;
  const file = (...handlers: readonly string[]): string =>
    anApp(`from longshore import endpoint\n${handlers.join('')}`);

  test.for([
    ['a name that two have', '', ['would have the name of']],
    [
      'what the scheduler refuses',
      'CPU must be 400 or less.',
      ['cpu: 1 core, at most 0.4: it is this workspace', 'would'],
    ],
  ] as const)('%s: nothing of the file is changed, and each problem is told', async ([, text, told]) => {
    const problems = text === '' ? [] : [{ field: '', value: '', text }];
    reply = gateway({ 'POST /api/v1/gateway/stubs/check': { body: { problems, warnings: [], config: null } } });
    const app = file(handler('one'), handler('two', 'one'), handler('three'));
    const ended = await run(['deploy', app, '--json']);
    expect(ended.code).toBe(1);
    for (const words of told) expect(ended.stderr).toContain(words);
    expect(JSON.parse(ended.stdout)).toMatchObject({ deployed: [] });
    expect(changes()).toEqual([]);
  });

  test('every problem is told by a deploy as by its dry run, with limits and near names', async () => {
    const problems = [
      { field: '', value: '', text: 'CPU must be 500 or less.' },
      { field: '', value: '', text: 'Memory must be 0.1GiB or less.' },
      { field: 'secrets', value: 'MYKEY', text: 'there is no secret MYKEY in this workspace' },
      { field: 'gpu', value: 'H20O', text: 'no GPU model is called H20O' },
    ];
    reply = gateway({
      'GET /api/v1/workspace/current': { body: { external_id: 'w-1' } },
      'GET /api/v1/secret/w-1': { body: { data: [{ name: 'MY_KEY' }] } },
      'GET /api/v1/gateway/deployments': { body: { ok: true, deployments: [] } },
      'POST /api/v1/gateway/stubs/check': { body: { problems, warnings: [], config: null } },
    });
    const app = file(handler('one'));
    const told = [
      "app.py:4: cpu: 1 core, at most 0.5: it is this workspace's limit stub.cpu_millicores, which",
      "app.py:4: memory: 128 MiB, at most 0.1 GiB: it is this workspace's limit stub.memory_mib, which",
      'app.py:4: there is no secret MYKEY in this workspace; did you mean MY_KEY? `longshore secret set MYKEY`',
      'app.py:4: no GPU model is called H20O; did you mean H200?',
    ];
    const [dry, real] = [await run(['deploy', app, '--dry-run']), await run(['deploy', app])];
    for (const words of told) {
      expect(dry.stdout).toContain(words);
      expect(real.stderr).toContain(words);
    }
    expect(dry.stdout).toContain('4 problems');
    expect([dry.code, real.code, changes()]).toEqual([1, 1, []]);
  });

  test('the others of the file are named as held back', async () => {
    reply = gateway({ 'POST /api/v1/gateway/stubs/check': { body: { problems: [] } } });
    const app = file(handler('one'), handler('two', 'one'), handler('three'));
    const { stdout, stderr } = await run(['deploy', app]);
    expect(stdout.replaceAll(/ +/g, ' ')).toMatch(/one endpoint held back .*:one\nthree endpoint held back .*:three/);
    expect(stdout).toMatch(/^two +- +failed +\S+:two$/m);
    expect(stderr).toContain('nothing was changed for 2 handlers of the same file: correct it, and deploy it again');
  });

  test('a name that makes no sense has code 2, and a model or a pool that may come is no refusal', async () => {
    reply = gateway();
    const app = file(handler('one'));
    const named = await run(['deploy', app, '--name', 'zed/v2']);
    expect(named).toMatchObject({ code: 2, stderr: expect.stringContaining('zed/v2') as string });
    expect(changes()).toEqual([]);
    const may = ['gpu', 'pool'].map((field) => ({ field, value: 'x', text: `no ${field} x` }));
    reply = gateway({ 'POST /api/v1/gateway/stubs/check': { body: { problems: may } } });
    expect((await run(['deploy', app, '--json'])).code).toBe(0);
  });
});

describe('on a terminal', () => {
  test.for([
    ['Ctrl-C', '\u0003', 130],
    ['a closed terminal', '', 0],
  ] as const)('%s ends serve with its code, and the container', async ([, keys, code]) => {
    reply = gateway({
      'POST /api/v1/gateway/stubs/s-1/serve': { body: { ok: true, state: 'RUNNING', containerId: SANDBOX } },
      'GET /api/v1/gateway/stubs/s-1/url': { body: { ok: true, url: `${url}/endpoint/id/s-1` } },
      'DELETE /api/v1/gateway/stubs/s-1/serve': { body: { ok: true } },
    });
    const args = ['-c', terminal(200), process.execPath, MAIN, 'serve', anApp()];
    const child = spawn('python3', args, {
      env: { ...process.env, ...environment() },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    const ended = once(child, 'close');
    await waitFor(() => stdout.includes('Ctrl-C ends it'), 'it serves', 20_000);
    if (keys === '') {
      const pid = /^(\d+)$/m.exec(execFileSync('pgrep', ['-P', String(child.pid)], { encoding: 'utf8' }))?.[1];
      process.kill(Number(pid), 'SIGHUP');
    } else child.stdin.write(keys);
    expect((await ended)[0]).toBe(code);
    expect(seen.map(({ route }) => route)).toContain('DELETE /api/v1/gateway/stubs/s-1/serve');
  });
});

describe('an id that is not whole', () => {
  const TASKS = ['0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11', '0f6b9c77-1c3d-4f60-8d25-0b1f7e3a2222'];
  const HOOK = '5d1c7a20-1111-4f60-8d25-0b1f7e3a2222';
  beforeEach(() => {
    reply = (route) => {
      if (route === 'GET /api/v1/gateway/tasks') return { body: { ok: true, tasks: TASKS.map((id) => ({ id })) } };
      if (route === 'GET /api/v1/gateway/machines') return { body: { ok: true, machines: [{ id: '1a2b3c4d' }] } };
      if (route === 'GET /api/v1/gateway/containers')
        return { body: { ok: true, containers: [{ containerId: SANDBOX }] } };
      if (route === 'GET /api/v1/gateway/deployments')
        return { body: { ok: true, deployments: [{ id: HOOK, name: 'sum', stubType: 'endpoint/deployment' }] } };
      if (route === 'GET /api/v1/workspace/current') return { body: { external_id: 'w-1' } };
      if (/^GET .*\/(webhook|token|image)\/w-1$/.test(route)) return { body: { data: [{ id: HOOK }] } };
      if (route.startsWith('GET /api/v1/logs/')) return { body: { logs: [{ message: 'hi' }] } };
      return route.startsWith('GET') ? undefined : { body: { ok: true } };
    };
  });
  const routesOf = async (...args: readonly string[]): Promise<string> => {
    await run(args);
    return seen.map(({ route }) => route).join('\n');
  };

  test.for([
    ['task get 0f6b2', `GET /api/v1/task/w-1/${TASKS[0]}`],
    ['task rerun 0f6b2…', `POST /api/v1/task/w-1/${TASKS[0]}/rerun`],
    ['task watch 0f6b9', `GET /api/v1/task/w-1/${TASKS[1]}/subscribe`],
    ['explain 0f6b9c77', `GET /api/v1/explain/w-1/${TASKS[1]}`],
    ['machine delete 1a2b', 'DELETE /api/v1/gateway/machines/1a2b3c4d'],
    ['worker cordon 1a2b', 'POST /api/v1/gateway/workers/1a2b3c4d/cordon'],
    ['webhook delete 5d1c', `DELETE /api/v1/webhook/w-1/${HOOK}`],
    ['token delete 5d1c7', `DELETE /api/v1/token/w-1/${HOOK}`],
    ['image delete 5d1c7a', `DELETE /api/v1/image/w-1/${HOOK}`],
    ['deployment show 5d1c7a20', `GET /api/v1/deployment/w-1/${HOOK}`],
    ['container stop abcdef', `POST /api/v1/gateway/containers/${SANDBOX}/stop`],
  ] as const)('%s means the one that has it', async ([line, route]) => {
    expect(await routesOf(...line.split(' '))).toContain(route);
  });

  test('a task of which there are several is refused with them, and nothing is stopped', async () => {
    const { code, stderr } = await run(['task', 'stop', '0f6b']);
    expect([code, stderr]).toEqual([
      2,
      `longshore: 0f6b is part of several task ids: ${TASKS.join(', ')}; give more of one\n`,
    ]);
    expect(seen.some(({ route }) => route.startsWith('POST'))).toBe(false);
  });

  test('logs of a container or a task that stand as a name name the flag', async () => {
    expect(await run(['logs', SANDBOX])).toMatchObject({
      code: 4,
      stderr: `longshore: ${SANDBOX} is no deployment: \`longshore logs --container ${SANDBOX}\`\n`,
    });
    expect((await run(['logs', 'abcdef'])).stderr).toContain('`longshore logs --container abcdef`');
    expect((await run(['logs', '0f6b2a'])).stderr).toContain('`longshore logs --task 0f6b2a`');
    expect((await run(['logs', 'nobody'])).stderr).toContain('no deployment is named nobody');
    expect((await run(['logs', '--task', '0f6b2a'])).stdout).toContain('hi');
  });
});

// `deploy` against the server of cli-gate.ts: uploads, refusals, several handlers of a file.
import { describe, expect, test } from 'vitest';
import { anApp, gate, gateway, run, TOKEN, useGate } from './cli-gate.ts';

useGate();

describe('deploy', () => {
  test('uploads the archive without a bearer, makes the stub from the definition, and deploys it', async () => {
    gate.reply = gateway();
    const ended = await run(['deploy', anApp(), '--json']);
    expect(ended).toMatchObject({ code: 0 });
    const deployed = { name: 'sum', version: 3, deploymentId: 'd-1', stubId: 's-1', requiredInputs: ['a', 'b'] };
    expect(JSON.parse(ended.stdout)).toMatchObject(deployed);
    expect(gate.seen.map((one) => one.route.replace(/[0-9a-f]{64}/, '<sha256>'))).toEqual([
      'POST /api/v1/gateway/stubs/check',
      'GET /api/v1/gateway/objects/<sha256>',
      'POST /api/v1/gateway/objects',
      'PUT /put/o-1',
      'POST /api/v1/gateway/stubs',
      'POST /api/v1/gateway/stubs/deploy',
    ]);
    const [, , created, put, stub] = gate.seen;
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
    gate.reply = gateway({ 'POST /api/v1/gateway/stubs': { body: made } });
    const ended = await run(['deploy', anApp()]);
    expect(ended.code).toBe(0);
    expect(ended.stderr).toMatch(/^warning: No known GPU model: H1000\.$/m);
  });

  test('uploads nothing that the installation has', async () => {
    gate.reply = (route) =>
      route.startsWith('GET /api/v1/gateway/objects/')
        ? { body: { ok: true, exists: true, objectId: 'o-9' } }
        : gateway()(route);
    const ended = await run(['deploy', anApp()]);
    expect(ended.code).toBe(0);
    // A first call to fill in.
    expect(ended.stdout).toMatch(/ invoke sum --data '\{"a": …, "b": …\}'$/m);
    expect(gate.seen.some((one) => one.route.startsWith('PUT'))).toBe(false);
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
    gate.reply = gateway(special);
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
    expect(gate.seen).toEqual([]);
  });

  test('of a file that is no Python says where, once', async () => {
    const file = anApp('import os\n\ndef f(:\n  pass\n');
    const ended = await run(['deploy', file]);
    expect(ended).toMatchObject({ code: 1, stderr: `longshore: ${file}:3: SyntaxError: invalid syntax\n` });
    const beside = await run(['deploy', 'app.py'], '', gate.directory);
    expect(beside).toMatchObject({ code: 1, stderr: 'longshore: app.py:3: SyntaxError: invalid syntax\n' });
  });

  test('of one handler says how the others in its file are deployed', async () => {
    gate.reply = gateway();
    const three = ['a', 'b', 'c'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`).join('\n');
    const file = anApp(`from longshore import endpoint\n\n${three}`);
    const ended = await run(['deploy', `${file}:b`]);
    expect(ended.code).toBe(0);
    expect(ended.stdout).toMatch(
      /\n\nOthers in this file:\n {2}\S+ deploy \S+app\.py:a\n {2}\S+ deploy \S+app\.py:c\n$/,
    );
    gate.reply = gateway();
    expect((await run(['deploy', anApp()])).stdout).not.toContain('Others');
  });

  test('of a file with two handlers makes both, with one upload; prepare asks for one of them', async () => {
    gate.reply = gateway();
    const two = ['a', 'b'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`).join('\n');
    const file = anApp(`from longshore import endpoint\n\n${two}`);
    const made = await run(['deploy', file]);
    expect(made.code).toBe(0);
    expect(made.stdout).toMatch(/\n\nCall them:\n {2}curl -X POST \S+ -H .*\n {2}\S+ invoke [ab]\n$/);
    expect(gate.seen.filter(({ route }) => route === 'POST /api/v1/gateway/stubs/deploy')).toHaveLength(2);
    expect(gate.seen.filter(({ route }) => route === 'PUT /put/o-1')).toHaveLength(1);
    const ended = await run(['prepare', file]);
    expect(ended.code).toBe(2);
    expect(ended.stderr).toContain(`several handlers (a, b): name one, as in ${file}:a`);
  });

  test('of two handlers with a token that is not accepted says so once, with the exit code of that', async () => {
    const refused = { status: 401, body: { code: 16, message: 'invalid or missing token' } };
    gate.reply = gateway({ 'POST /api/v1/gateway/objects': refused });
    const two = ['a', 'b'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`).join('\n');
    const ended = await run(['deploy', anApp(`from longshore import endpoint\n\n${two}`)]);
    expect(ended).toMatchObject({ code: 3, stdout: '' });
    expect(ended.stderr.match(/does not accept the token/g)).toHaveLength(1);
  });
});

describe('deploy of handlers that are known to be refused', () => {
  const changes = (): readonly string[] =>
    gate.seen.map(({ route }) => route).filter((route) => !route.startsWith('GET ') && !route.endsWith('/stubs/check'));
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
    gate.reply = gateway({ 'POST /api/v1/gateway/stubs/check': { body: { problems, warnings: [], config: null } } });
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
    gate.reply = gateway({
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
    gate.reply = gateway({ 'POST /api/v1/gateway/stubs/check': { body: { problems: [] } } });
    const app = file(handler('one'), handler('two', 'one'), handler('three'));
    const { stdout, stderr } = await run(['deploy', app]);
    expect(stdout.replaceAll(/ +/g, ' ')).toMatch(/one endpoint held back .*:one\nthree endpoint held back .*:three/);
    expect(stdout).toMatch(/^two +- +failed +\S+:two$/m);
    expect(stderr).toContain('nothing was changed for 2 handlers of the same file: correct it, and deploy it again');
  });

  test('a name that makes no sense has code 2, and a model or a pool that may come is no refusal', async () => {
    gate.reply = gateway();
    const app = file(handler('one'));
    const named = await run(['deploy', app, '--name', 'zed/v2']);
    expect(named).toMatchObject({ code: 2, stderr: expect.stringContaining('zed/v2') as string });
    expect(changes()).toEqual([]);
    const may = ['gpu', 'pool'].map((field) => ({ field, value: 'x', text: `no ${field} x` }));
    gate.reply = gateway({ 'POST /api/v1/gateway/stubs/check': { body: { problems: may } } });
    expect((await run(['deploy', app, '--json'])).code).toBe(0);
  });
});

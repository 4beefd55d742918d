// The verbs of the command line against a real scheduler and a real agent: tokens, machines, pools, workspaces,
// credentials of registries, and answers to what is not there.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { MAIN } from '../helpers/platform.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { test } from '../helpers/typed-commands.ts';

describe('tokens', () => {
  test('are made, shown masked, switched off at once and deleted; the one in use is protected', async ({ line }) => {
    const made = await line.run(['token', 'create']);
    expect(made).toMatchObject({ code: 0, stderr: expect.stringContaining('shown this once') as string });
    const key = made.stdout.trim();
    expect(key.split('.')).toHaveLength(3);
    const listed = await line.json<readonly { id: string; key: string; token_type: string }[]>(['token', 'list']);
    const token = listed.find((one) => one.key.endsWith(key.slice(-4)) && one.token_type === 'workspace');
    const id = token?.id ?? '';
    expect(token?.key).not.toBe(key);
    expect((await line.run(['deployment', 'list'], key)).code).toBe(0);

    expect(await line.run(['token', 'toggle', id], key)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('to switch it off all the same, add --force') as string,
    });
    expect((await line.run(['token', 'toggle', id])).stdout).toBe(`token ${id} is switched off\n`);
    expect(await line.run(['deployment', 'list'], key)).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('does not accept the token') as string,
    });
    expect((await line.run(['token', 'toggle', id])).stdout).toBe(`token ${id} is active again\n`);
    expect((await line.run(['deployment', 'list'], key)).code).toBe(0);
    expect((await line.run(['token', 'delete', id])).stdout).toBe(`deleted token ${id}\n`);
    expect(await line.run(['token', 'delete', id])).toMatchObject({
      code: 4,
      stdout: '',
      stderr: `longshore: there is no token ${id} to change: \`longshore token list\` shows them\n`,
    });
    expect((await line.run(['deployment', 'list'], key)).code).toBe(3);

    const restricted = (await line.run(['token', 'create', '--type', 'workspace_restricted'])).stdout.trim();
    expect((await line.run(['deployment', 'list'], restricted)).code).toBe(0);
    // Refused by the gateway in two ways, and by the REST API in a third.
    for (const args of ['token list', 'pool list', 'worker list', 'secret list']) {
      const refused = await line.run(args.split(' '), restricted);
      expect(refused.stderr).toMatch(/^longshore: this token is good, but .* a full token of that workspace.*\n$/);
      expect(refused).toMatchObject({ code: 3, stdout: '' });
    }
    expect(await line.run(['status'], restricted)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/\nMachines\n\(not shown to a restricted token\)\n\nDeployments\n/) as string,
    });
    expect((await line.json(['status'], restricted))['machines']).toBeNull();
    const limited = await line.run(['token', 'create', '--name', 'ci', '--scope', 'read', '--expires', '90d']);
    expect(limited.stderr).toMatch(/^token .* \(workspace, may: read, expires 2.*\); its key is shown this once/);
    const reader = limited.stdout.trim();
    expect((await line.run(['deployment', 'list'], reader)).code).toBe(0);
    expect((await line.run(['token', 'list'], reader)).stderr).toContain('this token has the scope read alone');
    const table = (await line.run(['token', 'list'])).stdout;
    expect(table).toMatch(/^ID +NAME +TYPE +ACTIVE +MAY +EXPIRES +LAST USED +KEY +CREATED/);
    expect(table).toMatch(/ ci +workspace +yes +read +in (89|90)d +/);
    const rows = await line.json<readonly { id: string; name: string }[]>(['token', 'list']);
    const readerId = rows.find((row) => row.name === 'ci')?.id ?? '';
    const updated = await line.run([
      'token',
      'update',
      readerId,
      '--name',
      'board',
      '--scope',
      'all',
      '--expires',
      'never',
    ]);
    expect(updated.stdout).toBe(`token ${readerId}: name board, may all, expires never\n`);
    expect((await line.run(['token', 'list'], reader)).code).toBe(0);
    expect(await line.run(['token', 'update', readerId])).toMatchObject({ code: 2 });
    expect(await line.run(['token', 'update', readerId, '--scope', 'write'])).toMatchObject({ code: 2 });
    const once = (await line.run(['token', 'create', '--once'])).stdout.trim();
    expect((await line.run(['deployment', 'list'], once)).code).toBe(0);
    expect((await line.run(['deployment', 'list'], once)).code).toBe(3);
  }, 120_000);
});

describe('machines, workers and pools', () => {
  test('a machine is admitted with one token, listed and deleted', async ({ line }) => {
    const made = await line.run(['machine', 'create', '--pool', 'quay']);
    expect(made.stdout).toMatch(/^machine [0-9a-f]{8} is admitted to the pool quay\./);
    const token = /^ {2}(lsj1\.[0-9a-f]{64}\.\S+)$/m.exec(made.stdout)?.[1] ?? '';
    expect(made.stdout).toMatch(
      new RegExp(
        `LONGSHORE_SCHEDULER_ADDRESS=127\\.0\\.0\\.1:\\d+ LONGSHORE_JOIN_TOKEN=${token.replaceAll('.', '\\.')} longshore agent`,
      ),
    );
    expect(made.stderr).toContain('from this machine only');
    const id = /^machine ([0-9a-f]{8})/.exec(made.stdout)?.[1] ?? '';
    expect(await line.json(['machine', 'list', '--pool', 'quay'])).toMatchObject([
      { id, poolName: 'quay', status: 'pending', registrationToken: '' },
    ]);
    expect((await line.run(['machine', 'list'])).stdout).toMatch(new RegExp(`^${id} +quay +pending .* never$`, 'm'));
    expect(await line.run(['pool', 'delete', 'quay'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`pool quay has machines: ${id} (admitted, never came)`) as string,
    });
    // The scheduler of this test has no release to give out.
    const other = await line.json<{ machine: { id: string }; installLine: null }>([
      'machine',
      'create',
      '--pool',
      'quay',
    ]);
    expect(other.installLine).toBeNull();
    expect((await line.run(['machine', 'delete', other.machine.id])).code).toBe(0);
    expect(await line.run(['worker', 'drain', id, '--wait'])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(`machine ${id} never joined.*\`longshore machine delete ${id}\``) as string,
    });
    expect(await line.run(['explain', id])).toMatchObject({
      code: 4,
      stderr: expect.stringMatching(
        `${id} is a machine, and explain knows tasks, .*\`longshore machine show ${id}\``,
      ) as string,
    });
    expect((await line.run(['machine', 'delete', id])).stdout).toBe(`deleted machine ${id}\n`);
    expect(await line.run(['machine', 'delete', id])).toMatchObject({
      code: 4,
      stderr: `longshore: there is no machine ${id}: \`longshore machine list\` shows them\n`,
    });
  });

  test('one machine is shown with what its host is made of, which lists leave out', async ({ line, platform }) => {
    const id = platform.machineId() ?? '';
    expect(await line.json(['machine', 'show', id])).toMatchObject({
      id,
      status: 'available',
      host: {
        arch: expect.stringMatching(/^(x86_64|arm64)$/) as string,
        fileSystems: [{ holds: 'state' }, { holds: 'images' }],
      },
    });
    expect(await line.json(['machine', 'list'])).toMatchObject([{ id, host: null }]);
    const { stdout } = await line.run(['machine', 'show', id]);
    expect(stdout).toMatch(new RegExp(`^MACHINE +${id}$`, 'm'));
    expect(stdout).toMatch(/^NUMA node 0 +cores 0\S*, [\d.]+ GiB$/m);
  });

  test('a pool is made with settings, shown, and set to others; what makes no sense is said by name', async ({
    line,
  }) => {
    const made = ['pool', 'create', 'basin', '--cpu-overcommit', '2.5', '--requires-pool-selector', 'yes'];
    expect(await line.run(made)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('longshore machine create --pool basin') as string,
    });
    expect(await line.json([...made.slice(0, 3), '--priority', 'default'])).toMatchObject({
      pool: 'basin',
      done: 'unchanged',
      settings: { cpuOvercommit: 2.5 },
    });
    expect((await line.run(made)).stdout).toMatch(/^pool basin was there already: /);
    expect(await line.run([...made.slice(0, 3), '--priority', '5'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('`longshore pool set basin --priority 5` changes them') as string,
    });
    expect((await line.run(['pool', 'list'])).stdout).toMatch(
      /^basin .* cpuOvercommit 2\.5, requiresPoolSelector yes$/m,
    );
    const set = await line.run(['pool', 'set', 'basin', '--cpu-overcommit', 'default', '--reserved-cpu-cores', '0.5']);
    expect(set.stdout).toMatch(/^cpuOvercommit +1$/m);
    const shown = (await line.run(['pool', 'show', 'basin'])).stdout;
    expect(shown).toBe(set.stdout);
    expect(shown).toMatch(
      /^requiresPoolSelector +yes\npriority +0\nreservedCpuCores +0\.5\nreservedMemoryMib +5 % of the memory\nlabels +none\nhourlyCost +as the provider lists it, else not known$/m,
    );
    for (const [args, code, stderr] of [
      [['show', 'puddle'], 4, 'this token sees no pool puddle: `longshore pool list` shows those it sees'],
      [['set', 'puddle', '--priority', '1'], 4, 'this token sees no pool puddle'],
      [['delete', 'puddle'], 4, 'this token sees no pool puddle'],
      [['set', 'basin'], 2, 'say what to change'],
      [['set', 'basin', '--cpu-overcommit', '65'], 2, 'must be a number from 1 to 64, or default'],
    ] as const) {
      const contains = expect.stringContaining(stderr) as string;
      expect(await line.run(['pool', ...args])).toMatchObject({ code, stderr: contains });
    }
    expect(await line.json(['pool', 'show', 'basin'])).toMatchObject({ name: 'basin', settings: { cpuOvercommit: 1 } });
    expect((await line.run(['pool', 'delete', 'basin'])).code).toBe(0);
  });

  test('a worker is cordoned, drained and brought back, and a machine in service is not deleted', async ({
    line,
    platform,
  }) => {
    const id = platform.machineId() ?? '';
    expect(await line.json(['worker', 'list'])).toMatchObject([{ id, status: 'available', cordonRequested: false }]);
    expect((await line.run(['worker', 'list'])).stdout).toMatch(
      new RegExp(`^${id} +default +available +\\S+ of \\S+ +\\S+ \\S+ of \\S+ \\S+ +- +\\d+$`, 'm'),
    );
    expect((await line.run(['pool', 'list'])).stdout).toMatch(/^default +HEALTHY +- +1 /m);
    expect(await line.run(['machine', 'delete', id])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`longshore worker drain ${id}`) as string,
    });

    expect((await line.run(['worker', 'cordon', id])).stdout).toContain(`worker ${id} takes nothing new`);
    expect((await line.run(['worker', 'list'])).stdout).toContain('disabled (cordoned)');
    expect((await line.run(['worker', 'uncordon', id])).stdout).toBe(`worker ${id} takes containers again\n`);
    expect((await line.run(['worker', 'drain', id])).stdout).toContain('is drained: nothing runs there');
    expect(await line.json(['worker', 'list'])).toMatchObject([{ status: 'disabled', cordonRequested: true }]);
    expect((await line.run(['worker', 'uncordon', id])).code).toBe(0);
    expect(await line.json(['worker', 'list'])).toMatchObject([{ status: 'available', cordonRequested: false }]);
  });
});

test('a workspace is made with a token of its own, which sees nothing of another', async ({ line }) => {
  const made = await line.json<{ readonly token: string; readonly name: string }>(['workspace', 'create', 'harbour']);
  expect(made.name).toBe('harbour');
  expect((await line.run(['workspace', 'list'])).stdout).toMatch(/^[0-9a-f-]{36} +harbour +\d+s ago +active +-$/m);
  const file = line.app('mine', 'from longshore import endpoint\n\n@endpoint(name="mine")\ndef mine(): ...\n');
  await line.json(['deploy', file]);
  expect(await line.json(['deployment', 'list'], made.token)).toEqual([]);
  for (const noun of ['worker', 'machine', 'container', 'task', 'pool'])
    expect(await line.json([noun, 'list'], made.token)).toEqual([]);
  expect((await line.run(['status'], made.token)).stdout).toContain(
    "\nMachines\n(none of its own; shared machines are the administrator's to see)\n",
  );
  expect((await line.run(['status'])).stdout).toMatch(/\nMachines\nID +POOL /);
  expect(await line.run(['deployment', 'stop', 'mine'], made.token)).toMatchObject({
    code: 4,
    stderr: 'longshore: no deployment is named mine: `longshore deployment list` shows them\n',
  });
  expect(await line.run(['workspace', 'create', 'another'], made.token)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('admin token') as string,
  });
  // A second one of the name could only be told from the first by its id. Its token may be made anew instead.
  expect(await line.run(['workspace', 'create', 'harbour'])).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('there is a workspace harbour already') as string,
  });
  const again = (await line.run(['token', 'create', '--workspace', 'harbour', '--name', 'again'])).stdout.trim();
  expect(await line.json(['deployment', 'list'], again)).toEqual([]);
  expect((await line.run(['token', 'list', '--workspace', 'harbour'])).stdout).toContain(' again ');
  expect((await line.run(['token', 'list'])).stdout).not.toContain(' again ');
  expect(await line.run(['token', 'create', '--workspace', 'nowhere'])).toMatchObject({ code: 4, stdout: '' });
  expect(await line.run(['token', 'list', '--workspace', 'harbour'], again)).toMatchObject({ code: 3 });
  // The same holds for pools: the token sees those of its workspace, and no word of the shared one.
  expect(await line.json(['pool', 'create', 'cove'], made.token)).toMatchObject({ pool: 'cove', done: 'created' });
  expect(await line.json(['pool', 'create', 'cove'], made.token)).toMatchObject({ pool: 'cove', done: 'unchanged' });
  expect(await line.run(['pool', 'show', 'default'], made.token)).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('this token sees no pool default: `longshore pool list`') as string,
  });
  expect((await line.run(['pool', 'delete', 'cove'], made.token)).code).toBe(0);
  const second = (await line.run(['workspace', 'create', 'wharf'])).stdout.trim();
  expect((await line.run(['deployment', 'list'], second)).stdout).toBe('(none)\n');
  await line.run(['deployment', 'delete', 'mine']);
});

test('credentials of a registry are set, listed and deleted; the password comes from a file and never back', async ({
  line,
}) => {
  const directory = tempDirectory('password');
  const file = join(directory.path, 'password');
  writeFileSync(file, 'pass-word-of-the-robot\n');
  const set = ['registry', 'set', 'ghcr.io', '--username', 'robot', '--file', file, '--repositories'];
  expect(await line.run([...set, 'team*'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('/repositories/0') as string,
  });
  for (const _time of [1, 2]) {
    expect(await line.run([...set, 'team/*, base'])).toMatchObject({
      code: 0,
      stdout: 'images of ghcr.io (team/*, base) are pulled as robot\n',
    });
  }
  const listed = await line.run(['registry', 'list', '--json']);
  expect(listed.stdout).toContain('LONGSHORE_REGISTRY_GHCR_IO');
  expect(listed.stdout).not.toContain('pass-word');
  expect((await line.run(['registry', 'list'])).stdout).toMatch(/^ghcr_io +\d+s ago$/m);
  expect((await line.run(['registry', 'delete', 'ghcr.io'])).code).toBe(0);
  expect((await line.run(['registry', 'list'])).stdout).toBe('(none)\n');
  directory.remove();
});

test.for([
  [
    'image=Image("micromamba3.13", commands=["x"])',
    /python_version: must be python3, .* or micromamba3.8 to micromamba3.12/,
  ],
  ['image=Image().with_secrets(["KEY"])', /with_secrets: a build gets no secrets/],
  ['image=Image(commands=["true"]), secrets=["API_KEY"]', /there is no secret API_KEY in this workspace/],
  ['secrets=["API_KEY"]', /there is no secret API_KEY in this workspace: `longshore secret set API_KEY`, then deploy/],
] as const)('deploying an app with %s says what is missing and what to do', async ([option, stderr], { line }) => {
  const text = `from longshore import Image, endpoint\n\n@endpoint(name="lacking", ${option})\ndef lacking(): ...\n`;
  expect(await line.run(['deploy', line.app('lacking', text)])).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(stderr) as string,
  });
});

const NOWHERE = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';
test.for([
  [['task', 'get', NOWHERE], /cannot show task .* `longshore task list` shows those there are/],
  [['task', 'stop', NOWHERE], /task 0f6b2a1e\S* was not stopped: .* `longshore task list`/],
  [['task', 'list', '--deployment', 'nobody'], /no deployment is named nobody: `longshore deployment list`/],
  [['deployment', 'stop', NOWHERE], /no deployment has the id 0f6b2a1e\S*: `longshore deployment list`/],
  [['deployment', 'start', 'nobody/v7'], /no deployment is named nobody\/v7: `longshore deployment list`/],
  [['deployment', 'scale', 'nobody', '1'], /no deployment is named nobody/],
  [['deployment', 'delete', 'nobody', '--yes'], /no deployment is named nobody/],
  [
    ['container', 'stop', `endpoint-${NOWHERE}-00000000`],
    /no container endpoint-\S+ runs here: `longshore container list`/,
  ],
  [['container', 'stop', '00000000'], /no container's id ends in 00000000: `longshore container list`/],
  [['machine', 'show', 'ffffffff'], /there is no machine ffffffff: `longshore machine list`/],
  [['machine', 'delete', 'ffffffff'], /there is no machine ffffffff: `longshore machine list`/],
  [['machine', 'list', '--pool', 'nowhere'], /this token sees no pool nowhere: `longshore pool list`/],
  [['worker', 'cordon', 'ffffffff'], /there is no worker ffffffff: `longshore worker list`/],
  [['worker', 'drain', '../x'], /there is no worker \.\.\/x/],
  [['token', 'toggle', NOWHERE], /there is no token \S+ to change: `longshore token list`/],
  [['token', 'delete', 'x'], /there is no token x to change/],
  [['secret', 'delete', 'NOPE'], /there is no secret NOPE in this workspace: `longshore secret list`/],
  [['registry', 'delete', 'nope.test'], /there are no credentials for nope.test: `longshore registry list`/],
  [['logs', '--task', 'zzz'], /there is no task zzz: `longshore task list`/],
  [['logs', '--task', NOWHERE], /there is no task 0f6b2a1e\S*: `longshore task list`/],
  [
    ['logs', '--container', 'ffffffff'],
    /no container .* whose id ends in ffffffff: give the whole id: `longshore container list`/,
  ],
  [['explain', 'ffffffff'], /there is no task, container or deployment ffffffff: .* by its whole id/],
] as const)('what is not there is said with what to do next: %j', async ([args, sentence], { line }) => {
  const ended = await line.run(args);
  expect(ended).toMatchObject({ code: 4, stdout: '' });
  expect(ended.stderr).toMatch(sentence);
  expect(ended.stderr.trimEnd().split('\n')).toHaveLength(1);
});

test('a reader that has enough ends the program quietly', async ({ line }) => {
  for (const args of [['--help'], ['deployment', 'list'], ['worker', 'list', '--json']]) {
    const child = spawn(process.execPath, [MAIN, ...args], { env: line.env(), stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    const [code] = (await once(child, 'close')) as [number | null];
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  }
});

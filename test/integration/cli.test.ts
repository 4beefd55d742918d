// Further commands against the server of cli-gate.ts: lists, deletions, names and ids, terminals.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { beforeEach, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { terminal } from '../helpers/terminal.ts';
import { MAIN, SANDBOX, anApp, environment, gate, gateway, run, useGate } from './cli-gate.ts';
import type { Reply } from './cli-gate.ts';

useGate();

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
  gate.reply = (route) => ({ body: answers[route] });
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
  gate.reply = (route) => (route === 'GET /install/agent' ? { body: '#!/bin/sh' } : undefined);
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
    expect(gate.seen).toEqual([]);
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
      gate.reply = (route) => {
        if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
        if (route === 'GET /api/v1/volume/w-1/stuff/size') return answer;
        return route === 'DELETE /api/v1/volume/w-1/stuff' ? { body: { removed: 2, complete: true } } : undefined;
      };
    };
    const deletions = () => gate.seen.filter(({ route }) => route.startsWith('DELETE')).length;

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
      gate.reply = (route) => {
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
    gate.reply = (route, request) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'DELETE /api/v1/secret/w-1/KEY') return { status: 204, body: '' };
      if (route !== 'GET /api/v1/deployment/w-1') return undefined;
      const cursor = URL.parse(request.url ?? '', gate.url)?.searchParams.get('cursor');
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

test('containers without a deployment have their own name, and images the deployments that use them', async () => {
  const record = (name: string, version: number, image: string) => ({
    ...{ name, version },
    stub: { config: JSON.stringify({ runtime: { image_id: image } }) },
  });
  gate.reply = (route) => {
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
  gate.reply = (route) => {
    const list = (items: readonly object[], field = 'data') => ({ body: { ok: true, [field]: items } });
    if (route === 'GET /api/v1/workspace/current') return { body: { external_id: 'w-1' } };
    if (/^GET .*\/(volume|secret|stack)\/w-1$/.test(route)) return list([{ name: 'models' }]);
    if (route === 'GET /api/v1/gateway/deployments') return list([{ id, name: 'sum' }], 'deployments');
    if (/^GET .*\/gateway\/(machines|workers)$/.test(route)) {
      const field = route.slice(route.lastIndexOf('/') + 1);
      return list(gate.seen.length > 1 ? [{ id: '1a2b3c4d' }] : [], field);
    }
    if (route.endsWith('/cordon')) return { body: { ok: false, errMsg: 'worker not found' } };
    return { status: 404, body: { code: route.includes('/volume/') ? 'volume_not_found' : '', message: 'Not Found' } };
  };
  const said = async (line: string): Promise<string> => {
    gate.seen = [];
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
  gate.reply = gateway();
  const app = `${anApp()}:add`;
  for (const words of [['3'], ['python3', 'x.py'], ['[3]'], ['n=3']]) {
    const ended = await run(['run', app, ...words]);
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringContaining('inputs are a JSON object, such as') });
    expect(ended.stderr).toContain('a command comes behind --');
  }
  expect(gate.seen).toEqual([]);
  await run(['run', app, '--', 'python3', 'x.py']);
  expect(gate.seen.map(({ route }) => route)).toContain('POST /api/v1/gateway/pods');
});

describe('on a terminal', () => {
  test.for([
    ['Ctrl-C', '\u0003', 130],
    ['a closed terminal', '', 0],
  ] as const)('%s ends serve with its code, and the container', async ([, keys, code]) => {
    gate.reply = gateway({
      'POST /api/v1/gateway/stubs/s-1/serve': { body: { ok: true, state: 'RUNNING', containerId: SANDBOX } },
      'GET /api/v1/gateway/stubs/s-1/url': { body: { ok: true, url: `${gate.url}/endpoint/id/s-1` } },
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
    expect(gate.seen.map(({ route }) => route)).toContain('DELETE /api/v1/gateway/stubs/s-1/serve');
  });
});

describe('an id that is not whole', () => {
  const TASKS = ['0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11', '0f6b9c77-1c3d-4f60-8d25-0b1f7e3a2222'];
  const HOOK = '5d1c7a20-1111-4f60-8d25-0b1f7e3a2222';
  beforeEach(() => {
    gate.reply = (route) => {
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
    return gate.seen.map(({ route }) => route).join('\n');
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
    expect(gate.seen.some(({ route }) => route.startsWith('POST'))).toBe(false);
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

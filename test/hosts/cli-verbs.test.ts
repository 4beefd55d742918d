// The verbs of the command line against a real scheduler and a real agent: the commands that people type, and the
// answers they get. Names, not ids, wherever people have names.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect } from 'vitest';
import { MAIN, ROOT, test as base } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { endOf, runProgram, tempDirectory, waitFor } from '../helpers/programs.ts';
import type { Ended } from '../helpers/programs.ts';

interface Line {
  /** Runs `longshore …` with the installation's admin token, or another. */
  readonly run: (args: readonly string[], token?: string) => Promise<Ended>;
  /** Runs the command with `--json`; the command must succeed. */
  readonly json: <T = Readonly<Record<string, unknown>>>(args: readonly string[], token?: string) => Promise<T>;
  /** An app file in a directory of its own. */
  readonly app: (name: string, text: string) => string;
  readonly env: (token?: string) => NodeJS.ProcessEnv;
}

const test = base.extend('line', async ({ platform }): Promise<Line> => {
  const env = (token = platform.token): NodeJS.ProcessEnv => ({
    ...platform.env(),
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: token,
  });
  const run: Line['run'] = (args, token) => endOf(process.execPath, [MAIN, ...args], { env: env(token) });
  return {
    env,
    run,
    json: async <T>(args: readonly string[], token?: string) => {
      const ended = await run([...args, '--json'], token);
      if (ended.code !== 0) throw new Error(`longshore ${args.join(' ')}: ${ended.stderr}`);
      return JSON.parse(ended.stdout) as T;
    },
    app: (name, text) => {
      const directory = join(platform.directory, name);
      mkdirSync(directory, { recursive: true });
      writeFileSync(join(directory, 'app.py'), text);
      return join(directory, 'app.py');
    },
  };
});

const WAIT_MS = 30_000;

interface Used {
  readonly cpuMillicores: number;
  readonly memoryBytes: number | string;
  readonly processes: number;
  readonly sampledAt: string;
}

interface Named {
  readonly id: string;
  readonly name: string;
  readonly version: number;
  readonly active: boolean;
}

describe('deployments', () => {
  test('of an app in a folder have the modules of the root that is named', { timeout: 120_000 }, async ({ line }) => {
    const file = line.app(
      'rooted/src',
      'from longshore import endpoint\nfrom src.models import double\n\n@endpoint(name="rooted", cpu="100m")\ndef call(n=0):\n    return {"n": double(n)}\n',
    );
    const folder = dirname(file);
    writeFileSync(join(folder, 'models.py'), 'def double(n):\n    return 2 * n\n');
    mkdirSync(join(folder, 'other'));
    const root = dirname(folder);
    expect(await line.run(['deploy', file])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        `src is a folder above the file. Give the folder that holds it: --root ${root}`,
      ) as string,
    });
    for (const [wrong, text] of [
      [join(root, 'nowhere'), `--root: there is no directory ${join(root, 'nowhere')}`],
      [file, `--root: there is no directory ${file}`],
      ['', "--root: there is no directory ''"],
      [join(folder, 'other'), `--root: ${file} is outside of `],
    ] as const)
      expect(await line.run(['deploy', file, '--root', wrong]), wrong).toMatchObject({
        code: 2,
        stderr: expect.stringContaining(text) as string,
      });
    expect(await line.json(['deployment', 'list', '--name', 'rooted'])).toEqual([]);

    await line.json(['deploy', `${file}:call`, '--root', root]);
    expect((await line.run(['invoke', 'rooted', '--data', '{"n":21}'])).stdout).toBe('{"n":42}');
    // The same files and recipe make the same stub.
    const { stubId } = await line.json<{ readonly stubId: string }>(['prepare', file, '--root', root]);
    expect(stubId).toMatch(/^[0-9a-f-]{36}$/);
    await line.run(['deployment', 'delete', 'rooted']);
  });

  test('are listed, stopped, started, scaled and deleted by their names', async ({ line, platform }) => {
    const file = line.app(
      'greet',
      'from longshore import endpoint\n\n@endpoint(name="greet", cpu="100m")\ndef greet(n=0):\n    return {"n": n}\n',
    );
    await line.json(['deploy', file]);
    writeFileSync(
      file,
      'from longshore import endpoint\n\n@endpoint(name="greet", cpu="100m")\ndef greet(n=0):\n    return {"n": n + 1}\n',
    );
    await line.json(['deploy', file]);
    const listed = await line.json<readonly Named[]>(['deployment', 'list', '--name', 'gree']);
    expect(listed.map((one) => [one.name, one.version, one.active])).toEqual([
      ['greet', 2, true],
      ['greet', 1, true],
    ]);
    expect((await line.run(['deployment', 'list'])).stdout).toMatch(
      /^NAME +VERSION +KIND +ACTIVE +SERVES +CREATED +ID\n(?:.*\n)*greet +v2 +endpoint +yes +yes +\d+s ago +[0-9a-f-]{36}\n/,
    );

    // A name stands for the version that serves it, and the answer says that another version goes on.
    expect(await line.run(['deployment', 'stop', 'greet'])).toMatchObject({
      code: 0,
      stdout: 'stopped greet v2\n',
      stderr: expect.stringContaining('still active: v1 (`longshore deployment stop greet --all-versions`') as string,
    });
    const refused = await line.run(['invoke', 'greet']);
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('greet is stopped: longshore deployment start greet') as string,
    });
    expect((await line.run(['invoke', 'greet', '--version', '1', '--data', '{"n":5}'])).stdout).toBe('{"n":5}');
    expect((await line.run(['deployment', 'start', 'greet/v2'])).stdout).toBe('started greet v2\n');
    expect((await line.run(['invoke', 'greet', '--data', '{"n":5}'])).stdout).toBe('{"n":6}');

    const [latest] = listed;
    expect((await line.run(['deployment', 'scale', latest?.id ?? '', '1'])).stdout).toBe(
      'greet v2 keeps 1 container\n',
    );
    await waitFor(
      async () =>
        (await containers(platform)).some((one) => one.deploymentId === latest?.id && one.status === 'RUNNING'),
      'a container of greet v2 runs',
      WAIT_MS,
    );
    const table = (await line.run(['container', 'list'])).stdout;
    const id = /^(\S+) +RUNNING +greet v2/m.exec(table)?.[1] ?? '';
    expect((await line.run(['container', 'stop', id.slice(-8)])).stdout).toBe(`stopping ${id}: it has 30 s to end\n`);
    await waitFor(
      async () => (await containers(platform)).every((one) => one.containerId !== id),
      `${id} is gone`,
      WAIT_MS,
    );
    expect((await line.run(['container', 'list'])).stdout).not.toContain(id);

    expect((await line.run(['deployment', 'scale', 'greet', '0'])).stdout).toBe(
      'greet v2 runs nothing until work comes\n',
    );
    expect((await line.run(['deployment', 'delete', 'greet', '--all-versions'])).stdout).toBe(
      'deleted greet v2\ndeleted greet v1\n',
    );
    expect(await line.json(['deployment', 'list', '--name', 'greet'])).toEqual([]);
    expect((await line.run(['deployment', 'list', '--name', 'greet'])).stdout).toBe('(none)\n');
    expect(await line.json(['deploy', file])).toMatchObject({ name: 'greet', version: 3 });
    expect(await line.run(['deployment', 'delete', 'greet'])).toMatchObject({
      stdout: 'deleted greet v3\n',
      stderr: '',
    });
    await noContainers(platform);
  }, 120_000);

  test('show what their containers use, and a busy one uses processor time', async ({ line, platform }) => {
    const file = line.app(
      'busy',
      `import threading

from longshore import endpoint


def spin():
    while True:
        pass


threading.Thread(target=spin, daemon=True).start()


@endpoint(name="busy", cpu="200m")
def busy():
    return {}
`,
    );
    await line.json(['deploy', file]);
    await line.run(['deployment', 'scale', 'busy', '1']);
    const used = async (is: (usage: Used) => boolean, what: string): Promise<Used> => {
      await waitFor(
        async () => {
          const usage = (await containers(platform))[0]?.usage ?? null;
          return usage !== null && is(usage);
        },
        what,
        WAIT_MS,
      );
      const [shown] = await line.json<readonly { readonly usage: Used | null }[]>(['container', 'list']);
      if (shown?.usage === null || shown?.usage === undefined) throw new Error('its usage is not shown');
      return shown.usage;
    };
    // The first sample of a container has no processor time yet.
    const first = await used(({ cpuMillicores }) => cpuMillicores > 0, 'it uses processor time');
    const later = await used(({ sampledAt }) => sampledAt > first.sampledAt, 'it is sampled again');
    for (const usage of [first, later]) {
      // The handler keeps busy within its CPU request, and Python alone takes some megabytes.
      expect(usage.cpuMillicores).toBeGreaterThan(20);
      expect(usage.cpuMillicores).toBeLessThan(400);
      expect(Number(usage.memoryBytes)).toBeGreaterThan(2 * 1024 ** 2);
      expect(usage.processes).toBeGreaterThan(0);
    }
    // The samples become series of the stub, of the workspace and of the machine's pool.
    const metrics = ['metrics', 'stub', 'busy', '--since', '5m', '--interval', '5m'];
    const values = async (args: readonly string[]): Promise<readonly Readonly<Record<string, unknown>>[]> =>
      (await line.json<{ timeseries: { aggregation_buckets: [] } }>(args)).timeseries.aggregation_buckets;
    await waitFor(
      async () => (await values(metrics)).some((bucket) => Number(bucket['doc_count']) > 1),
      'two samples of it are stored',
      WAIT_MS,
    );
    for (const args of [metrics, ['metrics', 'workspace', ...metrics.slice(3)]]) {
      const bucket = (await values(args)).at(-1) as Readonly<Record<string, { readonly value: number }>>;
      expect(bucket).toMatchObject({ container_count: { value: 1 }, cpu_concurrency: { value: 200 } });
      expect(bucket['cpu_used_avg']?.value).toBeGreaterThan(20);
      expect(bucket['cpu_used_avg']?.value).toBeLessThan(400);
      expect(bucket['memory_rss_bytes_avg']?.value).toBeGreaterThan(2 * 1024 ** 2);
      expect(bucket['memory_vms_bytes_avg']?.value).toBeGreaterThan(bucket['memory_rss_bytes_avg']?.value ?? Infinity);
      expect(bucket['memory_total_bytes_avg']?.value).toBeGreaterThan(bucket['memory_rss_bytes_avg']?.value ?? 0);
    }
    const table = await line.run(metrics);
    expect(table.stdout).toMatch(/^TIME +CONTAINERS +CPU EACH +MEMORY EACH /);
    expect(table.stdout).toMatch(/^\S+Z +1 +0\.\d+ of 0\.2 +[\d.]+ MiB of /m);
    // A bar is for a person's eyes, and this is a pipe.
    expect(table.stdout).not.toContain('█');
    expect((await line.run(['metrics', 'pool', 'default', '--since', '5m', '--interval', '5m'])).stdout).toMatch(
      /^\S+Z +default +1 +[01] +\d+ % +[1-9]\d* % +[1-9]\d* % +- +0 +0$/m,
    );
    expect(await line.run(['metrics', 'stub', 'nobody'])).toMatchObject({ code: 4 });
    expect(await line.run(['metrics', 'workspace', '--interval', '1s'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Invalid metrics interval') as string,
    });
    await line.run(['deployment', 'delete', 'busy']);
    await noContainers(platform);
  }, 240_000);

  test('that wait for a limit of their workspace name it, and what is used of it', async ({ line, platform }) => {
    const text = 'from longshore import task_queue\n\n@task_queue(name="held", cpu="100m")\ndef held(): ...\n';
    await line.json(['deploy', line.app('held', text)]);
    await line.json(['workspace', 'limits', '--set', 'concurrency.container_limit=0']);
    const invoked = await line.run(['invoke', 'held', '--kind', 'taskqueue']);
    const { task_id: task } = JSON.parse(invoked.stdout) as { task_id: string };
    for (const one of ['held', task]) {
      await waitFor(
        async () =>
          /limit of the workspace: container_limit 0, used \d/.test((await line.run(['explain', one])).stdout),
        `${one} says which limit it waits for`,
        WAIT_MS,
      );
    }
    const { stdout } = await line.run(['container', 'list']);
    const pending = /^(taskqueue-\S+) +PENDING/m.exec(stdout)?.[1] ?? '';
    expect((await line.run(['explain', pending])).stdout).toMatch(/container_limit 0, .*`longshore workspace limits`/s);
    await line.json(['workspace', 'limits', '--set', 'concurrency.container_limit=default']);
    await line.run(['deployment', 'delete', 'held']);
    await noContainers(platform);
  }, 60_000);

  test('that have ended say so, and why, to who wants to reach into them', async ({ line, platform }) => {
    const { stubId } = await platform.gateway('/stubs', { stubType: 'pod/run', name: 'brief', entrypoint: ['false'] });
    const { containerId } = await platform.gateway<{ containerId: string }>('/pods', { stubId });
    const ended = async (): Promise<boolean> => (await line.run(['explain', containerId])).stdout.includes('exit code');
    await waitFor(ended, 'it has ended', 120_000);
    for (const command of [
      ['exec', containerId, '--', 'true'],
      ['cp', `${containerId}:/tmp`, line.app('unused', '')],
      ['attach', containerId.slice(-8)],
    ]) {
      const { code, stderr } = await line.run(['container', ...command]);
      expect([code, stderr]).toEqual([4, expect.stringMatching(/^longshore: container \S+ ended .*exit code 1/)]);
      expect(stderr).toContain(containerId);
    }
    expect((await line.run(['explain', 'brief'])).stdout).toContain(containerId);
    // The first pod of a machine waits for a copy of the base image's Python.
  }, 240_000);

  test('of one name and two kinds must be told apart', async ({ line }) => {
    const file = line.app(
      'twins',
      'from longshore import endpoint, task_queue\n\n@endpoint(name="twin")\ndef a(): ...\n\n@task_queue(name="twin")\ndef b(): ...\n',
    );
    await line.json(['deploy', `${file}:a`]);
    await line.json(['deploy', `${file}:b`]);
    expect(await line.run(['deployment', 'stop', 'twin'])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /several kinds: say (endpoint\/twin or taskqueue\/twin|taskqueue\/twin or endpoint\/twin)/,
      ) as string,
    });
    expect((await line.run(['deployment', 'delete', 'taskqueue/twin'])).stdout).toBe('deleted twin v1\n');
    expect((await line.run(['deployment', 'delete', 'twin'])).stdout).toBe('deleted twin v1\n');
  });
});

describe('a task queue of an app file', () => {
  const APP = `import os, pathlib, time
from longshore import Volume, task_queue

@task_queue(name="mill", cpu="250m", retries=2, retry_for=[OSError], volumes=[Volume("flour", "flour"), Volume("flour", "/store")])
def grind(grain, coarse=False, fail="", seconds=0):
    tries = pathlib.Path("/tmp") / ("tries-" + grain)
    tries.write_text((tries.read_text() if tries.exists() else "") + "x")
    time.sleep(seconds)
    if fail == "key":
        raise KeyError(grain)
    if fail == "once" and tries.read_text() == "x":
        raise ConnectionError("mill stands still")
    if fail == "always":
        raise OSError("no wind")
    return {"grain": grain, "coarse": coarse, "tries": len(tries.read_text())}
`;
  const put = async (line: Line, file: string, call: string): Promise<string> => {
    const output = await runProgram('python3', ['-c', `import app; print(app.grind.put(${call}))`], {
      cwd: join(file, '..'),
      env: { ...line.env(), PYTHONPATH: join(ROOT, 'python'), PYTHONDONTWRITEBYTECODE: '1' },
    });
    return output.trim();
  };
  const finished = async (line: Line, platform: Platform, id: string) => {
    await waitFor(
      async () => !['PENDING', 'RUNNING', 'RETRY'].includes((await platform.task(id)).status),
      `task ${id} ends`,
      WAIT_MS,
    );
    return line.json<{ readonly status: string; readonly result: unknown }>(['task', 'get', id]);
  };

  test('runs what is put, tries again what it says, and is read and stopped by the command line', async ({
    line,
    platform,
  }) => {
    const file = line.app('mill', APP);
    expect((await line.run(['deploy', file])).stdout).toContain('invoke mill --kind taskqueue --data \'{"grain": …}\'');
    const invoked = await line.run(['invoke', 'mill', '--kind', 'taskqueue', '--data', '{"grain":"emmer"}']);
    const { task_id: first } = JSON.parse(invoked.stdout) as { task_id: string };
    expect(await finished(line, platform, first)).toMatchObject({
      status: 'COMPLETE',
      result: { grain: 'emmer', tries: 1 },
    });
    const plain = await put(line, file, '"rye", coarse=True');
    expect(await finished(line, platform, plain)).toMatchObject({
      status: 'COMPLETE',
      result: { grain: 'rye', coarse: true, tries: 1 },
    });
    const once = await put(line, file, '"oats", fail="once"');
    expect(await finished(line, platform, once)).toMatchObject({
      status: 'COMPLETE',
      result: { grain: 'oats', tries: 2 },
    });
    const key = await put(line, file, '"spelt", fail="key"');
    expect(await finished(line, platform, key)).toMatchObject({ status: 'ERROR' });
    const always = await put(line, file, '"wheat", fail="always"');
    expect(await finished(line, platform, always)).toMatchObject({ status: 'ERROR' });
    // Three tries of the last one, by its own count in its container.
    const count = await put(line, file, '"wheat"');
    expect(await finished(line, platform, count)).toMatchObject({ result: { tries: 4 } });

    const failed = await line.json<readonly { id: string }[]>([
      'task',
      'list',
      '--status',
      'error',
      '--deployment',
      'mill',
    ]);
    expect(failed.map((task) => task.id).toSorted()).toEqual([key, always].toSorted());
    expect((await line.run(['task', 'list', '--deployment', 'mill/v1'])).stdout).toMatch(
      /^ID +STATUS +HANDLER +CREATED +TOOK +CONTAINER\n/,
    );

    const long = await put(line, file, '"barley", seconds=60');
    await platform.taskIs(long, 'RUNNING', WAIT_MS);
    expect((await line.json(['task', 'get', long]))['status']).toBe('RUNNING');
    const waiting = await put(line, file, '"hops"');
    expect((await line.run(['task', 'stop', waiting, long])).stdout).toBe(`stopped ${waiting}\nstopped ${long}\n`);
    for (const id of [waiting, long]) expect((await line.json(['task', 'get', id]))['status']).toBe('CANCELLED');
    expect((await line.run(['deployment', 'delete', 'mill'])).stdout).toBe('deleted mill v1\n');
    await noContainers(platform);
  }, 180_000);
});

test('a volume of an app file outlives its containers, and other apps see it under the same name', async ({
  line,
  platform,
}) => {
  const app = (name: string, mount: string): string =>
    line.app(
      name,
      `import pathlib
from longshore import Volume, endpoint

@endpoint(name="${name}", cpu="100m", keep_warm_seconds=0, volumes=[Volume("cellar", "${mount}")])
def handler(write=None):
    file = pathlib.Path("${mount}") / "note"
    if write is not None:
        file.write_text(write)
    return file.read_text() + " in " + ",".join(sorted(str(one) for one in pathlib.Path("/volumes").iterdir()))
`,
    );
  await line.json(['deploy', app('keeper', 'kept/here')]);
  await line.json(['deploy', app('reader', '/store')]);
  const invoked = async (name: string, data: string): Promise<string> =>
    (await line.run(['invoke', name, '--data', data])).stdout;
  expect(await invoked('keeper', '{"write":"port"}')).toBe('"port in /volumes/kept"');
  await noContainers(platform);
  expect(await invoked('keeper', '{}')).toBe('"port in /volumes/kept"');
  expect(await invoked('reader', '{}')).toBe('"port in /volumes/store"');
  for (const name of ['keeper', 'reader']) await line.run(['deployment', 'delete', name]);
  await noContainers(platform);
}, 120_000);

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
  }, 60_000);
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
      /^requiresPoolSelector +yes\npriority +0\nreservedCpuCores +0\.5\nreservedMemoryMib +5 % of the memory\nhourlyCost +as the provider lists it, else not known$/m,
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
  expect((await line.run(['workspace', 'list'])).stdout).toMatch(/^[0-9a-f-]{36} +harbour +\d+s ago$/m);
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
    code: 1,
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
  [['deployment', 'delete', 'nobody', '--all-versions'], /no deployment is named nobody/],
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

interface Listed {
  readonly containerId: string;
  readonly deploymentId: string;
  readonly status: string;
  readonly usage: Used | null;
}

/** Containers as the command line is told of them. Tests wait on these: each command takes processor time. */
const containers = async (platform: Platform): Promise<readonly Listed[]> =>
  (await platform.gateway<{ readonly containers: readonly Listed[] }>('/containers')).containers;

async function noContainers(platform: Platform): Promise<void> {
  await waitFor(async () => (await platform.containers()).length === 0, 'every container is gone', WAIT_MS);
}

// The verbs of the command line against a real scheduler and a real agent: deployments, containers, tasks and volumes,
// with the commands that people type. Names, not ids, wherever people have names.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect } from 'vitest';
import { ROOT } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { runProgram, waitFor } from '../helpers/programs.ts';
import { test } from '../helpers/typed-commands.ts';
import type { Line } from '../helpers/typed-commands.ts';

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
    expect((await line.run(['invoke', 'rooted', '--data', '{"n":21}'])).stdout).toBe('{"n":42}\n');
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
    expect((await line.run(['invoke', 'greet', '--version', '1', '--data', '{"n":5}'])).stdout).toBe('{"n":5}\n');
    expect((await line.run(['deployment', 'start', 'greet/v2'])).stdout).toBe('started greet v2\n');
    expect((await line.run(['invoke', 'greet', '--data', '{"n":5}'])).stdout).toBe('{"n":6}\n');

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
    expect((await line.run(['deployment', 'delete', 'greet', '--yes'])).stdout).toBe(
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
    // A container of an earlier test may be in the same five minutes, and the newest bucket may have just begun.
    const full = ({ doc_count: samples }: Readonly<Record<string, unknown>>): boolean => Number(samples) > 1;
    for (const args of [metrics, ['metrics', 'workspace', ...metrics.slice(3)]]) {
      const bucket = (await values(args)).findLast(full) as Readonly<Record<string, { readonly value: number }>>;
      if (args === metrics)
        expect(bucket).toMatchObject({ container_count: { value: 1 }, cpu_concurrency: { value: 200 } });
      expect(bucket['container_count']?.value).toBeGreaterThanOrEqual(1);
      expect(bucket['cpu_concurrency']?.value).toBeGreaterThanOrEqual(200);
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
      code: 2,
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
      /^ID +STATUS +HANDLER +CREATED +LAST TRY +CONTAINER\n/,
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
  expect(await invoked('keeper', '{"write":"port"}')).toBe('"port in /volumes/kept"\n');
  await noContainers(platform);
  expect(await invoked('keeper', '{}')).toBe('"port in /volumes/kept"\n');
  expect(await invoked('reader', '{}')).toBe('"port in /volumes/store"\n');
  for (const name of ['keeper', 'reader']) await line.run(['deployment', 'delete', name]);
  await noContainers(platform);
}, 120_000);

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

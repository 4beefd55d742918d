// `longshore run` against a real scheduler and agent: functions and commands once, and nothing that stays behind.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { MAIN, ROOT, baseImageOf, test as base } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';

const LONG_MS = 120_000;
const WAIT_MS = 30_000;

const APP = `import os
import sys
import time
from longshore import Volume, asgi, endpoint, function


@function(cpu="100m", env={"GREETING": "hello"}, volumes=[Volume("kept", "/kept")])
def work(n: int, name: str = "nobody"):
    print("working on", n)
    print("to stderr", file=sys.stderr)
    return {"n": n, "name": name, "greeting": os.environ["GREETING"], "type": type(n).__name__}


@function(cpu="100m", retries=3)
def fails():
    print("before it fails")
    raise ValueError("broken on purpose")


@function(cpu="100m")
def sleeps():
    print("asleep", flush=True)
    time.sleep(600)


@endpoint(cpu="100m")
def greets(name="you"):
    return "hello " + name


@asgi(cpu="100m")
def web():
    return None
`;

interface Running {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly err: () => string;
  readonly code: Promise<number | null>;
}

const test = base.extend('line', async ({ platform }) => {
  const cwd = join(platform.directory, 'once');
  mkdirSync(cwd, { recursive: true });
  writeFileSync(join(cwd, 'app.py'), APP);
  writeFileSync(join(cwd, 'data.txt'), 'from the folder\n');
  return (args: readonly string[], input = ''): Running => {
    const child = spawn(process.execPath, [MAIN, 'run', ...args], {
      cwd,
      env: {
        ...platform.env(),
        PYTHONPATH: join(ROOT, 'python'),
        LONGSHORE_URL: platform.url,
        LONGSHORE_TOKEN: platform.token,
      },
      stdio: 'pipe',
    });
    child.stdin.end(input);
    let [out, err] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    const code = new Promise<number | null>((resolve) => child.once('close', resolve));
    return { child, out: () => out, err: () => err, code };
  };
});

const listed = async (platform: Platform): Promise<readonly unknown[]> => {
  const { containers } = (await (
    await fetch(`${platform.url}/api/v1/gateway/containers`, { headers: { authorization: `Bearer ${platform.token}` } })
  ).json()) as { readonly containers: readonly unknown[] };
  return containers;
};
const imageOf = (platform: Platform): string => baseImageOf(platform.engine).replace('{version}', '3.11');
const noneLeft = (platform: Platform): Promise<unknown> =>
  waitFor(async () => (await listed(platform)).length === 0, 'no container is left', WAIT_MS);

describe('a function', () => {
  test(
    'runs with its inputs; output on stderr, the result on stdout, no container after it',
    { timeout: LONG_MS },
    async ({ platform, line }) => {
      const ran = line(['app.py:work', '--arg', 'n=3', '--arg', 'name=Ada']);
      expect(await ran.code, ran.err()).toBe(0);
      expect(JSON.parse(ran.out())).toEqual({ n: 3, name: 'Ada', greeting: 'hello', type: 'int' });
      expect(ran.err()).toContain('working on 3\n');
      expect(ran.err()).toContain('to stderr\n');
      expect(await listed(platform)).toEqual([]);

      const json = line(['app.py:work', '{"n": 4, "name": "Bo"}', '--env', 'GREETING=hi', '--json']);
      expect(await json.code, json.err()).toBe(0);
      expect(JSON.parse(json.out())).toMatchObject({
        status: 'COMPLETE',
        failureReason: '',
        containerId: expect.stringMatching(/^function-/) as string,
        result: { n: 4, name: 'Bo', greeting: 'hi' },
      });
    },
  );

  test('that raises is told with its error and exit code 1, after one try', { timeout: LONG_MS }, async ({ line }) => {
    const ran = line(['app.py:fails']);
    expect(await ran.code).toBe(1);
    expect(ran.out()).toBe('');
    expect(ran.err()).toContain('before it fails\n');
    expect(ran.err()).toMatch(/longshore: fails ended as ERROR \(.*\).*ValueError: broken on purpose/s);
    expect(ran.err().split('before it fails')).toHaveLength(2);
  });

  test('is stopped by Ctrl-C, and its container goes', { timeout: LONG_MS }, async ({ platform, line }) => {
    const ran = line(['app.py:sleeps']);
    await waitFor(() => ran.err().includes('asleep'), 'it sleeps', WAIT_MS);
    ran.child.kill('SIGINT');
    expect(await ran.code).toBe(130);
    await noneLeft(platform);
  });

  test('may be an endpoint; other kinds say which command serves them', { timeout: LONG_MS }, async ({ line }) => {
    const ran = line(['app.py:greets', '--data', '{"name": "Ada"}']);
    expect(await ran.code, ran.err()).toBe(0);
    expect(ran.out()).toBe('"hello Ada"\n');
    const web = line(['app.py:web']);
    expect(await web.code).toBe(2);
    expect(web.err()).toContain('`longshore deploy app.py:web` serves it');
    const wrong = line(['app.py:work', '--arg', 'n']);
    expect(await wrong.code).toBe(2);
    expect(wrong.err()).toContain('--arg takes NAME=VALUE, not "n"');
  });
});

describe('a command', () => {
  test(
    'runs in the image and with the files of a handler; its exit code is passed on',
    { timeout: LONG_MS },
    async ({ platform, line }) => {
      const ran = line(['app.py:work', '--', 'sh', '-c', 'cat data.txt; echo "$GREETING" >&2; ls -d /kept; exit 7']);
      expect(await ran.code, ran.err()).toBe(7);
      expect(ran.out()).toBe('from the folder\n/kept\n');
      expect(ran.err()).toContain('hello\n');
      await noneLeft(platform);
    },
  );

  test(
    'runs in an image that is named, with input; a program that is missing gives 127',
    { timeout: LONG_MS },
    async ({ platform, line }) => {
      const image = imageOf(platform);
      const ran = line(
        ['--image', image, '--cpu', '100m', '--env', 'A=b', '--', 'sh', '-c', 'cat; echo $A'],
        'typed\n',
      );
      expect(await ran.code, ran.err()).toBe(0);
      expect(ran.out()).toBe('typed\nb\n');
      const missing = line(['--image', image, '--', 'no-such-program']);
      expect(await missing.code).toBe(127);
      await noneLeft(platform);
    },
  );

  test(
    'gets the first Ctrl-C; a second one leaves it, and the container goes',
    { timeout: LONG_MS },
    async ({ platform, line }) => {
      const script = 'trap "echo interrupted" INT; echo begun; while :; do sleep 0.1; done';
      const ran = line(['--image', imageOf(platform), '--', 'sh', '-c', script]);
      await waitFor(() => ran.out().includes('begun'), 'it runs', WAIT_MS);
      ran.child.kill('SIGINT');
      await waitFor(() => ran.out().includes('interrupted'), 'it was told', WAIT_MS);
      expect(ran.child.exitCode).toBeNull();
      ran.child.kill('SIGINT');
      expect(await ran.code).toBe(130);
      await noneLeft(platform);
    },
  );
});

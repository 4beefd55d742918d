// `longshore task watch` against a real scheduler; the test plays the runner, and a real terminal for the table.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { terminal as terminalProgram } from '../helpers/terminal.ts';
import { ROOT } from '../helpers/repository.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import { aPlatform } from '../integration/verbs-fixture.ts';
import type { Platform } from '../integration/verbs-fixture.ts';

const MAIN = join(ROOT, 'cli', 'main.ts');
const WAIT_MS = 30_000;
const directory = tempDirectory('cli-watch');
let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(async () => {
  await platform.stop();
  directory.remove();
});

interface Running {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly err: () => string;
  readonly code: Promise<number | null>;
}

function watch(args: readonly string[], terminal = false): Running {
  const line = [process.execPath, MAIN, 'task', 'watch', ...args];
  const [file = '', ...rest] = terminal ? ['python3', '-c', terminalProgram(), ...line] : line;
  const child = spawn(file, rest, {
    env: {
      ...process.env,
      TERM: 'xterm',
      LONGSHORE_URL: `http://${platform.address}`,
      LONGSHORE_TOKEN: platform.own.token,
      LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
    },
    stdio: 'pipe',
  });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  const code = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { child, out: () => out, err: () => err, code };
}

let queues = 0;
async function aQueue(): Promise<string> {
  const name = `watched-${(queues += 1)}`;
  await platform.deploy(name, { stubType: 'taskqueue/deployment', env: [`Q=${queues}`] });
  return name;
}
const put = async (name: string): Promise<string> =>
  String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
const start = (taskId: string): Promise<unknown> => platform.gateway('POST /tasks/start', { taskId, containerId: '' });
const end = (taskId: string, taskStatus: string): Promise<unknown> =>
  platform.gateway('POST /tasks/end', { taskId, taskStatus });

test('a task is followed to its end, whose status gives the exit code', async () => {
  const name = await aQueue();
  const [first, second, third] = [await put(name), await put(name), await put(name)];
  const watched = watch([first]);
  await waitFor(() => watched.out().includes('PENDING'), 'it waits', WAIT_MS);
  await start(first);
  await waitFor(() => watched.out().includes('RUNNING'), 'it runs', WAIT_MS);
  await end(first, 'COMPLETE');
  expect(await watched.code, watched.err()).toBe(0);
  expect(watched.out()).toMatch(/\d\d:\d\d:\d\d PENDING\n.* RUNNING.*\n.* COMPLETE {2}took /);

  await start(second);
  await end(second, 'ERROR');
  const failed = watch([second, '--json']);
  expect(await failed.code).toBe(1);
  expect(JSON.parse(failed.out())).toMatchObject({ id: second, status: 'ERROR' });

  const cancelled = watch([third]);
  await waitFor(() => cancelled.out().includes('PENDING'), 'it waits', WAIT_MS);
  await platform.gateway('POST /tasks/stop', { taskIds: [third] });
  expect(await cancelled.code).toBe(125);
});

test('an unknown task, and neither task nor deployment, are refused', async () => {
  const unknown = watch(['00000000-0000-4000-8000-000000000000']);
  expect(await unknown.code).not.toBe(0);
  expect(unknown.err()).toContain('there is no task 00000000-0000-4000-8000-000000000000: `longshore task list`');
  expect(await watch([]).code).toBe(2);
  const none = watch(['--deployment', 'nothing-of-it']);
  expect(await none.code).not.toBe(0);
  expect(none.err()).toContain('nothing-of-it');
});

test("a deployment's tasks come as lines, also those of a version that comes later; Ctrl-C ends it", async () => {
  const name = await aQueue();
  const other = await aQueue();
  const watched = watch(['--deployment', name, '--json']);
  // The stream may begin later than the first task: tasks are put until one is told.
  await waitFor(
    async () => {
      await put(other);
      await put(name);
      return watched.out() !== '';
    },
    'changes are told',
    WAIT_MS,
  );
  await platform.deploy(name, { stubType: 'taskqueue/deployment', env: ['VERSION=2'] });
  const told = () =>
    new Set(
      watched
        .out()
        .split('\n')
        .filter((line) => line.endsWith('}'))
        .map((line) => (JSON.parse(line) as { readonly stub_id: string }).stub_id),
    );
  await waitFor(
    async () => {
      await put(name);
      return told().size === 2;
    },
    'a task of the new version is told',
    WAIT_MS,
  );
  watched.child.kill('SIGINT');
  expect(await watched.code).toBe(0);
});

test('on a terminal they are a table that is drawn again; q leaves it and gives the terminal back', async () => {
  const name = await aQueue();
  const task = await put(name);
  const watched = watch(['--deployment', name], true);
  await waitFor(() => watched.out().includes(`${task}  PENDING`), 'the table', WAIT_MS);
  await start(task);
  await waitFor(() => watched.out().includes(`${task}  RUNNING`), 'it changes', WAIT_MS);
  expect(watched.out()).toContain('\u001b[?1049h');
  watched.child.stdin?.write('q');
  expect(await watched.code).toBe(0);
  expect(watched.out().trimEnd().endsWith('\u001b[?1049l')).toBe(true);
});

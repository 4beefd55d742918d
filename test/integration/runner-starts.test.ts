// The real runner against a fake agent: its start, with and without `on_start`, and an agent that is away then.
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { type RunnerConnection } from '../helpers/fake-agent.ts';
import { app, parsed, test } from './runner-started.ts';

describe('a start', () => {
  test('hello comes before user code is imported, then the phases, then ready', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return 1\n') });
    await agent.ready();
    expect(agent.frames.map((frame) => frame.kind)).toEqual(['hello', 'starting', 'starting', 'ready']);
    expect(agent.of('starting').map((frame) => frame.header['phase'])).toEqual(['import', 'on_start']);
    expect(agent.of('hello')[0]?.header).toMatchObject({
      version: 1,
      containerId: 'endpoint-test-00000001',
      process: 0,
      slots: 0,
      pid: agent.runner?.pid,
      holding: [],
    });
    expect(agent.of('ready')[0]?.header).toEqual({ mode: 'single', slots: 1, onStartMs: 0 });
  });

  test('a frame longer than the limit ends the connection and the runner dials again', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return 1\n') });
    const first = await agent.slot();
    first.socket.write(Buffer.from([0x7f, 0xff, 0xff, 0xff, 6, 0, 0]));
    const again = await agent.until('a second connection', () =>
      agent.connections.find((one) => one !== first && one.pid > 0),
    );
    expect((await agent.call({}, { on: again })).body).toBe('1');
  });

  test('kinds and header fields that nobody knows are ignored', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return 1\n') });
    const slot = await agent.slot();
    slot.send('welcome', { version: 1, later: true });
    slot.socket.write(Buffer.from([0, 0, 0, 5, 99, 0, 2, 0x7b, 0x7d]));
    expect((await agent.call({})).body).toBe('1');
    expect(agent.connections).toHaveLength(1);
  });

  test('an import that fails is told with its phase, its last line and its traceback, and the runner exits 1', async ({
    start,
  }) => {
    const agent = await start({ files: app('import no_such_library\n') });
    expect(await agent.exited()).toBe(1);
    const failed = agent.of('failed')[0];
    expect(failed?.header).toEqual({
      phase: 'import',
      error: "ModuleNotFoundError: No module named 'no_such_library'",
    });
    expect(failed?.body.toString()).toMatch(/^Traceback[^]*app\.py", line 1[^]*no_such_library/);
    expect(failed?.body.toString()).not.toContain('longshore/runner');
    expect(agent.lines().join('\n')).toContain("ModuleNotFoundError: No module named 'no_such_library'");
    expect(agent.stdout + agent.stderr).toBe('');
  });

  test.for([
    ['app:nothing', /app has no nothing/],
    ['app:value', /value in app is a int, not a function/],
    ['nowhere:handler', /No module named 'nowhere'/],
    ['app', /HANDLER must be module:function, not 'app'/],
  ] as const)('a handler that is not there is named: %s', async ([handler, text], { start }) => {
    const agent = await start({ handler, files: app('value = 1\n') });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toMatchObject({
      phase: 'import',
      error: expect.stringMatching(text) as string,
    });
  });

  test('a bad WORKERS is named', async ({ start }) => {
    const agent = await start({ env: { WORKERS: 'many' }, files: app('def handler():\n    return 1\n') });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header['error']).toContain(
      "WORKERS must be a whole number from 1 to 1024, not 'many'",
    );
  });

  test('an on_start that raises is told with its phase', async ({ start }) => {
    const agent = await start({
      onStart: 'app:load',
      files: app('def load():\n    raise OSError("no weights")\ndef handler():\n    return 1\n'),
    });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({ phase: 'on_start', error: 'OSError: no weights' });
  });

  test("user files named like the standard library's do not break the runner", async ({ start }) => {
    const agent = await start({
      files: {
        ...app('import queue\ndef handler():\n    return queue.mine\n'),
        'queue.py': 'mine = 7\n',
        'select.py': 'raise OSError\n',
      },
    });
    expect((await agent.call({})).body).toBe('7');
  });
});

describe('an agent that is away', () => {
  const files = app(`
import os, time
def load():
    open('loading', 'w').close()
    while not os.path.exists('go'):
        time.sleep(0.005)
    return 6
def handler(context):
    return context.on_start_value
`);

  test('at the start is waited for, and nothing of the user is imported before', async ({ start }) => {
    const agent = await start({
      files: app('open("imported", "w").close()\ndef handler():\n    return 1\n'),
      listenLater: true,
    });
    await agent.until('the process', () => agent.runner?.pid);
    await agent.listen();
    await agent.until('hello', () => agent.of('hello')[0]);
    expect((await agent.call({})).body).toBe('1');
  });

  test.for(['1', '2'])(
    'during on_start is told that it is ready when it is back (workers %s)',
    async (WORKERS, { start }) => {
      const agent = await start({ files, onStart: 'app:load', env: { WORKERS } });
      await agent.until('on_start', () => agent.of('starting')[1]);
      await agent.hangUp();
      await writeFile(join(agent.directory, 'code', 'go'), '');
      await agent.listen();
      expect((await agent.call({})).body).toBe('6');
      expect(agent.of('starting')).toHaveLength(2);
    },
  );

  test('SIGTERM during on_start ends the container', async ({ start }) => {
    const agent = await start({ files, onStart: 'app:load' });
    await agent.until('on_start', () => agent.of('starting')[1]);
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(143);
  });
});

describe('on_start', () => {
  const files = app(`
import os, uuid
def load():
    print('loading')
    with open('starts.txt', 'a') as file:
        file.write('started\\n')
    return str(uuid.uuid4())
def handler(context):
    return [context.on_start_value, os.getpid()]
`);

  test('runs once for four forked processes that share its value, also after one of them is killed', async ({
    start,
  }) => {
    const agent = await start({ files, onStart: 'app:load', env: { WORKERS: '4' } });
    const ready = await agent.ready();
    expect(ready.header).toMatchObject({ mode: 'fork', slots: 4 });
    // The first process sends one hello, and the four serving ones
    // send one each, on connections of their own and so in any order.
    await agent.until('five hellos', () => agent.of('hello').length === 5);
    const ask = async (slot: RunnerConnection): Promise<[string, number]> =>
      parsed((await agent.call({}, { on: slot })).body) as [string, number];
    const slots = await Promise.all([0, 1, 2, 3].map((process) => agent.slot(process)));
    const answers = await Promise.all(slots.map(ask));
    expect(new Set(answers.map(([value]) => value)).size).toBe(1);
    expect(new Set(answers.map(([, pid]) => pid)).size).toBe(4);

    const victim = slots[2]?.pid;
    agent.connections[0]?.send('kill', { process: 2 });
    const exited = await agent.until('exited', () => agent.of('exited')[0]);
    expect(exited.header).toEqual({ process: 2, pid: victim, code: null, signal: 9 });
    const fresh = await agent.until('the process started again', () =>
      agent.connections.find((one) => one.process === 2 && one.pid !== victim),
    );
    const [value, pid] = await ask(fresh);
    expect(value).toBe(answers[0]?.[0]);
    expect(pid).toBe(fresh.pid);
    expect(await readFile(join(agent.directory, 'code', 'starts.txt'), 'utf8')).toBe('started\n');
    expect(agent.lines().filter((line) => line.endsWith('loading'))).toEqual(['stdout  loading']);
    expect(agent.of('ready')).toHaveLength(1);
  });

  const counts = app(`
import os
NAMES = ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'RAYON_NUM_THREADS']
at_import = [os.environ.get(name) for name in NAMES]
def handler():
    return at_import
`);
  const six = { LONGSHORE_CORES: '6' };

  test.for([
    ["one process has its container's cores", six, ['6', '6', '6', '6']],
    ['what is set wins', { ...six, MKL_NUM_THREADS: '3' }, ['6', '6', '3', '6']],
    [
      'processes that are forked have one thread at import, and share the cores',
      { ...six, WORKERS: '2', MKL_NUM_THREADS: '3' },
      ['1', '1', '3', '3'],
    ],
    ['a GPU forks nothing', { ...six, LONGSHORE_GPU: '1', WORKERS: '2' }, ['6', '6', '6', '6']],
    ['threads', { ...six, LONGSHORE_WORKER_MODE: 'thread', WORKERS: '2' }, ['6', '6', '6', '6']],
    ['spawned processes', { ...six, LONGSHORE_WORKER_MODE: 'spawn', WORKERS: '2' }, ['3', '3', '3', '3']],
    ['more workers than cores', { ...six, WORKERS: '9' }, ['1', '1', '1', '1']],
  ] as const)('numeric libraries: %s', async ([, env, wanted], { start }) => {
    const agent = await start({ files: counts, env });
    expect(parsed((await agent.call({})).body)).toEqual(wanted);
  });

  test('with worker_mode thread the workers are threads, whatever runs after on_start', async ({ start }) => {
    const agent = await start({
      onStart: 'app:load',
      env: { WORKERS: '3', LONGSHORE_WORKER_MODE: 'thread' },
      files: app(`
import os, threading
def load():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return 5
def handler(context):
    print('in thread')
    return [context.on_start_value, os.getpid(), threading.current_thread().name]
`),
    });
    expect((await agent.ready()).header).toMatchObject({ mode: 'thread', slots: 3 });
    const slots = await Promise.all([0, 1, 2].map((process) => agent.slot(process)));
    const answers = await Promise.all(slots.map((slot) => agent.call({}, { on: slot })));
    const values = answers.map((answer) => parsed(answer.body) as [number, number, string]);
    expect(values.map(([value, pid]) => [value, pid])).toEqual(Array(3).fill([5, agent.runner?.pid]));
    expect(new Set(values.map(([, , name]) => name)).size).toBe(3);
    expect(agent.lines().filter((line) => line.endsWith('in thread'))).toHaveLength(3);
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(0);
  });

  test('threads that are stopped finish what runs, leave what waits, and end at once', async ({ start }) => {
    const agent = await start({
      env: { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' },
      files: app(`
import os, time
def handler(n):
    if n == 1:
        open('running', 'w').close()
        while not os.path.exists('end'):
            time.sleep(0.01)
    return n
`),
    });
    await agent.ready();
    const slot = await agent.slot(0);
    const running = agent.call({ n: 1 }, { on: slot });
    await expect.poll(() => existsSync(join(agent.directory, 'code', 'running'))).toBe(true);
    const waiting = agent.call({ n: 2 }, { on: slot });
    waiting.catch(() => undefined);
    agent.runner?.kill('SIGTERM');
    await writeFile(join(agent.directory, 'code', 'end'), '');
    expect(parsed((await running).body)).toBe(1);
    // Fifteen seconds is the bound of this wait; a process that waits for its own bound takes 25.
    expect(await agent.exited()).toBe(0);
  });
});

// How a container with several workers serves a handler that is not thread-safe: the real runner against a fake agent.
// The library of these stubs gives wrong results when two threads use it at once.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test as base, describe, expect } from 'vitest';
import { FakeAgent, type RunnerOptions } from '../helpers/fake-agent.ts';

const test = base.extend<{ start: (options: Partial<RunnerOptions>) => Promise<FakeAgent> }>({
  // oxlint-disable-next-line no-empty-pattern
  start: async ({}, use) => {
    const agents: FakeAgent[] = [];
    await use(async (options) => {
      const agent = await FakeAgent.start({ files: FRAGILE, onStart: 'app:load', ...options });
      agents.push(agent);
      return agent;
    });
    await Promise.all(agents.map((agent) => agent.stop()));
  },
});

/** Two threads meet between writing the library's only buffer and reading it; one thread alone waits in vain. */
const FRAGILE = {
  'fragile.py': `
import os, threading
_buffer = [0]
_other = threading.Barrier(2)
def double(x):
    _buffer[0] = x
    try:
        _other.wait(float(os.environ.get('MEET', '0.05')))
    except threading.BrokenBarrierError:
        _other.reset()
    return _buffer[0] * 2
`,
  'app.py': `
import logging, os, threading
from fragile import double
logging.basicConfig(format='logged %(message)s')
def load():
    with open('starts.txt', 'a') as file:
        file.write('s')
    print('loading')
    if os.environ.get('THREAD'):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()
def handler(context, x):
    logging.warning('doubles %d', x)
    return [double(x), os.getpid(), context.on_start_value, context.workers]
`,
};
type Answered = readonly [doubled: number, pid: number, onStartValue: number, workers: number];

/**
 * Makes as many calls at once as there are slots, and one more
 * where there is one slot: the runner has to keep them apart.
 */
async function answersOf(agent: FakeAgent, mode: string): Promise<readonly Answered[]> {
  const slots = await Promise.all([0, 1].map((process) => agent.slot(mode === 'single' ? 0 : process)));
  const answers = await Promise.all(slots.map((on, index) => agent.call({ x: index + 1 }, { on })));
  return answers.map((answer) => JSON.parse(answer.body) as Answered);
}
const startsOf = (agent: FakeAgent): Promise<string> => readFile(join(agent.directory, 'code', 'starts.txt'), 'utf8');
const two = { WORKERS: '2' };

describe('nobody chose', () => {
  test.for([
    ['a GPU', { LONGSHORE_GPU: '1' }, 'the stub has a GPU'],
    ['a thread that survives on_start', { THREAD: '1' }, '2 threads run after on_start'],
    ['fork with such a thread', { THREAD: '1', LONGSHORE_WORKER_MODE: 'fork' }, '2 threads run after on_start'],
  ] as const)('%s: one worker, right results, and the log names the choice', async ([, env, why], { start }) => {
    const agent = await start({ env: { ...two, ...env } });
    expect((await agent.ready()).header).toMatchObject({ mode: 'single', slots: 1 });
    const answers = await answersOf(agent, 'single');
    expect(answers).toEqual([
      [2, agent.runner?.pid, agent.runner?.pid, 1],
      [4, agent.runner?.pid, agent.runner?.pid, 1],
    ]);
    expect(await startsOf(agent)).toBe('s');
    expect(agent.lines()).toContain(
      `stderr  longshore: one worker instead of 2: ${why}, and a fork is not safe then. Set worker_mode to 'spawn' (a process per worker, ` +
        "each runs on_start) or 'thread' (handlers side by side in one process)",
    );
  });

  test('the slots of the one worker are its concurrent_requests', async ({ start }) => {
    const agent = await start({ env: { WORKERS: '3', LONGSHORE_GPU: '1', CONCURRENT_REQUESTS: '2' } });
    expect((await agent.ready()).header).toMatchObject({ mode: 'single', slots: 2 });
  });

  test('without a thread or a GPU the workers are forked, as with fork', async ({ start }) => {
    for (const env of [{}, { LONGSHORE_WORKER_MODE: 'fork' }]) {
      const agent = await start({ env: { ...two, ...env } });
      expect((await agent.ready()).header).toMatchObject({ mode: 'fork', slots: 2 });
      expect((await answersOf(agent, 'fork')).map(([doubled, , value]) => [doubled, value])).toEqual([
        [2, agent.runner?.pid],
        [4, agent.runner?.pid],
      ]);
    }
  });
});

describe('thread', () => {
  test('handlers run side by side in one process, on_start once', async ({ start }) => {
    const agent = await start({ env: { ...two, LONGSHORE_WORKER_MODE: 'thread', LONGSHORE_GPU: '1', MEET: '10' } });
    expect((await agent.ready()).header).toMatchObject({ mode: 'thread', slots: 2 });
    const answers = await answersOf(agent, 'thread');
    expect(new Set(answers.map(([, pid]) => pid))).toEqual(new Set([agent.runner?.pid]));
    // Two threads use the library at once: this mode is only for thread-safe handlers.
    expect(answers.map(([doubled]) => doubled)).not.toEqual([2, 4]);
    expect(await startsOf(agent)).toBe('s');
  });
});

describe('spawn', () => {
  const spawn = { ...two, LONGSHORE_WORKER_MODE: 'spawn', LONGSHORE_GPU: '1', THREAD: '1' };

  test('each process runs on_start and gives right results, also after one of them was killed', async ({ start }) => {
    const agent = await start({ env: spawn });
    expect((await agent.ready()).header).toMatchObject({ mode: 'spawn', slots: 2 });
    expect(agent.of('starting').map((frame) => frame.header['phase'])).toEqual(['import', 'on_start']);
    const answers = await answersOf(agent, 'spawn');
    expect(answers.map(([doubled]) => doubled)).toEqual([2, 4]);
    expect(answers.map(([, pid, value]) => pid === value && pid !== agent.runner?.pid)).toEqual([true, true]);
    expect(new Set(answers.map(([, pid]) => pid)).size).toBe(2);
    expect(answers.map((answer) => answer[3])).toEqual([2, 2]);
    expect(agent.lines().filter((line) => line === 'stdout  loading')).toHaveLength(2);
    expect(agent.lines().filter((line) => /^stderr task-\d logged doubles \d$/.test(line))).toHaveLength(2);

    const victim = (await agent.slot(1)).pid;
    agent.connections[0]?.send('kill', { process: 1 });
    const exited = await agent.until('exited', () => agent.of('exited')[0]);
    expect(exited.header).toEqual({ process: 1, pid: victim, code: null, signal: 9 });
    const fresh = await agent.until('the process started again', () =>
      agent.connections.find((one) => one.process === 1 && one.pid !== victim && Number(one.hello['slots']) > 0),
    );
    const [doubled, pid, value] = JSON.parse((await agent.call({ x: 5 }, { on: fresh })).body) as Answered;
    expect([doubled, pid, value]).toEqual([10, fresh.pid, fresh.pid]);
    expect(await startsOf(agent)).toBe('sss');
    expect(agent.of('ready')).toHaveLength(1);
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(0);
  });

  test('the container is ready when the last of them is', async ({ start }) => {
    const files = {
      'app.py': `
import os, time
def load():
    try:
        open('first', 'x').close()
    except FileExistsError:
        while not os.path.exists('go'):
            time.sleep(0.01)
        print('the last one')
def handler():
    return 'served'
`,
    };
    const agent = await start({ files, env: spawn });
    const first = await agent.until('one worker', () =>
      agent.connections.find((one) => Number(one.hello['slots']) > 0),
    );
    // A worker that answers has reported before that it serves.
    expect((await agent.call({}, { on: first })).body).toBe('"served"');
    await writeFile(join(agent.directory, 'code', 'go'), '');
    await agent.ready();
    const last = agent.frames.findIndex((frame) => frame.body.toString() === 'the last one');
    expect(last).toBeGreaterThan(-1);
    expect(agent.frames.findIndex((frame) => frame.kind === 'ready')).toBeGreaterThan(last);
  });

  test('a process that dies while it serves and cannot start again says why, and the other goes on', async ({
    start,
  }) => {
    const files = {
      'app.py': `
import os
def load():
    try:
        open('first-%s' % os.environ.get('ONCE', ''), 'x').close()
    except FileExistsError:
        if os.path.exists('broken'):
            raise ValueError('no second start')
def handler(broken=False):
    if broken:
        open('broken', 'x').close()
        os._exit(4)
    return os.getpid()
`,
    };
    const agent = await start({ files, env: spawn });
    await agent.run({ input: { broken: true }, on: await agent.slot(1) });
    await agent.until('its reason', () => agent.lines().find((line) => line.endsWith('ValueError: no second start')));
    const other = await agent.slot(0);
    expect((await agent.call({}, { on: other })).body).toBe(String(other.pid));
    expect(agent.of('failed')).toEqual([]);
  });

  test.for([
    ["    raise KeyError('x')", 1, [{ phase: 'on_start', error: "KeyError: 'x'" }]],
    ['    os._exit(3)', 3, []],
    ['    os.kill(os.getpid(), 9)', 137, []],
  ] as const)('an on_start that ends with %j is a start that failed', async ([body, code, failed], { start }) => {
    const files = { 'app.py': `import os\ndef load():\n${body}\ndef handler():\n    return 1\n` };
    const agent = await start({ files, env: spawn });
    expect(await agent.exited()).toBe(code);
    expect(agent.of('failed').map((frame) => frame.header)).toEqual(failed);
    if (failed.length > 0) expect(agent.of('failed')[0]?.body.toString()).toContain('line 3, in load');
    expect(agent.of('ready')).toEqual([]);
  });

  test('one worker serves by itself', async ({ start }) => {
    const agent = await start({ env: { ...spawn, WORKERS: '1' } });
    expect((await agent.ready()).header).toMatchObject({ mode: 'single', slots: 1 });
  });
});

test('tasks that kill their process one after the other delay no next start, and the other process serves on', async ({
  start,
}) => {
  const files = { 'app.py': 'import os\ndef handler(ends=False):\n    if ends: os._exit(9)\n    return os.getpid()\n' };
  const agent = await start({ files, onStart: '', env: two });
  const other = await agent.slot(1);
  const began = performance.now();
  // With the delays of starts that fail, these would take 16 s.
  for (let ended = 1; ended <= 9; ended += 1) {
    const before = await agent.slot(0);
    await agent.run({ on: before, input: { ends: true } });
    await agent.until('its end', () => agent.of('exited').length === ended && !before.open);
    expect((await agent.call({}, { on: other })).body).toBe(String(other.pid));
  }
  expect((await agent.call({}, { on: await agent.slot(0) })).outcome).toBe('ok');
  expect(performance.now() - began).toBeLessThan(12_000);
});

test('a mode that nobody knows is a start that failed, by name', async ({ start }) => {
  const agent = await start({ env: { ...two, LONGSHORE_WORKER_MODE: 'threads' } });
  expect(await agent.exited()).toBe(1);
  expect(agent.of('failed')[0]?.header).toMatchObject({
    error: "LONGSHORE_WORKER_MODE must be fork, thread or spawn, not 'threads'",
  });
});

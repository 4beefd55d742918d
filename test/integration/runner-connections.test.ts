// The real runner against a fake agent: connections that end, results that wait for one, and lines of its log.
import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { FakeAgent } from '../helpers/fake-agent.ts';
import { app, test } from './runner-started.ts';

describe('connections', () => {
  const slow = app(
    'import os, time\ndef handler(file):\n    while not os.path.exists(file):\n        time.sleep(0.005)\n    return "done"\n',
  );
  const go = async (agent: FakeAgent): Promise<void> => {
    await writeFile(join(agent.directory, 'code', 'go'), '');
  };

  test('the task in hand goes on while the agent is away, is named in the next hello, and is answered there', async ({
    start,
  }) => {
    const agent = await start({ files: slow });
    const { taskId, token } = await agent.run({ input: { file: 'go' } });
    await agent.until('started', () => agent.of('started')[0]);
    await agent.hangUp();
    await agent.listen();
    const hello = await agent.until('the second hello', () => agent.of('hello')[1]);
    expect(hello.header['holding']).toEqual([{ taskId, token }]);
    await agent.until('ready again', () => agent.of('ready')[1]);
    // A repeated order of the same attempt does not run again.
    hello.connection.send('run', { taskId, token, part: 0, last: true }, Buffer.from('{"file": "go"}'));
    await go(agent);
    expect((await agent.answer(taskId)).body).toBe('"done"');
    expect(agent.of('started')).toHaveLength(1);
  });

  test('a result that was not acknowledged is sent again after every hello until it is', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return "x" * 300000\n'), acknowledge: false });
    const { taskId, token } = await agent.run({ input: {} });
    const first = await agent.answer(taskId);
    await agent.hangUp();
    await agent.listen();
    const hello = await agent.until('the second hello', () => agent.of('hello')[1]);
    expect(hello.header['holding']).toEqual([{ taskId, token }]);
    const again = await agent.until('the result again', () => agent.of('result')[1]);
    expect(again.header).toEqual(first.header);
    expect(agent.of('chunk').map((frame) => frame.body.length)).toEqual([300_002, 300_002]);
    agent.acked(again);
    // The next answer shows that the acknowledgement was read.
    agent.acknowledge = true;
    await agent.call({});
    await agent.hangUp();
    await agent.listen();
    const third = await agent.until('the third hello', () => agent.of('hello')[2]);
    expect(third.header['holding']).toEqual([]);
  });

  test('a result made while nobody listens waits for the next connection', async ({ start }) => {
    const agent = await start({ files: slow, env: { WORKERS: '2' } });
    const { taskId } = await agent.run({ input: { file: 'go' }, on: await agent.slot(1) });
    await agent.until('started', () => agent.of('started')[0]);
    await agent.hangUp();
    await go(agent);
    await agent.listen();
    expect((await agent.answer(taskId)).body).toBe('"done"');
    await agent.until('all three back', () => agent.of('hello').length >= 6);
  });

  test.for(['1', '2'])(
    'drain lets what runs finish, takes no more, and exits 0 (workers %s)',
    async (workers, { start }) => {
      const agent = await start({ files: slow, env: { WORKERS: workers } });
      const { taskId } = await agent.run({ input: { file: 'go' } });
      await agent.until('started', () => agent.of('started')[0]);
      agent.connections[0]?.send('drain', { graceMs: 20_000 });
      agent.connections[0]?.send(
        'run',
        { taskId: 'late', token: 'late', part: 0, last: true },
        Buffer.from('{"file": "go"}'),
      );
      await go(agent);
      expect((await agent.answer(taskId)).outcome).toBe('ok');
      expect(await agent.exited()).toBe(0);
      expect(agent.of('started')).toHaveLength(1);
    },
  );

  test.for([
    ['1', {}, 143],
    ['1', { CONCURRENT_REQUESTS: '2' }, 143],
    ['2', {}, 137],
  ] as const)('a task that outlasts the drain is left (workers %s %j)', async ([WORKERS, env, code], { start }) => {
    const agent = await start({ files: slow, env: { WORKERS, ...env } });
    await agent.run({ input: { file: 'never' } });
    await agent.until('started', () => agent.of('started')[0]);
    agent.connections[0]?.send('drain', { graceMs: 200 });
    expect(await agent.exited()).toBe(code);
    expect(agent.of('result')).toHaveLength(0);
  });

  test.for([
    ['1', {}],
    ['1', { CONCURRENT_REQUESTS: '2' }],
    ['3', {}],
  ] as const)(
    'SIGTERM ends an idle container at once, a busy one when its task is over (workers %s %j)',
    async ([workers, env], { start }) => {
      const idle = await start({ files: slow, env: { WORKERS: workers, ...env } });
      await idle.ready();
      const busy = await start({ files: slow, env: { WORKERS: workers, ...env } });
      const { taskId } = await busy.run({ input: { file: 'go' } });
      await busy.until('started', () => busy.of('started')[0]);
      idle.runner?.kill('SIGTERM');
      busy.runner?.kill('SIGTERM');
      expect(await idle.exited()).toBe(0);
      expect(busy.exitCode).toBeUndefined();
      await go(busy);
      expect((await busy.answer(taskId)).outcome).toBe('ok');
      expect(await busy.exited()).toBe(0);
    },
  );

  test('a kill frame ends a container that serves by itself', async ({ start }) => {
    const agent = await start({ files: slow });
    await agent.run({ input: { file: 'go' } });
    await agent.until('started', () => agent.of('started')[0]);
    agent.connections[0]?.send('kill', { process: 0 });
    expect(await agent.exited()).toBe(137);
  });
});

describe('logs', () => {
  test('lines are tagged with their task and numbered, and none goes to fd 1 or 2', async ({ start }) => {
    const agent = await start({
      files: app(`
import sys, subprocess, threading
print('while importing')
def handler(n):
    print('one\\ntwo ', end='')
    print('halves')
    print('to stderr', file=sys.stderr)
    sys.stdout.buffer.write(b'bytes\\n')
    thread = threading.Thread(target=print, args=('from a thread',))
    thread.start()
    thread.join()
    print('no line end', end='')
    if n == 1:
        subprocess.run(['echo', 'a subprocess'], check=True)
    return n
`),
    });
    await agent.call({ n: 1 });
    await agent.call({ n: 2 });
    const of = (task: string): string[] => [
      `stdout ${task} one`,
      `stdout ${task} two halves`,
      `stderr ${task} to stderr`,
      `stdout ${task} bytes`,
      `stdout ${task} from a thread`,
      `stdout ${task} no line end`,
    ];
    expect(agent.lines()).toEqual(['stdout  while importing', ...of('task-1'), ...of('task-2')]);
    agent.runner?.kill('SIGTERM');
    await agent.exited();
    expect(agent.stdout).toBe('a subprocess\n');
    expect(agent.stderr).toBe('');
  });

  test('a line of 150 KB is cut at 64 KiB', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    print("é" * 75000)\n') });
    await agent.call({});
    const sizes = agent.of('log').map((frame) => frame.body.length);
    expect(sizes).toEqual([65_536, 65_536, 150_000 - 2 * 65_536]);
    expect(Buffer.concat(agent.of('log').map((frame) => frame.body)).toString()).toBe('é'.repeat(75_000));
  });

  test('an agent that does not read loses log lines, counted, but never a result, and printing does not wait', async ({
    start,
  }) => {
    const agent = await start({
      files: app(
        'import os\ndef handler():\n    for n in range(40000):\n        print("x" * 100)\n    open("printed", "w").close()\n    return 1\n',
      ),
    });
    const slot = await agent.slot();
    slot.socket.pause();
    const { taskId } = await agent.run({ input: {} });
    await expect
      .poll(
        () =>
          access(join(agent.directory, 'code', 'printed')).then(
            () => true,
            () => false,
          ),
        { timeout: 20_000 },
      )
      .toBe(true);
    slot.socket.resume();
    expect((await agent.answer(taskId)).body).toBe('1');
    const kept = agent.lines().filter((line) => line.endsWith('xxx')).length;
    const marker = agent.lines().find((line) => line.includes('log lines dropped'));
    expect(marker).toBeDefined();
    expect(Number(/(\d+) log lines dropped/.exec(marker ?? '')?.[1])).toBe(40_000 - kept);
  });
});

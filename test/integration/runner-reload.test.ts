// A development server's runner: the real one against a fake agent. Its files change, and it is asked to load them.
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { test as base, describe, expect } from 'vitest';
import { FakeAgent, type RunnerOptions } from '../helpers/fake-agent.ts';

const CONTAINER = `serve-test-${randomUUID()}`;

/** As the supervisor of the container asks: a datagram, and its answer. */
const ASK = `
import socket, sys
door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
door.bind('\\0longshore-test-%s-%d' % (sys.argv[1], __import__('os').getpid()))
door.settimeout(30)
door.sendto(b'reload', '\\0longshore-reload-' + sys.argv[1])
sys.stdout.write(door.recv(65536).decode())
`;

interface Outcome {
  readonly error: string;
  readonly trace: string;
  readonly durationMs: number;
}

interface Served {
  readonly agent: FakeAgent;
  readonly save: (name: string, text: string) => Promise<void>;
  readonly reload: () => Promise<Outcome>;
  readonly call: (input?: object) => Promise<string>;
}

const test = base.extend<{ serve: (options: Partial<RunnerOptions>) => Promise<Served> }>({
  // oxlint-disable-next-line no-empty-pattern
  serve: async ({}, use) => {
    const agents: FakeAgent[] = [];
    await use(async ({ env, ...options }) => {
      const id = `${CONTAINER}-${agents.length}-${randomUUID().slice(0, 8)}`;
      const agent = await FakeAgent.start({
        files: APP,
        env: { STUB_TYPE: 'endpoint/serve', CONTAINER_ID: id, ...env },
        ...options,
      });
      agents.push(agent);
      return {
        agent,
        save: (name, text) => writeFile(join(agent.directory, 'code', name), text),
        reload: async () => {
          const python = process.env['LONGSHORE_TEST_PYTHON'] ?? 'python3';
          return JSON.parse((await execa(python, ['-c', ASK, id])).stdout) as Outcome;
        },
        call: async (input = {}) => (await agent.call(input, { on: await agent.slot() })).body,
      };
    });
    await Promise.all(agents.map((agent) => agent.stop()));
  },
});

const APP = {
  'words.py': `word = 'one'\n`,
  'app.py': `
import os, time
import words
def load():
    print('loading', words.word)
    return words.word
def handler(context, seconds=0):
    time.sleep(seconds)
    return [words.word, context.on_start_value]
`,
};

describe('a development server', () => {
  test('loads changed files anew, with on_start, in the same container', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({ onStart: 'app:load' });
    expect((await agent.ready()).header).toMatchObject({ slots: 1 });
    expect(await call()).toBe('["one","one"]');
    const { pid } = await agent.slot();
    await save('words.py', `word = 'two'\n`);
    expect(await reload()).toMatchObject({ error: '', durationMs: expect.any(Number) as number });
    await agent.until('another process', () =>
      agent.connections.some((one) => one.open && one.pid !== pid && Number(one.hello['slots']) > 0),
    );
    expect(await call()).toBe('["two","two"]');
    expect(agent.lines().filter((line) => line.includes('loading'))).toEqual([
      'stdout  loading one',
      'stdout  loading two',
    ]);
    expect(agent.lines().some((line) => /longshore: reloaded in \d+ ms/.test(line))).toBe(true);
    expect(agent.of('ready')).toHaveLength(1);
    expect(agent.exitCode).toBeUndefined();
  });

  test('a file that cannot be imported shows its traceback, answers calls with the error, and waits', async ({
    serve,
  }) => {
    const { agent, save, reload, call } = await serve({});
    await agent.ready();
    await save('app.py', `def handler():\n    return (\n`);
    const outcome = await reload();
    expect(outcome.error).toMatch(/^SyntaxError/);
    expect(outcome.trace).toContain('app.py", line 2');
    expect(await call()).toMatch(/the app could not be loaded: SyntaxError/);
    expect(agent.lines().some((line) => line.includes('app.py", line 2'))).toBe(true);
    await save('app.py', `def handler():\n    return 'mended'\n`);
    expect(await reload()).toMatchObject({ error: '' });
    expect(await call()).toBe('"mended"');
    expect(agent.exitCode).toBeUndefined();
  });

  test('a first start that fails is ready all the same, and tells its error to callers', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({ files: { 'app.py': `raise ValueError('not yet')\n` } });
    await agent.ready();
    expect(await call()).toMatch(/the app could not be loaded: ValueError: not yet/);
    expect(agent.of('failed')).toEqual([]);
    await save('app.py', `import os\nos._exit(3)\n`);
    expect((await reload()).error).toBe('the process ended with code 3 while it started');
    await save('app.py', `def handler():\n    return 1\n`);
    expect(await reload()).toMatchObject({ error: '' });
    expect(await call()).toBe('1');
  });

  test('a call that runs ends before its process does', async ({ serve }) => {
    const { agent, save, reload } = await serve({});
    const running = agent.call({ seconds: 1 }, { on: await agent.slot() });
    await agent.until('the call began', () => agent.of('started')[0]);
    await save('words.py', `word = 'two'\n`);
    const reloaded = reload();
    expect((await running).body).toBe('["one",null]');
    expect(await reloaded).toMatchObject({ error: '' });
    expect((await agent.call({}, { on: await agent.slot() })).body).toBe('["two",null]');
  });

  test('changes that come while an earlier one loads count, and all who asked are answered', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({});
    await agent.ready();
    await save('words.py', `import time\ntime.sleep(20)\nword = 'slow'\n`);
    const first = reload();
    await agent.until('the slow import', () => agent.of('exited')[0]);
    await save('words.py', `word = 'last'\n`);
    const outcomes = await Promise.all([first, reload()]);
    expect(outcomes.map(({ error }) => error)).toEqual(['', '']);
    expect(await call()).toBe('["last",null]');
  });

  test('SIGTERM ends it', async ({ serve }) => {
    const { agent } = await serve({});
    await agent.ready();
    agent.runner?.kill('SIGTERM');
    await agent.until('the exit', () => agent.exitCode !== undefined);
    expect(agent.exitCode).toBe(0);
  });
});

// A development server's runner: the real one against a fake agent. Its files change, and it is asked to load them.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, test as base, describe, expect } from 'vitest';
import { FakeAgent, type RunnerConnection, type RunnerOptions, type SeenFrame } from '../helpers/fake-agent.ts';

const CONTAINER = `serve-test-${randomUUID()}`;

/** As the supervisor of a container asks: datagrams, and their answers. One process asks for all tests. */
const ASK = `
import os, select, socket, sys
doors = {}
poller = select.poll()
poller.register(0, select.POLLIN)
rest = b''
while True:
    for descriptor, _ in poller.poll():
        if descriptor:
            number, door = doors.pop(descriptor)
            poller.unregister(descriptor)
            print(number, door.recv(65536).decode(), flush=True)
            door.close()
            continue
        data = os.read(0, 65536)
        if not data:
            sys.exit()
        *lines, rest = (rest + data).split(b'\\n')
        for line in lines:
            number, container, asked = line.decode().split(' ', 2)
            door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            door.bind('\\0longshore-test-%d-%s' % (os.getpid(), number))
            door.sendto(asked.encode(), '\\0longshore-reload-' + container)
            doors[door.fileno()] = number, door
            poller.register(door, select.POLLIN)
            print(number, 'sent', flush=True)
`;

class Asker {
  readonly #process = spawn(process.env['LONGSHORE_TEST_PYTHON'] ?? 'python3', ['-c', ASK], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  readonly #waiting = new Map<string, (text: string) => void>();
  #asked = 0;

  constructor() {
    createInterface(this.#process.stdout).on('line', (line) => {
      const at = line.indexOf(' ');
      this.#waiting.get(line.slice(0, at))?.(line.slice(at + 1));
    });
  }

  /** Resolves when the question is there, with its outcome. */
  async ask(container: string, value: object): Promise<{ readonly outcome: Promise<Outcome> }> {
    const number = String((this.#asked += 1));
    const sent = Promise.withResolvers<undefined>();
    const outcome = Promise.withResolvers<Outcome>();
    this.#waiting.set(number, (text) => {
      if (text === 'sent') sent.resolve(undefined);
      else outcome.resolve(JSON.parse(text) as Outcome);
    });
    this.#process.stdin.write(`${number} ${container} ${JSON.stringify(value)}\n`);
    await sent.promise;
    return { outcome: outcome.promise };
  }

  end(): void {
    this.#process.stdin.end();
  }
}

const asker = new Asker();
afterAll(() => asker.end());

interface Outcome {
  readonly error: string;
  readonly trace: string;
  readonly durationMs: number;
  readonly unchanged?: boolean;
  /** The file for which the app was loaded anew. */
  readonly path?: string;
}

interface Served {
  readonly agent: FakeAgent;
  readonly save: (name: string, text: string) => Promise<void>;
  /** Tells of changed files; of none by name: any may have changed. Resolves when the question is there. */
  readonly ask: (...paths: readonly string[]) => Promise<{ readonly outcome: Promise<Outcome> }>;
  /** Does the same, and resolves with the outcome. */
  readonly reload: (...paths: readonly string[]) => Promise<Outcome>;
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
      const ask: Served['ask'] = (...paths) => asker.ask(id, paths.length === 0 ? {} : { paths });
      return {
        agent,
        save: (name, text) => writeFile(join(agent.directory, 'code', name), text),
        ask,
        reload: async (...paths) => (await ask(...paths)).outcome,
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
def handler(context, until=''):
    while until and not os.path.exists(until):
        time.sleep(0.01)
    return [words.word, context.on_start_value]
`,
};

/** The frames of a kind that name this task. */
const of = (agent: FakeAgent, kind: SeenFrame['kind'], taskId: string): SeenFrame[] =>
  agent.frames.filter((frame) => frame.kind === kind && frame.header['taskId'] === taskId);

/** Begins a call, and waits until its handler runs. */
async function begun(agent: FakeAgent, input: object, on?: RunnerConnection): Promise<string> {
  const { taskId } = await agent.run({ input, on: on ?? (await agent.slot()) });
  await agent.until(`the start of ${taskId}`, () => of(agent, 'started', taskId)[0]);
  return taskId;
}

/** Processes that have not ended yet, by their hellos and their ends. */
const processes = (agent: FakeAgent): unknown[] => {
  const ended = new Set(agent.of('exited').map(({ header }) => header['pid']));
  return agent
    .of('hello')
    .filter(({ header }) => header['slots'] !== 0 && !ended.has(header['pid']))
    .map(({ header }) => header['process']);
};

describe('a development server', () => {
  test('loads changed files anew, with on_start, in the same container', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({ onStart: 'app:load' });
    expect((await agent.ready()).header).toMatchObject({ mode: 'reload', slots: 1 });
    expect(await call()).toBe('["one","one"]');
    await save('words.py', `word = 'two'\n`);
    expect(await reload()).toMatchObject({ error: '', durationMs: expect.any(Number) as number });
    expect(await call()).toBe('["two","two"]');
    await agent.until('the end of the process before', () => agent.of('exited')[0]);
    expect(agent.lines().filter((line) => line.includes('loading'))).toEqual([
      'stdout  loading one',
      'stdout  loading two',
    ]);
    // Who asked tells the reload, with its files.
    expect(agent.lines().filter((line) => line.includes('longshore: '))).toEqual([]);
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
    expect(agent.lines().filter((line) => line.includes('longshore: '))).toEqual([]);
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
    // The agent takes a second number only once it knows the mode.
    expect(agent.of('hello').map(({ header }) => header['process'])).toEqual([0, 0]);
    await save('app.py', `import os\nos._exit(3)\n`);
    expect((await reload()).error).toBe('the process ended with code 3 while it started');
    await save('app.py', `def handler():\n    return 1\n`);
    expect(await reload()).toMatchObject({ error: '' });
    expect(await call()).toBe('1');
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

  test('SIGTERM ends it, with the processes that end their calls', async ({ serve }) => {
    const { agent, save, reload } = await serve({});
    const taskId = await begun(agent, { until: 'go' });
    await reload();
    agent.runner?.kill('SIGTERM');
    await agent.until('the end of the process that serves', () => agent.of('exited')[0]);
    await save('go', '');
    await agent.until('the exit', () => agent.exitCode !== undefined);
    expect(agent.exitCode).toBe(0);
    expect((await agent.answer(taskId)).body).toBe('["one",null]');
  });

  test('a process that dies by itself is followed by another', async ({ serve }) => {
    const { agent, call } = await serve({});
    const { pid } = await agent.slot();
    process.kill(pid, 'SIGKILL');
    await agent.until('its end', () => agent.of('exited')[0]);
    await agent.until('another', () => agent.connections.some((one) => one.open && one.process === 1));
    expect(await call()).toBe('["one",null]');
    expect(agent.lines().some((line) => line.includes('ended with signal 9; starting it again'))).toBe(true);
  });
});

describe('calls at a reload', () => {
  test('a running one ends beside the next process, which answers meanwhile', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({});
    const running = await begun(agent, { until: 'go' });
    await save('words.py', `word = 'two'\n`);
    expect(await reload()).toMatchObject({ error: '' });
    expect(await call()).toBe('["two",null]');
    await save('go', '');
    expect((await agent.answer(running)).body).toBe('["one",null]');
    const exited = await agent.until('its end', () => agent.of('exited')[0]);
    expect(exited.header).toMatchObject({ process: 0, code: 0 });
  });

  test('a running one ends beside code that cannot be imported', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({});
    const running = await begun(agent, { until: 'go' });
    await save('app.py', `def handler(:\n`);
    expect((await reload()).error).toMatch(/^SyntaxError/);
    expect(await call()).toMatch(/the app could not be loaded: SyntaxError/);
    await save('go', '');
    expect((await agent.answer(running)).body).toBe('["one",null]');
  });

  test.for([
    ['threads', 'def', 'time.sleep(0.01)'],
    ['an event loop', 'async def', 'await asyncio.sleep(0.01)'],
  ] as const)('several running ones of %s end, and none fails', async ([, def, wait], { serve }) => {
    const text = (word: string): string =>
      `import asyncio, os, time\n${def} handler(until=''):\n    while until and not os.path.exists(until):\n        ${wait}\n    return '${word}'\n`;
    const { agent, save, reload, call } = await serve({
      files: { 'app.py': text('one') },
      env: { CONCURRENT_REQUESTS: '3' },
    });
    const running = [];
    for (const until of ['a', 'b', 'c']) running.push(await begun(agent, { until }));
    await save('app.py', text('two'));
    await reload();
    expect(await call()).toBe('"two"');
    for (const name of ['a', 'b', 'c']) await save(name, '');
    const answers = await Promise.all(running.map((taskId) => agent.answer(taskId)));
    expect(answers.map(({ body }) => body)).toEqual(['"one"', '"one"', '"one"']);
    expect((await agent.until('its end', () => agent.of('exited')[0])).header).toMatchObject({ process: 0, code: 0 });
  });

  test('one that waits behind a blocked event loop goes back, and does not begin', async ({ serve }) => {
    const { agent, save, reload } = await serve({
      files: { 'app.py': APP['app.py'].replace('def handler', 'async def handler'), 'words.py': APP['words.py'] },
      env: { CONCURRENT_REQUESTS: '3' },
    });
    const on = await agent.slot();
    const running = await begun(agent, { until: 'go' }, on);
    const { taskId } = await agent.run({ input: {}, on });
    expect(await reload()).toMatchObject({ error: '' });
    await save('go', '');
    await agent.until('it goes back', () => of(agent, 'returned', taskId)[0]);
    expect(of(agent, 'started', taskId)).toEqual([]);
    expect((await agent.answer(running)).body).toBe('["one",null]');
  });

  test('one whose input is not whole yet goes back', async ({ serve }) => {
    const { agent, save, reload } = await serve({ env: { CONCURRENT_REQUESTS: '2' } });
    const on = await agent.slot();
    const header = { taskId: 'parts', token: 't', timeoutMs: 1000, query: {}, part: 0, last: false };
    on.send('run', header, Buffer.from('{'));
    const running = await begun(agent, { until: 'go' }, on);
    await reload();
    await agent.until('it goes back', () => of(agent, 'returned', 'parts')[0]);
    // The rest was on its way.
    on.send('run', { ...header, part: 1, last: true }, Buffer.from('}'));
    await save('go', '');
    await agent.answer(running);
    expect((await agent.until('its end', () => agent.of('exited')[0])).header).toMatchObject({ process: 0, code: 0 });
    expect(of(agent, 'started', 'parts')).toEqual([]);
  });

  test('one that outlasts its time ends with its process, and the agent alone says why, to its task', async ({
    serve,
  }) => {
    const { agent, reload, call } = await serve({});
    agent.graceMs = 300;
    await begun(agent, { until: 'never' });
    await reload();
    expect(await call()).toBe('["one",null]');
    const exited = await agent.until('its end', () => agent.of('exited')[0]);
    expect(exited.header).toMatchObject({ process: 0, code: 143 });
    expect(agent.lines().filter((line) => line.includes('longshore: '))).toEqual([]);
  });

  test('a flood of reloads, each with a running call, keeps to the numbers that the agent takes', async ({ serve }) => {
    const { agent, reload, call } = await serve({});
    for (let round = 0; round < 10; round += 1) {
      await begun(agent, { until: 'never' });
      await reload();
    }
    expect(await call()).toBe('["one",null]');
    const numbers = agent.of('hello').map(({ header }) => Number(header['process']));
    expect(Math.max(...numbers)).toBe(8);
    expect(processes(agent)).toHaveLength(9);
    // The oldest made room.
    expect(agent.of('exited').map(({ header }) => [header['process'], header['signal']])).toEqual([
      [0, 9],
      [1, 9],
    ]);
  });

  test('an agent that was restarted hears of the processes that end their calls', async ({ serve }) => {
    const { agent, save, reload } = await serve({});
    const running = await begun(agent, { until: 'go' });
    await reload();
    await agent.hangUp();
    const before = agent.frames.length;
    await agent.listen();
    const retire = await agent.until('it hears', () =>
      agent.frames.slice(before).find(({ kind }) => kind === 'retire'),
    );
    expect(retire.header).toMatchObject({ process: 0, graceMs: 10_000 });
    await save('go', '');
    expect((await agent.answer(running)).body).toBe('["one",null]');
  });

  test('with a GPU the next process begins when the one before has ended', async ({ serve }) => {
    const { agent, save, ask, call } = await serve({ env: { LONGSHORE_GPU: '1' }, onStart: 'app:load' });
    const running = await begun(agent, { until: 'go' });
    const first = await ask();
    await agent.until('it is retired', () => agent.of('retire')[0]);
    // A change meanwhile is loaded with the first.
    const second = await ask();
    await save('go', '');
    const outcomes = await Promise.all([first.outcome, second.outcome]);
    expect(outcomes.map(({ error }) => error)).toEqual(['', '']);
    expect(await call()).toBe('["one","one"]');
    expect((await agent.answer(running)).body).toBe('["one","one"]');
    const order = agent.frames.flatMap(({ kind, header, body }) => {
      if (kind === 'log') return body.toString().startsWith('loading') ? ['loading'] : [];
      return kind === 'exited' || (kind === 'hello' && header['slots'] !== 0) ? [kind] : [];
    });
    expect(order).toEqual(['loading', 'hello', 'exited', 'loading', 'hello']);
  });
});

describe('streamed calls at a reload', () => {
  const STREAMED = `
import asyncio, os
async def app(scope, receive, send):
    if scope['type'] == 'websocket':
        await receive()
        await send({'type': 'websocket.accept'})
        while (message := await receive())['type'] != 'websocket.disconnect':
            await send({'type': 'websocket.send', 'text': 'one ' + message.get('text', '')})
        print('left', message.get('code'))
    elif scope['type'] == 'http':
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})
        await send({'type': 'http.response.body', 'body': b'one ', 'more_body': True})
        while scope['path'] == '/waits' and not os.path.exists('go'):
            await asyncio.sleep(0.01)
        await send({'type': 'http.response.body', 'body': b'one '})
`;
  const STREAMS = {
    files: { 'app.py': STREAMED },
    handler: 'app:app',
    env: { STUB_TYPE: 'asgi/serve', CONCURRENT_REQUESTS: '5' },
  };

  test('an answer that flows goes on to its end beside the next process', async ({ serve }) => {
    const { agent, save, reload } = await serve(STREAMS);
    const on = await agent.slot();
    const flowing = await agent.request({ path: '/waits' }, on);
    await flowing.head();
    await save('app.py', STREAMED.replaceAll('one ', 'two '));
    await reload();
    const next = await agent.request({}, await agent.slot());
    await next.ended();
    expect(next.body().toString()).toBe('two two ');
    await save('go', '');
    await flowing.ended();
    expect(flowing.body().toString()).toBe('one one ');
  });

  test('a WebSocket goes on, and is closed with 1012 when its time is over', async ({ serve }) => {
    const { agent, reload } = await serve(STREAMS);
    agent.graceMs = 700;
    const call = await agent.request({ type: 'websocket', headers: [['upgrade', 'websocket']] }, await agent.slot());
    await call.head();
    await reload();
    call.send('message', 'still', { text: true });
    expect(await call.message(0)).toBe('text one still');
    expect(await call.closed()).toEqual({ code: 1012, reason: 'ended by a reload' });
    // The application ended by itself, as when a caller leaves.
    expect(JSON.parse((await agent.answer(call.taskId)).body)).toEqual({ code: 1012 });
    await agent.until('its line', () => agent.lines().find((line) => line.endsWith('left 1012')));
  });

  test('a call that has not begun goes back', async ({ serve }) => {
    const blocking = `
import os, time
async def app(scope, receive, send):
    if scope['type'] == 'http':
        print('blocks')
        while not os.path.exists('go'):
            time.sleep(0.01)
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})
        await send({'type': 'http.response.body', 'body': b'one'})
`;
    const { agent, save, reload } = await serve({ ...STREAMS, files: { 'app.py': blocking } });
    const on = await agent.slot();
    const running = await agent.request({}, on);
    await agent.until('it blocks', () => agent.lines().find((line) => line.endsWith('blocks')));
    const { taskId } = await agent.run({ stream: true, on });
    await reload();
    await save('go', '');
    await agent.until('it goes back', () => of(agent, 'returned', taskId)[0]);
    await running.ended();
    expect(of(agent, 'started', taskId)).toEqual([]);
    expect(agent.streams.map((one) => one.taskId)).toEqual([running.taskId]);
  });
});

describe('changed files', () => {
  const FILES = {
    'app.py': `
import importlib.util, json, sys
from importlib.machinery import SourceFileLoader
loader = SourceFileLoader('rules', 'rules.conf')
spec = importlib.util.spec_from_loader('rules', loader)
rules = sys.modules['rules'] = importlib.util.module_from_spec(spec)
loader.exec_module(rules)
json.load(open('settings.json'))
def load():
    print('loading')
def handler():
    import lazy
    return [rules.value, lazy.value]
`,
    'rules.conf': 'value = 1\n',
    'lazy.py': 'value = 1\n',
    'settings.json': '{}',
  };
  /** An import that does not end before the test says so. */
  const WAITING = `import os, time\nprint('begins')\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n`;
  const loads = (agent: FakeAgent): number => agent.lines().filter((line) => line.includes('loading')).length;

  test('load the app anew only if it has loaded them, or if they are Python', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({ files: FILES, onStart: 'app:load' });
    expect(await call()).toBe('[1,1]');
    await save('settings.json', '{"a": 1}');
    for (const paths of [
      ['notes.txt'],
      ['settings.json', 'page.html'],
      ['lazy.py.swp'],
      ['.hidden/app.py'],
      ['app.py~'],
    ])
      expect(await reload(...paths)).toMatchObject({ unchanged: true, error: '' });
    expect(loads(agent)).toBe(1);
    await save('rules.conf', 'value = 2\n');
    expect(await reload('notes.txt', 'rules.conf')).toMatchObject({ error: '', path: 'rules.conf' });
    expect(await call()).toBe('[2,1]');
    await save('lazy.py', 'value = 3\n');
    expect(await reload('lazy.py')).toMatchObject({ error: '', path: 'lazy.py' });
    expect(await call()).toBe('[2,3]');
    // The app may find a new module by its name.
    expect(await reload('plugins/new.py')).toMatchObject({ path: 'plugins/new.py' });
    expect(loads(agent)).toBe(4);
  });

  test('load the app anew while it cannot be loaded, whatever they are', async ({ serve }) => {
    const { agent, save, reload, call } = await serve({ files: FILES });
    await agent.ready();
    await rm(join(agent.directory, 'code', 'settings.json'));
    expect((await reload('app.py')).error).toMatch(/FileNotFoundError/);
    await save('settings.json', '{}');
    expect(await reload('settings.json')).toMatchObject({ error: '', path: 'settings.json' });
    expect(await call()).toBe('[1,1]');
  });

  test('that come during a start count if it fails', async ({ serve }) => {
    const { agent, save, ask, call } = await serve({ files: FILES });
    await agent.ready();
    await rm(join(agent.directory, 'code', 'settings.json'));
    await save('app.py', `${WAITING}${FILES['app.py']}`);
    const first = await ask('app.py');
    await agent.until('the start', () => agent.lines().find((line) => line.includes('begins')));
    // The start fails with the file as it is here, and the one behind it finds another.
    await save('settings.json', '{');
    const second = await ask('settings.json', 'notes.txt');
    await save('go', '');
    await agent.until('the failure', () => agent.lines().find((line) => line.includes('JSONDecodeError')));
    expect(await second.outcome).toMatchObject({ path: 'settings.json' });
    await first.outcome;
    await save('settings.json', '{}');
    expect(await (await ask('settings.json')).outcome).toMatchObject({ error: '' });
    expect(await call()).toBe('[1,1]');
  });

  test('that come during a start that goes well load nothing', async ({ serve }) => {
    const { agent, save, ask } = await serve({ files: FILES, onStart: 'app:load' });
    await agent.ready();
    await save('app.py', `${WAITING}${FILES['app.py']}`);
    const first = await ask('app.py');
    await agent.until('the start', () => agent.lines().find((line) => line.includes('begins')));
    const second = await ask('notes.txt');
    await save('go', '');
    expect(await second.outcome).toMatchObject({ unchanged: true });
    expect(await first.outcome).toMatchObject({ path: 'app.py' });
    expect(loads(agent)).toBe(2);
  });
});

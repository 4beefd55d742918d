// Programs that call functions with the published Python client, and its development loop, on a whole installation.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ROOT } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';
import { aPerson } from '../helpers/python-client.ts';
import { clientVersion, test } from '../helpers/seen-calls.ts';

const STORY_MS = 900_000;
const STEP_MS = 180_000;
const APP = readFileSync(join(ROOT, 'test', 'fixtures', 'apps', 'python_calls.py'), 'utf8');
const MAPPED = 32;
/** Inputs of one map; the client calls 32 at a time. */
const MANY = 1_000;
const MANY_MS = 1_800_000;

/** A person whose folder has the app. */
async function withApp(platform: Platform) {
  const person = await aPerson(platform);
  writeFileSync(join(person.folder, 'app.py'), APP);
  return person;
}

interface Listed {
  readonly id: string;
  readonly status: string;
  readonly stubId: string;
  readonly stubName: string;
}

/** Tasks of a function of the app. */
async function tasksOf(platform: Platform, name: string): Promise<readonly Listed[]> {
  // Right after a start the database may be too busy to answer in time.
  const list = () => platform.gateway<{ tasks: Listed[] }>('/tasks?limit=2000').catch(() => undefined);
  const { tasks } = await waitFor(list, 'tasks are listed', STEP_MS);
  return tasks.filter(({ stubName }) => stubName.endsWith(name));
}

/** How often each input was run, by what the function printed. */
async function runsOf(platform: Platform, tasks: readonly Listed[]): Promise<ReadonlyMap<string, number>> {
  const runs = new Map<string, number>();
  for (const { id } of tasks)
    for (const line of await platform.logs(`task_id=${id}`)) runs.set(line, (runs.get(line) ?? 0) + 1);
  return runs;
}

test('values, output and exceptions come back as they are', { timeout: STORY_MS }, async ({ platform }) => {
  const { python } = await withApp(platform);
  const seen = await python(`
import json
from app import described, failing, given
from beta9.exceptions import RemoteExecutionError

try:
    failed = failing.remote(7)
except RemoteExecutionError as error:
    failed = [error.status, error.exit_code, error.output]
print(json.dumps({
    'sent': described.remote((1, 2), named={3: b'x'}),
    'tuple': repr(given.remote((1, 'é'))),
    'nothing': given.remote(None),
    'json': given.remote({'10': 1, '9': 2.0}),
    'failed': failed,
}))
`);
  expect(seen).toMatchObject({
    sent: "((1, 2), {3: b'x'})",
    tuple: "(1, 'é')",
    nothing: null,
    json: { '10': 1, '9': 2 },
  });
  const [status, exitCode, output] = (seen as { failed: [string, number, string] }).failed;
  expect([status, exitCode]).toEqual(['ERROR', 1]);
  expect(output).toMatch(/^before é 7\n/);
  expect(output).toContain('ValueError: no 7');
  const notebook = await python(`
import json, pickle, posixpath
from beta9 import function

with open('joined.pkl', 'wb') as file:
    pickle.dump(posixpath.join, file)

@function(cpu=0.1, memory=64)
def joined(*parts): ...

joined.parent.handler = 'joined.pkl:joined'
print(json.dumps(joined.remote('a', 'b')))
`);
  expect(notebook).toBe('a/b');
});

test(
  'an image with the published package has our module first, and values that need cloudpickle',
  {
    timeout: STORY_MS,
  },
  async ({ platform }) => {
    const { python } = await withApp(platform);
    const told = await python(`
import json
from beta9 import Image, function

@function(cpu=0.25, memory=256, image=Image(python_version='python3.11').add_python_packages(['beta9==${clientVersion()}']))
def looked(double):
    import importlib.metadata, beta9
    return [importlib.metadata.version('beta9'), beta9.__file__, hasattr(beta9, 'clients'), double(21)]

class Doubled:
    def __call__(self, n):
        return n * 2

print(json.dumps([looked.remote(lambda n: n * 2), looked.remote(Doubled())]))
`);
    const seen = [clientVersion(), expect.stringMatching(/^\/opt\/longshore\/python\/beta9\//), false, 42];
    expect(told).toEqual([seen, seen]);
  },
);

test('a thousand inputs are mapped, each once', { timeout: MANY_MS + STEP_MS }, async ({ platform }) => {
  const { python } = await withApp(platform);
  const script = `
import json
from app import counted

print(json.dumps(sorted(counted.map(list(range(${MANY}))))))
`;
  const results = await python(script, {}, MANY_MS);
  expect(results).toEqual(Array.from({ length: MANY }, (_, n) => n * 2));
  const tasks = await tasksOf(platform, 'counted');
  expect([tasks.length, new Set(tasks.map(({ status }) => status))]).toEqual([MANY, new Set(['COMPLETE'])]);
});

test.for(['dies', 'stops'] as const)(
  'a scheduler that %s loses none of 32 mapped calls, and none runs twice',
  { timeout: STORY_MS },
  async (how, { platform }) => {
    const { folder, start } = await withApp(platform);
    // The installation is that of the other story, too.
    const name = `slow_${how}`;
    writeFileSync(join(folder, 'app.py'), APP.replaceAll('slow', name));
    writeFileSync(
      join(folder, 'program.py'),
      `
import json, threading, time
from app import ${name}

def told():
    while sum(1 for call in list(${name}._invocations) if call.resumable) < ${MAPPED}:
        time.sleep(0.05)
    print('all are accepted', flush=True)

threading.Thread(target=told, daemon=True).start()
print(json.dumps(sorted(${name}.map(list(range(${MAPPED}))))), flush=True)
`,
    );
    let text = '';
    const program = start('python', 'program.py');
    program.all.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await waitFor(() => text.includes('all are accepted'), 'all calls are accepted', STEP_MS);
    await waitFor(
      async () => (await tasksOf(platform, name)).some(({ status }) => status === 'RUNNING'),
      'a call runs',
      STEP_MS,
    );
    await (how === 'dies' ? platform.scheduler.kill() : platform.scheduler.stop());
    await platform.startScheduler();
    const ran = await program;
    expect([ran.exitCode, text]).toEqual([0, text]);
    const last = text.trimEnd().split('\n').at(-1) ?? '';
    expect(JSON.parse(last)).toEqual(Array.from({ length: MAPPED }, (_, n) => n * 2));
    const tasks = await tasksOf(platform, name);
    expect(new Set(tasks.map(({ status }) => status))).toEqual(new Set(['COMPLETE']));
    expect(tasks).toHaveLength(MAPPED);
    const runs = await runsOf(platform, tasks);
    expect(runs).toEqual(new Map(Array.from({ length: MAPPED }, (_, n) => [`ran ${n}.`, 1] as const)));
  },
);

test('tasks are put, and a schedule runs once it is deployed', { timeout: STORY_MS }, async ({ platform }) => {
  const { python, beta9 } = await withApp(platform);
  const taskId = String(
    await python(`
import json
from app import queued

print(json.dumps(queued.put(3, by=2).id))
`),
  );
  expect(await platform.taskIs(taskId, 'COMPLETE', STEP_MS)).toMatchObject({ result: 6 });
  const deployed = await beta9('deploy', 'app.py:ticking');
  expect([deployed.code, deployed.text]).toEqual([0, deployed.text]);
  await waitFor(
    async () => (await tasksOf(platform, 'ticking')).some(({ status }) => status === 'COMPLETE'),
    'the schedule ran',
    STEP_MS,
  );
  const listed = (await beta9('deployment', 'list', '--format', 'json')).json() as readonly { readonly id: string }[];
  expect((await beta9('deployment', 'stop', listed[0]?.id ?? '')).code).toBe(0);
});

test('a development server loads changed files, and shows its log', { timeout: STORY_MS }, async ({ platform }) => {
  const { folder, start } = await withApp(platform);
  let text = '';
  const server = start('beta9', '--no-input', 'serve', 'app.py:served');
  server.all.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const url = await waitFor(
    () => /http:\/\/\S*\/endpoint\/id\/[0-9a-f-]{36}/.exec(text)?.[0],
    'the address is told',
    STEP_MS,
  );
  const says = async (): Promise<string> => (await platform.call(url, { method: 'POST', body: {} })).text;
  await waitFor(async () => (await says()) === '{"says":"one"}', 'it serves', STEP_MS);
  await waitFor(() => text.includes('served one'), 'the log is shown', STEP_MS);
  writeFileSync(join(folder, 'app.py'), APP.replaceAll(/\bone\b/g, 'two'));
  await waitFor(async () => (await says()) === '{"says":"two"}', 'it serves the changed file', STEP_MS);
  await waitFor(() => text.includes('served two'), 'the log of the changed file is shown', STEP_MS);
  server.kill('SIGINT');
  await server;
  await waitFor(async () => (await platform.containers()).length === 0, 'its container ends', STEP_MS);
});

test('the calls of docs/clients.md were answered', ({ seen }) => seen.keep(import.meta.filename));

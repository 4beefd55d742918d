// Sandboxes, pods, maps, queues, signals and outputs by the published Python client, as a stranger's programs use them.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { faultyGrpc } from '../helpers/faulty-grpc.ts';
import { ROOT } from '../helpers/platform.ts';
import { aPerson } from '../helpers/python-client.ts';
import { test } from '../helpers/seen-calls.ts';

const LONG_MS = 900_000;
/** Programs that are started while calls fail; each must run once. */
const PROGRAMS = 10_000;
const FAULTY_SHARE = 0.05;

const program = (name: string): string => readFileSync(join(ROOT, 'test', 'fixtures', 'python-client', name), 'utf8');
const text = (wanted: string): unknown => expect.stringContaining(wanted);

test('sandboxes and pods', { timeout: LONG_MS }, async ({ platform }) => {
  const { python, beta9 } = await aPerson(platform);
  const said = (await python(program('sandboxes.py'))) as Readonly<Record<string, unknown>>;
  expect(said).toEqual({
    exit: 3,
    stdout: ['one\n', ''],
    stderr: 'é bad\n',
    lines: ['0\n', '1\n', '2\n', '3\n'],
    logs: ['err\n', 'out\n'],
    code: [0, '42\n'],
    runs: [-1, 'running'],
    listed: ['sleep', '1000'],
    killed: 137,
    stdin: '100000',
    many: 1_048_576,
    nowhere: text('/nowhere: No such file or directory'),
    large: true,
    stat: ['note.txt', 11, false, '0o600', true],
    files: ['down', 'note.txt'],
    found: [['/tmp/deep/note.txt', 'two', 2]],
    text: 'one é\nthree\n',
    gone: text('No such file or directory'),
    waited: text('was not visible'),
    urls: true,
    page: 'hello from the sandbox',
    ttl: text('ttl must be seconds'),
    same: 'True\n',
    stranger: text('Container not found'),
    memory: text('create-image-from-filesystem keeps the files'),
    kept: 'kept',
    alive: null,
    terminated: true,
    ended: true,
    pod: [true, '', true],
    pod_id: expect.any(String),
  });
  const listed = await beta9('container', 'list', '--format', 'json');
  expect(listed.text).toContain(String(said['pod_id']));
  const stopped = await beta9('container', 'stop', String(said['pod_id']));
  expect([stopped.code, stopped.text]).toEqual([0, stopped.text]);
});

test('maps, queues and signals', { timeout: LONG_MS }, async ({ platform }) => {
  await platform.call(`/api/v1/map/${platform.workspaceId}/entry`, {
    method: 'PUT',
    body: { name: 'json', key: 'told', encoding: 'json', value: '{"n": [1, 2.5, null, "é"]}' },
  });
  const { python } = await aPerson(platform);
  expect(await python(program('shared.py'))).toEqual({
    a: "{'x': (1, 2), 'y': {3}}",
    count: [2, ['a', 'b'], ['a', 'b']],
    gone: [null, 1],
    missing: "KeyError('b')",
    large: text('750000 bytes'),
    json: { n: [1, 2.5, null, 'é'] },
    empty: [true, null, null, 0],
    queue: [2, { n: 1 }, { n: 1 }, 42, true],
    set: true,
    told: true,
    cleared: true,
  });
});

test('outputs of a task', { timeout: LONG_MS }, async ({ platform }) => {
  const { beta9, python, folder } = await aPerson(platform);

  writeFileSync(
    join(folder, 'app.py'),
    'from beta9 import endpoint\n\n\n@endpoint(name="saves", cpu=0.25, memory=128)\ndef saves():\n    return {}\n',
  );
  const deployed = await beta9('deploy', 'app.py:saves');
  expect([deployed.code, deployed.text]).toEqual([0, deployed.text]);
  expect((await platform.call('/endpoint/saves/v1', { body: {} })).status).toBe(200);
  const [task] = (await beta9('task', 'list', '--format', 'json')).json() as readonly { readonly id: string }[];
  // The client saves outputs within containers alone, which these variables stand for.
  const within = { CONTAINER_ID: 'container', STUB_ID: 'stub', BIND_PORT: '8000', TASK_ID: task?.id ?? '' };
  expect(await python(program('output.py'), within)).toEqual({ size: true, same: true, exists: true, folder: true });
});

test(
  'ten thousand programs of a sandbox run once each, while calls fail',
  { timeout: 1_800_000 },
  async ({ platform }) => {
    const faulty = await faultyGrpc([platform.grpcAddress], { seed: 11, share: FAULTY_SHARE });
    const { python } = await aPerson(platform, platform.token, faulty.address);
    const said = await python(program('execs.py'), { PROGRAMS: String(PROGRAMS) }, 1_500_000);
    faulty.stop();
    expect(said).toEqual({ started: PROGRAMS, ran: PROGRAMS, distinct: PROGRAMS });
    for (const count of Object.values(faulty.faults)) expect(count).toBeGreaterThan(PROGRAMS / 100);
  },
);

test('the calls of docs/clients.md were answered', ({ seen }) => seen.keep(import.meta.filename));

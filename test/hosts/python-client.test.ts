// The published Python client `beta9`, installed from its index and unchanged, against a whole installation over gRPC.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect } from 'vitest';
import { readMessages } from '#scheduler/api/grpc/descriptor.ts';
import type { Field } from '#scheduler/api/grpc/descriptor.ts';
import { REFUSED_CALLS } from '#scheduler/api/grpc/services/refused.ts';
import { ALL_RPCS } from '../helpers/grpc-calls.ts';
import { INSTALL_MS, TOOLS, aPerson, installed } from '../helpers/python-client.ts';
import type { Ran } from '../helpers/python-client.ts';
import { clientVersion, keepCalls, readResults, test } from '../helpers/seen-calls.ts';

const APP = `from beta9 import endpoint


@endpoint(name="doubled", cpu=0.25, memory=128, keep_warm_seconds=5)
def doubled(n: int = 0):
    return {"n": n * 2}
`;

interface Described {
  /** Fields by message, each with its number and type. */
  readonly messages: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Paths of calls. */
  readonly calls: readonly string[];
  /** Numbers of the texts in answers, by paths of calls. */
  readonly texts: Readonly<Record<string, number>>;
}

/** A row of a list, as far as this test reads it. */
interface Listed {
  readonly id: string;
  readonly name: string;
  readonly version: number;
  readonly active: boolean;
}

interface TokenRow {
  readonly tokenId: string;
  readonly active: boolean;
}

interface WorkerRow {
  readonly id: string;
  readonly status: string;
}

interface MachineRow {
  readonly id: string;
  readonly poolName: string;
}

/** A field, as the description of the installed client writes it. */
function written({ number, type, keys, isList, isOptional }: Field): string {
  const plain = keys === undefined ? type : `map<${keys},${type}>`;
  return `${number} ${plain}${isList ? '[]' : ''}${isOptional ? '?' : ''}`;
}

test('the table of fields is that of the installed client', { timeout: INSTALL_MS }, async () => {
  const python = join(await installed(), 'bin', 'python');
  const { stdout } = await execa(python, [join(TOOLS, 'describe.py')]);
  const theirs = JSON.parse(stdout) as Described;
  const ours = [...readMessages()].filter(([name]) => !name.startsWith('health.'));
  const wrong = ours.flatMap(([message, fields]) =>
    fields
      .filter((field) => theirs.messages[message]?.[field.name] !== written(field))
      .map(({ name }) => `${message}.${name}`),
  );
  expect(wrong).toEqual([]);
  for (const { path } of ALL_RPCS) expect(theirs.calls).toContain(`/${path}`);
  // Calls that a release of the client added are named here: they are neither served nor refused with a text.
  const known = new Set([...ALL_RPCS.map(({ path }) => `/${path}`), ...REFUSED_CALLS.map(({ path }) => path)]);
  expect(theirs.calls.filter((path) => !known.has(path))).toEqual([]);
  if (process.env['LS_CLIENT_RESULTS'] === 'write') keepCalls(theirs.calls);
  expect(readResults()[clientVersion()]?.calls, 'docs/clients.md has these calls').toEqual(theirs.calls.toSorted());
  const texts = REFUSED_CALLS.map(({ path, field }) => [path, field ?? null]);
  expect(texts).toEqual(REFUSED_CALLS.map(({ path }) => [path, theirs.texts[path] ?? null]));
  // Fields that a release of the client added are named here. Answers do without them.
  const missing = ours.flatMap(([message, fields]) => {
    const known = new Set(fields.map(({ name }) => name));
    return Object.keys(theirs.messages[message] ?? {}).flatMap((name) => (known.has(name) ? [] : `${message}.${name}`));
  });
  expect(missing.toSorted()).toEqual([
    'disk.ListDiskSnapshotsResponse.snapshots',
    'disk.ListDisksResponse.disks',
    'gateway.ListPoolOffersResponse.offers',
    'gateway.Machine.ssh',
    'gateway.PrivatePool.byoc',
    'gateway.PrivatePool.reservations',
    'pod.PodSandboxSnapshotDisksResponse.snapshots',
    'pod.PodSandboxSnapshotMemoryResponse.disk_snapshots',
    'pod.PodSandboxSnapshotMemoryResponse.runtime',
  ]);
});

test('the published command line deploys, deploys again and manages', { timeout: 900_000 }, async ({ platform }) => {
  const { folder, beta9 } = await aPerson(platform);
  const says = async (text: string, ...args: readonly string[]): Promise<Ran> => {
    const ran = await beta9(...args);
    expect(ran.text).toContain(text);
    expect([ran.code, ran.text]).toEqual([0, ran.text]);
    return ran;
  };
  await says(platform.workspaceId, 'whoami');
  await says(`default: ${platform.grpcAddress}`, 'doctor');

  const app = join(folder, 'app.py');
  writeFileSync(app, APP);
  writeFileSync(join(folder, 'notes.txt'), 'x'.repeat(10_000));
  await says('deployment accepted', 'deploy', 'app.py:doubled');
  const called = await platform.call('/endpoint/doubled/v1', { body: { n: 4 } });
  expect([called.status, called.text]).toEqual([200, '{"n":8}']);
  // The second deploy uploads what changed: the file, and what the client keeps beside it.
  writeFileSync(app, APP.replace('n * 2', 'n * 3'));
  expect((await says('/endpoint/doubled/v2', 'deploy', 'app.py:doubled')).text).toMatch(/Uploading [12] changed file/);
  const again = await platform.call('/endpoint/doubled/v2', { body: { n: 4 } });
  expect([again.status, again.text]).toEqual([200, '{"n":12}']);

  const listed = async (): Promise<readonly Listed[]> =>
    (await says('doubled', 'deployment', 'list', '--format', 'json')).json() as Listed[];
  const [second, first] = (await listed()).toSorted((a, b) => b.version - a.version);
  expect([first, second]).toMatchObject([
    { name: 'doubled', version: 1, active: true },
    { name: 'doubled', version: 2, active: true, workspace_id: platform.workspaceId },
  ]);
  // By id the first version is meant, although the second is newer.
  await says('', 'deployment', 'scale', first?.id ?? '', '--containers', '0');
  await says('', 'deployment', 'stop', first?.id ?? '');
  expect((await listed()).filter(({ active }) => active)).toMatchObject([{ id: second?.id, version: 2 }]);
  const unknown = await beta9('--json', 'deployment', 'stop', '00000000-0000-4000-8000-000000000000');
  expect([unknown.code, unknown.json()]).toMatchObject([1, { error: 'Deployment not found' }]);

  const tasks = (await says('COMPLETE', 'task', 'list', '--format', 'json')).json() as Listed[];
  expect(tasks).toHaveLength(2);
  await says('admin', 'token', 'list');
  await says('default', 'pool', 'list');
  await says('', 'deployment', 'stop', second?.id ?? '');
  await says('', 'deployment', 'start', second?.id ?? '');
  await says('', 'deployment', 'delete', second?.id ?? '', '--yes');
  expect((await listed()).map(({ version }) => version)).toEqual([1]);

  const stranger = await aPerson(platform, 'eyJnobody'.padEnd(80, 'x'));
  const refused = await stranger.beta9('deployment', 'list');
  expect(refused.code).not.toBe(0);
  expect(refused.text).toContain('Invalid auth token');
});

test(
  'the published command line looks after tokens, workers and machines',
  { timeout: 300_000 },
  async ({ platform }) => {
    const { beta9 } = await aPerson(platform);
    const runs = async (...args: readonly string[]): Promise<Ran> => {
      const ran = await beta9(...args);
      expect([ran.code, ran.text]).toEqual([0, ran.text]);
      return ran;
    };
    const tokens = async () => (await platform.gateway<{ tokens: readonly TokenRow[] }>('/tokens')).tokens;
    const before = new Set((await tokens()).map(({ tokenId }) => tokenId));
    await runs('token', 'create');
    const made = (await tokens()).find(({ tokenId }) => !before.has(tokenId));
    await runs('token', 'toggle', made?.tokenId ?? '');
    expect((await tokens()).find(({ tokenId }) => tokenId === made?.tokenId)).toMatchObject({ active: false });
    await runs('token', 'delete', made?.tokenId ?? '');
    expect((await tokens()).some(({ tokenId }) => tokenId === made?.tokenId)).toBe(false);

    const worker = async () => ((await runs('worker', 'list', '--format', 'json')).json() as readonly WorkerRow[])[0];
    const { id = '' } = (await worker()) ?? {};
    await runs('worker', 'cordon', id);
    expect(await worker()).toMatchObject({ status: 'disabled' });
    await runs('worker', 'uncordon', id);
    expect(await worker()).toMatchObject({ status: 'available' });
    await runs('worker', 'drain', id);
    await runs('worker', 'uncordon', id);

    await platform.gateway('/pools', { name: 'rack', settings: {} });
    await runs('machine', 'create', '--pool', 'rack');
    const { machines } = await platform.gateway<{ machines: readonly MachineRow[] }>('/machines?poolName=rack');
    const [machine] = machines.filter(({ poolName }) => poolName === 'rack');
    await runs('machine', 'list', '--pool', 'rack');
    await runs('machine', 'delete', machine?.id ?? '', '--pool', 'rack');
  },
);

test('the calls of docs/clients.md were answered', ({ seen }) => seen.keep(import.meta.filename));

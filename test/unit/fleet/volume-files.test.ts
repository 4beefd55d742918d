import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '#scheduler/stores/store/db.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { SharedPlaces } from '#shared/places.ts';
import { MOST_PARTS, newUpload, rangeOf, readUploadId, uploadIdOf } from '#scheduler/fleet/parted-uploads.ts';
import { MOST_OF_MACHINE, MOST_OF_WORKSPACE, VolumeFiles, partIn } from '#scheduler/fleet/volume-files.ts';
import type { FilePurpose, SignedFileQuery } from '#scheduler/fleet/volume-files.ts';

const NOW_MS = 1_800_000_000_000;
const DAY_MS = 86_400_000;
const workspaceId = newId<WorkspaceId>();
const home = newId<MachineId>();
const signal = new AbortController().signal;

interface World {
  readonly driver?: string;
  readonly home?: MachineId | null;
  readonly machines?: readonly Machine[];
}

const aMachine = (id: MachineId, facts: Partial<Omit<Machine, 'row'>> & { readonly row?: object } = {}): Machine =>
  ({
    health: 'READY',
    sessionId: undefined,
    conditions: [],
    inventory: { volumeDrivers: ['shared'] },
    ...facts,
    row: {
      id,
      intent: 'active',
      hostDrainUntilMs: null,
      systemCordon: false,
      poolName: 'default',
      poolWorkspaceId: null,
      poolSettings: { requiresPoolSelector: false },
      ...facts.row,
    },
  }) as unknown as Machine;

function aWorld({ driver = 'local', home: at = home, machines = [aMachine(home)] }: World = {}) {
  const id = newId();
  const row = { id, workspace_id: workspaceId, name: 'v', driver, created_at: new Date(), updated_at: new Date() };
  const db = {
    query: (sql: string, params: readonly unknown[]) => {
      if (sql.startsWith('update')) boundTo ??= params[1];
      const homeId = at ?? boundTo;
      if (sql.includes('home_machine_id'))
        return { rows: homeId === undefined ? [] : [{ id, home_machine_id: homeId }] };
      const isFound = sql.includes('where id') ? params[0] === id : params[0] === workspaceId && params[1] === 'v';
      return { rows: isFound ? [row] : [] };
    },
  } as unknown as Queryable;
  let boundTo: unknown;
  const asked: MachineId[] = [];
  let nowMs = NOW_MS;
  let quota: { used: number; most: number | null } = { used: 0, most: null };
  let keys: [Uint8Array, ...Uint8Array[]] = [new Uint8Array(32).fill(1)];
  const files = new VolumeFiles({
    db,
    machines: { all: () => machines, get: (machineId) => machines.find((one) => one.row.id === machineId) },
    streams: {
      open: async (machineId) => {
        asked.push(machineId);
        return new PassThrough();
      },
    },
    quotaOf: () => Promise.resolve(quota),
    keys: () => keys,
    clock: { nowMs: () => nowMs },
  });
  return {
    id,
    files,
    asked,
    use: (used: number, most: number | null) => void (quota = { used, most }),
    later: (ms: number) => void (nowMs += ms),
    useKeys: (...next: [Uint8Array, ...Uint8Array[]]) => void (keys = next),
    sign: async (path: string, purpose: Exclude<FilePurpose, 'part'>) => {
      const signed = await files.sign(workspaceId, 'v', path, purpose);
      return Object.fromEntries(new URL(signed.path, 'http://x').searchParams);
    },
  };
}

test('an address is for one file, one direction and a day, under each key of the installation', async () => {
  const { id, files, sign, later, useKeys } = aWorld();
  const query = await sign('a/ü b%2F.bin', 'get');
  expect(files.verify('get', id, query)).toBe(true);
  expect(files.verify('put', id, query)).toBe(false);
  expect(files.verify('get', newId(), query)).toBe(false);
  expect(files.verify('get', id, { ...query, path: 'a' })).toBe(false);
  expect(files.verify('get', id, { ...query, expires: String(Number(query['expires']) + 1) })).toBe(false);
  expect(files.verify('get', id, { ...query, signature: '' })).toBe(false);
  expect(files.verify('get', id, { ...query, path: ['a', 'a'] as unknown as string })).toBe(false);
  useKeys(new Uint8Array(32).fill(2), new Uint8Array(32).fill(1));
  later(DAY_MS - 1);
  expect(files.verify('get', id, query)).toBe(true);
  later(1);
  expect(files.verify('get', id, query)).toBe(false);
  useKeys(new Uint8Array(32).fill(2));
  later(-DAY_MS);
  expect(files.verify('get', id, query)).toBe(false);
});

test('only volumes of the workspace, with a home, and paths of files are signed', async () => {
  const { files } = aWorld();
  await expect(files.sign(newId<WorkspaceId>(), 'v', 'a', 'get')).rejects.toMatchObject({ code: 'volume_not_found' });
  await expect(files.sign(workspaceId, 'other', 'a', 'get')).rejects.toMatchObject({ code: 'volume_not_found' });
  await expect(files.sign(workspaceId, 'v', '../a', 'get')).rejects.toMatchObject({ code: 'invalid_query' });
  const homeless = aWorld({ home: null, machines: [aMachine(home), aMachine(newId<MachineId>())] });
  for (const purpose of ['get', 'put', 'pack', 'unpack'] as const) {
    await expect(homeless.sign('a', purpose)).rejects.toMatchObject({ code: 'volume_without_home' });
  }
  await expect(homeless.files.open(homeless.id, signal)).rejects.toMatchObject({ code: 'volume_without_home' });
});

test('the address of a part is for that part of that upload alone', async () => {
  const { id, files, sign, later } = aWorld();
  const upload = newUpload(10, 4);
  if (typeof upload === 'string') throw new Error(upload);
  const other = { ...upload, key: 'f'.repeat(16) };
  const signed = files.signParts({ id }, 'a\nb', [
    { upload, number: 1 },
    { upload, number: 3 },
    { upload: other, number: 1 },
  ]);
  const [first = {}, third = {}, foreign = {}] = signed.map(
    (path) => Object.fromEntries(new URL(path, 'http://x').searchParams) as SignedFileQuery,
  );
  expect(files.verify('part', id, first)).toBe(true);
  expect(partIn(third)).toEqual({ upload, number: 3 });
  for (const wrong of [
    { ...first, part: '3' },
    { ...first, part: '01' },
    { ...third, part: '4' },
    { ...first, upload: foreign.upload ?? '' },
    { ...first, path: 'a' },
    { ...first, part: ['1', '1'] as unknown as string },
    { path: first.path ?? '', expires: first.expires ?? '', signature: first.signature ?? '' },
  ])
    expect(files.verify('part', id, wrong)).toBe(false);
  for (const purpose of ['put', 'get', 'unpack'] as const) expect(files.verify(purpose, id, first)).toBe(false);
  expect(files.verify('part', id, await sign('a', 'put'))).toBe(false);
  later(DAY_MS);
  expect(files.verify('part', id, first)).toBe(false);
});

test('an upload is cut into parts that cover it, and its id says how', () => {
  const upload = newUpload(10, 4);
  if (typeof upload === 'string') throw new Error(upload);
  expect([1, 2, 3].map((number) => rangeOf(upload, number))).toEqual([
    { start: 0, end: 4 },
    { start: 4, end: 8 },
    { start: 8, end: 10 },
  ]);
  expect(readUploadId(uploadIdOf(upload))).toEqual(upload);
  expect(newUpload(3, 100)).toMatchObject({ total: 3, partBytes: 3 });
  expect(newUpload(0, 0)).toMatchObject({ total: 0 });
  expect(newUpload(5, 0)).toBe('chunk_size must be at least 1');
  expect(newUpload(MOST_PARTS + 1, 1)).toContain(`at most ${MOST_PARTS}`);
  expect(newUpload(1e15, 1e12)).toContain('file_size must be at most');
  for (const id of ['', 'x', `${'a'.repeat(16)}.10.0`, `${'A'.repeat(16)}.10.4`, `${'a'.repeat(16)}.99999.1`])
    expect(readUploadId(id)).toBeUndefined();
});

test('the address of packs is for a folder and one direction, and for packs alone', async () => {
  const { id, files, sign } = aWorld();
  const root = await sign('', 'unpack');
  expect(files.verify('unpack', id, root)).toBe(true);
  for (const purpose of ['pack', 'get', 'put'] as const) expect(files.verify(purpose, id, root)).toBe(false);
  const below = await sign('a/b', 'pack');
  expect(files.verify('pack', id, below)).toBe(true);
  expect(files.verify('pack', id, { ...below, path: 'a' })).toBe(false);
  expect(files.verify('get', id, below)).toBe(false);
  await expect(sign('../a', 'pack')).rejects.toMatchObject({ code: 'invalid_query' });
  await expect(sign('', 'put')).rejects.toMatchObject({ code: 'invalid_query' });
});

test('a write gives a volume its home where one machine alone can have it; else a person names it', async () => {
  const foreign = aMachine(newId<MachineId>(), { row: { poolWorkspaceId: newId<WorkspaceId>() } });
  const only = aWorld({ home: null, machines: [aMachine(home), foreign] });
  await expect(only.sign('a', 'get')).rejects.toMatchObject({ code: 'volume_without_home' });
  await only.sign('a', 'put');
  await only.files.open(only.id, signal);
  expect(only.asked).toEqual([home]);

  const other = newId<MachineId>();
  const two = aWorld({ home: null, machines: [aMachine(home), aMachine(other), foreign] });
  const volume = await two.files.named(workspaceId, 'v');
  await expect(two.files.settle(volume)).rejects.toMatchObject({ code: 'volume_without_home' });
  for (const id of [foreign.row.id, newId<MachineId>(), 'x']) {
    await expect(two.files.settle(volume, id)).rejects.toMatchObject({ code: 'machine_not_found' });
  }
  expect(await two.files.hasFiles(volume)).toBe(false);
  await two.files.settle(volume, other);
  expect(await two.files.hasFiles(volume)).toBe(true);
  await two.files.settle(volume, other);
  await expect(two.files.settle(volume, home)).rejects.toMatchObject({ code: 'invalid_body' });
  const shared = aWorld({ driver: 'shared', home: null });
  await shared.files.settle(await shared.files.named(workspaceId, 'v'));
  await expect(shared.files.settle(await shared.files.named(workspaceId, 'v'), home)).rejects.toMatchObject({
    code: 'invalid_body',
  });
  for (const name of ['a\0b', '', '../v', 'x'.repeat(64)]) {
    await expect(two.files.named(workspaceId, name)).rejects.toMatchObject({ code: 'volume_not_found' });
  }
});

test('the home serves a local volume, also while it takes no containers; else a machine that has the driver', async () => {
  const cordoned = aWorld({ machines: [aMachine(newId()), aMachine(home, { row: { systemCordon: true } })] });
  await cordoned.files.open(cordoned.id, signal);
  expect(cordoned.asked).toEqual([home]);
  const away = aWorld({ machines: [aMachine(home, { health: 'SUSPECT' })] });
  await expect(away.files.open(away.id, signal)).rejects.toMatchObject({ code: 'machine_away' });

  const [linked, foreign, without] = [newId<MachineId>(), newId<MachineId>(), newId<MachineId>()];
  const machines = [
    aMachine(foreign, { sessionId: 's', row: { poolWorkspaceId: newId<WorkspaceId>() } }),
    aMachine(without, { sessionId: 's', inventory: { volumeDrivers: [] } as unknown as Machine['inventory'] }),
    aMachine(home),
    aMachine(linked, { sessionId: 's' }),
  ];
  const shared = aWorld({ driver: 'shared', home: null, machines });
  await shared.files.open(shared.id, signal);
  expect(shared.asked).toEqual([linked]);
  const down = aMachine(newId(), { conditions: ['SharedVolumesDown'] });
  const none = aWorld({ driver: 'shared', home: null, machines: [...machines.slice(0, 2), down] });
  await expect(none.files.open(none.id, signal)).rejects.toMatchObject({ code: 'machine_away' });
});

test('a workspace has so many transfers at once; an end gives its place back once', async () => {
  const { id, files } = aWorld();
  const open = [];
  for (let at = 0; at < MOST_OF_WORKSPACE; at += 1) open.push(await files.open(id, signal));
  await expect(files.open(id, signal)).rejects.toMatchObject({ code: 'too_many_transfers' });
  open[0]?.done();
  open[0]?.done();
  open[1]?.bytes.destroy();
  await new Promise(setImmediate);
  for (let at = 0; at < 2; at += 1) await files.open(id, signal);
  await expect(files.open(id, signal)).rejects.toMatchObject({ code: 'too_many_transfers' });
});

test('two workspaces never fill the transfers of a machine: each has at most what is left', () => {
  const places = new SharedPlaces<string, string>(MOST_OF_MACHINE);
  const fill = (machine: string, workspace: string): (() => void)[] => {
    const held: (() => void)[] = [];
    for (;;) {
      const back = held.length < MOST_OF_WORKSPACE ? places.take(machine, workspace) : undefined;
      if (back === undefined) return held;
      held.push(back);
    }
  };
  const held = ['a', 'b', 'c', 'd', 'e'].map((workspace) => fill('m1', workspace));
  expect(held.map(({ length }) => length)).toEqual([16, 8, 4, 2, 1]);
  expect(fill('m2', 'b')).toHaveLength(16);
  for (const back of held.flat()) {
    back();
    back();
  }
  expect(fill('m1', 'f')).toHaveLength(16);
});

test('above the bound of the workspace nothing more is uploaded, and everything is still read', async () => {
  const { id, files, sign, use } = aWorld();
  use(99, 100);
  await sign('a', 'put');
  const { bound } = await files.open(id, signal, 1);
  expect(bound?.bytes).toBe(1);
  expect(bound?.exceeded()).toMatchObject({ code: 'volume_quota_reached' });
  await expect(files.open(id, signal, 2)).rejects.toMatchObject({
    code: 'volume_quota_reached',
    message: expect.stringMatching(/99 bytes.*bytes\.volumes is 100; with 2 more/),
  });
  use(100, 100);
  for (const purpose of ['put', 'unpack'] as const)
    await expect(sign('a', purpose)).rejects.toMatchObject({ code: 'volume_quota_reached' });
  // A sender that does not say how much it brings.
  await expect(files.open(id, signal, 0)).rejects.toMatchObject({ code: 'volume_quota_reached' });
  await files.open(id, signal);
  await sign('a', 'get');
  use(1_000_000, null);
  expect((await files.open(id, signal, 5)).bound).toBeUndefined();
});

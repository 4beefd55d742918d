// Shares of workspaces: changed by an administrator, declared by a file, and read by placement.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { Quotas } from '#scheduler/control/placement/quotas.ts';
import { Pools } from '#scheduler/fleet/pools.ts';
import type { DeclaredShare } from '#scheduler/workspaces/identity/shares.ts';
import { Shares } from '#scheduler/workspaces/identity/shares.ts';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { aDb, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

describe.each(['pglite', 'postgres'] as const)('a share on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const named = async (name: string) => {
    const { id } = await aWorkspace(opened.db);
    await opened.db.query('update workspaces set name = $2 where id = $1', [id, name]);
    return { id, name };
  };
  const told: (readonly [string, unknown])[] = [];
  const someShares = () => {
    const changed: string[] = [];
    const shares = new Shares({
      db: opened.db,
      clock: new TestClock(),
      invalidation: { publish: (_kind, id) => Promise.resolve(changed.push(id) > 0) },
    });
    const note = (fields: Readonly<Record<string, unknown>>, text: string) =>
      void told.push([text, fields['workspaces']]);
    const pools = new Pools({
      db: opened.db,
      machines: { poolChanged: () => undefined },
      shares,
      log: { info: note, warn: note, error: note } as never,
    });
    const declare = async (path: string, ...declared: DeclaredShare[]) => {
      told.length = 0;
      await pools.declare({ path, pools: [], shares: declared });
    };
    return { shares, changed, declare };
  };

  test('is read with the limits that placement counts by, as soon as it is changed', async () => {
    const { shares, changed } = someShares();
    const { id } = await aWorkspace(opened.db);
    const quotas = new Quotas(opened.db, new TestClock());
    const now = async () => (await quotas.of(new Set([id]))).get(id)?.share;
    expect(await now()).toEqual({ weight: 1, guaranteed: {}, limits: {} });
    await shares.change(id, { weight: 2, guaranteed: { H100: 16 } });
    expect(changed).toEqual([id]);
    quotas.forget(id);
    expect(await now()).toEqual({ weight: 2, guaranteed: { H100: 16 }, limits: {} });
    await expect(shares.change(id, { limits: { H100: 8 } })).rejects.toMatchObject({
      code: 'invalid_body',
      message: 'limits.H100 is 8, less than guaranteed.H100, which is 16',
    });
    expect((await shares.guaranteed()).get('H100')).toBe(16);
    await shares.change(id, { weight: null, guaranteed: null });
    expect((await shares.guaranteed()).size).toBe(0);
    const nobody = '00000000-0000-4000-8000-000000000000' as WorkspaceId;
    await expect(shares.change(nobody, { weight: 2 })).rejects.toMatchObject({ code: 'workspace_not_found' });
    await expect(shares.of('own' as WorkspaceId)).rejects.toMatchObject({ code: 'workspace_not_found' });
  });

  test('that a file declares is changed by the file alone, until the file declares it no more', async () => {
    const { shares, changed, declare } = someShares();
    const [one, two] = [await named('one'), await named('two')];
    await shares.change(one.id, { weight: 7, limits: { L4: 1 } });
    await declare(
      '/etc/pools.json',
      { workspace: one.name, share: { weight: 2 } },
      { workspace: two.id, share: { guaranteed: { H100: 8 } } },
      { workspace: 'nobody', share: null },
    );
    expect(await shares.of(one.id)).toEqual({
      share: { weight: 2, guaranteed: {}, limits: {} },
      declaredIn: '/etc/pools.json',
    });
    expect(changed).toEqual([one.id, one.id, two.id]);
    expect(told).toContainEqual([expect.stringContaining('do not exist'), ['nobody']]);
    await expect(shares.change(one.id, { weight: 3 })).rejects.toMatchObject({ code: 'share_declared' });

    // Read again, it writes what differs, and announces nothing else.
    await declare('/etc/pools.json', { workspace: one.name, share: { weight: 2 } });
    expect(changed).toHaveLength(3);
    expect(told).toEqual([[expect.stringContaining('no more'), [two.name]]]);
    expect(await shares.of(two.id)).toMatchObject({ share: { guaranteed: { H100: 8 } }, declaredIn: null });
    await shares.change(two.id, { guaranteed: null });

    // A scheduler with another file, or none of them, releases nothing.
    await declare('/elsewhere.json');
    expect(await shares.of(one.id)).toMatchObject({ declaredIn: '/etc/pools.json' });
    await declare('/etc/pools.json');
    await shares.change(one.id, { weight: null });
  });

  test('is given to no workspace whose name is not its alone', async () => {
    const { shares, declare } = someShares();
    const [one, two] = [await named('same'), await named('same')];
    await declare('/f', { workspace: 'same', share: { weight: 9 } }, { workspace: one.id, share: { weight: 4 } });
    expect(told).toContainEqual([expect.stringContaining('by a name that several have'), ['same']]);
    expect([(await shares.of(one.id)).share.weight, (await shares.of(two.id)).share.weight]).toEqual([4, 1]);
    await declare('/f');
  });
});

describe('with a scheduler', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ls-shares-'));
  const file = join(folder, 'pools.json');
  let platform: Platform;
  beforeAll(async () => {
    writeFileSync(file, '{"pools": {}}');
    platform = await aPlatform({ LONGSHORE_POOLS_FILE: file });
  });
  afterAll(() => platform.stop());

  const longshore = (token: string, ...words: readonly string[]) =>
    runCommand(['workspace', ...words], {
      LONGSHORE_URL: `http://${platform.address}`,
      LONGSHORE_TOKEN: token,
      LONGSHORE_CONTEXT_FILE: join(folder, 'contexts.json'),
    });
  const listed = async (): Promise<Json | undefined> => {
    const { json } = await platform.call('GET /api/v1/workspace', undefined, { token: platform.admin.token });
    return (json['data'] as Json[]).find(({ id }) => id === platform.own.workspaceId);
  };

  test('an administrator changes a share by the command line, and its workspace sees it', async () => {
    const { admin, own, other } = platform;
    const words = ['share', 'own', '--weight', '2', '--guarantee', 'h100=16', 'cpu=64', '--limit', 'H100=32'];
    const changed = await longshore(admin.token, ...words);
    expect(changed).toMatchObject({ code: 0 });
    expect(changed.stdout).toMatch(/^weight: 2\nMARKET +GUARANTEED +LIMIT\nH100 +16 +32\ncpu +64 +none\n$/);
    expect(changed.stderr).toContain('16 H100 are guaranteed to workspaces, and no shared machine has this model');
    const list = await platform.call('GET /api/v1/share', undefined, { token: admin.token });
    expect(list.json['warnings']).toEqual([
      expect.stringContaining('16 H100 are guaranteed to workspaces'),
      expect.stringContaining('64 cores are guaranteed to workspaces'),
    ]);
    expect((await listed())?.['share']).toEqual({ weight: 2, guaranteed: { H100: 16, cpu: 64 }, limits: { H100: 32 } });
    expect((await longshore(admin.token, 'list')).stdout).toContain('weight 2, H100 16 to 32, cpu from 64');

    const shown = await longshore(own.token, 'share');
    expect([shown.code, shown.stderr, shown.stdout]).toEqual([0, '', changed.stdout]);
    const refused = await longshore(own.token, 'share', '--weight', '1000');
    expect([refused.code === 0, refused.stderr]).toEqual([
      false,
      expect.stringContaining("takes the installation's admin token"),
    ]);
    const foreign = await platform.call(`GET /api/v1/workspace/${own.workspaceId}/share`, undefined, {
      token: other.token,
    });
    expect(foreign.status).toBe(401);

    expect((await longshore(admin.token, 'share', 'own', '--clear')).stdout).toBe('weight: 1\n');
    expect((await listed())?.['share']).toBeUndefined();
  });

  test.each([
    [{ weight: 0 }, 'weight'],
    [{ wieght: 2 }, 'wieght'],
    [{ guaranteed: { any: 1 } }, 'guaranteed.any'],
    [{ limits: { H100: 0.5 } }, 'limits.H100'],
    [{ guaranteed: { L4: 2 }, limits: { L4: 1 } }, 'limits.L4'],
  ])('%j is refused, and names the field', async (body, field) => {
    const path = `/api/v1/workspace/${platform.own.workspaceId}/share`;
    const answer = await platform.call(`PUT ${path}`, body, { token: platform.admin.token });
    expect(answer.status).toBe(422);
    expect(answer.text).toContain(field);
  });

  test('an administrator sees what all hold and wait for, and a workspace sees its own line', async () => {
    const { admin, own, other } = platform;
    for (const [name, person] of [
      ['mine', own],
      ['theirs', other],
    ] as const) {
      await platform.deploy(name, { stubType: 'taskqueue/deployment' }, person.token);
      await platform.call(`POST /taskqueue/${name}`, {}, { token: person.token });
    }
    const list = (token: string, ...words: readonly string[]) =>
      runCommand(['share', 'list', ...words], {
        LONGSHORE_URL: `http://${platform.address}`,
        LONGSHORE_TOKEN: token,
        LONGSHORE_CONTEXT_FILE: join(folder, 'contexts.json'),
      });
    await waitFor(
      async () =>
        /cpu +own/.test((await list(admin.token)).stdout) && /cpu +other/.test((await list(admin.token)).stdout),
      'both wait',
    );
    const mine = await list(own.token, '--market', 'CPU');
    expect(mine).toMatchObject({ code: 0, stderr: '' });
    expect(mine.stdout).toMatch(/^MARKET +WORKSPACE +USED +FAIR .*\ncpu +own +0 +0 +0 +none +1 +1 +\d+ s\n$/);
    expect((await list(own.token, '--market', 'H100')).stdout).not.toContain('own');
    const path = `/api/v1/workspace/${own.workspaceId}/markets`;
    expect((await platform.call(`GET ${path}`, undefined, { token: other.token })).status).toBe(401);
    expect((await platform.call('GET /api/v1/share')).status).toBe(401);
    const ofMarket = await platform.call('GET /api/v1/share?market=B200', undefined, { token: admin.token });
    expect(ofMarket.json).toEqual({ data: [], next: '', warnings: [] });
  });

  test('a share of the pools file is written at SIGHUP, and commands do not change it', async () => {
    writeFileSync(file, '{"pools": {}, "workspaces": {"own": {"weight": 3}}}');
    await platform.readFilesAgain();
    expect((await listed())?.['share']).toEqual({ weight: 3, guaranteed: {}, limits: {} });
    const { admin, own } = platform;
    expect((await longshore(admin.token, 'share', 'own')).stdout).toBe(`weight: 3\ndeclared in: ${file}\n`);
    expect((await longshore(own.token, 'share')).stdout).toBe('weight: 3\n');
    const refused = await longshore(admin.token, 'share', 'own', '--weight', '4');
    expect([refused.code === 0, refused.stderr]).toEqual([false, expect.stringContaining(`declared in ${file}`)]);

    writeFileSync(file, '{"pools": {}, "workspaces": {"own": {"weight": 3}}, "sharing": {"order": "arrival"}}');
    await platform.readFilesAgain();
    const settings = await platform.call('GET /api/v1/setting', undefined, { token: admin.token });
    expect(settings.json['data']).toContainEqual(
      expect.objectContaining({ name: 'sharing_order', value: 'arrival', source: 'database' }),
    );
    writeFileSync(file, '{"pools": {}, "sharing": {"reserveAfterSeconds": null}}');
    await platform.readFilesAgain();
    const told = await platform.call('GET /api/v1/setting', undefined, { token: admin.token });
    expect(told.json['data']).toContainEqual(expect.objectContaining({ name: 'reserve_after', value: 'off' }));
    writeFileSync(file, '{"pools": {}, "workspaces": {"own": {"weight": 3}}}');
    await platform.readFilesAgain();
    // A file with a mistake changes nothing.
    writeFileSync(file, '{"pools": {}, "workspaces": {"own": {"weight": -3}}}');
    await platform.readFilesAgain();
    expect((await listed())?.['share']).toMatchObject({ weight: 3 });
  });
});

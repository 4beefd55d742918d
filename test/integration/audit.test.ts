// The audit trail, and events of deployments: who is told what, with the change or not at all, on both kinds of stores.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AUDIT_KINDS } from '#scheduler/workspaces/events/audit.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import { Secrets } from '#scheduler/workspaces/secrets/service.ts';
import { runCommand } from '../helpers/command-line.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform, StoreKind } from './verbs-fixture.ts';
import { KINDS, aDb, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe.each<StoreKind>(['embedded', 'servers'])('the audit trail on %s', (stores) => {
  let platform: Platform;
  beforeAll(async () => {
    platform = await aPlatform({}, stores);
  });
  afterAll(() => platform.stop());

  const ws = (line: string): string => line.replace(' /', ' /api/v1/').replace('{ws}', platform.own.workspaceId);
  const eventsOf = async (types: string, workspaceId = platform.own.workspaceId): Promise<Json[]> => {
    const token = workspaceId === platform.own.workspaceId ? platform.own.token : platform.admin.token;
    const answer = await platform.call(`GET /api/v1/events/${workspaceId}/history?event_types=${types}`, undefined, {
      token,
    });
    expect(answer.status).toBe(200);
    return answer.json['events'] as Json[];
  };
  const last = async (type: string, workspaceId?: string): Promise<Json> => {
    const found = (await eventsOf(type, workspaceId)).at(-1);
    expect([type, found?.['type']]).toEqual([type, type]);
    return found ?? {};
  };
  const dataOf = (event: Json): Json => event['data'] as Json;

  test('says who, from where and what, and never a secret', async () => {
    const headers = { 'user-agent': `audit\ttest ${'x'.repeat(500)}` };
    const key = 'very secret value';
    await platform.call(ws('POST /secret/{ws}'), { name: 'AUDITED', value: key }, { headers });
    const made = await last('audit.secret.created');
    expect(dataOf(made)).toEqual({
      action: 'secret.created',
      actor: {
        token_id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
        token_type: 'workspace_primary',
        token_name: '',
        remote_ip: '127.0.0.1',
        user_agent: expect.stringMatching(/^audit test x{189}$/) as string,
        request_id: expect.stringMatching(/./) as string,
      },
      target: { type: 'secret', id: expect.any(String) as string, name: 'AUDITED' },
      attrs: {},
    });
    await platform.call(ws('PUT /secret/{ws}/AUDITED'), { value: `${key} 2` });
    await platform.call(ws('DELETE /secret/{ws}/AUDITED'));
    await last('audit.secret.updated');
    await last('audit.secret.deleted');

    const { json } = await platform.call(ws('POST /token/{ws}'), { name: 'ci', scopes: ['invoke'] });
    const id = String(json['id']);
    expect(dataOf(await last('audit.token.created'))).toMatchObject({
      target: { type: 'token', id, name: 'ci' },
      attrs: { token_type: 'workspace', active: true, scopes: 'invoke', app_id: null, expires_at: null },
    });
    await platform.call(ws(`PATCH /token/{ws}/${id}`), { name: 'ci 2' });
    expect(dataOf(await last('audit.token.updated'))['target']).toMatchObject({ id, name: 'ci 2' });
    await platform.gateway(`POST /tokens/${id}/toggle`);
    expect(dataOf(await last('audit.token.toggled'))['attrs']).toMatchObject({ active: false });
    await platform.gateway(`DELETE /tokens/${id}`);
    await last('audit.token.deleted');

    const all = JSON.stringify(await eventsOf('audit.*'));
    expect(all).not.toContain(key);
    expect(all).not.toContain(String(json['key']));
    expect(all).not.toContain(platform.own.token);
    // A change that is refused tells nothing.
    const before = (await eventsOf('audit.*')).length;
    await platform.call(ws('DELETE /secret/{ws}/AUDITED'));
    await platform.gateway(`DELETE /tokens/${NOBODY}`);
    await platform.gateway(`POST /deployments/${NOBODY}/stop`);
    expect((await eventsOf('audit.*')).length).toBe(before);
  });

  test('pools and machines: who made, changed and deleted them, in the trail of their owner', async () => {
    const { admin, own } = platform;
    for (const [by, trail, name] of [
      [own.token, own.workspaceId, 'mine'],
      [admin.token, admin.workspaceId, 'shared'],
    ] as const) {
      const sent = { token: by };
      await platform.gateway('POST /pools', { name, settings: { cpuOvercommit: 2 } }, sent);
      // A pool that is there already is not made again.
      await platform.gateway('POST /pools', { name, settings: { cpuOvercommit: 2 } }, sent);
      await platform.gateway(`PATCH /pools/${name}`, { settings: { priority: 3, cpuOvercommit: null } }, sent);
      await platform.gateway('POST /pools', { name, settings: { cpuOvercommit: 5 } }, sent);
      await platform.gateway(`DELETE /pools/${name}`, undefined, sent);
      await platform.gateway(`DELETE /pools/${name}`, undefined, sent);
      await platform.gateway(`PATCH /pools/${name}`, { settings: { priority: 1 } }, sent);
      const made = (await platform.gateway('POST /machines', { poolName: `${name}-2` }, sent)).json;
      const { id } = made['machine'] as Json;
      const told = (await eventsOf('audit.pool.*,audit.machine.*', trail)).filter((event) =>
        JSON.stringify(event).includes(name),
      );
      expect(told.map((event) => [event['type'], dataOf(event)['target'], dataOf(event)['attrs']])).toEqual([
        ['audit.pool.created', { type: 'pool', id: name, name }, { cpuOvercommit: 2 }],
        ['audit.pool.updated', { type: 'pool', id: name, name }, { priority: 3, cpuOvercommit: null }],
        ['audit.pool.deleted', { type: 'pool', id: name, name }, {}],
        ['audit.pool.created', { type: 'pool', id: `${name}-2`, name: `${name}-2` }, {}],
        ['audit.machine.created', { type: 'machine', id, name: '' }, { pool_name: `${name}-2` }],
      ]);
      for (const event of told)
        expect(dataOf(event)['actor']).toMatchObject({
          token_type: by === admin.token ? 'admin' : 'workspace_primary',
          remote_ip: '127.0.0.1',
        });
      expect(JSON.stringify(told)).not.toContain(String(made['agentUpstreamToken']));
    }
    expect((await eventsOf('audit.pool.*')).filter((event) => JSON.stringify(event).includes('shared'))).toEqual([]);
  });

  test('signing keys: who made a newer one, and who ended one', async () => {
    const sent = { token: platform.admin.token };
    const made = await platform.call('POST /api/v1/signing-key', undefined, sent);
    const newer = await platform.call('POST /api/v1/signing-key', undefined, sent);
    await platform.call(`DELETE /api/v1/signing-key/${String(made.json['id'])}`, undefined, sent);
    // The newest key signs, and cannot be ended.
    await platform.call(`DELETE /api/v1/signing-key/${String(newer.json['id'])}`, undefined, sent);
    await platform.call('DELETE /api/v1/signing-key/0123456789ab', undefined, sent);
    const told = await eventsOf('audit.signing_key.*', platform.admin.workspaceId);
    expect(told.map((event) => [event['type'], (dataOf(event)['target'] as Json)['id']])).toEqual([
      ['audit.signing_key.created', made.json['id']],
      ['audit.signing_key.created', newer.json['id']],
      ['audit.signing_key.retired', made.json['id']],
    ]);
    expect(dataOf(told[0] ?? {})['actor']).toMatchObject({ token_type: 'admin' });
  });

  test('`longshore audit` prints the trail, newest last, and refuses other tokens', async () => {
    await platform.call(ws('POST /secret/{ws}'), { name: 'PRINTED', value: 'unprinted' });
    const shown = await longshoreAudit(platform.own.token, '--limit', '1');
    expect(shown).toMatchObject({ code: 0, stderr: '' });
    expect(shown.stdout.split('\n')[0]).toMatch(/^TIME +WHO +FROM +ACTION +WHAT +DETAILS$/);
    expect(shown.stdout.split('\n')[1]).toMatch(
      /^\d{4}-\S+Z +workspace_primary [0-9a-f]{8} +127\.0\.0\.1 +secret\.created +PRINTED \([0-9a-f-]{36}\) +-$/,
    );
    const all = await longshoreAudit(platform.own.token, '--json', '--since', '1h');
    const types = (JSON.parse(all.stdout) as Json[]).map((event) => event['type']);
    expect(types).toEqual((await eventsOf('audit.*')).map((event) => event['type']));
    expect(types.at(-1)).toBe('audit.secret.created');
    const none = await longshoreAudit(platform.own.token, '--since', '2100-01-01T00:00:00Z');
    expect(none).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('no entry') as string });
    const refused = await longshoreAudit(platform.restricted);
    expect([refused.code === 0, refused.stdout]).toEqual([false, '']);
    expect(refused.stderr).toContain('this token is good, but may not do that');
    expect((await longshoreAudit(platform.own.token, '--since', 'yesterday')).stderr).toContain('--since yesterday');
  });

  const longshoreAudit = (token: string, ...args: readonly string[]) =>
    runCommand(['audit', ...args], {
      LONGSHORE_URL: `http://${platform.address}`,
      LONGSHORE_TOKEN: token,
      LONGSHORE_CONTEXT_FILE: '/nowhere/contexts.json',
    });

  test('the administrator changes limits and makes workspaces', async () => {
    const { admin, own } = platform;
    const sent = { token: admin.token };
    await platform.call(ws('PUT /workspace/{ws}/limits'), { counts: { tokens: 77 } }, sent);
    expect(dataOf(await last('audit.limits.updated'))).toMatchObject({
      actor: { token_type: 'admin' },
      target: { type: 'workspace', id: own.workspaceId, name: 'own' },
      attrs: { 'counts.tokens': 77 },
    });
    const made = await platform.call('POST /api/v1/workspace', { name: 'new one' }, sent);
    expect(dataOf(await last('audit.workspace.created', admin.workspaceId))['target']).toEqual({
      type: 'workspace',
      id: made.json['id'],
      name: 'new one',
    });
    await platform.call(ws('PUT /workspace/{ws}/limits'), { counts: { tokens: null } }, sent);
    await platform.call(ws('PUT /workspace/{ws}/share'), { weight: 2, limits: { H100: 8 } }, sent);
    expect(dataOf(await last('audit.share.updated'))).toMatchObject({
      target: { type: 'workspace', id: own.workspaceId, name: 'own' },
      attrs: { weight: 2, 'limits.H100': 8 },
    });
    await platform.call(ws('PUT /workspace/{ws}/share'), { weight: null, limits: null }, sent);
  });

  test('deployments tell what happened to them, and the trail who did it', async () => {
    const { id, stubId } = await platform.deploy('told');
    const deployed = await last('stub.deploy');
    expect(deployed).toMatchObject({ stub_id: stubId, stub_type: 'endpoint/deployment' });
    expect(dataOf(deployed)).toEqual({
      id: stubId,
      stub_type: 'endpoint/deployment',
      workspace_id: platform.own.workspaceId,
      stub_config: expect.stringContaining('"handler":"app:handler"') as string,
      parent_stub_id: '',
      deployment_id: id,
      deployment_name: 'told',
      deployment_version: 1,
    });
    await platform.gateway(`POST /deployments/${id}/stop`);
    await platform.call(ws(`POST /deployment/{ws}/start/${id}`));
    await platform.gateway(`POST /deployments/${id}/scale`, { containers: 2 });
    await platform.call(ws(`DELETE /deployment/{ws}/${id}`));
    const told = (await eventsOf('deployment.*')).map((event) => [
      event['type'],
      dataOf(event)['active'],
      dataOf(event)['containers'],
      dataOf(event)['deleted_at'] === null,
    ]);
    expect(told).toEqual([
      ['deployment.stopped', false, undefined, true],
      ['deployment.started', true, undefined, true],
      ['deployment.scaled', true, 2, true],
      ['deployment.deleted', false, undefined, false],
    ]);
    expect(dataOf(await last('deployment.scaled'))).toEqual({
      id,
      name: 'told',
      active: true,
      version: 1,
      subdomain: expect.any(String) as string,
      stub_id: stubId,
      stub_type: 'endpoint/deployment',
      app_id: expect.any(String) as string,
      workspace_id: platform.own.workspaceId,
      min_containers: 2,
      max_containers: 2,
      created_at: expect.any(String) as string,
      updated_at: expect.any(String) as string,
      deleted_at: null,
      containers: 2,
    });
    const audited = (await eventsOf('audit.deployment.*')).map((event) => event['type']);
    expect(audited).toEqual(
      ['created', 'stopped', 'started', 'scaled', 'deleted'].map((what) => `audit.deployment.${what}`),
    );
    expect(dataOf(await last('audit.deployment.scaled'))).toMatchObject({
      target: { type: 'deployment', id, name: 'told' },
      attrs: { version: 1, containers: 2 },
    });
  });

  test('a stub that runs without a deployment is told each time, and one for a deployment is not', async () => {
    const stubId = await platform.stub({ stubType: 'function', name: 'once' });
    expect(await platform.stub({ stubType: 'function', name: 'once' })).toBe(stubId);
    await platform.stub({ stubType: 'function/deployment', name: 'never told' });
    const told = await eventsOf('stub.run');
    expect(told.map((event) => [event['stub_id'], event['stub_type'], dataOf(event)])).toEqual(
      [1, 2].map(() => [
        stubId,
        'function',
        {
          id: stubId,
          stub_type: 'function',
          workspace_id: platform.own.workspaceId,
          stub_config: expect.stringContaining('"handler":"app:handler"') as string,
          parent_stub_id: '',
        },
      ]),
    );
  });

  test('a new version of a schedule stops the one before', async () => {
    const said = { stubType: 'schedule/deployment', extra: JSON.stringify({ when: '0 0 1 1 *' }) };
    const first = await platform.deploy('yearly', said);
    await platform.deploy('yearly', { ...said, env: ['V=2'] });
    const stopped = await last('deployment.stopped');
    expect(dataOf(stopped)).toMatchObject({ id: first.id, active: false, reason: 'superseded' });
  });

  test('webhooks are told with their host, and not with their path', async () => {
    const body = { url: 'https://example.com/hook?key=hidden', event_types: ['task.*'] };
    const { json, text } = await platform.call(ws('POST /webhook/{ws}'), body);
    const id = String(json['id']);
    expect([id, text]).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/), text]);
    await platform.call(ws(`POST /webhook/{ws}/${id}/rotate`));
    await platform.call(ws(`DELETE /webhook/{ws}/${id}`));
    const told = await eventsOf('audit.webhook.*');
    expect(told.map((event) => event['type'])).toEqual(
      ['created', 'rotated', 'deleted'].map((what) => `audit.webhook.${what}`),
    );
    expect(dataOf(told[0] ?? {})).toMatchObject({
      target: { type: 'webhook', id, name: 'https://example.com' },
      attrs: { active: true, event_types: 'task.*' },
    });
    expect(JSON.stringify(told)).not.toMatch(/hidden|whsec_/);
  });

  test('is read by administrators and primary tokens alone, and by its name alone', async () => {
    const history = (types: string, token: string) =>
      platform.call(ws(`GET /events/{ws}/history${types}`), undefined, { token });
    const { json } = await platform.call(ws('POST /token/{ws}'), {});
    const plain = String(json['key']);
    for (const token of [plain, platform.restricted]) {
      expect((await history('?event_types=audit.*', token)).status).toBe(401);
      expect((await history('?event_types=audit.token.created', token)).status).toBe(401);
      expect((await history('', token)).status).toBe(200);
    }
    expect((await history('?event_types=audit.*', platform.admin.token)).status).toBe(200);
    expect((await history('?event_types=audit.*', platform.other.token)).status).toBe(401);
    for (const types of ['', '?event_types=*']) {
      const found = (await history(types, platform.own.token)).json['events'] as Json[];
      expect(found.length).toBeGreaterThan(0);
      expect(found.filter((event) => String(event['type']).startsWith('audit.'))).toEqual([]);
    }
    const kinds = (await eventsOf('audit.*')).map((event) => String(event['type']));
    for (const kind of kinds) expect(AUDIT_KINDS).toContain(kind);
  });
});

describe.each(KINDS)('changes without their event on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  test('are not made', async () => {
    const { db } = opened;
    const { id } = await aWorkspace(db);
    const secrets = new Secrets(db, createSealer(new Uint8Array(32).fill(7)), new EventWriter());
    await db.query('alter table event_counters rename to event_counters_away');
    await expect(secrets.create(id, 'NAME', 'value')).rejects.toThrow();
    await db.query('alter table event_counters_away rename to event_counters');
    expect(await secrets.list(id)).toEqual([]);
    await secrets.create(id, 'NAME', 'value');
    // The name is taken: neither a row nor an event is left behind.
    await expect(secrets.create(id, 'NAME', 'other')).rejects.toMatchObject({ code: 'secret_exists' });
    const { rows } = await db.query('select type from events where workspace_id = $1', [id]);
    expect(rows).toEqual([{ type: 'audit.secret.created' }]);
  });
});

import { createHash, X509Certificate } from 'node:crypto';
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { connect as tlsConnect, createServer as createTlsServer } from 'node:tls';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { ContainerId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { ensureFirstWorkspace } from '../../scheduler/workspaces/identity/bootstrap.ts';
import { openInstallation } from '../../scheduler/workspaces/identity/installation.ts';
import type { Installation } from '../../scheduler/workspaces/identity/installation.ts';
import { createInvalidation } from '../../scheduler/workspaces/identity/invalidation.ts';
import { SYSTEM } from '../../scheduler/workspaces/events/audit.ts';
import { EventWriter } from '../../scheduler/workspaces/events/writer.ts';
import { TokenAdmin } from '../../scheduler/workspaces/identity/token-admin.ts';
import { createTokens, maskedToken, tokenHash } from '../../scheduler/workspaces/identity/tokens.ts';
import type { Tokens } from '../../scheduler/workspaces/identity/tokens.ts';
import { createWorkspace, signingKeyOf } from '../../scheduler/workspaces/identity/workspaces.ts';
import { createSealer, openSealer } from '../../scheduler/workspaces/secrets/seal.ts';
import type { Db, Queryable } from '../../scheduler/stores/store/db.ts';
import { listWorkspaces } from '../../scheduler/stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../scheduler/stores/store/queries/workspaces.ts';
import { tempDirectory, test, waitFor } from '../helpers/services.ts';
import { KINDS, aDb, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const sealer = createSealer(new Uint8Array(32).fill(7));

const adminOf = (db: Db, keys: Installation, tokens: Tokens): TokenAdmin =>
  new TokenAdmin({
    db,
    keys,
    tokens,
    events: new EventWriter(),
    clock: systemClock,
    mostOf: () => Promise.resolve(100),
  });

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let db: Db;
  beforeAll(async () => {
    opened = await aDb(kind);
    db = opened.db;
  });
  afterAll(() => opened.stop());

  test('replicas that start together have the same keys and the same CA', async () => {
    const replicas = await Promise.all([1, 2, 3].map(() => openInstallation(db, sealer)));
    expect(new Set(replicas.map((one) => one.caFingerprint)).size).toBe(1);
    expect(new Set(replicas.map((one) => Buffer.from(one.deriveKeys('x')[0]).toString('hex'))).size).toBe(1);
    const [one] = replicas;
    expect(Buffer.from(one!.deriveKeys('x')[0])).not.toEqual(Buffer.from(one!.deriveKeys('y')[0]));
    expect(one!.caFingerprint).toBe(createHash('sha256').update(new X509Certificate(one!.caCertPem).raw).digest('hex'));
  });

  test('another key file is refused by the name of its setting', async () => {
    await expect(openInstallation(db, createSealer(new Uint8Array(32).fill(8)))).rejects.toMatchObject({
      code: 'secret_key_mismatch',
      message: expect.stringContaining('LONGSHORE_SECRET_KEY_FILE') as string,
    });
  });

  test('what is secret is sealed in its row', async () => {
    const { rows } = await db.query<{ ca_key: Uint8Array }>('select ca_key from installation');
    expect(Buffer.from(rows[0]!.ca_key).includes('PRIVATE')).toBe(false);
    expect(() => createSealer(new Uint8Array(32)).open(rows[0]!.ca_key, 'installation.ca_key')).toThrow();
  });

  test('the first workspace is made exactly once, whoever asks', async () => {
    const installation = await openInstallation(db, sealer);
    const asked = await Promise.all(Array.from({ length: 6 }, () => ensureFirstWorkspace(db, sealer, installation)));
    const created = asked.filter((one) => one.kind === 'created');
    expect(created).toHaveLength(1);
    const workspaces = await listWorkspaces(db);
    expect(workspaces.map((one) => one.id)).toEqual([created[0]?.workspaceId]);
    expect(workspaces[0]?.isAdmin).toBe(true);
    expect(signingKeyOf(workspaces[0]!, sealer)).toMatch(/^sk_/);
    const tokens = createTokens({ db, installation });
    expect(await tokens.authenticate(created[0]!.token)).toMatchObject({ type: 'admin', isAdmin: true });
    const types = (await adminOf(db, installation, tokens).list({ workspaceId: created[0]!.workspaceId })).map(
      (row) => row.type,
    );
    expect(types.toSorted()).toEqual(['admin', 'workspace_primary']);
    expect(await ensureFirstWorkspace(db, sealer, installation)).toEqual({ kind: 'exists' });
  });
});

describe('the agent port’s certificate', () => {
  test('is accepted by who trusts the CA and expects longshore-scheduler', async () => {
    const opened = await aDb('pglite');
    try {
      const { server, caCertPem } = await openInstallation(opened.db, sealer);
      const listener = createTlsServer({ cert: server.chainPem, key: server.keyPem }, (socket) => socket.end('hi'));
      listener.listen(0, '127.0.0.1');
      await once(listener, 'listening');
      const { port } = listener.address() as AddressInfo;
      for (const servername of ['longshore-scheduler', 'localhost']) {
        const client = tlsConnect({ host: '127.0.0.1', port, ca: caCertPem, servername });
        const [greeting] = (await once(client, 'data')) as [Buffer];
        expect(greeting.toString()).toBe('hi');
        expect(client.authorized).toBe(true);
        client.destroy();
      }
      const stranger = tlsConnect({ host: '127.0.0.1', port, ca: caCertPem, servername: 'elsewhere' });
      const [refusal] = (await once(stranger, 'error')) as [NodeJS.ErrnoException];
      expect(refusal.code).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
      listener.close();
      const ca = new X509Certificate(caCertPem);
      expect(ca.ca).toBe(true);
      expect(Date.parse(ca.validTo) - Date.now()).toBeGreaterThan(19 * 365 * 86_400_000);
    } finally {
      await opened.stop();
    }
  });
});

describe('the key file', () => {
  test('is made once, private, and read afterwards', async () => {
    const directory = tempDirectory('key');
    try {
      const sealers = await Promise.all([1, 2, 3].map(() => openSealer({ dataDir: directory.path })));
      const sealed = sealers[0]!.seal(Buffer.from('v'), 'c');
      for (const one of [...sealers, await openSealer({ dataDir: directory.path })]) {
        expect(Buffer.from(one.open(sealed, 'c')).toString()).toBe('v');
      }
      const path = join(directory.path, 'secret.key');
      expect(statSync(path).mode & 0o777).toBe(0o600);
      const elsewhere = join(directory.path, 'other.key');
      writeFileSync(elsewhere, Buffer.from(readFileSync(path, 'utf8'), 'base64').toString('hex'));
      const named = await openSealer({ dataDir: '/nonexistent', keyFile: elsewhere });
      expect(Buffer.from(named.open(sealed, 'c')).toString()).toBe('v');
    } finally {
      directory.remove();
    }
  });

  test('that is named must exist and hold 32 bytes', async () => {
    const directory = tempDirectory('key');
    try {
      const path = join(directory.path, 'k');
      const refused = {
        code: 'secret_key_unusable',
        message: expect.stringContaining('LONGSHORE_SECRET_KEY_FILE') as string,
      };
      await expect(openSealer({ dataDir: directory.path, keyFile: path })).rejects.toMatchObject(refused);
      writeFileSync(path, 'c2hvcnQ=');
      chmodSync(path, 0o600);
      await expect(openSealer({ dataDir: directory.path, keyFile: path })).rejects.toMatchObject(refused);
    } finally {
      directory.remove();
    }
  });
});

describe('tokens', () => {
  let opened: OpenedDb;
  let installation: Installation;
  let workspace: WorkspaceRow;
  let asked = 0;
  /** The real database, with a count of its statements. */
  let counted: Queryable;
  beforeAll(async () => {
    opened = await aDb('pglite');
    installation = await openInstallation(opened.db, sealer);
    workspace = await createWorkspace(opened.db, sealer);
    counted = {
      query: (sql, params) => {
        asked++;
        return opened.db.query(sql, params);
      },
    };
  });
  afterAll(() => opened.stop());
  const owner = (): { workspaceId: WorkspaceId } => ({ workspaceId: workspace.id });

  test('a token is a JWT that says whose it is, and its row never holds it', async () => {
    const tokens = createTokens({ db: opened.db, installation });
    const { token, row } = await tokens.issue(owner(), 'workspace');
    const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as Record<
      string,
      unknown
    >;
    expect(claims).toMatchObject({ jti: row.id, ws: workspace.id, typ: 'workspace' });
    expect(Buffer.from(row.hash).toString('hex')).toBe(tokenHash(token));
    expect(maskedToken(row)).toBe(`eyJ…${token.slice(-4)}`);
    expect(await tokens.authenticate(token)).toEqual({
      workspaceId: workspace.id,
      workspaceDbId: workspace.number,
      tokenId: row.id,
      type: 'workspace',
      isAdmin: false,
    });
  });

  test('a token seen before is answered at once, without the database', async () => {
    const tokens = createTokens({ db: counted, installation });
    const { token } = await tokens.issue(owner(), 'workspace');
    asked = 0;
    await Promise.all(Array.from({ length: 10 }, async () => tokens.authenticate(token)));
    expect(asked).toBe(1);
    const known = tokens.authenticate(token);
    expect(known).not.toBeInstanceOf(Promise);
    expect(known).toMatchObject({ workspaceId: workspace.id });
    expect(asked).toBe(1);
  });

  test('what nobody signed never reaches the database; a signature without a row is worth nothing', async () => {
    const tokens = createTokens({ db: counted, installation });
    const { token, row } = await tokens.issue(owner(), 'workspace');
    asked = 0;
    for (const made of ['', 'x', 'a.b.c', `${token}x`, token.slice(0, -6)])
      expect(await tokens.authenticate(made)).toBeNull();
    expect(asked).toBe(0);
    await opened.db.query('delete from tokens where id = $1', [row.id]);
    expect(await tokens.authenticate(token)).toBeNull();
    expect(asked).toBe(1);
  });

  test('a token switched off stops at once, and works again when switched on', async () => {
    const tokens = createTokens({ db: opened.db, installation });
    const { token, row } = await tokens.issue(owner(), 'workspace');
    expect(await tokens.authenticate(token)).not.toBeNull();
    const admin = adminOf(opened.db, installation, tokens);
    expect((await admin.toggle(owner(), row.id, SYSTEM))?.active).toBe(false);
    expect(await tokens.authenticate(token)).toBeNull();
    expect((await admin.toggle(owner(), row.id, SYSTEM))?.active).toBe(true);
    expect(await tokens.authenticate(token)).not.toBeNull();
    expect(await admin.remove(owner(), row.id, SYSTEM)).toBe(true);
    expect(await tokens.authenticate(token)).toBeNull();
    expect(await admin.remove(owner(), row.id, SYSTEM)).toBe(false);
  });

  test('a workspace touches only its own tokens', async () => {
    const tokens = createTokens({ db: opened.db, installation });
    const { row } = await tokens.issue(owner(), 'workspace');
    const other = await createWorkspace(opened.db, sealer);
    const admin = adminOf(opened.db, installation, tokens);
    expect(await admin.toggle({ workspaceId: other.id }, row.id, SYSTEM)).toBeUndefined();
    expect(await admin.remove({ workspaceId: other.id }, row.id, SYSTEM)).toBe(false);
    expect(await admin.list({ workspaceId: other.id })).toEqual([]);
  });

  test('a one-use token works once, for one of those who try together', async () => {
    const tokens = createTokens({ db: opened.db, installation });
    const replica = createTokens({ db: opened.db, installation });
    const { token } = await tokens.issue(owner(), 'workspace', { reusable: false });
    const tries = await Promise.all([tokens, tokens, replica, replica].map(async (one) => one.authenticate(token)));
    expect(tries.filter((caller) => caller !== null)).toHaveLength(1);
    expect(await tokens.authenticate(token)).toBeNull();
  });

  test('a container token counts for as long as its container lives', async () => {
    const live = new Set<string>();
    const tokens = createTokens({
      db: counted,
      installation,
      isContainerLive: (id, epoch) => live.has(`${id} ${epoch}`),
    });
    const container = {
      containerId: 'endpoint-s-1' as ContainerId,
      stubId: newId<StubId>(),
      deploymentId: null,
      workspaceId: workspace.id,
      epoch: 2,
      sinceMs: 1_700_000_000_000,
    };
    const token = await tokens.issueContainerToken(container);
    // Any replica issues the same token at any time.
    expect(await createTokens({ db: opened.db, installation }).issueContainerToken(container)).toBe(token);
    asked = 0;
    expect(await tokens.authenticate(token)).toBeNull();
    live.add(`${container.containerId} 1`);
    expect(await tokens.authenticate(token)).toBeNull();
    live.add(`${container.containerId} 2`);
    expect(await tokens.authenticate(token)).toMatchObject({
      type: 'container',
      isAdmin: false,
      workspaceId: workspace.id,
      container: { containerId: container.containerId, epoch: 2, stubId: container.stubId, deploymentId: null },
    });
    live.delete(`${container.containerId} 2`);
    expect(await tokens.authenticate(token)).toBeNull();
    expect(asked).toBe(0);
    expect(await createTokens({ db: opened.db, installation }).authenticate(token)).toBeNull();
  });

  test('a change at one replica is seen by the others at once, and after a lost connection', async ({ redis }) => {
    const anInvalidation = () =>
      createInvalidation({
        publisher: redis.connect({ enableOfflineQueue: false }),
        subscriber: redis.connect({ retryStrategy: () => 20 }),
        log: silent,
      });
    const here = anInvalidation();
    const there = anInvalidation();
    await here.start();
    await there.start();
    const mine = createTokens({ db: opened.db, installation, invalidation: here });
    const theirs = createTokens({ db: opened.db, installation, invalidation: there });
    const { token, row } = await mine.issue(owner(), 'workspace');
    await mine.authenticate(token);
    await theirs.authenticate(token);
    expect(theirs.peek(token)).toMatchObject({ tokenId: row.id });
    const admin = adminOf(opened.db, installation, mine);
    await admin.toggle(owner(), row.id, SYSTEM);
    expect(mine.peek(token)).toBeUndefined();
    await waitFor(() => theirs.peek(token) === undefined, 'the other replica forgets the token');
    expect(await theirs.authenticate(token)).toBeNull();

    await admin.toggle(owner(), row.id, SYSTEM);
    await waitFor(() => theirs.peek(token) === undefined, 'the other replica forgets the refusal');
    expect(await theirs.authenticate(token)).not.toBeNull();
    await redis.crash();
    await waitFor(() => !there.isLive, 'the other replica notices that no messages arrive');
    await admin.toggle(owner(), row.id, SYSTEM);
    await redis.restart();
    await waitFor(() => there.isLive, 'messages arrive again', 10_000);
    expect(theirs.peek(token)).toBeUndefined();
    expect(await theirs.authenticate(token)).toBeNull();
    await here.stop();
    await there.stop();
  });

  test('a message published while redis is away is sent when it is back', async ({ redis }) => {
    const publisher = redis.connect({ enableOfflineQueue: false, retryStrategy: () => null, maxRetriesPerRequest: 0 });
    const sender = createInvalidation({ publisher, subscriber: redis.connect(), log: silent });
    const listener = redis.connect();
    const heard: string[] = [];
    listener.on('message', (_channel: string, text: string) => heard.push(text));
    await waitFor(() => publisher.status === 'ready', 'the publisher is connected');
    publisher.disconnect();
    await waitFor(() => publisher.status === 'end', 'the publisher is cut off');
    void sender.publish('deployment', 'd1');
    await listener.subscribe('ls:invalidate');
    await publisher.connect();
    await waitFor(() => heard.length > 0, 'the message is sent');
    expect(heard.map((text) => JSON.parse(text) as unknown)).toEqual([
      expect.objectContaining({ kind: 'deployment', id: 'd1' }),
    ]);
    await sender.stop();
  });
});

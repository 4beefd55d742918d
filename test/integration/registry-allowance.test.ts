// The bytes of a workspace in the managed registry, against the real one: two schedulers pass writes on, and whatever a
// machine sends counts, with or without an image that names it.
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import { builtImageName, builtRepository, builtTag } from '#shared/domain/built-images.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { Allowance } from '#scheduler/fleet/registry/allowance.ts';
import { RegistryAccess } from '#scheduler/fleet/registry/access.ts';
import { RegistryClient } from '#scheduler/fleet/registry/client.ts';
import { RegistryMetrics } from '#scheduler/fleet/registry/metrics.ts';
import { RegistryProxy } from '#scheduler/fleet/registry/proxy.ts';
import { RegistrySweep } from '#scheduler/fleet/registry/sweep.ts';
import { registryBytes, unseenBlobs } from '#scheduler/stores/store/queries/registry-blobs.ts';
import { docker } from '../helpers/docker.ts';
import { ServedRegistry } from '../helpers/managed-registry.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const MIB = 1024 * 1024;
const MOST_BYTES = 3 * MIB;
const MACHINE = 'aaaa0001' as MachineId;
const { privateKey: signingKey, publicKey } = generateKeyPairSync('ed25519');
const keys = { signingKey, publicKey };
const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

const registry = new ServedRegistry();
const replicas: { readonly proxy: RegistryProxy; readonly server: Server; readonly client: RegistryClient }[] = [];
/** Called when a write asks for its allowance. */
let onAsked = async (): Promise<void> => undefined;
const mostBytes = async (): Promise<number> => {
  await onAsked();
  return MOST_BYTES;
};
let opened: OpenedDb;
let access: RegistryAccess;
let sweep: RegistrySweep;
let workspaceId: WorkspaceId;

beforeAll(async () => {
  opened = await aDb('postgres');
  await registry.start();
  const { db } = opened;
  const metrics = new RegistryMetrics(new Registry());
  const allowance = new Allowance({ db, mostBytes });
  const get = () => ({ row: { poolWorkspaceId: null }, inventory: { registry: true } }) as never;
  access = new RegistryAccess({ db, keys, machines: { get }, allowance, nowMs: Date.now });
  for (let made = 0; made < 2; made += 1) {
    const client = new RegistryClient(registry.address);
    const proxy = new RegistryProxy({
      client,
      keys,
      allowance,
      isMachine: () => true,
      onMissing: () => undefined,
      nowMs: Date.now,
      metrics,
      log: silent,
    });
    const server = createServer((socket) => proxy.accept(MACHINE, socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    replicas.push({ proxy, server, client });
  }
  sweep = new RegistrySweep({ db, client: clientOf(), metrics, log: silent });
});
beforeEach(async () => {
  workspaceId = (await aWorkspace(opened.db)).id;
});
afterAll(async () => {
  for (const { proxy, server, client } of replicas) {
    proxy.close();
    server.close();
    await client.close();
  }
  await registry.stop();
  await opened.stop();
});

const replicaOf = (at: number) => {
  const replica = replicas[at];
  if (replica === undefined) throw new Error(`there is no replica ${at}`);
  return replica;
};
const clientOf = (): RegistryClient => replicaOf(0).client;
const portOf = (at: number): number => (replicaOf(at).server.address() as AddressInfo).port;
const used = (): Promise<number> => registryBytes(opened.db, workspaceId);

/** A push of another image of the workspace, by its machine. */
class Push {
  readonly image = builtImageName(randomBytes(16).toString('hex'));
  readonly repository = builtRepository(workspaceId);
  readonly replica: number;
  token = '';

  constructor(replica = 0) {
    this.replica = replica;
  }

  async begun(): Promise<this> {
    const right = await access.toPush(MACHINE, workspaceId, this.image);
    if (typeof right === 'string') throw new Error(right);
    this.token = right.auth?.password ?? '';
    return this;
  }

  /** A request whose body is still to be written. */
  open(method: string, path: string, headers: Record<string, string> = {}): ClientRequest {
    return httpRequest({
      host: '127.0.0.1',
      port: portOf(this.replica),
      method,
      path,
      agent: false,
      headers: { ...headers, authorization: `Basic ${Buffer.from(`longshore:${this.token}`).toString('base64')}` },
    });
  }

  async ask(method: string, path: string, body?: Buffer, isChunked = false, type = 'application/octet-stream') {
    const request = this.open(method, path, {
      'content-type': type,
      ...(isChunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': String(body?.length ?? 0) }),
    });
    request.end(body);
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    let text = '';
    for await (const part of response.setEncoding('utf8')) text += String(part);
    return { statusCode: response.statusCode ?? 0, headers: response.headers, text };
  }

  /** Begins an upload. @returns its path */
  async upload(): Promise<string> {
    const { statusCode, headers, text } = await this.ask('POST', `/v2/${this.repository}/blobs/uploads/`);
    if (statusCode !== 202) throw new Error(`${statusCode}: ${text}`);
    const at = new URL(String(headers.location));
    return `${at.pathname}${at.search}`;
  }

  /** Sends a blob as engines do. @returns the last status and text */
  async blob(bytes: Buffer, isChunked = true): Promise<readonly [number, string]> {
    const patched = await this.ask('PATCH', await this.upload(), bytes, isChunked);
    if (patched.statusCode !== 202) return [patched.statusCode, patched.text];
    const at = new URL(String(patched.headers.location));
    const put = await this.ask('PUT', `${at.pathname}${at.search}&digest=${sha256(bytes)}`);
    return [put.statusCode, put.text];
  }

  manifest(reference: string, blob: Buffer) {
    const mediaType = 'application/vnd.docker.distribution.manifest.v2+json';
    const about = {
      mediaType: 'application/vnd.docker.container.image.v1+json',
      size: blob.length,
      digest: sha256(blob),
    };
    const body = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, config: about, layers: [about] }));
    return this.ask('PUT', `/v2/${this.repository}/manifests/${reference}`, body, false, mediaType);
  }
}

/** Bytes of all files of the registry. */
function bytesOnDisk(): number {
  const root = join(registry.directory.path, 'registry', 'data');
  if (!existsSync(root)) return 0;
  const names = readdirSync(root, { recursive: true, withFileTypes: true }).filter((file) => file.isFile());
  return names.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
}

describe('the bytes of a workspace in the registry', () => {
  test('are one allowance for pushes side by side at two schedulers, however they send; a neighbour has its own', async () => {
    const before = bytesOnDisk();
    const pushes = await Promise.all([0, 1, 0, 1, 0, 1, 0, 1].map((replica) => new Push(replica).begun()));
    const ends = await Promise.all(pushes.map((push, at) => push.blob(randomBytes(MIB - 10_000), at % 4 < 2)));
    const refused = ends.filter(([status]) => status !== 201);
    // Three fit. How far the others had come decides whether all three find room.
    expect(refused.length).toBeGreaterThanOrEqual(5);
    expect(refused.length).toBeLessThanOrEqual(7);
    for (const [status, text] of refused) {
      expect([status, text]).toEqual([413, expect.stringMatching(/more than the 3145728 bytes.*longshore image list/)]);
    }
    expect(await used()).toBeLessThanOrEqual(MOST_BYTES);
    expect(bytesOnDisk() - before).toBeLessThanOrEqual(MOST_BYTES);
    const blobs = (await names()).filter((name) => name.startsWith('sha256:'));
    expect(blobs).toHaveLength(ends.length - refused.length);
    expect(bytesOnDisk() - before).toBeLessThanOrEqual(await used());
    workspaceId = (await aWorkspace(opened.db)).id;
    expect(await (await new Push().begun()).blob(randomBytes(MIB))).toEqual([201, '']);
  });

  test('are taken by blobs that no image names, by manifests, and by uploads that were only begun', async () => {
    const push = await new Push().begun();
    const blob = randomBytes(MIB);
    expect((await push.blob(blob))[0]).toBe(201);
    expect(await used()).toBe(MIB + 4096);
    // The registry has it once.
    expect((await push.blob(blob, false))[0]).toBe(201);
    expect(await used()).toBe(MIB + 4096);
    expect((await push.manifest(builtTag(push.image), blob)).statusCode).toBe(201);
    // Manifests without a tag would end every collection of layers with an error.
    expect((await push.manifest(sha256(Buffer.from('')), blob)).statusCode).toBe(403);
    const manifest = (await used()) - MIB - 4096;
    expect(manifest).toBe(4096);
    expect((await push.ask('PATCH', await push.upload(), randomBytes(MIB), true)).statusCode).toBe(202);
    expect(await used()).toBe(2 * MIB + 3 * 4096);
    const other = await new Push(1).begun();
    expect((await other.blob(randomBytes(MIB), false))[0]).toBe(413);
    const left = MOST_BYTES - (await used());
    await opened.db.query(
      `update registry_blobs set bytes = bytes + $1 where name like 'manifest %' and workspace_id = $2`,
      [left - 3 * 4096, workspaceId],
    );
    const begun = await Promise.all(Array.from({ length: 20 }, () => other.ask('POST', uploadsOf(other))));
    expect(begun.filter(({ statusCode }) => statusCode === 202)).toHaveLength(3);
    expect(begun.filter(({ statusCode }) => statusCode === 413)).toHaveLength(17);
    expect(await used()).toBe(MOST_BYTES);
    expect(await access.toPush(MACHINE, workspaceId, push.image)).toMatch(/more than the 3145728 bytes/);
    expect((await other.manifest(builtTag(other.image), blob)).statusCode).toBe(413);
  });

  test('are given back as far as they were not sent when the way to the registry breaks, and taken for what a machine has not waited to see finished', async () => {
    const push = await new Push().begun();
    const begun = await push.upload();
    const name = begun.split('?', 1)[0]?.split('/').at(-1);
    const broken = new Allowance({ db: opened.db, mostBytes }).write(workspaceId, name);
    await broken.claim(2 * MIB);
    expect(await used()).toBe(4096 + 2 * MIB);
    await broken.breakOff();
    expect(await used()).toBe(4096);
    // The registry may still write what came, and keeps it.
    for (const method of ['PATCH', 'DELETE'])
      expect((await push.ask(method, begun, randomBytes(10))).statusCode).toBe(409);
    const broke = await used();
    const blob = randomBytes(MIB);
    const at = await push.upload();
    const patched = await push.ask('PATCH', at, blob);
    const { pathname, search } = new URL(String(patched.headers.location));
    const put = push.open('PUT', `${pathname}${search}&digest=${sha256(blob)}`, { 'content-length': '0' });
    const [asked, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    onAsked = () => {
      asked.resolve();
      return left.promise;
    };
    put.on('error', () => undefined).end();
    await asked.promise;
    put.destroy();
    onAsked = async () => undefined;
    left.resolve();
    await waitFor(() => clientOf().has(push.repository, sha256(blob)), 'the registry has it');
    await waitFor(async () => (await names()).includes(sha256(blob)), 'it counts by its name');
    expect(await used()).toBe(broke + MIB + 4096);
  });

  test.each([
    ['PATCH', 'content-length', String(2 * MIB)],
    ['PUT', 'content-length', String(2 * MIB)],
    ['PUT', 'transfer-encoding', 'chunked'],
  ])('of a %s with %s that breaks off are free at once', async (method, header, value) => {
    const push = await new Push().begun();
    const before = bytesOnDisk();
    const upload = await push.upload();
    const digest = method === 'PUT' ? `&digest=${sha256(randomBytes(2 * MIB))}` : '';
    const left = push.open(method, `${upload}${digest}`, { [header]: value });
    left.on('error', () => undefined).write(randomBytes(MIB));
    await waitFor(async () => (await used()) > MIB, 'its bytes are taken');
    left.destroy();
    await waitFor(async () => (await used()) === 0, 'the upload of an engine that left is gone');
    expect(await names()).toEqual([]);
    expect(bytesOnDisk() - before).toBeLessThan(4096);
  });

  test('of a PUT whose digest is another one are free at once, with its body or behind it', async () => {
    const push = await new Push().begun();
    const before = bytesOnDisk();
    const wrong = `&digest=${sha256(Buffer.from('another'))}`;
    expect((await push.ask('PUT', `${await push.upload()}${wrong}`, randomBytes(MIB))).statusCode).toBe(400);
    const patched = await push.ask('PATCH', await push.upload(), randomBytes(MIB));
    const { pathname, search } = new URL(String(patched.headers.location));
    expect((await push.ask('PUT', `${pathname}${search}${wrong}`)).statusCode).toBe(400);
    expect([await used(), await names()]).toEqual([0, []]);
    expect(bytesOnDisk() - before).toBeLessThan(4096);
  });

  test.each(['application/x-www-form-urlencoded', 'multipart/form-data; boundary=b'])(
    'count under the digest of the address, also where a body of %s names another one',
    async (type) => {
      const push = await new Push().begun();
      const [blob, other] = [randomBytes(MIB), sha256(randomBytes(8))];
      const patched = await push.ask('PATCH', await push.upload(), blob);
      const { pathname, search } = new URL(String(patched.headers.location));
      const form = type.startsWith('multipart')
        ? `--b\r\ncontent-disposition: form-data; name="digest"\r\n\r\n${sha256(blob)}\r\n--b--\r\n`
        : `digest=${sha256(blob)}`;
      const path = `${pathname}${search}&digest=${other}`;
      expect((await push.ask('PUT', path, Buffer.from(form), false, type)).statusCode).toBe(400);
      expect(await clientOf().has(push.repository, sha256(blob))).toBe(false);
      expect([await names(), await used()]).toEqual([[], 0]);
    },
  );

  test('count for a blob that a PUT made of the part of its body that came', async () => {
    const push = await new Push().begun();
    const part = randomBytes(MIB);
    const path = `${await push.upload()}&digest=${sha256(part)}`;
    const left = push.open('PUT', path, { 'content-length': String(2 * MIB) });
    left.on('error', () => undefined).write(part);
    await waitFor(async () => (await used()) > MIB, 'its bytes are taken');
    left.destroy();
    await waitFor(async () => (await names()).includes(sha256(part)) || (await names()).length === 0, 'it has ended');
    const has = await clientOf().has(push.repository, sha256(part));
    expect([await names(), await used()]).toEqual(has ? [[sha256(part)], MIB + 4096] : [[], 0]);
  });

  test('of a layer that is refused or breaks off are free at once, and small pushes go on', async () => {
    const push = await new Push().begun();
    const before = bytesOnDisk();
    const [status] = await push.blob(randomBytes(MOST_BYTES + MIB));
    expect([status, await used(), await names()]).toEqual([413, 0, []]);
    expect(bytesOnDisk() - before).toBeLessThan(4096);
    expect((await push.blob(randomBytes(MIB)))[0]).toBe(201);
    const taken = await used();
    const left = push.open('PATCH', await push.upload(), { 'transfer-encoding': 'chunked' });
    left.on('error', () => undefined).write(randomBytes(MIB));
    await waitFor(async () => (await used()) > taken + MIB, 'its bytes are taken');
    left.destroy();
    await waitFor(async () => (await used()) === taken, 'the upload of an engine that left is gone');
    expect(bytesOnDisk() - before).toBeLessThan(taken);
  });

  test('are those of a blob that the registry made when the scheduler died before it read so', async () => {
    const push = await new Push().begun();
    const blobs = [randomBytes(MIB), randomBytes(1000)];
    for (const blob of blobs) {
      const patched = await push.ask('PATCH', await push.upload(), blob, true);
      const { pathname, search } = new URL(String(patched.headers.location));
      const upload = pathname.split('/').at(-1);
      await new Allowance({ db: opened.db, mostBytes }).write(workspaceId, upload, sha256(blob)).claim(0);
      if (blob !== blobs[0]) continue;
      const path = `${pathname}${search}&digest=${sha256(blob)}`;
      const made = await clientOf().pool.request({ method: 'PUT', path });
      await made.body.dump();
      expect(made.statusCode).toBe(201);
    }
    await opened.db.query(
      `update registry_blobs set touched_at = now() - interval '49 hours' where workspace_id = $1`,
      [workspaceId],
    );
    await swept();
    expect(await names()).toEqual([sha256(blobs[0] as Buffer)]);
    expect(await used()).toBe(MIB + 4096);
  });

  test('belong to uploads that one request writes at a time, and that were begun here', async () => {
    const [push, other] = [await new Push().begun(), await new Push(1).begun()];
    const at = await push.upload();
    const open = push.open('PATCH', at, { 'transfer-encoding': 'chunked' });
    open.write(randomBytes(1000));
    await waitFor(async () => (await used()) > 4096, 'the first one writes');
    for (const method of ['PATCH', 'PUT', 'DELETE'])
      expect((await other.ask(method, at, randomBytes(10))).statusCode).toBe(409);
    open.end();
    const [{ statusCode, headers }] = (await once(open, 'response')) as [IncomingMessage];
    expect([statusCode, await used()]).toEqual([202, 4096 + 1000]);
    const then = new URL(String(headers.location));
    expect((await other.ask('DELETE', `${then.pathname}${then.search}`)).statusCode).toBe(204);
    expect(await used()).toBe(0);
    expect((await other.ask('PATCH', at, randomBytes(10))).statusCode).toBe(404);
    expect(await names()).toEqual([]);
    const digest = (algorithm: string, length: number) => `${algorithm}:${'0'.repeat(length)}`;
    const next = await push.upload();
    expect((await push.ask('PUT', `${next}&digest=${digest('sha512', 128)}`)).statusCode).toBe(403);
    // A digest that is not the content's ends the upload.
    expect((await push.ask('PUT', `${next}&digest=${digest('sha256', 64)}`, randomBytes(100))).statusCode).toBe(400);
    expect(await used()).toBe(0);
    expect((await push.ask('PATCH', next, randomBytes(100))).statusCode).toBe(404);
    // The registry says 404 for a state that is not the upload's, and has the upload.
    const stale = await push.upload();
    expect((await push.ask('PATCH', stale, randomBytes(1000))).statusCode).toBe(202);
    expect((await push.ask('DELETE', stale)).statusCode).toBe(404);
    expect(await used()).toBe(4096 + 1000);
  });

  test('are free again when the registry has collected what nothing names, and not before', async () => {
    const [push, kept] = [await new Push().begun(), await new Push().begun()];
    const [lost, stays] = [randomBytes(MIB), randomBytes(1000)];
    expect((await push.blob(lost))[0]).toBe(201);
    expect((await kept.blob(stays))[0]).toBe(201);
    expect((await kept.manifest(builtTag(kept.image), stays)).statusCode).toBe(201);
    const left = 1000 + 2 * 4096;
    await opened.db.query(`insert into images (id, workspace_id, definition) values ($1, $2, '{}')`, [
      kept.image,
      workspaceId,
    ]);
    const hoursLater = () =>
      opened.db.query(`update registry_blobs set touched_at = now() - interval '7 hours' where workspace_id = $1`, [
        workspaceId,
      ]);
    await hoursLater();
    await swept();
    expect(await used()).toBe(MIB + 4096 + left);
    await push.ask('PATCH', await push.upload(), randomBytes(10));
    await registry.collect()();
    await waitFor(async () => !(await clientOf().has(push.repository, sha256(lost))), 'it is collected', 30_000);
    await hoursLater();
    await swept();
    expect((await names()).map((name) => name.split(' ')[0])).toEqual(['manifest', sha256(stays), 'upload']);
    expect(await used()).toBe(left + 4096 + 10);
    await opened.db.query(
      `update registry_blobs set touched_at = now() - interval '49 hours' where name like 'upload %'`,
    );
    await swept();
    expect(await used()).toBe(left);
  });

  test('are free again where the registry fails for other repositories and other blobs', async () => {
    const broken = [...Array(40).keys()].map((at) => `sha256:${String(at).padStart(64, '0')}`);
    const gone = [sha256(randomBytes(1)), `manifest ${sha256(randomBytes(1))}`];
    const add = (which: readonly string[], hours: number) =>
      opened.db.query(
        `insert into registry_blobs (workspace_id, name, bytes, touched_at)
         select $1, name, 1000, now() - make_interval(mins => $3 * 60) from unnest($2::text[]) name`,
        [workspaceId, which, hours],
      );
    await add(broken, 8);
    await add(gone, 7);
    /** A registry with blobs and repositories for which it answers 500. */
    class Failing extends RegistryClient {
      override tags = () => Promise.reject(new Error('HTTP 500'));
      override async has(repository: string, name: string): Promise<boolean> {
        if (broken.includes(name)) throw new Error('HTTP 500');
        return await super.has(repository, name);
      }
    }
    const client = new Failing(registry.address);
    const { db } = opened;
    const metrics = new RegistryMetrics(new Registry());
    const round = () => new RegistrySweep({ db, client, metrics, log: silent }).round();
    try {
      await expect(round()).rejects.toThrow(
        /^40 blobs could not be looked for, the first: HTTP 500(; \d+ repositories were not looked through, the first: HTTP 500)?$/,
      );
      expect(await names()).toEqual(broken);
      // A later round begins with those that no round has asked for.
      const late = sha256(randomBytes(1));
      await add([late], 7);
      expect((await unseenBlobs(db, 6, 1)).map(({ name }) => name)).toEqual([late]);
    } finally {
      await client.close();
    }
  });

  test('are enough for the push of an engine, or are refused in words that it shows', async () => {
    const directory = tempDirectory('image');
    const own = await docker();
    /** Has the engine push an image with a layer of that many bytes, that it built. */
    const pushed = async (push: Push, bytes: number): Promise<string> => {
      const name = `127.0.0.1:${portOf(0)}/${push.repository}:${builtTag(push.image)}`;
      writeFileSync(join(directory.path, 'layer'), randomBytes(bytes));
      writeFileSync(join(directory.path, 'Dockerfile'), 'FROM scratch\nCOPY layer /layer\nENV a=b\n');
      const context = { context: directory.path, src: ['Dockerfile', 'layer'] };
      await once((await own.client.buildImage(context, { t: name, labels: own.labels })).resume(), 'end');
      const image = own.client.getImage(name);
      const authconfig = { username: 'longshore', password: push.token, serveraddress: '' };
      const said = await image.push({ authconfig });
      let text = '';
      for await (const part of said.setEncoding('utf8')) text += String(part);
      await image.remove();
      return text;
    };
    try {
      const fits = await new Push().begun();
      expect(await pushed(fits, MIB)).toMatch(/: digest: sha256:/);
      expect(await names()).toHaveLength(3);
      const taken = await used();
      const text = await pushed(await new Push().begun(), MOST_BYTES);
      expect(text).toContain('images of this workspace would take more than the 3145728 bytes');
      expect(taken).toBeLessThan(2 * MIB);
      expect(await used()).toBeLessThanOrEqual(MOST_BYTES);
    } finally {
      directory.remove();
      await own.cleanUp();
    }
  });
});

/** A sweep fails while the registry changes its process, and is tried again. */
const swept = () =>
  waitFor(
    () =>
      sweep.round().then(
        () => true,
        () => false,
      ),
    'the registry is swept',
    20_000,
  );
const uploadsOf = ({ repository }: Push): string => `/v2/${repository}/blobs/uploads/`;
const names = async (): Promise<readonly string[]> =>
  (
    await opened.db.query<{ name: string }>('select name from registry_blobs where workspace_id = $1 order by name', [
      workspaceId,
    ])
  ).rows.map(({ name }) => name);

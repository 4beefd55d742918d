// Pushes of built images that failed are tried again: when, by whom, how many, and what the row says meanwhile. The
// registry and the database are real; the test plays the machine.
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { builtImageName, builtRepository } from '#shared/domain/built-images.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { encodeEvent } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import { Pushes } from '#scheduler/fleet/builds/pushes.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { Allowance } from '#scheduler/fleet/registry/allowance.ts';
import { RegistryAccess } from '#scheduler/fleet/registry/access.ts';
import { RegistryClient } from '#scheduler/fleet/registry/client.ts';
import { RegistryMetrics } from '#scheduler/fleet/registry/metrics.ts';
import { imageById } from '#scheduler/stores/store/queries/images.ts';
import type { ImageRow } from '#scheduler/stores/store/queries/images.ts';
import { registryIn } from '../helpers/managed-registry.ts';
import { tempDirectory } from '../helpers/services.ts';
import { KINDS, aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const MACHINE = 'aaaa1111' as MachineId;
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
const { privateKey: signingKey, publicKey } = generateKeyPairSync('ed25519');
const directory = tempDirectory('registry');
const registry = registryIn(directory.path);
let client: RegistryClient;

beforeAll(async () => {
  await registry.start();
  await registry.whenWritable();
  client = new RegistryClient(registry.address);
});
afterAll(async () => {
  await client.close();
  await registry.stop();
  directory.remove();
});

/** Puts an image without layers into the registry, as a machine's engine does. @returns its digest */
async function stored(workspaceId: WorkspaceId): Promise<string> {
  const config = randomBytes(500);
  const at = `/v2/${builtRepository(workspaceId)}`;
  const ask = (method: 'POST' | 'PUT', path: string, body: Buffer, type: string) =>
    client.pool.request({ method, path, body, headers: { 'content-type': type } });
  const begun = await ask('POST', `${at}/blobs/uploads/`, Buffer.alloc(0), 'text/plain');
  const { pathname, searchParams } = new URL(String(begun.headers['location']));
  searchParams.set('digest', sha256(config));
  const sent = await ask('PUT', `${pathname}?${searchParams.toString()}`, config, 'application/octet-stream');
  const about = {
    mediaType: 'application/vnd.docker.container.image.v1+json',
    size: config.length,
    digest: sha256(config),
  };
  const manifest = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: MANIFEST, config: about, layers: [] }));
  const put = await ask('PUT', `${at}/manifests/${sha256(manifest)}`, manifest, MANIFEST);
  for (const { statusCode, body } of [begun, sent, put])
    expect([statusCode < 300, await body.text()]).toEqual([true, '']);
  return sha256(manifest);
}

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let workspaceId: WorkspaceId;
  /** Whether the machine is in service, with a registry port. */
  let machine: { health: string; registry: boolean };
  /** Images whose push was ordered. */
  let ordered: string[];
  let answer: () => BuildEvent | undefined | Promise<BuildEvent>;
  let pushes: Pushes;

  beforeAll(async () => {
    opened = await aDb(kind);
    const machines = {
      all: () => [theMachine()],
      get: (id: MachineId) => (id === MACHINE ? theMachine() : undefined),
    };
    const theMachine = (): Machine =>
      ({
        row: { id: MACHINE, poolWorkspaceId: null },
        health: machine.health,
        inventory: { registry: machine.registry },
      }) as unknown as Machine;
    pushes = new Pushes({
      db: opened.db,
      machines,
      streams: {
        open: async (_machineId, order) => {
          ordered.push(String(order.image));
          const bytes = new PassThrough();
          const event = await answer();
          bytes.end(event === undefined ? '' : encodeEvent(event));
          return bytes;
        },
      },
      access: new RegistryAccess({
        db: opened.db,
        keys: { signingKey, publicKey },
        machines,
        allowance: new Allowance({ db: opened.db, mostBytes: () => Promise.resolve(10_000_000) }),
        nowMs: Date.now,
      }),
      client,
      metrics: new RegistryMetrics(new Registry()),
      log: silent,
    });
  });
  afterAll(() => opened.stop());
  beforeEach(async () => {
    await opened.db.query('delete from images');
    workspaceId = (await aWorkspace(opened.db)).id;
    machine = { health: 'READY', registry: true };
    ordered = [];
    answer = () => ({ failed: 'the registry is away', step: '' });
  });

  /** An image on the machine alone. */
  async function built(): Promise<string> {
    const image = builtImageName(randomBytes(16).toString('hex'));
    await opened.db.query(
      `insert into images (id, workspace_id, definition, state, built_at) values ($1, $2, '{}', 'READY', now())`,
      [image, workspaceId],
    );
    await opened.db.query('insert into image_machines (image_id, machine_id, size_bytes) values ($1, $2, 1)', [
      image,
      MACHINE,
    ]);
    return image;
  }
  const rowOf = (image: string): Promise<ImageRow | undefined> => imageById(opened.db, workspaceId, image);
  const minutesPass = (minutes: number): Promise<unknown> =>
    opened.db.query('update images set push_tried_at = push_tried_at - make_interval(mins => $1)', [minutes]);

  test('a push that failed is tried again after ten minutes, and the row says why until it succeeds', async () => {
    const image = await built();
    await pushes.round();
    expect(await rowOf(image)).toMatchObject({ state: 'READY', digest: '', pushError: 'the registry is away' });
    await pushes.round();
    await minutesPass(9);
    await pushes.round();
    expect(ordered).toEqual([image]);
    await minutesPass(2);
    answer = () => ({ failed: 'the disk of the registry is full', step: '' });
    await pushes.round();
    expect(await rowOf(image)).toMatchObject({ digest: '', pushError: 'the disk of the registry is full' });

    await minutesPass(11);
    const digest = await stored(workspaceId);
    answer = () => ({ pushed: digest });
    await pushes.round();
    expect(await rowOf(image)).toMatchObject({ digest, pushError: '' });
    await minutesPass(11);
    await pushes.round();
    expect(ordered).toEqual([image, image, image]);
  });

  test('what an agent says is not enough: the registry must have the image, and a cut connection is a failure', async () => {
    const image = await built();
    const digest = sha256(Buffer.from('nothing'));
    answer = () => ({ pushed: digest });
    await pushes.round();
    expect(await rowOf(image)).toMatchObject({ digest: '', pushError: `the registry has no image ${digest}` });
    await minutesPass(11);
    answer = () => undefined;
    await pushes.round();
    expect(await rowOf(image)).toMatchObject({ digest: '', pushError: 'the connection to the machine ended' });
  });

  test('a round ends when its replica leads no more; the next leader pushes what is left', async () => {
    await built();
    await built();
    const leading = new AbortController();
    answer = () => {
      leading.abort();
      return { failed: 'the registry is away', step: '' };
    };
    await pushes.round(leading.signal);
    expect(ordered).toHaveLength(1);
    await pushes.round();
    expect(ordered).toHaveLength(3);
  });

  test('a round takes eight, one after the other, and those that wait longest first', async () => {
    const images: string[] = [];
    for (let count = 0; count < 10; count += 1) images.push(await built());
    let [running, most] = [0, 0];
    answer = async () => {
      running += 1;
      most = Math.max(most, running);
      await opened.db.query('select 1');
      running -= 1;
      return { failed: 'the registry is away', step: '' };
    };
    await pushes.round();
    expect([ordered.length, new Set(ordered).size, most]).toEqual([8, 8, 1]);
    const first = [...ordered];
    await minutesPass(11);
    await pushes.round();
    const second = ordered.slice(8);
    // The two that nobody tried yet come first, and then the others in their order.
    expect(second).toHaveLength(8);
    expect(new Set([...first, ...second.slice(0, 2)])).toEqual(new Set(images));
    expect(second.slice(2)).toEqual(first.slice(0, 6));
  });

  test.each([
    ['is away', { health: 'SUSPECT', registry: true }],
    ['has no port for the registry', { health: 'READY', registry: false }],
  ])('a machine that %s gets no order, and its images no failure', async (_what, facts) => {
    const image = await built();
    machine = facts;
    await pushes.round();
    expect(ordered).toEqual([]);
    expect((await rowOf(image))?.pushError).toBe('');
  });

  test('an image that was built again while it was pushed waits for its own push', async () => {
    const image = await built();
    answer = async () => {
      await opened.db.query(`update images set built_at = built_at + interval '1 second' where id = $1`, [image]);
      return { failed: 'the registry is away', step: '' };
    };
    await pushes.round();
    expect((await rowOf(image))?.pushError).toBe('');
    answer = () => ({ failed: 'another failure', step: '' });
    await pushes.round();
    expect((await rowOf(image))?.pushError).toBe('another failure');
  });
});

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { Log } from '#shared/log.ts';
import { Images, PULL_SETTINGS } from '../../../agent/images/images.ts';
import type { ImagesParts } from '../../../agent/images/images.ts';
import type { PullPermit } from '../../../agent/images/turns.ts';
import { ImageLedger } from '../../../agent/images/ledger.ts';
import { ImageRights } from '../../../agent/images/rights.ts';

const quiet = { info: () => undefined, warn: () => undefined } as unknown as Log;
const image = 'registry.test/app:1';
const digest = `sha256:${'a'.repeat(64)}`;
const auth = { serverAddress: 'registry.test', username: 'u', password: 'p', identityToken: '' };
const directory = mkdtempSync(join(tmpdir(), 'rights-'));
afterAll(() => rmSync(directory, { recursive: true }));

interface World {
  registry: (withAuth: boolean) => Promise<string>;
  permit: PullPermit;
  nowMs: number;
  asked: number;
  has: boolean;
  /** Pythons whose base image was made. */
  readonly made: string[];
}

let files = 0;
async function aMachine(changes: Partial<World> = {}, before?: string) {
  const world: World = {
    registry: () => Promise.resolve(digest),
    permit: { waitMs: 0, auth },
    nowMs: 1_000_000,
    asked: 0,
    has: false,
    made: [],
    ...changes,
  };
  const path = join(directory, `${files++}.json`);
  if (before !== undefined) writeFileSync(path, before);
  const ledger = new ImageLedger(path);
  await ledger.open();
  const runtime = {
    image: () =>
      Promise.resolve(
        world.has ? { id: 'sha256:id', digests: [digest], isLocal: false, bytes: 1, builtFor: '' } : undefined,
      ),
    pull: () => {
      world.has = true;
      return Promise.resolve(digest);
    },
    removeImage: () => Promise.resolve(true),
    registryDigest: (_reference: string, given: unknown) => {
      world.asked += 1;
      return world.registry(given !== undefined);
    },
  };
  const credentials = () => Promise.resolve(world.permit);
  const images = new Images({
    runtime,
    permit: credentials,
    built: { host: undefined, adopt: () => Promise.resolve() },
    makeBase: (version, tell) => {
      world.made.push(version);
      tell(`making the base image of Python ${version}: installing packages`);
      return Promise.resolve(`made ${version}`);
    },
    rights: new ImageRights({ runtime, ledger, credentials, nowMs: () => world.nowMs, log: quiet }),
    release: () => undefined,
    isDiskLow: () => Promise.resolve(false),
    isDiskFull: () => Promise.resolve(false),
    maxBytes: () => Promise.resolve(Number.POSITIVE_INFINITY),
    makeRoom: () => Promise.resolve(false),
    onFull: () => undefined,
    onUsed: () => undefined,
    onPulled: (reference, how) => ledger.pulled(reference, world.nowMs, how),
    metrics: { pullEnded: () => undefined, pullBytes: () => undefined, pullsActive: () => undefined },
    log: quiet,
    settings: PULL_SETTINGS,
  } satisfies ImagesParts);
  const use = (workspaceId: string) => images.ensure(image, () => undefined, workspaceId);
  return { world, use, images };
}

const no = (text: string) => () => Promise.reject(new Error(text));

test('a base image that machines make is made here, once for all who want it, and asked of no registry', async () => {
  const { world, images } = await aMachine();
  const said: string[] = [];
  const wanted = ['a', 'b', ''].map((workspace) =>
    images.ensure('longshore-python:3.10', (text) => said.push(text), workspace),
  );
  expect(await Promise.all(wanted)).toEqual(Array(3).fill({ id: 'made 3.10', was: 'pulled' }));
  expect(world).toMatchObject({ has: false, asked: 0, made: ['3.10'] });
  expect(said).toContain('making the base image of Python 3.10: installing packages');
});

test('an image by its id, or by the beginning of one, is nobody’s', async () => {
  const { world, images } = await aMachine();
  for (const id of ['68c', '68cd7c11f0de', 'sha256:68c', `sha256:${'a'.repeat(64)}`])
    await expect(images.ensure(id, () => undefined, 'a')).rejects.toThrow(`image ${id} could be an id`);
  expect(world.has).toBe(false);
});

describe('an image that was pulled with credentials', () => {
  test('asks the registry once in five minutes for each workspace', async () => {
    const { world, use } = await aMachine();
    expect(await use('a')).toMatchObject({ was: 'pulled' });
    expect([await use('a'), world.asked]).toMatchObject([{ was: 'present' }, 0]);
    await Promise.all([use('b'), use('b'), use('b')]);
    await use('b');
    expect(world.asked).toBe(1);
    world.nowMs += 5 * 60_000;
    await use('a');
    await use('b');
    expect(world.asked).toBe(3);
  });

  test('is no workspace’s any more whose credentials the registry refuses now', async () => {
    const { world, use } = await aMachine();
    await use('a');
    world.nowMs += 5 * 60_000;
    world.registry = no('unauthorized: authentication required');
    await expect(use('a')).rejects.toMatchObject({ code: 'image_error' });
  });

  test('stays with those who had a right to it while the registry or the scheduler is away, and with nobody else', async () => {
    const { world, use } = await aMachine();
    await use('a');
    world.nowMs += 5 * 60_000;
    world.registry = no('i/o timeout');
    expect(await use('a')).toMatchObject({ was: 'present' });
    await expect(use('b')).rejects.toMatchObject({ code: 'registry_busy' });
    world.nowMs += 5 * 60_000;
    world.registry = no('unauthorized: authentication required');
    world.permit = { waitMs: 0, auth: undefined, unasked: true };
    expect(await use('a')).toMatchObject({ was: 'present' });
    await expect(use('b')).rejects.toMatchObject({ code: 'image_error' });
  });
});

test('an image that took no credentials is everybody’s, and nobody is asked', async () => {
  const { world, use } = await aMachine({ permit: { waitMs: 0, auth: undefined } });
  await use('a');
  expect([await use('b'), world.asked]).toMatchObject([{ was: 'present' }, 0]);
});

test('an image that this agent did not pull is the operator’s to offer', async () => {
  const { world, use } = await aMachine({ has: true, registry: no('unauthorized') });
  expect([await use('a'), world.asked]).toMatchObject([{ was: 'present' }, 0]);
});

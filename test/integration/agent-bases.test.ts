// Versions of base images as the agent tells them, with this machine's own apt and a mirror that the test plays.
import { join } from 'node:path';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import { BaseImages } from '#agent/bases/base-images.ts';
import type { BaseImagesParts, BasePythons } from '#agent/bases/base-images.ts';
import { releasesOf } from '#agent/bases/suites.ts';
import { playedServer } from '../helpers/played-server.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import { silent } from './store-fixture.ts';

const directory = tempDirectory('bases');
const asked: string[] = [];
let status = 404;
const mirror = playedServer((request, response) => {
  asked.push(request.url ?? '');
  response.writeHead(status).end();
});
afterAll(() => directory.remove());

function aMachine(over: Partial<BaseImagesParts> = {}, images: string[] = [], userinfo = '') {
  const told: BasePythons[] = [];
  const osRelease = 'ID=debian\nVERSION_CODENAME=bookworm\n';
  const bases = new BaseImages({
    runtime: {
      listImages: () => Promise.resolve([...images]),
      removeImage: (image: string) => Promise.resolve(images.splice(images.indexOf(image), 1).length > 0),
    } as unknown as BaseImagesParts['runtime'],
    workDir: join(directory.path, 'work'),
    labels: () => ({}),
    tell: (pythons) => told.push(pythons),
    releases: () =>
      Promise.resolve(
        releasesOf(osRelease, [`deb ${mirror.url.replace('//', `//${userinfo}`)}/debian bookworm main\n`]),
      ),
    isUsed: true,
    log: silent,
    ...over,
  });
  return { bases, told, images };
}

const known = (versions: readonly string[], here: readonly string[] = []): BasePythons => ({
  versions: [...versions],
  here: [...here],
  known: true,
});

describe('versions of base images', () => {
  test('are all that there is a source for, until a mirror was asked', async () => {
    expect(await aMachine().bases.pythons()).toEqual(known(['3.11', '3.13', '3.9']));
    expect(asked).toEqual([]);
  });

  test('are those that are here alone, when the mirror has no such release', async () => {
    const { bases, told, images } = aMachine({}, ['longshore-python:3.11', 'python:3.12-slim', 'longshore-python:x']);
    await bases.pythons();
    await bases.look(0);
    expect(told).toEqual([known(['3.11'], ['3.11'])]);
    expect(asked.some((path) => path.includes('/dists/trixie/'))).toBe(true);
    // The mirror is asked again later, and images at each look.
    const before = asked.length;
    images.push('longshore-python:3.12');
    await bases.look(60_000);
    expect(told.at(-1)).toEqual(known(['3.11', '3.12'], ['3.11', '3.12']));
    expect(asked).toHaveLength(before);
    await bases.look(300_001);
    expect(asked.length).toBeGreaterThan(before);
    expect(told).toHaveLength(2);
    expect(readdirSync(join(directory.path, 'work'))).toEqual([]);
  });

  test('are those from before, while the engine does not say which images it has', async () => {
    const lists = [['longshore-python:3.12'], undefined, ['longshore-python:3.10']];
    const listImages = () => {
      const list = lists.shift();
      return list === undefined ? Promise.reject(new Error('no answer within 30 s')) : Promise.resolve(list);
    };
    const runtime = { listImages } as unknown as BaseImagesParts['runtime'];
    const { bases, told } = aMachine({ runtime, releases: () => Promise.resolve(new Map()) });
    for (const atMs of [0, 60_000, 120_000]) await bases.look(atMs);
    expect(told).toEqual([known(['3.12'], ['3.12']), known(['3.10'], ['3.10'])]);
  });

  test('are none to tell where base images are pulled', async () => {
    const { bases } = aMachine({ isUsed: false }, ['longshore-python:3.11']);
    expect(await bases.pythons()).toEqual({ versions: [], here: [], known: false });
  });

  test('are all of none, where nothing leads to a release and no image is here', async () => {
    const { bases, told } = aMachine({ releases: () => Promise.resolve(new Map()) });
    expect(await bases.pythons()).toEqual(known([]));
    await bases.look(0);
    expect(told).toEqual([]);
  });

  test('are not all, until the engine has listed its images once', async () => {
    const runtime = { listImages: () => Promise.reject(new Error('down')) } as unknown as BaseImagesParts['runtime'];
    const { bases } = aMachine({ runtime });
    expect(await bases.pythons()).toEqual({ versions: ['3.11', '3.13', '3.9'], here: [], known: false });
  });
});

describe('making a base image', () => {
  test('of a release that the mirror does not have now is a cause of the host, with the mirror’s name', async () => {
    const { bases } = aMachine();
    await expect(bases.make('3.13', () => undefined)).rejects.toMatchObject({
      code: 'registry_unreachable',
      message: expect.stringMatching(
        /^cannot get packages of trixie from http:\/\/127\.0\.0\.1:\d+\/debian: E: .*trixie Release/,
      ) as string,
    });
    expect(readdirSync(join(directory.path, 'work'))).toEqual([]);
  });

  test('says nothing of a password in the sources, and where one belongs', async () => {
    status = 401;
    const { bases } = aMachine({}, [], 'user:t0ken@');
    const error: unknown = await bases.make('3.13', () => undefined).catch((one: unknown) => one);
    status = 404;
    expect(String(error)).toMatch(
      /from http:\/\/127\.0\.0\.1:\d+\/debian: E: .*401.*; a password of the mirror belongs into \/etc\/apt\/auth\.conf/,
    );
    expect(String(error)).not.toMatch(/user:|t0ken/);
  });

  test('is refused where base images are pulled, and no mirror is asked', async () => {
    const before = asked.length;
    const { bases } = aMachine({ isUsed: false });
    const told: string[] = [];
    await expect(bases.make('3.13', (text) => told.push(text))).rejects.toMatchObject({
      code: 'image_error',
      message: expect.stringMatching(/^image longshore-python:3\.13 is not here, and this machine makes no/) as string,
    });
    expect([told, asked.length]).toEqual([[], before]);
  });

  test.for([true, false])('leaves nothing half made behind an agent that was killed: makes them %s', async (isUsed) => {
    const workDir = join(directory.path, `killed-${isUsed}`);
    mkdirSync(join(workDir, 'base-x'), { recursive: true });
    writeFileSync(join(workDir, 'base-x', 'a.deb'), '');
    const others = ['longshore-python:3.13', 'mine:1-unfinished', 'longshore-python:mine-unfinished'];
    const releases = () => Promise.resolve(new Map());
    const { bases, images } = aMachine({ isUsed, workDir, releases }, [
      'longshore-python:3.9-unfinished',
      ...others,
      'longshore-python:3.13-unfinished',
    ]);
    bases.start();
    await waitFor(() => !images.some((image) => /:3.*-unfinished$/.test(image)), 'the images are removed');
    await bases.stop();
    expect([images, existsSync(workDir)]).toEqual([others, false]);
  });

  test('of a version that no release has says those that it makes', async () => {
    await expect(aMachine().bases.make('3.12', () => undefined)).rejects.toMatchObject({
      code: 'image_error',
      message: expect.stringContaining('makes those of 3.9, 3.11, 3.13 alone') as string,
    });
  });
});

// Versions of base images as the agent tells them, with this machine's own apt and a mirror that the test plays.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BaseImages } from '#agent/bases/base-images.ts';
import type { BaseImagesParts } from '#agent/bases/base-images.ts';
import { releasesOf } from '#agent/bases/suites.ts';
import { tempDirectory } from '../helpers/services.ts';
import { silent } from './store-fixture.ts';

const directory = tempDirectory('bases');
const asked: string[] = [];
const mirror = createServer((request, response) => {
  asked.push(request.url ?? '');
  response.writeHead(404).end();
});
let address = '';
beforeAll(async () => {
  await new Promise<void>((resolve) => mirror.listen(0, '127.0.0.1', resolve));
  address = `127.0.0.1:${(mirror.address() as AddressInfo).port}`;
});
afterAll(() => {
  mirror.close();
  directory.remove();
});

function aMachine(over: Partial<BaseImagesParts> = {}, images: string[] = []) {
  const told: (readonly string[])[] = [];
  const osRelease = 'ID=debian\nVERSION_CODENAME=bookworm\n';
  const bases = new BaseImages({
    runtime: { listImages: () => Promise.resolve(images) } as unknown as BaseImagesParts['runtime'],
    workDir: join(directory.path, 'work'),
    labels: () => ({}),
    tell: (versions) => told.push(versions),
    releases: () => Promise.resolve(releasesOf(osRelease, [`deb http://${address}/debian bookworm main\n`])),
    isUsed: true,
    log: silent,
    ...over,
  });
  return { bases, told, images };
}

describe('versions of base images', () => {
  test('are all that there is a source for, until a mirror was asked', async () => {
    expect(await aMachine().bases.versions()).toEqual(['3.11', '3.13', '3.9']);
    expect(asked).toEqual([]);
  });

  test('are those that are here alone, when the mirror has no such release', async () => {
    const { bases, told, images } = aMachine({}, ['longshore-python:3.11', 'python:3.12-slim', 'longshore-python:x']);
    await bases.versions();
    await bases.look(0);
    expect(told).toEqual([['3.11']]);
    expect(asked.some((path) => path.includes('/dists/trixie/'))).toBe(true);
    // The mirror is asked again later, and images at each look.
    const before = asked.length;
    images.push('longshore-python:3.12');
    await bases.look(60_000);
    expect(told.at(-1)).toEqual(['3.11', '3.12']);
    expect(asked).toHaveLength(before);
    await bases.look(300_001);
    expect(asked.length).toBeGreaterThan(before);
    expect(told).toHaveLength(2);
    expect(readdirSync(join(directory.path, 'work'))).toEqual([]);
  });

  test('are none to tell where base images are pulled', async () => {
    const { bases } = aMachine({ isUsed: false }, ['longshore-python:3.11']);
    expect(await bases.versions()).toEqual([]);
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

  test('of a version that no release has says those that it makes', async () => {
    await expect(aMachine().bases.make('3.12', () => undefined)).rejects.toMatchObject({
      code: 'image_error',
      message: expect.stringContaining('makes those of 3.9, 3.11, 3.13 alone') as string,
    });
  });
});

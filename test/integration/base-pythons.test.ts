// A Python version that no machine can give is refused wherever a stub or an image names it, and nothing is made.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/services.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import { aPlatform, WITH_FIELDS } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const REFUSED =
  /^no machine that this workspace may use has Python 3\.12: their base images have Python 3\.11, 3\.13\./;

describe('a Python version that no machine can give', () => {
  let platform: Platform;
  let agent: SimulatedAgent;
  /** A stub from before any machine joined. */
  let early = '';

  const stub = async (fields: Json): Promise<Json> =>
    (
      await platform.gateway('POST /stubs', {
        name: 'app',
        handler: 'app:f',
        stubType: 'endpoint/deployment',
        pythonVersion: 'python3.12',
        ...fields,
      })
    ).json;

  beforeAll(async () => {
    platform = await aPlatform();
    const taken = await stub({ name: 'early' });
    expect(taken).toMatchObject({ ok: true });
    early = String(taken['stubId']);
    const made = await platform.gateway('POST /machines', { poolName: 'own' }, { token: platform.admin.token });
    agent = new SimulatedAgent({
      addresses: () => [platform.agentAddress],
      joinToken: String(made.json['agentUpstreamToken']),
      basePythons: ['3.13', '3.11', 'no version', '3.11'],
    });
    await agent.start();
    await waitFor(async () => (await stub({ name: 'probe' }))['ok'] === false, 'the machine has said its Pythons');
  });
  afterAll(async () => {
    await agent.stop();
    await platform.stop();
  });

  const lists = async (): Promise<readonly unknown[]> => {
    const { workspaceId, token } = platform.own;
    const rest = [`GET /api/v1/stub/${workspaceId}`, `GET /api/v1/app/${workspaceId}`];
    return [
      ...(await Promise.all(rest.map(async (line) => (await platform.call(line, undefined, { token })).json['data']))),
      (await platform.gateway('GET /deployments')).json['deployments'],
    ];
  };

  test.each(['endpoint/deployment', 'asgi/serve', 'function', 'taskqueue/deployment', 'pod/run', 'sandbox'])(
    'is refused for a stub of %s, and makes nothing',
    async (stubType) => {
      const before = await lists();
      const answer = await stub({ stubType, name: `new-${stubType}`, appName: 'new' });
      expect(answer).toMatchObject({ ok: false, stubId: '', errMsg: expect.stringMatching(REFUSED) as string });
      expect(await lists()).toEqual(before);
    },
  );

  test('is refused when an older stub is deployed, and no version is made', async () => {
    const before = await lists();
    const answer = await platform.gateway('POST /stubs/deploy', { stubId: early, name: 'early' }, WITH_FIELDS);
    expect(answer.json).toMatchObject({
      ok: false,
      errMsg: expect.stringMatching(REFUSED) as string,
    });
    expect(await lists()).toEqual(before);
  });

  test('is a problem of a dry run', async () => {
    const { json } = await platform.gateway('POST /stubs/check', {
      stubType: 'endpoint/deployment',
      handler: 'app:f',
      pythonVersion: 'python3.12',
    });
    expect(json['problems']).toEqual([
      { field: 'pythonVersion', value: 'python3.12', text: expect.stringMatching(REFUSED) as string },
    ]);
  });

  test.each([
    ['a plain base image', {}],
    ['packages on it', { pythonPackages: ['six'] }],
    ['its own id', { imageId: 'longshore.internal/base:python3.12' }],
  ])('is refused for an image: %s', async (_what, fields) => {
    const request = { pythonVersion: 'python3.12', ...fields };
    expect((await platform.gateway('POST /images/verify-build', request)).json).toMatchObject({
      ok: false,
      valid: false,
      errMsg: expect.stringMatching(REFUSED) as string,
    });
    if (!('imageId' in fields))
      expect((await platform.gateway('POST /images/build', request)).json).toMatchObject({
        result: { done: true, success: false, msg: expect.stringMatching(REFUSED) as string },
      });
  });

  test('is no question of an image that brings its own Python', async () => {
    const images = [
      { existingImageUri: 'python:3.12-slim' },
      { dockerfile: 'FROM python:3.12-slim\nRUN true' },
      { pythonVersion: 'micromamba3.12' },
    ];
    for (const image of images) {
      const request = { pythonVersion: 'python3.12', ...image };
      expect((await platform.gateway('POST /images/verify-build', request)).json).toMatchObject({ errMsg: '' });
    }
    expect(await stub({ name: 'own', imageId: 'python:3.12-slim' })).toMatchObject({ ok: true });
    const built = { stubType: 'function', handler: 'app:f', pythonVersion: 'python3.12', builtFrom: 'debian:12' };
    expect((await platform.gateway('POST /stubs/check', built)).json).toMatchObject({ problems: [] });
    for (const pythonVersion of ['', 'python3', 'python3.13'])
      expect(await stub({ name: 'there', pythonVersion })).toMatchObject({ ok: true });
  });

  test('is taken as soon as a machine says that it can make it', async () => {
    agent.tellPythons(['3.11', '3.12']);
    await waitFor(async () => (await stub({ name: 'later' }))['ok'] === true, 'the version is known');
    expect(await stub({ name: 'gone', pythonVersion: 'python3.13' })).toMatchObject({ ok: false });
  });

  test('is told as made first, until a machine has its image', async () => {
    const warned = async () => String((await stub({ name: 'first', pythonVersion: 'python3.12' }))['warnMsg']);
    expect(await warned()).toBe(
      'No machine has the base image of Python 3.12 yet; calls wait while a machine makes it, which takes about two minutes; `longshore explain` shows how far it is.',
    );
    agent.tellPythons(['3.11', '3.12'], ['3.12']);
    await waitFor(async () => (await warned()) === '', 'the image is there');
  });

  test('is refused where the machine can make no base image any more, whichever Python is named', async () => {
    agent.tellPythons([]);
    await waitFor(
      async () => (await stub({ name: 'none' }))['ok'] === false,
      'the machine has said that it makes none',
    );
    const nothing = /^no machine that this workspace may use has a base image, or can make one now\. /;
    for (const pythonVersion of ['', 'python3', 'python3.11', 'micromamba3.11']) {
      expect(await stub({ name: 'none', pythonVersion }), pythonVersion).toMatchObject({
        ok: false,
        stubId: '',
        errMsg: expect.stringMatching(nothing) as string,
      });
      const image = { pythonVersion, pythonPackages: ['six'] };
      expect((await platform.gateway('POST /images/verify-build', image)).json, pythonVersion).toMatchObject({
        valid: false,
        errMsg: expect.stringMatching(nothing) as string,
      });
    }
    expect(await stub({ name: 'own', imageId: 'python:3.12-slim' })).toMatchObject({ ok: true });
  });
});

// Mirrors of registries: two packaged registries and an engine of its own. The layers come from the mirror, and the
// registry itself says what the image is and who may have it.
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect } from 'vitest';
import type { Log } from '#shared/log.ts';
import { pinnedTo } from '#shared/domain/image-reference.ts';
import type { DockerRuntime } from '../../agent/containers/engine/docker.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import type { ContainerRuntime } from '../../agent/containers/runtime.ts';
import { PullProxy } from '../../agent/images/guard/pull-proxy.ts';
import { Images, PULL_SETTINGS } from '../../agent/images/images.ts';
import type { PullPermit } from '../../agent/images/turns.ts';
import { guardedRuntime } from '../helpers/guarded-runtime.ts';
import { whyNoHosts } from '../helpers/hosts.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { SimulatedNetwork } from '../helpers/hosts/network.ts';
import type { RealRegistry } from '../helpers/registry.ts';
import { realRegistry, REGISTRY_PASSWORD, REGISTRY_USER } from '../helpers/registry.ts';
import { runProgram } from '../helpers/programs.ts';
import { tempDirectory, test } from '../helpers/services.ts';

const quiet = { info: () => undefined, warn: () => undefined } as unknown as Log;
const WORKSPACE = 'workspace-1';

let network: SimulatedNetwork;
let host: SimulatedHost;
/** The engine's own calls. */
let ofEngine: DockerRuntime;
let runtime: ContainerRuntime;
const proxy = new PullProxy();
/** The registry, with a password, and a mirror with the same image, without one. */
let registry: RealRegistry;
let open: RealRegistry;
let mirror: RealRegistry;
let pinned: string;
const storages = [tempDirectory('origin'), tempDirectory('mirror')];

beforeAll(async () => {
  if (whyNoHosts !== undefined) return;
  const [origin, copy] = storages.map(({ path }) => path) as [string, string];
  network = await SimulatedNetwork.up(1, undefined, () => ({
    engine: { 'insecure-registries': ['198.18.0.0/15'], 'max-download-attempts': 1 },
  }));
  [host] = network.hosts as [SimulatedHost];
  ofEngine = dockerRuntime(`unix://${host.socket}`);
  await proxy.start(`${network.gateway}:0`);
  open = await realRegistry(origin, { host: network.gateway });
  registry = await realRegistry(origin, { host: network.gateway, password: true });
  mirror = await realRegistry(copy, { host: network.gateway });
  writeFileSync(join(origin, 'weights'), randomBytes(2_000_000));
  await runProgram('tar', ['-C', origin, '-cf', join(copy, 'root.tar'), 'weights']);
  const engine = ['-H', `unix://${host.socket}`];
  await runProgram('docker', [...engine, 'import', join(copy, 'root.tar'), `${open.host}/team/app:1`]);
  for (const to of [open, mirror]) {
    await runProgram('docker', [...engine, 'tag', `${open.host}/team/app:1`, `${to.host}/team/app:1`]);
    await runProgram('docker', [...engine, 'push', '-q', `${to.host}/team/app:1`]);
  }
  const digest = await ofEngine.registryDigest(`${open.host}/team/app:1`, undefined, 5000);
  pinned = pinnedTo(`${registry.host}/team/app:1`, digest);
  expect(await ofEngine.registryDigest(`${mirror.host}/team/app:1`, undefined, 5000)).toBe(digest);
});
afterAll(async () => {
  if (whyNoHosts !== undefined) return;
  await Promise.all([open.stop(), registry.stop(), mirror.stop()]);
  await proxy.stop();
  await network.down();
  for (const storage of storages) storage.remove();
});
beforeEach(async () => {
  if (whyNoHosts !== undefined) return;
  for (const name of await runtime.listImages()) await runtime.removeImage(name);
});

function images(permit: Partial<PullPermit>): Images {
  return new Images({
    runtime,
    permit: () => Promise.resolve({ waitMs: 0, auth: undefined, ...permit }),
    rights: { require: () => Promise.resolve() },
    built: { host: undefined, adopt: () => Promise.resolve() },
    makeBase: () => Promise.reject(new Error('this machine makes no base images')),
    release: () => undefined,
    isDiskLow: () => Promise.resolve(false),
    isDiskFull: () => Promise.resolve(false),
    maxBytes: () => Promise.resolve(Number.POSITIVE_INFINITY),
    makeRoom: () => Promise.resolve(false),
    onFull: () => undefined,
    onUsed: () => undefined,
    onPulled: () => Promise.resolve(),
    metrics: { pullEnded: () => undefined, pullBytes: () => undefined, pullsActive: () => undefined },
    log: quiet,
    settings: { ...PULL_SETTINGS, tries: 1, baseMs: 1, capMs: 2, mirrorSilenceMs: 2_000 },
  });
}
const auth = () => ({
  serverAddress: registry.host,
  username: REGISTRY_USER,
  password: REGISTRY_PASSWORD,
  identityToken: '',
});
const layers = (one: RealRegistry): number => one.requests().filter((line) => line.includes('/blobs/')).length;
const ensure = (made: Images) => made.ensure(pinned, () => undefined, WORKSPACE);

describe.skipIf(whyNoHosts !== undefined).each(['engine', 'agent'])(
  'a mirror of a registry that the %s asks',
  (asker) => {
    beforeAll(() => {
      runtime = asker === 'engine' ? ofEngine : guardedRuntime(ofEngine, proxy);
    });

    test('serves the layers, once the registry has answered for the image', async () => {
      const [before, atMirror] = [layers(registry), layers(mirror)];
      expect(await ensure(images({ auth: auth(), mirror: mirror.host }))).toMatchObject({ was: 'pulled' });
      expect(layers(mirror)).toBeGreaterThan(atMirror);
      // An engine may ask for the image's configuration again, and never for a layer.
      expect(layers(registry) - before).toBeLessThanOrEqual(1);
      expect(await runtime.listImages()).toEqual([pinned]);
      expect((await runtime.image(pinned))?.digests).toEqual([pinned.split('@')[1]]);
    });

    test('gives nobody an image that its registry refuses', async () => {
      const refused = ensure(images({ mirror: mirror.host }));
      await expect(refused).rejects.toMatchObject({ code: 'image_error' });
      expect(await runtime.listImages()).toEqual([]);
    });

    test('that lacks the image, or does not answer, is passed over', async () => {
      expect(await ensure(images({ auth: auth(), mirror: `${mirror.host}/elsewhere` }))).toMatchObject({
        was: 'pulled',
      });
      expect(await runtime.image(pinned)).toBeDefined();
      await runtime.removeImage(pinned);
      expect(await ensure(images({ auth: auth(), mirror: `${network.gateway}:9` }))).toMatchObject({ was: 'pulled' });
    });

    test('gets credentials only when the operator says so', async () => {
      // Here the registry with a password stands for a mirror that asks for the same one.
      const reference = pinned.replace(registry.host, open.host);
      const through = (mirrorAuth: boolean) => images({ auth: auth(), mirror: registry.host, mirrorAuth });
      const before = layers(registry);
      await through(false).ensure(reference, () => undefined, WORKSPACE);
      expect(layers(registry)).toBe(before);
      await runtime.removeImage(reference);
      await through(true).ensure(reference, () => undefined, WORKSPACE);
      expect(layers(registry)).toBeGreaterThan(before);
    });
  },
);

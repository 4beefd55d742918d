/**
 * The image pull corpus: a real engine against registries, real and broken. Engines of their own, because the shared
 * one repeats each broken download for a minute.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect } from 'vitest';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { pinnedTo } from '#shared/domain/image-reference.ts';
import type { DockerRuntime } from '../../agent/containers/engine/docker.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import type { ContainerRuntime, RegistryAuth } from '../../agent/containers/runtime.ts';
import { PullProxy } from '../../agent/images/guard/pull-proxy.ts';
import type { PullSettings } from '../../agent/images/images.ts';
import type { PullPermit } from '../../agent/images/turns.ts';
import { Images, PULL_SETTINGS } from '../../agent/images/images.ts';
import { ImageLedger } from '../../agent/images/ledger.ts';
import { ImageRights } from '../../agent/images/rights.ts';
import { guardedRuntime } from '../helpers/guarded-runtime.ts';
import { whyNoHosts } from '../helpers/hosts.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { SimulatedNetwork } from '../helpers/hosts/network.ts';
import type { Fault } from '../helpers/registry.ts';
import { FakeRegistry, realRegistry, REGISTRY_PASSWORD, REGISTRY_USER } from '../helpers/registry.ts';
import { tempDirectory, test, waitFor } from '../helpers/services.ts';
import { throttleProxy } from '../helpers/throttle-proxy.ts';
import { runProgram } from '../helpers/programs.ts';

const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined } as unknown as Log;
const FAST: Partial<PullSettings> = { baseMs: 20, capMs: 100, silenceMs: 3000 };

const IMAGE_BYTES = 6_000_000;

const state = tempDirectory('ledger');
/** The clock of rights. */
const now = 1_000_000;
let network: SimulatedNetwork;
let host: SimulatedHost;
let runtime: ContainerRuntime;
/** The engine's own calls. */
let engine: DockerRuntime;
/** The engine reaches the agent's pull proxy at the network's gateway here. */
const proxy = new PullProxy();
const registry = new FakeRegistry();

beforeAll(async () => {
  if (whyNoHosts !== undefined) return;
  network = await SimulatedNetwork.up(1, undefined, () => ({
    engine: { 'insecure-registries': ['198.18.0.0/15'], 'max-download-attempts': 1 },
  }));
  [host] = network.hosts as [SimulatedHost];
  engine = dockerRuntime(`unix://${host.socket}`);
  await registry.start(network.gateway);
  await proxy.start(`${network.gateway}:0`);
});
afterAll(async () => {
  registry.stop();
  await proxy.stop();
  state.remove();
  await (network as SimulatedNetwork | undefined)?.down();
});
beforeEach(() => {
  registry.fault = () => false;
  registry.credentials = '';
  registry.asked.length = 0;
});

const [MINE, OTHERS] = ['workspace-1', 'workspace-2'] as const;

interface Seen {
  readonly images: Images;
  readonly results: string[];
  readonly permits: string[];
}

function images(
  settings: Partial<PullSettings> = {},
  permit?: (reference: string, workspaceId: string) => Promise<PullPermit>,
  own?: ImageLedger,
): Seen {
  const results: string[] = [];
  const permits: string[] = [];
  const ledger = own ?? new ImageLedger(join(state.path, `${randomUUID()}.json`));
  const asked = permit ?? (() => Promise.resolve({ waitMs: 0, auth: undefined }));
  const made = new Images({
    runtime,
    permit: asked,
    rights: new ImageRights({ runtime, ledger, credentials: asked, nowMs: () => now, log: quiet }),
    built: { host: undefined, adopt: () => Promise.resolve() },
    makeBase: () => Promise.reject(new Error('this machine makes no base images')),
    release: (reference) => void permits.push(`done ${reference}`),
    isDiskLow: () => Promise.resolve(false),
    isDiskFull: () => Promise.resolve(false),
    maxBytes: () => Promise.resolve(Number.POSITIVE_INFINITY),
    makeRoom: () => Promise.resolve(false),
    onFull: () => results.push('full'),
    onUsed: () => undefined,
    onPulled: (reference, how) => ledger.pulled(reference, now, how),
    metrics: {
      pullEnded: (result) => void results.push(result),
      pullBytes: () => undefined,
      pullsActive: () => undefined,
    },
    log: quiet,
    settings: { ...PULL_SETTINGS, ...FAST, ...settings },
  });
  return { images: made, results, permits };
}

const status =
  (code: number, body: unknown = {}): Fault =>
  ({ kind, response }) => {
    if (kind === 'ping') return false;
    response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    return true;
  };
const onBlob =
  (act: (bytes: Buffer, response: Parameters<Fault>[0]['response']) => void): Fault =>
  ({ kind, bytes, response }) => {
    if (kind !== 'blob') return false;
    act(bytes, response);
    return true;
  };
const changed = (bytes: Buffer): Buffer => {
  const copy = Buffer.from(bytes);
  copy.writeUInt8(copy.readUInt8(copy.length - 5) ^ 1, copy.length - 5);
  return copy;
};

/** Name, fault of the registry, class of the failure, and number of tries. */
const CORPUS: readonly (readonly [string, Fault, string, number])[] = [
  ['no such tag', status(404, { errors: [{ code: 'MANIFEST_UNKNOWN', message: 'manifest unknown' }] }), 'not_found', 1],
  ['no right to it', status(401, { errors: [{ code: 'UNAUTHORIZED', message: 'no' }] }), 'unauthorized', 1],
  ['a right it does not give', status(403, { errors: [{ code: 'DENIED', message: 'no' }] }), 'unauthorized', 1],
  [
    'a manifest that is none',
    ({ kind, response }) => {
      if (kind !== 'manifest') return false;
      const type = 'application/vnd.docker.distribution.manifest.v2+json';
      response.writeHead(200, { 'content-type': type }).end('{"schemaVersion":2,"layers":');
      return true;
    },
    'bad_manifest',
    1,
  ],
  ['429', status(429, { errors: [{ code: 'TOOMANYREQUESTS', message: 'slow down' }] }), 'busy', 3],
  ['500 as a page', status(500, '<html>'), 'busy', 3],
  ['503', status(503, { errors: [] }), 'busy', 3],
  [
    'a truncated layer',
    onBlob((bytes, response) => {
      response.writeHead(200, { 'content-length': bytes.length });
      response.write(bytes.subarray(0, bytes.length / 2), () => response.destroy());
    }),
    'busy',
    3,
  ],
  [
    'a layer that ends early and clean',
    onBlob((bytes, response) => {
      const half = bytes.subarray(0, Math.floor(bytes.length / 2));
      response.writeHead(200, { 'content-length': half.length }).end(half);
    }),
    '(corrupt|busy|bad_manifest)',
    -1,
  ],
  [
    'a layer of another digest',
    onBlob((bytes, response) => response.writeHead(200, { 'content-length': bytes.length }).end(changed(bytes))),
    'corrupt',
    3,
  ],
  ['silence', ({ kind }) => kind === 'manifest', 'busy', 3],
];

describe.skipIf(whyNoHosts !== undefined).each(['engine', 'agent'] as const)('the %s asks the registry', (asker) => {
  beforeAll(() => {
    runtime = asker === 'engine' ? engine : guardedRuntime(engine, proxy);
  });
  const add = (name: string, layerBytes?: number) => registry.add(`${asker}/${name}`, layerBytes);

  describe('Pull 429, 5xx, truncated, error line', () => {
    test.for(CORPUS)('%s is never success, and fails by its name', async ([name, fault, failure, tries]) => {
      const { reference } = add(`corpus/${name.replaceAll(/[^a-z0-9]/g, '')}x`);
      registry.fault = fault;
      const { images: own, results, permits } = images({ tries: 3, silenceMs: 500 });
      const error: unknown = await own.ensure(reference, () => undefined).catch((one: unknown) => one);
      const met = new RegExp(`^cannot pull image ${reference}: .*\\((${failure})\\); `).exec(messageOf(error))?.[1];
      expect(met, messageOf(error)).toBeDefined();
      // Only what the registry says about the image is the fault of its user.
      expect(error).toMatchObject({ code: met === 'busy' ? 'registry_busy' : 'image_error' });
      if (tries > 0) expect(results).toHaveLength(tries);
      // Each try returns its permit.
      expect(permits).toHaveLength(results.length);
      expect(await runtime.image(reference)).toBeUndefined();
    });

    test('a pull by digest of which the registry has other bytes fails', async () => {
      const [wanted, other] = [add('swap/one'), add('swap/two')];
      registry.fault = ({ kind, response, url }) => {
        if (kind !== 'manifest' || !url.includes('swap/one')) return false;
        void fetch(`http://${registry.host}/v2/${asker}/swap/two/manifests/1`).then(async (answer) => {
          const bytes = Buffer.from(await answer.arrayBuffer());
          const type = 'application/vnd.docker.distribution.manifest.v2+json';
          response.writeHead(200, { 'content-type': type, 'docker-content-digest': wanted.digest }).end(bytes);
        });
        return true;
      };
      const { images: own } = images({ tries: 1 });
      const pinned = pinnedTo(wanted.reference, wanted.digest);
      await expect(own.ensure(pinned, () => undefined)).rejects.toMatchObject({ code: 'image_error' });
      expect(await runtime.image(pinned)).toBeUndefined();
      expect(await runtime.image(pinnedTo(wanted.reference, other.digest))).toBeUndefined();
    });

    test('what passes is tried again, and then it is here, once', async () => {
      const { reference, digest } = add('passing');
      const { images: own, results } = images();
      // A single try may ask more than once.
      registry.fault = (request) => request.kind === 'manifest' && results.length < 2 && status(503)(request);
      const texts: string[] = [];
      const pinned = pinnedTo(reference, digest);
      expect(await own.ensure(pinned, (text) => texts.push(text))).toMatchObject({ was: 'pulled' });
      expect(results).toEqual(['busy', 'busy', 'ok']);
      expect(texts.some((text) => /pull 1 of 5 failed .*503.*trying again/.test(text))).toBe(true);
      expect(await own.ensure(pinned, () => undefined)).toMatchObject({ was: 'present' });
      expect((await runtime.image(pinned))?.digests).toContain(digest);
    });

    test('a registry that failed is left alone by every pull from it, and others are not', async () => {
      const broken = add('shared/broken');
      const fine = add('shared/fine');
      const other = new FakeRegistry();
      await other.start(network.gateway);
      const elsewhere = other.add('shared/elsewhere');
      registry.fault = (request) => request.url.includes('shared/broken') && status(503)(request);
      const { images: own, results } = images({ tries: 2, baseMs: 60_000, capMs: 60_000 });
      const failing = own.ensure(broken.reference, () => undefined).catch(() => undefined);
      await waitFor(() => results.includes('busy'), 'the first try failed');
      void own.ensure(fine.reference, () => undefined).catch(() => undefined);
      await own.ensure(elsewhere.reference, () => undefined);
      expect(registry.asked.filter((one) => one.includes('shared/fine'))).toEqual([]);
      expect(own.pulling).toEqual(new Set([broken.reference, fine.reference]));
      other.stop();
      void failing;
    });

    test('many starts at once pull it once', async () => {
      const { reference } = add('once', 200_000);
      const { images: own } = images();
      const all = await Promise.all(Array.from({ length: 20 }, () => own.ensure(reference, () => undefined)));
      expect(new Set(all.map(({ was }) => was))).toEqual(new Set(['pulled']));
      expect(registry.count('blob')).toBe(2);
      expect(new Set(registry.asked.filter((one) => one.startsWith('blob'))).size).toBe(2);
    });

    test('no more than two at once of one workspace on one machine, which pulls four', async () => {
      const waiting: (() => void)[] = [];
      registry.fault = ({ kind, bytes, response }) => {
        if (kind !== 'blob') return false;
        waiting.push(() => response.writeHead(200).end(bytes));
        return true;
      };
      const { images: own } = images();
      const all = Array.from({ length: 5 }, (_value, at) => own.ensure(add(`width/i${at}`).reference, () => undefined));
      const names = (): number => new Set(registry.asked.filter((one) => one.startsWith('manifest'))).size;
      await waitFor(() => names() === 2 && waiting.length >= 2, 'two have begun');
      registry.fault = () => false;
      for (const go of waiting) go();
      await Promise.all(all);
      expect(names()).toBe(5);
    });

    test('a machine waits for its turn among others, and says so', async () => {
      const { reference } = add('turn');
      let asked = 0;
      const { images: own, permits } = images({}, () =>
        Promise.resolve({ waitMs: (asked += 1) < 3 ? 20 : 0, place: 3 - asked, waiting: 3, auth: undefined }),
      );
      const texts: string[] = [];
      await own.ensure(reference, (text) => texts.push(text));
      expect(asked).toBe(3);
      expect(texts).toContain(`waits for its turn to pull ${reference}: place 2 of 3`);
      expect(permits).toEqual([`done ${reference}`]);
    });
  });

  test('a scheduler that is away for a moment costs an image that wants credentials no more than a try', async () => {
    const { reference } = add('locked');
    registry.credentials = 'user:word';
    const auth = { serverAddress: registry.host, username: 'user', password: 'word', identityToken: '' };
    let asked = 0;
    const { images: own, results } = images({}, () =>
      Promise.resolve((asked += 1) === 1 ? { waitMs: 0, auth: undefined, unasked: true } : { waitMs: 0, auth }),
    );
    await own.ensure(reference, () => undefined);
    expect(results).toEqual(['busy', 'ok']);
  });

  describe('a real registry', () => {
    test('with a password is pulled from with it, by tag and by digest, and without it not at all', async () => {
      const storage = tempDirectory('storage');
      const open = await realRegistry(storage.path, { host: network.gateway });
      const locked = await realRegistry(storage.path, { host: network.gateway, password: true });
      // A pull of the image takes longer than the time between two words about its progress.
      const slow = await throttleProxy(locked.host, IMAGE_BYTES / 1.5, network.gateway);
      try {
        // Only the engines of these hosts accept the registry without TLS, so the image is pushed through one of them.
        const pushed = `${open.host}/base:1`;
        const ofHost = ['-H', `unix://${host.socket}`];
        writeFileSync(join(storage.path, 'weights'), randomBytes(IMAGE_BYTES));
        await runProgram('tar', ['-C', storage.path, '-cf', join(storage.path, 'root.tar'), 'weights']);
        await runProgram('docker', [...ofHost, 'import', join(storage.path, 'root.tar'), pushed]);
        await runProgram('docker', [...ofHost, 'push', '-q', pushed]);
        await runProgram('docker', [...ofHost, 'rmi', '-f', pushed]);

        const reference = `${slow.address}/base:1`;
        const { images: without } = images();
        await expect(without.ensure(reference, () => undefined)).rejects.toThrow(
          /\(unauthorized\); give the workspace credentials/,
        );
        const auth: RegistryAuth = {
          serverAddress: slow.address,
          username: REGISTRY_USER,
          password: REGISTRY_PASSWORD,
          identityToken: '',
        };
        const digest = await runtime.registryDigest(reference, auth, 5000);
        expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
        await expect(runtime.registryDigest(reference, undefined, 5000)).rejects.toThrow(/no basic auth|unauthorized/);
        const { images: own } = images({}, () => Promise.resolve({ waitMs: 0, auth }));
        const texts: string[] = [];
        const pinned = pinnedTo(reference, digest);
        expect(await own.ensure(pinned, (text) => texts.push(text))).toMatchObject({ was: 'pulled' });
        expect(texts.some((text) => /\d+ of \d+ layers, \d+ of \d+ MB$/.test(text))).toBe(true);
        expect((await runtime.image(pinned))?.digests).toEqual([digest]);
        expect(await runtime.listImages()).toContain(pinned);
        // The tag leads to the same bytes, which are here.
        const blobs = (): number => locked.requests().filter((one) => one.includes('/blobs/')).length;
        const before = blobs();
        expect(await own.ensure(reference, () => undefined)).toMatchObject({ was: 'pulled' });
        expect(before).toBeGreaterThan(0);
        expect(blobs()).toBe(before);

        // Another workspace has no right to the image under any of its names, although it is here.
        const facts = await runtime.image(reference);
        const ledger = new ImageLedger(join(state.path, `${asker}.json`));
        const forMine = (_reference: string, workspaceId: string): Promise<PullPermit> =>
          Promise.resolve({ waitMs: 0, auth: workspaceId === MINE ? auth : undefined });
        const shared = images({}, forMine, ledger).images;
        const remove = async (): Promise<void> => {
          for (const name of [reference, pinned]) await runtime.removeImage(name);
          expect([await runtime.image(reference), await runtime.image(pinned)]).toEqual([undefined, undefined]);
        };
        await remove();
        expect(await shared.ensure(reference, () => undefined, MINE)).toMatchObject({ was: 'pulled' });
        expect(await shared.ensure(reference, () => undefined, MINE)).toMatchObject({ was: 'present' });
        for (const name of [reference, pinned, facts?.id ?? '', (facts?.id ?? '').slice(7, 19)]) {
          const refused = shared.ensure(name, () => undefined, OTHERS);
          const why = name.includes('/') ? 'its registry does not give it to this workspace' : 'could be an id';
          await expect(refused).rejects.toMatchObject({
            code: 'image_error',
            message: expect.stringContaining(why) as string,
          });
        }
        // A restarted agent reads the rights from its file.
        const again = new ImageLedger(join(state.path, `${asker}.json`));
        await again.open();
        const later = images({}, forMine, again).images;
        await expect(later.ensure(reference, () => undefined, OTHERS)).rejects.toMatchObject({ code: 'image_error' });
        expect(await later.ensure(reference, () => undefined, MINE)).toMatchObject({ was: 'present' });
        // Credentials that the registry accepts prove the right; a wrong password does not.
        const withAuth = (password: string) =>
          images({}, () => Promise.resolve({ waitMs: 0, auth: { ...auth, password } }), again).images;
        await expect(withAuth('guess').ensure(reference, () => undefined, OTHERS)).rejects.toThrow(/unauthorized/);
        expect(await withAuth(REGISTRY_PASSWORD).ensure(reference, () => undefined, OTHERS)).toMatchObject({
          was: 'present',
        });
        // The other workspace cannot pull the image either, even while its owner pulls it.
        await remove();
        const [own1, other1] = await Promise.allSettled([
          shared.ensure(reference, () => undefined, MINE),
          images({}, forMine, ledger).images.ensure(reference, () => undefined, 'workspace-3'),
        ]);
        expect([own1.status, other1.status]).toEqual(['fulfilled', 'rejected']);
      } finally {
        slow.stop();
        await Promise.all([open.stop(), locked.stop()]);
        storage.remove();
      }
    });
  });
});

// Turns of pulls: what a machine does while others pull the same image, and whose fault a pull is that cannot begin.
import { expect, test, vi } from 'vitest';
import type { Log } from '#shared/log.ts';
import { AppError } from '#shared/errors.ts';
import type { PullOptions } from '#agent/containers/runtime.ts';
import { Images, PULL_SETTINGS } from '#agent/images/images.ts';
import type { ImagesParts, PullSettings } from '#agent/images/images.ts';
import type { PullPermit } from '#agent/images/turns.ts';
import { startFailure } from '#agent/reconcile/starting.ts';

const quiet = { info: () => undefined, warn: () => undefined } as unknown as Log;
const digest = `sha256:${'a'.repeat(64)}`;
const FAST: Partial<PullSettings> = { baseMs: 1, capMs: 2 };

interface World {
  permit: (name: string) => PullPermit;
  isDiskLow?: () => boolean;
  isDiskFull?: () => boolean;
  /** Bound on an image; absent: none. */
  maxBytes?: number;
  /** Bytes of each image, unpacked. */
  bytes?: number;
  /** Words about the configuration of an image; absent: it is within its bounds. */
  configProblem?: string;
  /** The engine's pull; absent: it succeeds at once. */
  pull: (signal: AbortSignal, name: string, onProgress: PullOptions['onProgress']) => Promise<void>;
}

function aMachine(changes: Partial<World>, settings: Partial<PullSettings> = {}) {
  const world: World = { permit: () => ({ waitMs: 0, auth: undefined }), pull: () => Promise.resolve(), ...changes };
  const here = new Set<string>();
  const said: string[] = [];
  const evicted: string[] = [];
  const released: string[] = [];
  const images = new Images({
    runtime: {
      image: (name) =>
        Promise.resolve(
          here.has(name)
            ? {
                id: name,
                digests: [digest],
                isLocal: false,
                bytes: world.bytes ?? 1,
                builtFor: '',
                ...(world.configProblem === undefined ? {} : { configProblem: world.configProblem }),
              }
            : undefined,
        ),
      registryDigest: () => Promise.resolve(digest),
      removeImage: (name) => Promise.resolve(here.delete(name)),
      pull: async (name, { signal, onProgress }) => {
        await world.pull(signal, name, onProgress);
        here.add(name);
        return digest;
      },
    },
    permit: (name) => Promise.resolve(world.permit(name)),
    built: { host: undefined, adopt: () => Promise.resolve() },
    makeBase: () => Promise.reject(new Error('this machine makes no base images')),
    rights: { require: () => Promise.resolve() },
    release: (name, end) => void released.push(`${name} ${end}`),
    isDiskLow: () => Promise.resolve(world.isDiskLow?.() ?? false),
    isDiskFull: () => Promise.resolve(world.isDiskFull?.() ?? false),
    maxBytes: () => Promise.resolve(world.maxBytes ?? Number.POSITIVE_INFINITY),
    makeRoom: () => {
      evicted.push('an image');
      return Promise.resolve(true);
    },
    onFull: () => void evicted.push('all places'),
    onUsed: () => undefined,
    onPulled: () => Promise.resolve(),
    metrics: { pullEnded: () => undefined, pullBytes: () => undefined, pullsActive: () => undefined },
    log: quiet,
    settings: { ...PULL_SETTINGS, ...FAST, ...settings },
  } satisfies ImagesParts);
  const ensure = (name = 'registry.test/app:1', workspaceId = '', signal?: AbortSignal) =>
    images.ensure(name, (text) => said.push(text), workspaceId, signal);
  const failed = async (name?: string) =>
    startFailure(
      await ensure(name).then(
        () => new Error('it was pulled'),
        (error: unknown) => error,
      ),
    );
  return { world, here, said, evicted, released, ensure, failed };
}

test('a machine that waits for its turn longer than a pull may take pulls then, within the whole of that time', async () => {
  const from = performance.now();
  const { ensure } = aMachine(
    {
      permit: () => ({ waitMs: performance.now() - from < 400 ? 20 : 0, auth: undefined }),
      pull: (signal) =>
        new Promise((resolve, reject) => {
          setTimeout(resolve, 100);
          signal.addEventListener('abort', () => reject(new Error('aborted')));
        }),
    },
    { totalMs: 200 },
  );
  expect(await ensure()).toMatchObject({ was: 'pulled' });
});

test.each([
  'toomanyrequests: You have reached your pull rate limit',
  'received unexpected HTTP status: 503 Service Unavailable',
  'Get "https://registry.test/v2/": dial tcp 10.0.0.1:443: i/o timeout',
])('a registry that is busy is no fault of the image: %s', async (text) => {
  const { failed } = aMachine({ pull: () => Promise.reject(new Error(text)) });
  expect((await failed()).reason).toBe('registry_busy');
});

test('a pull that was not over in time is no fault of the image', async () => {
  const { failed } = aMachine(
    {
      pull: (signal) =>
        new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('the pull was given up')))),
    },
    { totalMs: 50 },
  );
  const note = await failed();
  expect(note.reason).toBe('registry_busy');
  expect(note.message).toContain('registry.test/app:1');
});

test('an engine that does not answer is no fault of the image', async () => {
  const { EngineError } = await import('#agent/containers/runtime.ts');
  const { failed } = aMachine({ pull: () => Promise.reject(new EngineError('unavailable', 'connect ENOENT')) });
  expect((await failed()).reason).toBe('start_failed');
});

test('a name that the registry does not have stays the fault of the image', async () => {
  const { failed } = aMachine({ pull: () => Promise.reject(new Error('manifest unknown: manifest unknown')) });
  expect((await failed()).reason).toBe('image_error');
  const typo = aMachine({ pull: () => Promise.reject(new Error('dial tcp: lookup registri.test: no such host')) });
  expect((await typo.failed()).reason).toBe('registry_unreachable');
  expect(new AppError('image_error', 'x').code).toBe('image_error');
});

test.each([
  'manifest for registry.test/app:1 not found: manifest unknown: no space left on device',
  'unknown: no space left on device',
  'error parsing HTTP 404 response body: invalid character \'n\': "no space left on device"',
  'received unexpected HTTP status: 599 no space left on device',
])('the words of a registry evict nothing and close no machine: %s', async (text) => {
  const { failed, evicted } = aMachine({ pull: () => Promise.reject(new Error(text)), isDiskLow: () => true });
  expect((await failed()).reason).not.toBe('disk_full');
  expect(evicted).toEqual([]);
});

test('a disk counts as full when its file system agrees with the engine', async () => {
  const pull = () => Promise.reject(new Error('failed to register layer: write /x: no space left on device'));
  const full = aMachine({ pull, isDiskLow: () => true });
  expect((await full.failed()).reason).toBe('disk_full');
  expect(full.evicted).toEqual(['an image', 'all places']);
  const roomy = aMachine({ pull, isDiskLow: () => false });
  expect((await roomy.failed()).reason).toBe('start_failed');
  expect(roomy.evicted).toEqual([]);
});

test('a disk that was full while the engine said nothing counts, although the engine has removed the layer', async () => {
  let onLook: (() => void) | undefined;
  const { failed, evicted } = aMachine({
    pull: async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      onLook = resolve;
      setTimeout(resolve, 5_000).unref();
      await promise;
      onLook = undefined;
      throw new Error('failed to register layer: write /x: no space left on device');
    },
    isDiskLow: () => {
      if (onLook !== undefined) setImmediate(onLook);
      return onLook !== undefined;
    },
  });
  expect((await failed()).reason).toBe('disk_full');
  expect(evicted).toEqual(['an image', 'all places']);
});

const until = (holds: () => boolean) => vi.waitFor(() => expect(holds()).toBe(true));

test('registries that hang for one workspace leave places of the machine to others, and their images hold no turn', async () => {
  const [asked, begun]: [string[], string[]] = [[], []];
  const { ensure } = aMachine({
    permit: (name) => {
      asked.push(name);
      return { waitMs: 0, auth: undefined };
    },
    pull: (_signal, name) => {
      begun.push(name);
      return name.startsWith('hangs') ? new Promise(() => undefined) : Promise.resolve();
    },
  });
  const names = [1, 2, 3, 4, 5].map((at) => `hangs.test/${at}:1`);
  for (const name of names) void ensure(name, 'tenant').catch(() => undefined);
  await until(() => begun.length === 2);
  expect(await ensure('registry.test/app:1', 'other')).toMatchObject({ was: 'pulled' });
  expect(begun.filter((name) => name.startsWith('hangs'))).toHaveLength(2);
  // The others asked together with the first ones at most, and wait without a turn now.
  expect(asked.filter((name) => name.startsWith('hangs')).length).toBeLessThanOrEqual(5);
});

test('a turn that finds no place on its machine is given back, and its image is pulled when there is one', async () => {
  const ends: (() => void)[] = [];
  const turns = new Set<string>();
  const { ensure, released } = aMachine(
    {
      permit: (name) => ({ waitMs: turns.has(name) || name.startsWith('registry.test/1') ? 0 : 5, auth: undefined }),
      pull: () => new Promise((resolve) => ends.push(resolve)),
    },
    { atOnce: 1 },
  );
  const [slow, quick] = [ensure('registry.test/2:1', 'a'), ensure('registry.test/1:1', 'b')];
  await until(() => ends.length === 1);
  turns.add('registry.test/2:1');
  await until(() => released.includes('registry.test/2:1 again'));
  ends[0]?.();
  expect(await quick).toMatchObject({ was: 'pulled' });
  await until(() => ends.length === 2);
  ends[1]?.();
  expect(await slow).toMatchObject({ was: 'pulled' });
});

test('a pull ends when nothing needs its image any more, and goes on while something does', async () => {
  const aborted: string[] = [];
  const ends: (() => void)[] = [];
  const { ensure, released } = aMachine({
    pull: (signal, name) =>
      new Promise((resolve, reject) => {
        ends.push(resolve);
        signal.addEventListener('abort', () => {
          aborted.push(name);
          reject(new Error('it took too long'));
        });
      }),
  });
  const [one, two] = [new AbortController(), new AbortController()];
  const both = [one, two].map(({ signal }) => ensure('registry.test/app:1', 'w', signal).catch(() => 'given up'));
  await until(() => ends.length === 1);
  one.abort();
  expect(await both[0]).toBe('given up');
  expect(aborted).toEqual([]);
  two.abort();
  expect(await both[1]).toBe('given up');
  await until(() => released.includes('registry.test/app:1 failed'));
  expect(aborted).toHaveLength(1);
  // A later caller has it pulled anew.
  const anew = ensure('registry.test/app:1', 'w');
  await until(() => ends.length === 2);
  ends[1]?.();
  expect(await anew).toMatchObject({ was: 'pulled' });
});

test('a pull that is tried again keeps its place in the line', async () => {
  let tries = 0;
  const { ensure, released } = aMachine({
    pull: () => (++tries < 3 ? Promise.reject(new Error('unexpected EOF')) : Promise.resolve()),
  });
  await ensure();
  expect(released.map((text) => text.split(' ')[1])).toEqual(['again', 'again', 'pulled']);
});

const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('it took too long'))));

test('a pull ends before it takes the last room of the disk, and nobody’s image is at fault', async () => {
  let begun = 0;
  const { failed, evicted } = aMachine({
    pull: (signal) => {
      begun += 1;
      return untilAborted(signal);
    },
    isDiskLow: () => begun > 0,
    isDiskFull: () => begun > 0,
  });
  expect((await failed()).reason).toBe('disk_full');
  expect(evicted).toEqual(['an image', 'all places']);
  expect(begun).toBe(2);
});

test('an image that is larger than the machine takes ends while it is pulled, evicts nothing and is not tried again', async () => {
  let begun = 0;
  const machine = aMachine({
    pull: (signal, _name, onProgress) => {
      begun += 1;
      const ending = untilAborted(signal);
      onProgress({ doneBytes: 1, totalBytes: 5_000_000_001, layersDone: 0, layers: 1 });
      return ending;
    },
    maxBytes: 5_000_000_000,
    isDiskLow: () => true,
  });
  const { reason, message } = await machine.failed();
  expect(reason).toBe('image_error');
  expect(message).toContain('image registry.test/app:1 is too large: it has 5 GB, and this machine takes 5 GB');
  expect(message).toContain('LONGSHORE_AGENT_IMAGE_MIB');
  expect([begun, machine.evicted]).toEqual([1, []]);
});

test('an image that unpacks to more than the machine takes is removed', async () => {
  const machine = aMachine({ bytes: 9_000_000_000, maxBytes: 5_000_000_000 });
  const { reason, message } = await machine.failed();
  expect([reason, [...machine.here]]).toEqual(['image_error', []]);
  expect(message).toContain('is too large: it has 9 GB, and this machine takes 5 GB');
});

test('an image whose configuration is too large is not used: pulled now, it is removed at once, and no try repeats it', async () => {
  let pulls = 0;
  const configProblem = 'has 65535 ports (EXPOSE), and an image may have 20000: make it again with fewer';
  const machine = aMachine({ configProblem, pull: () => Promise.resolve(void (pulls += 1)) });
  const { reason, message } = await machine.failed();
  expect(reason).toBe('image_error');
  expect(message).toBe(`image registry.test/app:1 ${configProblem}`);
  expect(machine.here).toEqual(new Set());
  expect(pulls).toBe(1);
  // An image that is here from before is refused as well.
  machine.here.add('registry.test/app:1');
  expect((await machine.failed()).message).toContain('65535 ports');
  expect(pulls).toBe(1);
});

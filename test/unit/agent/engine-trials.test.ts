// The engine is a stand-in here, at the port to it.
// test/hosts/engine-starts.test.ts has a real engine that starts nothing.
import { expect, test as base } from 'vitest';
import { AppError } from '#shared/errors.ts';
import { createLog } from '#shared/log.ts';
import { EngineTrials } from '../../../agent/containers/engine-trials.ts';
import { EngineError } from '../../../agent/containers/runtime.ts';
import type { ContainerRuntime } from '../../../agent/containers/runtime.ts';
import { Conditions } from '../../../agent/telemetry/conditions.ts';

const WORDS = 'cannot start the container: OCI runtime create failed: namespace does not exist';
const refused = (): EngineError => new EngineError('refused', WORDS);

interface World {
  readonly trials: EngineTrials;
  readonly conditions: Conditions;
  /** Exit code of a trial, or its error. */
  engine: () => Promise<number>;
  readonly results: string[];
}

const test = base.extend('world', async ({ task: _task }, { onCleanup }): Promise<World> => {
  const world: World = {
    conditions: new Conditions(),
    engine: () => Promise.resolve(0),
    results: [],
    trials: new EngineTrials({
      runtime: {
        image: async () => ({ id: 'sha256:1', digests: [], isLocal: true, bytes: 1, builtFor: '' }),
        ensureNetwork: async () => ({ bridge: '', gateways: [], subnets: [] }),
        runOnce: () => world.engine(),
      } satisfies Partial<ContainerRuntime> as unknown as ContainerRuntime,
      network: 'n',
      labels: () => ({}),
      conditions: { set: (name, holds, words) => world.conditions.set(name, holds, words) },
      onTrial: (result) => world.results.push(result),
      log: createLog({ name: 'test', level: 'silent' }),
      again: { baseMs: 1, capMs: 2 },
    }),
  };
  onCleanup(() => world.trials.close());
  return world;
});

test('an engine that starts nothing is a condition with its words, until it starts something', async ({ world }) => {
  world.engine = () => Promise.reject(refused());
  expect(await world.trials.blamed(refused())).toBe(WORDS);
  expect(world.conditions.names).toEqual(['EngineCannotStart']);
  expect(world.conditions.words).toEqual({ EngineCannotStart: WORDS });
  await expect.poll(() => world.results.length).toBeGreaterThan(2);
  world.engine = () => Promise.resolve(0);
  await expect.poll(() => world.conditions.names).toEqual([]);
  expect(world.conditions.words).toEqual({});
  expect(await world.trials.blamed(refused())).toBeUndefined();
});

test('many starts that fail at once are one trial, and while it holds no more', async ({ world }) => {
  const going = Promise.withResolvers<number>();
  world.engine = () => going.promise;
  const failed = Array.from({ length: 20 }, () => world.trials.blamed(refused()));
  going.reject(refused());
  expect(new Set(await Promise.all(failed))).toEqual(new Set([WORDS]));
  expect(world.results.filter((result) => result === 'failed')).toHaveLength(1);
});

test("a container that alone does not start is its own fault, and a tenant's thousand of them are one trial", async ({
  world,
}) => {
  for (let n = 0; n < 1000; n += 1) expect(await world.trials.blamed(refused())).toBeUndefined();
  expect(world.results).toEqual(['ok']);
  expect(world.conditions.names).toEqual([]);
});

test('a pause container that the engine refuses is seen through its frame', async ({ world }) => {
  world.engine = () => Promise.resolve(127);
  const error = new AppError('network_error', 'cannot prepare the network', { cause: refused() });
  expect(await world.trials.blamed(error)).toBe('a container that does nothing exited with 127');
});

test.for([
  ['an engine that does not answer', new EngineError('unavailable', 'no answer')],
  ['an image without a program', new AppError('image_error', 'no image')],
  ['a mount', new EngineError('mount_refused', 'no such device')],
] as const)('%s is no reason for a trial', async ([, error], { world }) => {
  expect(await world.trials.blamed(error)).toBeUndefined();
  expect(world.results).toEqual([]);
});

test('an engine that does not answer a trial is not said to start nothing', async ({ world }) => {
  world.engine = () => Promise.reject(new EngineError('unavailable', 'no answer'));
  expect(await world.trials.blamed(refused())).toBeUndefined();
  expect(world.results).toEqual(['unknown']);
  expect(world.conditions.names).toEqual([]);
});

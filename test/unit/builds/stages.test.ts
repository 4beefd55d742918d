// Layers that the engine's builder makes: each is looked at before the build goes on from it.
import { expect, test } from 'vitest';
import { readOrder } from '#agent/builds/assemble.ts';
import { runStages } from '#agent/builds/stages.ts';
import type { StagesParts, Work } from '#agent/builds/stages.ts';

const PROBLEM = 'has 5000 ports, and may have 64';
interface Config {
  readonly configProblem?: string;
}

/** Builds `FROM one`, and looks at its layer by `configOf`. */
async function built(configOf: (imageId: string) => Promise<Config | undefined>, onRemove = async () => true) {
  const removed: string[] = [];
  const runtime = {
    build: async () => ({ kind: 'built', imageId: 'sha256:layer' }),
    imageConfig: (imageId: string) => (imageId === 'sha256:base' ? Promise.resolve({}) : configOf(imageId)),
    removeImage: async (imageId: string) => {
      removed.push(imageId);
      return await onRemove();
    },
  };
  const read = readOrder([{ text: 'FROM one:1', title: '' }]);
  if (read.kind === 'problem') throw new Error(read.problem);
  const work = {
    build: { order: { noCache: false, gpus: [] }, link: { writable: false }, abort: new AbortController() },
    steps: read.steps,
    isApart: () => false,
    bases: new Map([['one:1', { id: 'sha256:base', architecture: 'amd64' }]]),
    labels: {},
    mounts: [],
    written: { engine: () => undefined, layer: () => undefined },
  } as unknown as Work;
  const end = await runStages({ runtime, limits: {}, variables: {} } as unknown as StagesParts, work).catch(
    (error: unknown) => error,
  );
  return { end, removed };
}

test('a layer whose configuration is within its bounds stays, and is the image', async () => {
  expect(await built(async () => ({}))).toEqual({ end: { imageId: 'sha256:layer' }, removed: [] });
});

test('a layer that has too much fails the build with the reason, and goes at once', async () => {
  const { end, removed } = await built(async () => ({ configProblem: PROBLEM }));
  expect(end).toMatchObject({ failed: { failed: `the image of these steps ${PROBLEM}` } });
  expect(removed).toEqual(['sha256:layer']);
});

test('a layer that the engine cannot show goes at once, and the engine’s error is the build’s', async () => {
  const error = new Error('invalid character in its configuration');
  expect(await built(() => Promise.reject(error))).toEqual({ end: error, removed: ['sha256:layer'] });
});

test('a layer that cannot be removed hides neither the reason nor the error', async () => {
  const away = () => Promise.reject(new Error('the engine is away'));
  const error = new Error('cannot look for image');
  expect((await built(() => Promise.reject(error), away)).end).toBe(error);
  expect((await built(async () => ({ configProblem: PROBLEM }), away)).end).toMatchObject({
    failed: { failed: `the image of these steps ${PROBLEM}` },
  });
});

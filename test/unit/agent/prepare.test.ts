import { expect, test } from 'vitest';
import type { ImageFacts } from '../../../agent/containers/runtime.ts';
import { ImagePreparer } from '../../../agent/images/prepare.ts';
import type { Log } from '#shared/log.ts';
import type { ImagePrepared } from '#shared/protocol/generated/messages.ts';

const quiet = { info: () => undefined, warn: () => undefined } as unknown as Log;
const digest = `sha256:${'a'.repeat(64)}`;
const image = 'registry.test/app:1';

interface Machine {
  /** Images on the engine. */
  readonly has?: Readonly<Record<string, readonly string[]>>;
  /** References and ids that the agent pulled. */
  readonly pulled?: readonly string[];
  readonly registry: () => Promise<string>;
}

function aPreparer({ has = {}, pulled = [], registry }: Machine) {
  const answers: ImagePrepared[] = [];
  const facts = (reference: string): ImageFacts | undefined => {
    const digests = has[reference];
    return digests && { id: `id of ${reference}`, digests, isLocal: digests.length === 0, bytes: 1, builtFor: '' };
  };
  const preparer = new ImagePreparer({
    runtime: { image: (reference) => Promise.resolve(facts(reference)), registryDigest: registry },
    images: { ensure: () => Promise.resolve({ id: 'sha256:1', was: 'present' }) },
    isOurs: (reference, imageId) => pulled.includes(reference) || pulled.includes(imageId),
    imageOf: (reference) => reference,
    answer: (answer) => answers.push(answer),
    log: quiet,
  });
  const ask = (reference = image, requestId = 'r') =>
    preparer.take({
      requestId,
      image: reference,
      pythonVersion: '',
      resolve: true,
      pull: false,
      digest: '',
      workspaceId: '',
      auth: null,
    });
  return { answers, ask };
}

const no = (text: string) => () => Promise.reject(new Error(text));

test.each([
  ['unauthorized: authentication required', 'unauthorized'],
  ['manifest unknown', 'not_found'],
])('an image that this agent pulled is not given out against the word of its registry: %s', async (text, failure) => {
  for (const pulled of [image, `registry.test/app@${digest}`]) {
    const { answers, ask } = aPreparer({ has: { [image]: [digest] }, pulled: [pulled], registry: no(text) });
    await ask();
    expect(answers).toMatchObject([{ failure, message: expect.stringContaining(image) as string }]);
  }
});

test('nor by its digest', async () => {
  const pinned = `registry.test/app@${digest}`;
  const { answers, ask } = aPreparer({ has: { [pinned]: [digest] }, pulled: [pinned], registry: no('unauthorized') });
  await ask(pinned);
  expect(answers).toMatchObject([{ failure: 'unauthorized' }]);
});

test('nor by its digest, where the agent pulled it by a tag', async () => {
  const pinned = `registry.test/app@${digest}`;
  const pulled = [image, `id of ${pinned}`];
  const { answers, ask } = aPreparer({ has: { [pinned]: [digest] }, pulled, registry: no('unauthorized') });
  await ask(pinned);
  expect(answers).toMatchObject([{ failure: 'unauthorized' }]);
});

test('what somebody else put on the machine stays what it is', async () => {
  const { answers, ask } = aPreparer({ has: { [image]: [digest] }, registry: no('unauthorized') });
  await ask();
  expect(answers).toEqual([{ requestId: 'r', digest }]);
});

test('so does what was pulled, while its registry cannot be asked', async () => {
  const { answers, ask } = aPreparer({ has: { [image]: [digest] }, pulled: [image], registry: no('i/o timeout') });
  await ask();
  expect(answers).toEqual([{ requestId: 'r', digest }]);
});

test('registries are asked a few questions at once; beyond a bound the answer is "busy"', async () => {
  let open = 0;
  let most = 0;
  const waiting: (() => void)[] = [];
  const { answers, ask } = aPreparer({
    registry: async () => {
      most = Math.max(most, (open += 1));
      await new Promise<void>((resolve) => waiting.push(resolve));
      open -= 1;
      return digest;
    },
  });
  const questions = Array.from({ length: 100 }, (_, at) => ask(`registry.test/app:${at}`, `${at}`));
  await new Promise(setImmediate);
  expect(open).toBeLessThanOrEqual(8);
  const refused = answers.filter((answer) => answer.failure === 'busy').length;
  expect(refused).toBeGreaterThan(50);
  while (answers.length < 100) {
    waiting.shift()?.();
    await new Promise(setImmediate);
  }
  await Promise.all(questions);
  expect(most).toBeLessThanOrEqual(8);
  expect(answers.filter((answer) => answer.digest === digest)).toHaveLength(100 - refused);
});

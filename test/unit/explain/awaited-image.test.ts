import { expect, test } from 'vitest';
import { awaitedImageTexts } from '#scheduler/api/explain/images.ts';
import type { AwaitedImage } from '#scheduler/api/explain/images.ts';

const anImage = (over: Partial<AwaitedImage> = {}): AwaitedImage => ({
  id: `longshore.internal/${'a'.repeat(32)}`,
  state: 'READY',
  error: '',
  isInRegistry: false,
  pushError: '',
  machines: [{ id: 'm1', health: 'LOST' }],
  hasRegistry: false,
  ...over,
});

test.each([
  [anImage({ state: 'BUILDING' }), [/is being built now: `longshore image show a{32}`/]],
  [anImage(), [/only on machine m1 \(LOST\)/, /`longshore up --registry`/]],
  [anImage({ machines: [] }), [/on no machine, and is built again/, /registry/]],
  [
    anImage({ state: 'FAILED', error: 'no room\nmore', machines: [] }),
    [/could not be built again: no room; .*longer pauses/, /on no machine/, /registry/],
  ],
  [anImage({ hasRegistry: true, pushError: 'denied' }), [/only on machine/, /not in the registry: denied/]],
  [anImage({ hasRegistry: true, isInRegistry: true }), [/cannot pull it/]],
])('an image that is awaited: %#', (image, expected) => {
  const texts = awaitedImageTexts(image);
  expect(texts).toEqual(expected.map((text) => expect.stringMatching(text) as string));
});

test('an image that the workspace does not have any more', () => {
  expect(awaitedImageTexts(undefined)).toEqual([expect.stringContaining('deploy again') as string]);
});

// The name that a misspelt one is near to.
import { expect, test } from 'vitest';
import { nearName } from '#cli/near-name.ts';

test.for([
  ['helo', 'hello'],
  ['HELLO', 'hello'],
  ['hello-worlds', 'hello-world'],
  ['shop', undefined],
  ['hi', undefined],
] as const)('%s is near to %s', ([value, near]) => {
  expect(nearName(value, ['hello', 'hello-world', 'a', 'bc'])).toBe(near);
});

import { expect, test } from 'vitest';
import { nameProblem } from '#shared/domain/deployment-names.ts';

test.each([
  ['public', 'a deployment cannot be called public: its URL has another meaning. Choose another name'],
  ['zed/v2', 'a deployment cannot be called zed/v2: commands read it as version 2 of zed. Choose another name'],
  ['a/b/v10', 'a deployment cannot be called a/b/v10: commands read it as version 10 of a/b. Choose another name'],
  [
    'endpoint/zed',
    'a deployment cannot be called endpoint/zed: commands read it as the endpoint zed. Choose another name',
  ],
])('a name that means something else is refused: %s', (name, text) => {
  expect(nameProblem(name)).toBe(text);
});

test('a name that looks like an id is refused', () => {
  expect(nameProblem('0B0E8A4C-1111-4222-8333-444455556666')).toMatch(/commands read it as an id/);
});

test.each(['zed', 'v2', 'zed/v', 'zed/v0', 'zed/v2b', 'team/zed', 'endpoints/zed', 'my endpoint/ä', 'ids', 'Public'])(
  'another name may be had: %s',
  (name) => {
    expect(nameProblem(name)).toBeUndefined();
  },
);

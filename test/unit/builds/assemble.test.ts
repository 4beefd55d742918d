// The Dockerfile that the engine gets.
import { expect, test } from 'vitest';
import { assemble, basesOf, instructionsOf } from '#agent/builds/assemble.ts';

const steps = (...texts: string[]) => texts.map((text) => ({ text, title: text.startsWith('RUN') ? 'a title' : '' }));

test('images go by their ids, and every stage gets labels, certificates and variables first', () => {
  const ordered = steps(
    'FROM --platform=x a:1 AS b',
    'RUN x',
    'FROM b',
    'COPY --from=other:2 /a /b',
    'COPY --from=b /a /b',
  );
  const instructions = instructionsOf(ordered) ?? [];
  expect(basesOf(instructions)).toEqual(['a:1', 'other:2']);
  const { dockerfile, titles } = assemble(ordered, instructions, {
    ids: new Map([
      ['a:1', 'sha256:aa'],
      ['other:2', 'sha256:bb'],
    ]),
    labels: { one: 'm', two: 'w"s' },
    args: ['PIP_CERT'],
    certificates: { from: '.ca', to: '/ca' },
  });
  const ours = ['LABEL one="m" two="w\\"s"', 'COPY .ca /ca', 'ARG PIP_CERT'];
  expect(dockerfile.trimEnd().split('\n')).toEqual([
    'FROM --platform=x sha256:aa AS b',
    ...ours,
    'RUN x',
    'FROM b',
    ...ours,
    'COPY --from=sha256:bb /a /b',
    'COPY --from=b /a /b',
  ]);
  expect(titles.map((title) => title === undefined)).toEqual([
    false,
    true,
    true,
    true,
    false,
    false,
    true,
    true,
    true,
    false,
    false,
  ]);
  expect(titles[4]).toBe('a title');
});

test('an order with a line that no build may have is refused as a whole', () => {
  expect(instructionsOf(steps('FROM a', 'ONBUILD RUN x'))).toBeUndefined();
  expect(instructionsOf(steps('FROM a\nRUN x'))).toBeUndefined();
  expect(instructionsOf([])).toBeUndefined();
});

import { expect, test } from 'vitest';
import { fitted } from '#cli/screen.ts';

const red = (text: string): string => `\u001b[31m${text}\u001b[39m`;

test.for([
  ['plain', 10, 'plain'],
  ['a line that is too long', 6, 'a line'],
  // A colour takes no place, and a line that is cut has none.
  [`${red('ERROR')} x`, 7, `${red('ERROR')} x`],
  [`${red('ERROR')} x`, 6, 'ERROR '],
  // Orders other than colours are no orders any more.
  ['\u001b[2Jx', 10, '\u{fffd}[2Jx'],
  [`${red('a\u001b]0;title\u0007')}`, 20, red('a\u{fffd}]0;title\u{fffd}')],
] as const)('%j in %d columns', ([line, columns, shown]) => {
  expect(fitted(line, columns)).toBe(shown);
});

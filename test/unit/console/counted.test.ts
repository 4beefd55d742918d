import { expect, test } from 'vitest';
import { counted, readyOf } from '../../../console/parts/counted.ts';

test('numbers have their word', () => {
  expect([counted(0, 'machine'), counted(1, 'machine'), counted(2, 'GPU')]).toEqual([
    '0 machines',
    '1 machine',
    '2 GPUs',
  ]);
});

test('ready ones are told of those that are wanted, and alone where more are ready', () => {
  expect([readyOf(1, 4), readyOf(4, 4), readyOf(1, 0)]).toEqual(['1 of 4', '4 of 4', '1']);
});

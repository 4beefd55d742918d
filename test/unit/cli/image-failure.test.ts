import { expect, test } from 'vitest';
import { withoutShown } from '#cli/deploy/image.ts';

test.for([
  [
    'lines that were shown are not told again',
    'step 2 of 3 failed (RUN make): exit code 2\nmake: *** [all] Error 2\nstop\n',
    ['cc -o app', 'make: *** [all] Error 2', '  stop'],
    'step 2 of 3 failed (RUN make): exit code 2',
  ],
  [
    'lines that nobody saw are',
    'step 2 of 3 failed (RUN make): exit code 2\nkilled by the machine',
    ['cc -o app'],
    'step 2 of 3 failed (RUN make): exit code 2\nkilled by the machine',
  ],
  ['a single line stays, also where it was shown', 'no space is left', ['no space is left'], 'no space is left'],
] as const)('of a failed build, %s', ([, failure, shown, told]) => {
  expect(withoutShown(failure, shown)).toBe(told);
});

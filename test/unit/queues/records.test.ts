import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isNewer } from '#scheduler/tasks/records/task-record.ts';
import type { RecordRank } from '#scheduler/tasks/records/task-record.ts';

test('one attempt’s records win in the order of its life, a newer attempt over an older one, and a final status is kept', () => {
  const place = fc.record({ attempt: fc.nat(5), rank: fc.constantFrom<RecordRank>(0, 1, 2, 3, 4) });
  fc.assert(
    fc.property(fc.array(place, { minLength: 1 }), (places) => {
      const [first, ...rest] = places;
      let held = first ?? { attempt: 0, rank: 0 };
      for (const told of rest) {
        const before = held;
        if (isNewer(told, held)) held = told;
        expect(isNewer(held, held)).toBe(false);
        // A completion may follow another end, of the same attempt or a later one; after it nothing may.
        if (before.rank === 4) expect(held).toEqual(before);
        else if (before.rank === 3 && held !== before) {
          expect(held.rank).toBe(4);
          expect(held.attempt).toBeGreaterThanOrEqual(before.attempt);
        } else if (held !== before) {
          expect(held.attempt * 10 + held.rank).toBeGreaterThan(before.attempt * 10 + before.rank);
        }
      }
    }),
    { numRuns: 2_000 },
  );
});

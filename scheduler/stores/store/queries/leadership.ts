import type { Queryable } from '../db.ts';
import { one } from '../rows.ts';

/**
 * A replica begins to lead: from here on writes with a lower number are refused.
 * @returns the highest number that ever led; if it is above `fence`, this replica must not lead
 */
export function raiseFence(db: Queryable, fence: number): Promise<number> {
  return one(
    db,
    'update leadership set fence = greatest(fence, $1) where id = 1 returning fence',
    [fence],
    (row: { fence: number }) => row.fence,
  );
}

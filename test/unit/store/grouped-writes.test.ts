import { expect, test } from 'vitest';
import { AppError } from '#shared/errors.ts';
import { GroupedWrites } from '#scheduler/stores/store/grouped-writes.ts';

const refused = new AppError('database_error', 'the database refused a statement');

test('each hears its own result, in batches of so many', async () => {
  const batches: number[][] = [];
  const write = async (items: readonly number[]): Promise<readonly string[]> => {
    batches.push([...items]);
    return items.map((item) => `wrote ${item}`);
  };
  const writes = new GroupedWrites({ write, mostAtOnce: 2, mostWaiting: 10, what: 'numbers' });
  expect(await Promise.all([1, 2, 3].map((item) => writes.write(item)))).toEqual(['wrote 1', 'wrote 2', 'wrote 3']);
  expect(batches).toEqual([[1, 2], [3]]);
});

test('one that the database refuses fails alone; a database that is away fails all, once', async () => {
  let tries = 0;
  let error: Error = refused;
  const write = async (items: readonly number[]): Promise<readonly number[]> => {
    tries += 1;
    if (items.includes(2)) throw error;
    return items;
  };
  const writes = new GroupedWrites({ write, mostAtOnce: 10, mostWaiting: 10, what: 'numbers' });
  const outcomes = (): Promise<PromiseSettledResult<number>[]> =>
    Promise.allSettled([1, 2, 3].map((item) => writes.write(item)));
  expect((await outcomes()).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(tries).toBe(4);
  error = new AppError('database_unavailable', 'the database does not answer');
  expect((await outcomes()).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(tries).toBe(5);
});

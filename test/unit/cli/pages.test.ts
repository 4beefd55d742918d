// Lists that come page by page.
import { expect, test } from 'vitest';
import { pagesOf } from '#cli/pages.ts';
import type { PageOptions } from '#cli/pages.ts';
import type { JsonObject } from '#cli/json.ts';

async function readAll(pageAt: (cursor: string) => JsonObject, options?: PageOptions) {
  const asked: string[] = [];
  const pages: JsonObject[] = [];
  const read = async (cursor: string): Promise<JsonObject> => {
    asked.push(cursor);
    return pageAt(cursor);
  };
  for await (const page of pagesOf('the stacks', read, options)) pages.push(page);
  return { asked, pages };
}

test('a list is read to its last page, by the cursor of each page', async () => {
  const following: Readonly<Record<string, string>> = { '': 'b', b: 'c', c: '' };
  const read = await readAll((cursor) => ({ at: cursor, next: following[cursor] }));
  expect(read.asked).toEqual(['', 'b', 'c']);
  expect(read.pages.map((page) => page['at'])).toEqual(['', 'b', 'c']);
});

test('a cursor may be a number in another field', async () => {
  const following: Readonly<Record<string, number | undefined>> = { '': 40, '40': 20, '20': undefined };
  expect((await readAll((cursor) => ({ before: following[cursor] }), { next: 'before' })).asked).toEqual([
    '',
    '40',
    '20',
  ]);
});

test('a list without an end is refused, and so is a page that leads to itself', async () => {
  await expect(readAll((cursor) => ({ next: `${cursor}x` }), { mostPages: 5 })).rejects.toThrow(
    'cannot read the stacks: it has more than 5 pages',
  );
  await expect(readAll(() => ({ next: 'same' }))).rejects.toThrow(
    'cannot read the stacks: the scheduler answered with the same page twice',
  );
});

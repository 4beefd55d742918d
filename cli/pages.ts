// Lists that the scheduler answers page by page.
import { CliError } from './errors.ts';
import type { JsonObject } from './json.ts';

/** Most pages of a list: more than any real one has. */
const MOST_PAGES = 10_000;

export interface PageOptions {
  /** Field of a page with the cursor of the next one; absent or empty there: the last page. */
  readonly next?: string;
  readonly mostPages?: number;
}

/**
 * Reads a list, page by page.
 * @param what - the list, for the error: `the stacks of this workspace`
 * @param read - reads the page at a cursor, which is empty for the first page
 * @throws CliError when the list does not end, or a page leads to itself
 */
export async function* pagesOf(
  what: string,
  read: (cursor: string) => Promise<JsonObject>,
  { next = 'next', mostPages = MOST_PAGES }: PageOptions = {},
): AsyncGenerator<JsonObject, void, void> {
  let cursor = '';
  for (let page = 0; page < mostPages; page += 1) {
    const answer = await read(cursor);
    yield answer;
    const following = cursorIn(answer[next]);
    if (following === '') return;
    if (following === cursor)
      throw new CliError(`cannot read ${what}: the scheduler answered with the same page twice; try again`);
    cursor = following;
  }
  throw new CliError(`cannot read ${what}: it has more than ${mostPages} pages`);
}

const cursorIn = (value: unknown): string =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';

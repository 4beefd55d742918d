// Lists of records: the first page, kept fresh, with a word where there are more.
import type { ComponentChildren } from 'preact';
import { queryOf, rest } from '../api/client.ts';
import { useResource } from '../live/resource.ts';
import type { Resource } from '../live/resource.ts';
import { Command, Shown } from './notices.tsx';

/** Records of one page. */
const PAGE = 200;
const EVERY_MS = 15_000;

export interface Page<T> {
  readonly data: readonly T[];
  readonly next: string;
}

export function useList<T>(
  path: string,
  query: Readonly<Record<string, string | undefined>> = {},
  everyMs = EVERY_MS,
): Resource<Page<T>> {
  const whole = `${path}${queryOf({ ...query, limit: PAGE })}`;
  return useResource(whole, (signal) => rest<Page<T>>(whole, { signal }), everyMs);
}

/** Rows of a list. @param first - the command that makes the first record */
export function Rows<T>({
  of,
  none,
  first,
  children,
}: {
  readonly of: Resource<Page<T>>;
  readonly none: string;
  readonly first: string;
  readonly children: (record: T) => ComponentChildren;
}) {
  return (
    <Shown of={of}>
      {({ data, next }) =>
        data.length === 0 ? (
          <div class="notice">
            <p>{none}</p>
            <Command line={first} />
          </div>
        ) : (
          <>
            <ul class="rows">{data.map(children)}</ul>
            {next === '' ? null : <p class="faint">These are the first {data.length}. The command lists all.</p>}
          </>
        )
      }
    </Shown>
  );
}

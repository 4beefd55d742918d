// The installation's own books of tasks, read over its REST lists.
import type { Caller } from './caller.ts';
import { objectOf, textOf } from './caller.ts';

export const isFinal = (status: string): boolean =>
  ['COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT', 'EXPIRED'].includes(status);

/** Tasks of the workspace that have not ended. */
export async function unfinished(caller: Caller): Promise<readonly string[]> {
  const rows = await list(caller, 'status=PENDING,RUNNING,RETRY');
  return rows.map((row) => `${String(row['id'])} ${String(row['status'])}`);
}

/** Number of a stub's tasks by final state. */
export async function finalStates(caller: Caller, stubId: string): Promise<Readonly<Record<string, number>>> {
  const states: Record<string, number> = {};
  for (const row of await rowsOf(caller, stubId)) {
    const status = String(row['status']);
    states[status] = (states[status] ?? 0) + 1;
  }
  return states;
}

/** All tasks of a stub, from the task list. */
export async function rowsOf(caller: Caller, stubId: string): Promise<readonly Row[]> {
  const rows: Row[] = [];
  let cursor = '';
  do {
    const page = await pageOf(caller, `stub_ids=${stubId}&cursor=${cursor}`, 1000);
    rows.push(...page.rows);
    cursor = page.next;
  } while (cursor !== '');
  return rows;
}

type Row = Readonly<Record<string, unknown>>;

export async function list(caller: Caller, query: string): Promise<readonly Row[]> {
  return (await pageOf(caller, query, 100)).rows;
}

async function pageOf(
  caller: Caller,
  query: string,
  limit: number,
): Promise<{ readonly rows: readonly Row[]; readonly next: string }> {
  const answer = await caller.ask(`/api/v1/task/${caller.workspaceId}?limit=${limit}&skip_details=true&${query}`);
  const page = objectOf(answer.text);
  const rows = page?.['data'];
  if (answer.status !== 200 || !Array.isArray(rows))
    throw new Error(`${answer.asked.slice(0, 200)} was answered ${answer.status} ${answer.text.slice(0, 300)}`);
  return { rows: rows as Row[], next: textOf(page, 'next') };
}

// What the commands that talk to a scheduler have in common: a client for as long as they run, and the two ways to show a result.
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { print, printJson, printTable } from '../print.ts';

/** What every command is given beside its own arguments. */
export interface Invocation {
  readonly options: GlobalOptions;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Runs with a client for the chosen installation, and closes it whatever happens. */
export async function withClient<T>(invocation: Invocation, use: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client(await resolveContext(invocation.options, invocation.env));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

/** A list: with `--json` the items as they came, else a table. */
export function showList<T>(
  invocation: Invocation,
  items: readonly T[],
  headings: readonly string[],
  row: (item: T) => readonly string[],
): void {
  if (invocation.options.json === true) printJson(items);
  else printTable(headings, items.map(row));
}

/** What was done: with `--json` the value, else the sentences. */
export function showDone(invocation: Invocation, value: unknown, sentences: readonly string[]): void {
  if (invocation.options.json === true) printJson(value);
  else for (const sentence of sentences) print(sentence);
}

// Code shared by commands that call a scheduler: a client for the length of the command, and the two forms of a result.
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { print, printJson, printTable, withoutControls } from '../print.ts';

/** The context that every command gets beside its own arguments. */
export interface Invocation {
  readonly options: GlobalOptions;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Runs `use` with a client for the chosen installation, and closes the client on every outcome. */
export async function withClient<T>(invocation: Invocation, use: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client(await resolveContext(invocation.options, invocation.env));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

/** Shows a list: with `--json` the items as received, otherwise a table. */
export function showList<T>(
  invocation: Invocation,
  items: readonly T[],
  headings: readonly string[],
  row: (item: T) => readonly string[],
): void {
  if (invocation.options.json === true) printJson(items);
  else printTable(headings, items.map(row));
}

/** Shows the result of a change: with `--json` the value, otherwise the sentences. */
export function showDone(invocation: Invocation, value: unknown, sentences: readonly string[]): void {
  if (invocation.options.json === true) printJson(value);
  else for (const sentence of sentences) print(withoutControls(sentence));
}

// Ids of tasks, machines and other things by their beginning or their end, looked for in the lists that show them.
import type { Client } from '../client.ts';
import { listField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { wholeIdOf } from '../short-id.ts';

/** Tasks among which a part of an id is looked for: the longest list that the scheduler gives. */
const MOST_TASKS = 1000;
/** Machines have ids of eight characters. */
const MACHINE = /^[0-9a-f]{8}$/;

const idsIn = (answer: JsonObject, field: string): readonly string[] =>
  listField(answer, field).map((one) => textField(one, 'id'));

/** The id of a task, among the newest ones. @throws CliError as `wholeIdOf`, and so do the others */
export const taskIdOf = (client: Client, text: string): Promise<string> =>
  wholeIdOf(text, {
    noun: 'task',
    ids: async () => idsIn(await client.gateway('GET', `/tasks?limit=${MOST_TASKS}`), 'tasks'),
  });

export async function taskIdsOf(client: Client, texts: readonly string[]): Promise<readonly string[]> {
  const ids: string[] = [];
  for (const text of texts) ids.push(await taskIdOf(client, text));
  return [...new Set(ids)];
}

/** The id of a machine that joined or may join. */
export const machineIdOf = (client: Client, text: string): Promise<string> =>
  wholeIdOf(text, {
    noun: 'machine',
    whole: MACHINE,
    ids: async () => idsIn(await client.gateway('GET', '/machines'), 'machines'),
  });

/** The id of one of a list of the REST API. @param path - of the list, whose records have `id` */
export const listedIdOf = (client: Client, text: string, noun: string, path: string): Promise<string> =>
  wholeIdOf(text, { noun, ids: async () => idsIn(await client.rest(path), 'data') });

// `longshore task`: one task as the scheduler knows it now.
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { textField } from '../json.ts';
import { print, printJson } from '../print.ts';

type Env = Readonly<Record<string, string | undefined>>;

export async function runTaskGet(id: string, options: GlobalOptions, env: Env): Promise<void> {
  const client = new Client(await resolveContext(options, env));
  try {
    const task = await client.rest(`/task/${await client.workspaceId()}/${encodeURIComponent(id)}`);
    if (options.json === true) {
      printJson(task);
      return;
    }
    for (const name of ['id', 'status', 'failure_reason', 'container_id', 'created_at', 'started_at', 'ended_at']) {
      const text = textField(task, name);
      if (text !== '') print(`${`${name}:`.padEnd(16)}${text}`);
    }
    if (task['result'] !== null && task['result'] !== undefined)
      print(`result:         ${JSON.stringify(task['result'])}`);
  } finally {
    await client.close();
  }
}

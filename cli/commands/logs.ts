// `longshore logs`: the newest lines of a deployment, container or task; `--follow` continues with new ones.
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { CliError, usageError } from '../errors.ts';
import { follow } from '../follow.ts';
import { listField, numberField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print } from '../print.ts';
import { runningId, SHORT } from './container.ts';
import { oneDeployment } from './deployment-reference.ts';
import type { LogsFlags } from '../flags.ts';

type Env = Readonly<Record<string, string | undefined>>;
type Filter = Readonly<Record<string, string>>;

/** Prints lines oldest first; `signal` ends following (Ctrl-C does it for a person). */
export async function runLogs(
  name: string | undefined,
  flags: LogsFlags,
  options: GlobalOptions,
  env: Env,
  signal?: AbortSignal,
): Promise<void> {
  if ([name, flags.container, flags.task].filter((given) => given !== undefined).length > 1) {
    throw usageError('name a deployment, or give --container, or --task: one of them');
  }
  const client = new Client(await resolveContext(options, env));
  try {
    const workspaceId = await client.workspaceId();
    const filter = await filterOf(client, name, flags);
    const newest = new URLSearchParams({ ...filter, limit: String(flags.limit) });
    const afterSeq = await show(client, workspaceId, newest).catch((error: unknown) => {
      if (!(error instanceof CliError) || error.answerCode !== 'task_not_found') throw error;
      throw new CliError(`there is no task ${flags.task}: \`longshore task list\` shows those there are`, {
        cause: error,
      });
    });
    if (afterSeq === 0) await sayNone(client, workspaceId, filter, name ?? '');
    if (flags.follow !== true) return;
    const query = new URLSearchParams({ ...filter, seq_num: String(afterSeq + 1) });
    await follow(client, `/logs/${workspaceId}/stream?${query.toString()}`, {
      onRecord: ({ event, data }) => {
        if (event === 'log') showLine(JSON.parse(data) as JsonObject);
      },
      signal,
    });
  } finally {
    await client.close();
  }

  function showLine(line: JsonObject): void {
    print(options.json === true ? JSON.stringify(line) : formatLine(line));
  }

  async function show(reader: Client, workspaceId: string, query: URLSearchParams): Promise<number> {
    const lines = listField(await reader.rest(`/logs/${workspaceId}?${query.toString()}`), 'logs');
    for (const line of lines) showLine(line);
    return lines.reduce((last, line) => Math.max(last, numberField(line, 'seq_num')), 0);
  }
}

async function filterOf(client: Client, name: string | undefined, flags: LogsFlags): Promise<Filter> {
  if (flags.container !== undefined) return { container_id: await wholeId(client, flags.container) };
  if (flags.task !== undefined) return { task_id: flags.task };
  if (name === undefined) return {};
  const { id } = await oneDeployment(client, name);
  return { object_type: 'deployment', object_id: id };
}

/**
 * Completes the last characters of a container id, as lines show
 * them: among running containers first, then among recent ones.
 */
export async function wholeId(client: Client, id: string): Promise<string> {
  if (!SHORT.test(id)) return id;
  const running = await runningId(client, id);
  if (running !== undefined) return running;
  const found = await client.rest(`/explain/${await client.workspaceId()}/${id.toLowerCase()}`).catch(() => undefined);
  return found !== undefined && textField(found, 'kind') === 'container' ? textField(found, 'id') : id;
}

/**
 * Handles an answer without lines: a task, a container or a deployment that wrote nothing gets advice on where to look
 * next. @param name - the deployment as the person named it
 * @throws CliError when the task or container does not exist
 */
async function sayNone(client: Client, workspaceId: string, filter: Filter, name: string): Promise<void> {
  const { task_id: task, container_id: container, object_id: deployment } = filter;
  const id = task ?? container;
  if (id === undefined) {
    if (deployment === undefined) return note('no container of this workspace has written a line that is kept');
    const path = `/explain/${workspaceId}/${encodeURIComponent(deployment)}`;
    const explained = await client.rest(path).catch(() => ({}));
    for (const line of noneText('deployment', name, explained)) note(line);
    return;
  }
  const what = task === undefined ? 'container' : 'task';
  const found = await client.rest(`/explain/${workspaceId}/${encodeURIComponent(id)}`).catch((error: unknown) => {
    if (!(error instanceof CliError) || error.status !== 404) return undefined;
    const none =
      what === 'container' && SHORT.test(id)
        ? `no container that runs, and none of the newest that ended, is the only one whose id ends in ${id}: give the whole id`
        : `there is no ${what} ${id}, and no line of one`;
    throw new CliError(`${none}: \`longshore ${what} list\` shows those there are`, { cause: error });
  });
  for (const line of noneText(what, id, found ?? {})) note(line);
}

/** @internal exported for its test. @param found - the explanation; empty: there is none */
export function noneText(what: 'task' | 'container' | 'deployment', id: string, found: JsonObject): readonly string[] {
  const summary = textField(found, 'summary');
  // Advice to run this same command again is left out.
  const own = what === 'deployment' ? `logs ${id}` : `logs --${what} ${id}`;
  const steps = textsField(found, 'next_steps').filter((step) => !step.includes(own));
  const next = steps.length === 0 ? [`\`longshore explain ${id}\` says how it stands`] : steps;
  return [
    `no line of ${what} ${id}${summary === '' ? '' : `: ${summary}`}`,
    'what to do:',
    ...next.map((step) => `  - ${step}`),
  ];
}

function formatLine(line: JsonObject): string {
  const time = textField(line, 'timestamp').slice(11, 23);
  const container = textField(line, 'container_id').slice(-8);
  return `${time} ${container} ${textField(line, 'message')}`;
}

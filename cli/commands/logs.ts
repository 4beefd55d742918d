// `longshore logs`: the newest lines of a deployment, container or task; with --follow what comes after them.
import { sleep } from '#shared/backoff.ts';
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { latestDeployment } from '../deploy/deploy.ts';
import { CliError, usageError } from '../errors.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { print } from '../print.ts';
import type { LogsFlags } from '../flags.ts';

type Env = Readonly<Record<string, string | undefined>>;

const POLL_MS = 500;
const PAGE_LINES = 1000;

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
    let afterSeq = await show(client, workspaceId, new URLSearchParams({ ...filter, limit: String(flags.limit) }));
    while (flags.follow === true && signal?.aborted !== true) {
      await sleep(POLL_MS, signal);
      const query = new URLSearchParams({ ...filter, limit: String(PAGE_LINES), after_seq: String(afterSeq) });
      afterSeq = Math.max(afterSeq, await show(client, workspaceId, query));
    }
  } finally {
    await client.close();
  }

  async function show(reader: Client, workspaceId: string, query: URLSearchParams): Promise<number> {
    const lines = listField(await reader.rest(`/logs/${workspaceId}?${query.toString()}`), 'logs');
    for (const line of lines) print(options.json === true ? JSON.stringify(line) : formatLine(line));
    return lines.reduce((last, line) => Math.max(last, numberField(line, 'seq_num')), 0);
  }
}

async function filterOf(
  client: Client,
  name: string | undefined,
  flags: LogsFlags,
): Promise<Readonly<Record<string, string>>> {
  if (flags.container !== undefined) return { container_id: flags.container };
  if (flags.task !== undefined) return { task_id: flags.task };
  if (name === undefined) return {};
  const deployment = await latestDeployment(client, name);
  if (deployment === undefined) throw new CliError(`no deployment is named ${name}: \`longshore status\` lists them`);
  return { object_type: 'deployment', object_id: deployment.id };
}

function formatLine(line: JsonObject): string {
  const time = textField(line, 'timestamp').slice(11, 23);
  const container = textField(line, 'container_id').slice(-8);
  return `${time} ${container} ${textField(line, 'message')}`;
}

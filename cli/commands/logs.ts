// `longshore logs`: the newest lines of a deployment, container or task; `--follow` continues with new ones.
import { isUuid } from '#shared/domain/ids.ts';
import { shellWord } from '#shared/shell-word.ts';
import { Client } from '../client.ts';
import { painted } from '../colours.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { CliError, notFound, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { follow } from '../follow.ts';
import { listField, numberField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';
import { note, print } from '../print.ts';
import { sinceMsOf } from '../since.ts';
import { CONTAINER, runningId, SHORT } from './container.ts';
import { shownDeployment } from './deployment-reference.ts';
import { DeploymentNames } from './deployment-names.ts';
import { LogText } from './log-text.ts';
import { taskIdOf } from './whole-ids.ts';
import type { LogsFlags } from '../flags.ts';

type Env = Readonly<Record<string, string | undefined>>;
type Filter = Readonly<Record<string, string>>;

const DEFAULT_LINES = 100;
const DEFAULT_LINES_SINCE = 10_000;
/** Most lines of one command, which are in memory until the first is printed. */
const MOST_LINES = 100_000;
const LINES_OF_PAGE = 1_000;

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
  const nowMs = Date.now();
  const sinceMs = flags.since === undefined ? undefined : sinceMsOf(flags.since, nowMs);
  const limit = limitOf(flags);
  const client = new Client(await resolveContext(options, env));
  try {
    const workspaceId = await client.workspaceId();
    const filter = await filterOf(client, name, flags);
    const names = Object.keys(filter).length > 0 ? undefined : new DeploymentNames(client, workspaceId);
    await names?.read();
    const text = new LogText(nowMs, names === undefined ? undefined : (id) => names.of(id), (style, shown) =>
      painted(style, shown, process.stdout),
    );
    const start = sinceMs === undefined ? undefined : new Date(sinceMs).toISOString();
    const query = { ...filter, ...(start === undefined ? {} : { start_time: start }) };
    const { lines, isCut } = await newestLines(client, `/logs/${workspaceId}`, query, limit).catch((error: unknown) => {
      if (!(error instanceof CliError) || error.answerCode !== 'task_not_found') throw error;
      throw new CliError(`there is no task ${flags.task}: \`longshore task list\` shows those there are`, {
        cause: error,
      });
    });
    if (isCut && start !== undefined)
      note(`only the newest ${lines.length} lines since ${start}: --limit or a later --since changes that`);
    text.expect(lines);
    for (const line of lines) showLine(line, text);
    if (lines.length === 0) await sayNone(client, workspaceId, filter, name ?? '', start);
    if (flags.follow !== true) return;
    await follow(client, `/logs/${workspaceId}/stream?${queryBehind(lines, query)}`, {
      onRecord: ({ event, data }) => {
        if (event === 'log') showLine(JSON.parse(data) as JsonObject, text);
      },
      signal,
    });
  } finally {
    await client.close();
  }

  function showLine(line: JsonObject, text: LogText): void {
    if (flags.grep !== undefined && !textField(line, 'message').includes(flags.grep)) return;
    // Lines of machines that were away come late, among newer ones.
    if (sinceMs !== undefined && Date.parse(textField(line, 'timestamp')) < sinceMs) return;
    print(options.json === true ? JSON.stringify(line) : text.of(line));
  }
}

function limitOf({ limit = 0, since }: LogsFlags): number {
  if (limit > MOST_LINES) throw usageError(`--limit must be at most ${MOST_LINES}`);
  return limit || (since === undefined ? DEFAULT_LINES : DEFAULT_LINES_SINCE);
}

/** Reads pages from the newest one backwards. @returns lines oldest first, and whether older ones may be left out */
async function newestLines(
  client: Client,
  path: string,
  query: Filter,
  limit: number,
): Promise<{ readonly lines: readonly JsonObject[]; readonly isCut: boolean }> {
  const pages: (readonly JsonObject[])[] = [];
  let left = limit;
  let isCut = false;
  const read = (before: string): Promise<JsonObject> => {
    const page = { limit: String(Math.min(left, LINES_OF_PAGE)), ...(before === '' ? {} : { before_seq: before }) };
    return client.rest(`${path}?${new URLSearchParams({ ...query, ...page }).toString()}`);
  };
  for await (const page of pagesOf('the log', read, { next: 'next_before_seq' })) {
    const lines = listField(page, 'logs');
    pages.push(lines);
    left -= lines.length;
    isCut = left <= 0 && page['next_before_seq'] !== undefined;
    if (left <= 0) break;
  }
  return { lines: pages.toReversed().flat(), isCut };
}

/** Query of the stream that goes on behind these lines; where there are none, from the same time on. */
function queryBehind(lines: readonly JsonObject[], { start_time: start, ...filter }: Filter): string {
  const last = lines.reduce((seq, line) => Math.max(seq, numberField(line, 'seq_num')), 0);
  const from = last === 0 && start !== undefined ? { start_time: start } : { seq_num: String(last + 1) };
  return new URLSearchParams({ ...filter, ...from }).toString();
}

async function filterOf(client: Client, name: string | undefined, flags: LogsFlags): Promise<Filter> {
  if (flags.container !== undefined) return { container_id: await wholeId(client, flags.container) };
  if (flags.task !== undefined) return { task_id: await taskIdOf(client, flags.task) };
  if (name === undefined) return {};
  const { id } = await shownDeployment(client, name).catch(async (error: unknown) => {
    if (!(error instanceof CliError) || error.exitCode !== EXIT.notFound) throw error;
    const flag = await flagOf(client, name);
    throw flag === undefined ? error : notFound(`${name} is no deployment: \`longshore logs ${flag} ${name}\``, error);
  });
  return { object_type: 'deployment', object_id: id };
}

/** The flag for the id of a container or a task; undefined: the text is neither. */
async function flagOf(client: Client, text: string): Promise<string | undefined> {
  if (CONTAINER.test(text)) return '--container';
  if (SHORT.test(text) && (await runningId(client, text)) !== undefined) return '--container';
  const isTask = isUuid(await taskIdOf(client, text).catch(() => text));
  return isTask ? '--task' : undefined;
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
 * next. Where a start was given, older lines are looked for first.
 * @param name - the deployment as the person named it
 * @throws CliError when the task or container does not exist
 */
async function sayNone(
  client: Client,
  workspaceId: string,
  filter: Filter,
  name: string,
  start: string | undefined,
): Promise<void> {
  const older = start === undefined ? [] : (await newestLines(client, `/logs/${workspaceId}`, filter, 1)).lines;
  if (older.length > 0) return note(`no line since ${start}: without --since, older ones are shown`);
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
  const own = what === 'deployment' ? `logs ${shellWord(id)}` : `logs --${what} ${id}`;
  const steps = textsField(found, 'next_steps').filter((step) => !step.includes(own));
  const next = steps.length === 0 ? [`\`longshore explain ${shellWord(id)}\` says how it stands`] : steps;
  return [
    `no line of ${what} ${id}${summary === '' ? '' : `: ${summary}`}`,
    'what to do:',
    ...next.map((step) => `  - ${step}`),
  ];
}

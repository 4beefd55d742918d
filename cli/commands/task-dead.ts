// `longshore task dead`: tasks that failed for good, while their inputs are kept.
import { sleep } from '#shared/backoff.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { TaskDeadFlags, TaskDeadListFlags, TaskRedriveFlags } from '../flags.ts';
import { ageOf, counted } from '../format.ts';
import { listField, numberField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { asksYes } from '../typed.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { stubsOf } from './task.ts';
import { taskIdsOf } from './whole-ids.ts';

/** Tasks in one request. */
const TOGETHER = 500;
/** Refusals that are shown. */
const MOST_SHOWN = 5;

export async function runTaskDeadList(flags: TaskDeadListFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const tasks: JsonObject[] = [];
    for await (const page of deadPages(client, flags, flags.limit)) {
      tasks.push(...page);
      if (tasks.length >= flags.limit) break;
    }
    const nowMs = Date.now();
    showList(invocation, tasks.slice(0, flags.limit), ['ID', 'STATUS', 'HANDLER', 'ENDED', 'REASON'], (task) => [
      textField(task, 'id'),
      textField(task, 'status'),
      textField(task, 'stub_name') || '-',
      `${ageOf(textField(task, 'ended_at'), nowMs)} ago`,
      textField(task, 'failure_reason') || '-',
    ]);
  });
}

export async function runTaskRedrive(
  given: readonly string[],
  flags: TaskRedriveFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const path = `/task/${await client.workspaceId()}/redrive`;
    const { rate = Infinity } = flags;
    const together = Math.max(1, Math.min(TOGETHER, Math.floor(rate)));
    const redriven: JsonObject[] = [];
    const refused: JsonObject[] = [];
    let nextMs = 0;
    for await (const ids of chosen(client, given, flags, 'redriven')) {
      for (let at = 0; at < ids.length; at += together) {
        await sleep(Math.max(0, nextMs - performance.now()));
        const some = ids.slice(at, at + together);
        nextMs = performance.now() + (some.length / rate) * 1000;
        const answer = await client.restCall('POST', path, { ids: some });
        redriven.push(...listField(answer, 'redriven'));
        refused.push(...listField(answer, 'refused'));
      }
    }
    showDone(invocation, { redriven, refused }, redriven.map(lineOf));
    for (const one of refused.slice(0, MOST_SHOWN)) note(`${textField(one, 'id')}: ${textField(one, 'error')}`);
    if (refused.length > 0)
      throw new CliError(`${refused.length} of ${counted(redriven.length + refused.length, 'task')} were not redriven`);
    if (redriven.length === 0) note('no task is dead');
  });
}

export async function runTaskDrop(
  given: readonly string[],
  flags: TaskDeadFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const path = `/task/${await client.workspaceId()}/dead`;
    const dropped: string[] = [];
    for await (const ids of chosen(client, given, flags, 'dropped'))
      dropped.push(...textsField(await client.restCall('DELETE', path, { ids: [...ids] }), 'dropped'));
    showDone(
      invocation,
      { dropped },
      dropped.map((id) => `dropped ${id}`),
    );
    if (dropped.length === 0) note('none of them is dead');
  });
}

function lineOf(one: JsonObject): string {
  const name = textField(one, 'deployment_name');
  const on = name === '' ? '' : ` on ${name}/v${numberField(one, 'version')}`;
  return `${textField(one, 'redriven_from')} runs as ${textField(one, 'task_id')}${on}`;
}

/** Ids of the tasks that are meant, some at a time. @throws CliError when it is not clear which */
async function* chosen(
  client: Client,
  given: readonly string[],
  flags: TaskDeadFlags,
  done: string,
): AsyncGenerator<readonly string[]> {
  const { all, deployment, yes } = flags;
  if (given.length > 0 && (all ?? deployment) !== undefined)
    throw usageError('name tasks, or choose them by --all and --deployment: both say which');
  if (given.length > 0) {
    const ids = await taskIdsOf(client, given);
    for (let at = 0; at < ids.length; at += TOGETHER) yield ids.slice(at, at + TOGETHER);
    return;
  }
  if (all !== true) throw usageError('name tasks, or say --all');
  const what = `all dead tasks${deployment === undefined ? '' : ` of ${deployment}`} would be ${done}`;
  if (yes !== true) {
    if (!process.stdin.isTTY) throw usageError(`${what}; without a terminal, say --yes: nothing was done`);
    if (!(await asksYes(`${what}. Go on?`))) throw new CliError('nothing was done');
  }
  for await (const page of deadPages(client, flags, TOGETHER)) yield page.map((task) => textField(task, 'id'));
}

/** Pages of dead tasks. A page is chosen by the end of the last task before, which may have been redriven. */
async function* deadPages(
  client: Client,
  { deployment }: Pick<TaskDeadListFlags, 'deployment'>,
  limit: number,
): AsyncGenerator<readonly JsonObject[]> {
  const stubs = deployment === undefined ? undefined : await stubsOf(client, deployment);
  for (let cursor = ''; ;) {
    const query = new URLSearchParams({
      dead: 'true',
      skip_details: 'true',
      limit: String(Math.min(limit, TOGETHER)),
      ...(stubs === undefined ? {} : { stub_ids: stubs.join(',') }),
      ...(cursor === '' ? {} : { cursor }),
    });
    const answer = await client.rest(`/task/${await client.workspaceId()}?${query.toString()}`);
    const page = listField(answer, 'data');
    if (page.length > 0) yield page;
    cursor = textField(answer, 'next');
    if (cursor === '') return;
  }
}

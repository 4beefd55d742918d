// `longshore task rerun`: tasks run again with the inputs that they had, for the version that serves now.
import type { Client } from '../client.ts';
import { CliError, notFound, usageError } from '../errors.ts';
import type { TaskRerunFlags } from '../flags.ts';
import { counted } from '../format.ts';
import { listField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { canShowProgress, endProgress, note, progress } from '../print.ts';
import { asksYes } from '../typed.ts';
import { chosenReruns } from './rerun-chains.ts';
import type { ChainTask, ChosenReruns } from './rerun-chains.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { foundTasks, sentence } from './task.ts';
import { taskIdsOf } from './whole-ids.ts';

/** Tasks that run again without a question. */
const MOST_UNASKED = 5;
/** Refusals that concern one task alone: its input or its deployment is gone. */
const SKIPPED_CODES: ReadonlySet<string> = new Set(['input_not_kept', 'deployment_not_found']);
/** Reasons of skipped tasks that are shown. */
const MOST_REASONS = 3;
/** Reruns of reruns that are followed. */
const MOST_LEVELS = 100;
/** Tasks whose reruns are asked for in one request, whose address has a bound. */
const IDS_AT_ONCE = 50;

/** A task that does not run again, and why. */
interface Skipped {
  readonly id: string;
  readonly why: string;
}

export async function runTaskRerun(
  given: readonly string[],
  flags: TaskRerunFlags,
  invocation: Invocation,
): Promise<void> {
  const { deployment, yes } = flags;
  if (given.length > 0 && (deployment ?? flags.status ?? flags.since) !== undefined)
    throw usageError('name tasks, or choose them by --deployment, --status and --since: both say which');
  if (given.length === 0 && deployment === undefined)
    throw usageError('name tasks, or --deployment NAME whose failed tasks are to run again');
  await withClient(invocation, async (client) => {
    const { ids, leftOut } =
      given.length > 0 ? { ids: await taskIdsOf(client, given), leftOut: 0 } : await chosen(client, flags);
    if (leftOut > 0)
      note(`${counted(leftOut, 'task')} left out: a rerun of the same input completed, is open, or is newer`);
    if (ids.length === 0) {
      if (leftOut === 0) throw new CliError(`no task of ${deployment} matches, so nothing runs again`);
      showDone(invocation, { rerun: [], skipped: [], leftOut }, []);
      return;
    }
    if (ids.length > MOST_UNASKED && yes !== true) await confirm(ids.length);
    const path = `/task/${await client.workspaceId()}`;
    const rerun: JsonObject[] = [];
    const skipped: Skipped[] = [];
    try {
      for (const id of ids) {
        if (canShowProgress() && ids.length > MOST_UNASKED)
          progress(`${rerun.length + skipped.length} of ${counted(ids.length, 'task')}`);
        try {
          rerun.push(await client.restCall('POST', `${path}/${encodeURIComponent(id)}/rerun`, {}));
        } catch (error) {
          // Such a task keeps no other from running.
          if (!(error instanceof CliError) || !SKIPPED_CODES.has(error.answerCode)) throw error;
          skipped.push({ id, why: error.answerText });
        }
      }
    } catch (error) {
      if (ids.length === 1) throw new CliError(`it does not run again: ${sentence(error)}`, { cause: error });
      const before = rerun.length === 0 ? '' : ` (${counted(rerun.length, 'task')} before it run again)`;
      throw new CliError(`not all tasks run again${before}: ${sentence(error)}`, { cause: error });
    } finally {
      if (canShowProgress() && ids.length > MOST_UNASKED) endProgress();
    }
    if (ids.length === 1 && skipped[0] !== undefined) throw notFound(skipped[0].why);
    showDone(invocation, { rerun, skipped, leftOut }, rerun.map(lineOf));
    for (const why of [...new Set(skipped.map((one) => one.why))].slice(0, MOST_REASONS)) note(why);
    if (skipped.length > MOST_REASONS) note(`${counted(skipped.length, 'task')} in all were skipped`);
    if (skipped.length > 0) throw new CliError(`${skipped.length} of ${counted(ids.length, 'task')} did not run again`);
  });
}

function lineOf(one: JsonObject): string {
  const name = textField(one, 'deployment_name');
  const on = name === '' ? '' : ` on ${name}/v${String(one['version'])}`;
  return `${textField(one, 'rerun_of')} runs again as ${textField(one, 'task_id')}${on}`;
}

/** The tasks that the filter means; those that failed where it names no status. */
async function chosen(client: Client, flags: TaskRerunFlags): Promise<ChosenReruns> {
  const matching = (await foundTasks(client, { ...flags, status: flags.status ?? 'failed' })).map(chainTask);
  const reruns = new Map<string, ChainTask>();
  let asked = [...new Set(matching.flatMap(({ id, rerunOf }) => (rerunOf === '' ? [id] : [id, rerunOf])))];
  for (let level = 0; asked.length > 0 && level < MOST_LEVELS; level += 1) {
    const known = new Set([...asked, ...reruns.keys()]);
    const found: ChainTask[] = [];
    for (let from = 0; from < asked.length; from += IDS_AT_ONCE)
      found.push(...(await rerunsOf(client, asked.slice(from, from + IDS_AT_ONCE))));
    for (const task of found) reruns.set(task.id, task);
    asked = found.map(({ id }) => id).filter((id) => !known.has(id));
  }
  return chosenReruns(matching, [...reruns.values()]);
}

async function rerunsOf(client: Client, ids: readonly string[]): Promise<readonly ChainTask[]> {
  const query = new URLSearchParams({ filters: JSON.stringify({ 'rerun-of': ids }) });
  return listField(await client.gateway('GET', `/tasks?${query.toString()}`), 'tasks').map(chainTask);
}

const chainTask = (task: JsonObject): ChainTask => ({
  id: textField(task, 'id'),
  status: textField(task, 'status'),
  rerunOf: textField(task, 'rerunOf'),
  createdAt: textField(task, 'createdAt'),
});

async function confirm(count: number): Promise<void> {
  const what = `${counted(count, 'task')} would run again`;
  if (!process.stdin.isTTY) throw usageError(`${what}; without a terminal, say --yes: nothing was started`);
  if (!(await asksYes(`${what}. Go on?`))) throw new CliError('nothing was started');
}

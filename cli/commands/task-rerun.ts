// `longshore task rerun`: tasks run again with the inputs that they had, for the version that serves now.
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { TaskRerunFlags } from '../flags.ts';
import { counted } from '../format.ts';
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { canShowProgress, endProgress, note, progress } from '../print.ts';
import { asksYes } from '../typed.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { foundTasks, sentence } from './task.ts';
import { taskIdsOf } from './whole-ids.ts';

/** Tasks that run again without a question. */
const MOST_UNASKED = 5;
/** Reasons of skipped tasks that are shown. */
const MOST_REASONS = 3;

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
    const ids = given.length > 0 ? await taskIdsOf(client, given) : await chosen(client, flags);
    if (ids.length === 0) throw new CliError(`no task of ${deployment} matches, so nothing runs again`);
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
          // A task without its input keeps no other from running.
          if (!(error instanceof CliError) || error.answerCode !== 'input_not_kept' || ids.length === 1) throw error;
          skipped.push({ id, why: error.message });
        }
      }
    } catch (error) {
      const before = rerun.length === 0 ? '' : ` (${counted(rerun.length, 'task')} before it run again)`;
      throw new CliError(`not all tasks run again${before}: ${sentence(error)}`, { cause: error });
    } finally {
      if (canShowProgress() && ids.length > MOST_UNASKED) endProgress();
    }
    showDone(invocation, { rerun, skipped }, rerun.map(lineOf));
    for (const why of [...new Set(skipped.map((one) => one.why))].slice(0, MOST_REASONS)) note(why);
    if (skipped.length > MOST_REASONS) note(`${counted(skipped.length, 'task')} in all have no input`);
    if (rerun.length === 0) throw new CliError('nothing runs again: no input of these tasks is kept');
  });
}

function lineOf(one: JsonObject): string {
  const name = textField(one, 'deployment_name');
  const on = name === '' ? '' : ` on ${name}/v${String(one['version'])}`;
  return `${textField(one, 'rerun_of')} runs again as ${textField(one, 'task_id')}${on}`;
}

/** The tasks that the filter means; those that failed where it names no status. */
async function chosen(client: Client, flags: TaskRerunFlags): Promise<readonly string[]> {
  const tasks = await foundTasks(client, { ...flags, status: flags.status ?? 'failed' });
  return tasks.map((task) => textField(task, 'id'));
}

async function confirm(count: number): Promise<void> {
  const what = `${counted(count, 'task')} would run again`;
  if (!process.stdin.isTTY) throw usageError(`${what}; without a terminal, say --yes: nothing was started`);
  if (!(await asksYes(`${what}. Go on?`))) throw new CliError('nothing was started');
}

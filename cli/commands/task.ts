// `longshore task`: tasks as the scheduler knows them now.
import { stringifyExactly } from '#shared/json-text.ts';
import type { Client } from '../client.ts';
import { painted, styleOfState } from '../colours.ts';
import { CliError, usageError } from '../errors.ts';
import type { TaskListFlags } from '../flags.ts';
import { ageOf, counted, durationOf } from '../format.ts';
import { listField, textField } from '../json.ts';
import { print, printJson } from '../print.ts';
import { deploymentsNamed } from './deployment-reference.ts';
import { wholeId } from './logs.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

const STATUSES = ['PENDING', 'RUNNING', 'COMPLETE', 'ERROR', 'CANCELLED', 'EXPIRED', 'TIMEOUT', 'RETRY'];

/** The newest tasks, filtered. */
export async function runTaskList(flags: TaskListFlags, invocation: Invocation): Promise<void> {
  const statuses = checkedStatuses(flags.status);
  await withClient(invocation, async (client) => {
    const filters: Record<string, readonly string[]> = {
      ...(statuses.length > 0 ? { status: statuses } : {}),
      ...(flags.container === undefined ? {} : { 'container-id': [await wholeId(client, flags.container)] }),
      ...(flags.deployment === undefined ? {} : { 'stub-id': await stubsOf(client, flags.deployment) }),
    };
    const query = new URLSearchParams({ limit: String(flags.limit), filters: JSON.stringify(filters) });
    const answer = await client.gateway('GET', `/tasks?${query.toString()}`);
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'tasks'),
      ['ID', 'STATUS', 'HANDLER', 'CREATED', 'TOOK', 'CONTAINER'],
      (task) => [
        textField(task, 'id'),
        textField(task, 'status'),
        textField(task, 'stubName') || '-',
        `${ageOf(textField(task, 'createdAt'), nowMs)} ago`,
        durationOf(textField(task, 'startedAt'), textField(task, 'endedAt'), nowMs),
        textField(task, 'containerId').slice(-8) || '-',
      ],
    );
  });
}

export async function runTaskGet(id: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const task = await client.task(id).catch(hinted(id));
    if (invocation.options.json === true) {
      printJson(task);
      return;
    }
    for (const name of ['id', 'status', 'failure_reason', 'container_id', 'created_at', 'started_at', 'ended_at']) {
      const text = textField(task, name);
      const style = name === 'status' ? styleOfState(text) : undefined;
      if (text !== '') print(`${`${name}:`.padEnd(16)}${painted(style, text, process.stdout)}`);
    }
    if (task['result'] !== null && task['result'] !== undefined)
      print(`result:         ${stringifyExactly(task['result'])}`);
  });
}

/** Cancels tasks in turn; the first failure ends the command with an error that names the task. */
export async function runTaskStop(ids: readonly string[], invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const stopped: string[] = [];
    for (const id of ids) {
      // A call per task: the operation stops at its first failure without naming it.
      await client.gateway('POST', '/tasks/stop', { taskIds: [id] }).catch((error: unknown) => {
        const before = stopped.length === 0 ? '' : ` (${counted(stopped.length, 'task')} before it stopped)`;
        throw new CliError(`task ${id} was not stopped${before}: ${sentence(error)}`, { cause: error });
      });
      stopped.push(id);
    }
    showDone(
      invocation,
      { stopped },
      stopped.map((id) => `stopped ${id}`),
    );
  });
}

function checkedStatuses(text: string | undefined): readonly string[] {
  const statuses = (text ?? '').split(',').flatMap((part) => (part.trim() === '' ? [] : [part.trim().toUpperCase()]));
  const unknown = statuses.find((status) => !STATUSES.includes(status));
  if (unknown !== undefined) {
    throw usageError(`--status ${unknown} is not a task's status: one or more of ${STATUSES.join(', ')}`);
  }
  return statuses;
}

async function stubsOf(client: Client, reference: string): Promise<readonly string[]> {
  const stubIds = (await deploymentsNamed(client, reference)).map((deployment) => deployment.stubId);
  return [...new Set(stubIds)];
}

function hinted(id: string): (error: unknown) => never {
  return (error) => {
    throw new CliError(`cannot show task ${id}: ${sentence(error)}`, { cause: error });
  };
}

function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return /not found|no such thing/i.test(text) ? `${text}; \`longshore task list\` shows those there are` : text;
}

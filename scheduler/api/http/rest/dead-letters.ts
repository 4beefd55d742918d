// Dead tasks: redriven or dropped. `GET /task/{ws}?dead=true` lists them.
import type { Static } from 'typebox';
import { DeadTasks, Dropped, Redriven } from '#shared/api/rest/tasks.ts';
import { AppError } from '#shared/errors.ts';
import type { DeadLetters, Standing } from '../../../tasks/inputs/dead-letters.ts';
import type { Reruns } from '../../../tasks/inputs/reruns.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { invokeProblem, putByOf } from '../../../workspaces/identity/confinement.ts';
import { textOf } from '../invoke/answer.ts';
import { restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';
import { QUEUES_AWAY, taskFor } from './tasks.ts';
import type { TaskRouteParts } from './tasks.ts';

export interface DeadLetterRouteParts extends Pick<TaskRouteParts, 'directory' | 'tasks'> {
  readonly deadLetters: Pick<DeadLetters, 'standings' | 'drop'>;
  readonly reruns: Pick<Reruns, 'run'>;
}

const MOST_IDS = 500;
/** Tasks that are read or redriven together. */
const TOGETHER = 20;

export type Refused = { readonly id: string; readonly error: string };
type Redrive = Static<typeof Redriven>['redriven'][number];

export function deadLetterRoutes(parts: DeadLetterRouteParts): readonly RestRoute[] {
  return [
    restRoute({
      http: 'POST /task/{ws}/redrive',
      summary: 'Redrive dead tasks: each a new task with its input, once, for the version that serves now',
      grants: { scopes: ['invoke'], confinesToApp: true },
      body: DeadTasks,
      answer: Redriven,
      errors: [QUEUES_AWAY],
      handle: async (request) => {
        const { found, unknown } = await tasksFor(parts, request);
        const standings = await parts.deadLetters.standings(
          request.workspaceId,
          found.map(({ taskId }) => taskId),
        );
        const done = await inTurns(found, async (record) => {
          const standing = standings.get(record.taskId);
          if (standing?.kind !== 'dead') return { id: record.taskId, error: whyNotDead(standing) };
          return await redrive(parts, request, record);
        });
        return {
          redriven: done.filter((one) => 'task_id' in one),
          refused: [...unknown.map((id) => ({ id, error: 'task not found' })), ...done.filter((one) => 'id' in one)],
        };
      },
    }),
    restRoute({
      http: 'DELETE /task/{ws}/dead',
      summary: 'Drop dead tasks: they stay tasks, and are not listed as dead any more',
      grants: { confinesToApp: true },
      body: DeadTasks,
      answer: Dropped,
      errors: [QUEUES_AWAY],
      handle: async (request) => {
        const { found } = await tasksFor(parts, request);
        const ids = found.map(({ taskId }) => taskId);
        return { dropped: [...(await parts.deadLetters.drop(request.workspaceId, ids))] };
      },
    }),
  ];
}

const whyNotDead = (standing: Standing | undefined): string =>
  standing?.kind === 'redriven'
    ? `it was redriven as task ${standing.as}`
    : 'it is not dead: it did not fail for good, or was dropped, or its input is not kept any more';

/** The tasks that a request names, as far as its caller may read them. @throws AppError `bad_request` */
async function tasksFor(
  parts: DeadLetterRouteParts,
  request: RestRequest & { readonly body: Static<typeof DeadTasks> },
): Promise<{ readonly found: readonly TaskRecord[]; readonly unknown: readonly string[] }> {
  const ids = [...new Set(request.body.ids.map((id) => id.toLowerCase()))];
  if (ids.length === 0) throw new AppError('bad_request', 'ids must name tasks');
  if (ids.length > MOST_IDS) throw new AppError('bad_request', `ids: at most ${MOST_IDS} tasks at a time`);
  const records = await inTurns(ids, async (taskId): Promise<TaskRecord | string> => {
    try {
      return await taskFor(parts, { ...request, params: { taskId } });
    } catch (error) {
      if (error instanceof AppError && error.code === 'task_not_found') return taskId;
      throw error;
    }
  });
  return {
    found: records.filter((one) => typeof one !== 'string'),
    unknown: records.filter((one) => typeof one === 'string'),
  };
}

async function redrive(
  parts: DeadLetterRouteParts,
  { caller }: RestRequest,
  record: TaskRecord,
): Promise<Redrive | Refused> {
  const done = await runAgain(parts, caller, record, true);
  return 'error' in done ? done : { ...done, redriven_from: record.taskId };
}

/** Runs a task of many again. A refusal is of that task alone. @param isRedrive - the new task stands for a dead one */
export async function runAgain(
  { reruns }: Pick<DeadLetterRouteParts, 'reruns'>,
  caller: Caller,
  record: TaskRecord,
  isRedrive: boolean,
): Promise<Omit<Redrive, 'redriven_from'> | Refused> {
  const outcome = await reruns.run(record, {
    isRedrive,
    putBy: putByOf(caller),
    mayCall: (target) => invokeProblem(caller, target.appId) === undefined,
  });
  const refused = (error: string): Refused => ({ id: record.taskId, error });
  switch (outcome.kind) {
    case 'no_deployment':
      return refused('its deployment was deleted');
    case 'stopped':
      return refused(`${outcome.target.deploymentName} is stopped (\`longshore deployment start\`)`);
    case 'no_input':
      return refused(`its input is not there: ${outcome.why}`);
    case 'rerun': {
      const { submission, target } = outcome;
      if (submission.kind !== 'accepted') return refused(textOf(submission).error);
      // A synchronous task waits in this replica, as for a caller; its end is in its record.
      submission.finished.catch(() => undefined);
      const isStub = target.deploymentId === null;
      return {
        task_id: submission.taskId,
        deployment_id: target.deploymentId ?? '',
        deployment_name: isStub ? '' : target.deploymentName,
        version: isStub ? null : target.version,
      };
    }
  }
}

/** Runs the work for all of them, some at a time. */
export async function inTurns<T, R>(all: readonly T[], work: (one: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (let at = 0; at < all.length; at += TOGETHER)
    done.push(...(await Promise.all(all.slice(at, at + TOGETHER).map(work))));
  return done;
}

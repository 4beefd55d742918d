// Changes of many tasks, chosen by the filter of the list: they run again, or are cancelled. A dry run counts them. A
// request changes a bounded number, and says whether more match.
import {
  CancelTasksQuery,
  CancelledTasks,
  MOST_CHANGED,
  MOST_COUNTED,
  RerunTasks,
  RerunTasksQuery,
} from '#shared/api/rest/tasks.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import type { Static } from 'typebox';
import { DEAD_STATUSES } from '../../../domain/task-inputs.ts';
import type { TaskActions } from '../../../tasks/actions.ts';
import type { Reruns } from '../../../tasks/inputs/reruns.ts';
import type { TaskFilter, TaskReads } from '../../../tasks/records/reads.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import { inTurns, runAgain } from './dead-letters.ts';
import { cursorOf, pageOf } from './paging.ts';
import { restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';
import { QUEUES_AWAY, filterOf, mustBeNamed } from './tasks.ts';
import type { NamedParts } from './tasks.ts';

export interface TaskBulkParts extends NamedParts {
  readonly tasks: Pick<TaskReads, 'list'>;
  readonly reruns: Pick<Reruns, 'run'>;
  readonly taskActions: Pick<TaskActions, 'stopTasks'>;
}

const OPEN = ['PENDING', 'RETRY', 'RUNNING'];

type Filter = Omit<TaskFilter, 'limit'>;

export function taskBulkRoutes(parts: TaskBulkParts): readonly RestRoute[] {
  return [
    restRoute({
      http: 'POST /task/{ws}/rerun',
      summary: 'Run tasks again that a filter means: each a new task with its input',
      grants: { confinesToApp: true },
      query: RerunTasksQuery,
      answer: RerunTasks,
      errors: ['deployment_not_found', QUEUES_AWAY],
      handle: async (request) => await rerunTasks(parts, request),
    }),
    restRoute({
      http: 'POST /task/{ws}/cancel',
      summary: 'Cancel tasks that a filter means',
      grants: { confinesToApp: true },
      query: CancelTasksQuery,
      answer: CancelledTasks,
      errors: ['deployment_not_found', QUEUES_AWAY],
      handle: async (request) => await cancelTasksBy(parts, request),
    }),
  ];
}

async function rerunTasks(
  parts: TaskBulkParts,
  request: RestRequest<Static<typeof RerunTasksQuery>>,
): Promise<RerunTasks> {
  const { caller, query, workspaceId } = request;
  const filter = filterFor(request, DEAD_STATUSES, (status) => isTerminalTask(status as TaskStatus));
  if (filter === undefined) return { matched: 0, left_out: 0, rerun: [], refused: [], next: '' };
  const before = cursorOf(query);
  const limit = limitOf(query);
  const records = await parts.tasks.list(workspaceId, {
    ...filter,
    limit: limit + 1,
    ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, taskId: before.id } }),
  });
  if (records.length === 0) await mustBeNamed(parts, request);
  const { page, next } = pageOf(records, limit, (record) => ({ atMs: record.createdAtMs, id: record.taskId }));
  const done = await rerunAlready(parts, request, page);
  const chosen = page.filter(({ taskId }) => !done.has(taskId));
  const counts = { matched: chosen.length, left_out: page.length - chosen.length, next };
  if (query.dry_run === true) return { ...counts, rerun: [], refused: [] };
  // The oldest first, as their callers sent them.
  const results = await inTurns(chosen.toReversed(), async (record) => {
    const done = await runAgain(parts, caller, record, false);
    return 'error' in done ? done : { ...done, rerun_of: record.taskId };
  });
  return {
    ...counts,
    rerun: results.filter((one) => 'task_id' in one),
    refused: results.filter((one) => 'error' in one),
  };
}

/** Ids of the tasks that have a rerun: its own end counts instead of theirs. */
async function rerunAlready(
  { tasks }: TaskBulkParts,
  { workspaceId }: RestRequest,
  records: readonly TaskRecord[],
): Promise<ReadonlySet<string>> {
  if (records.length === 0) return new Set();
  const done = new Set<string>();
  let before: TaskFilter['before'];
  for (;;) {
    const reruns = await tasks.list(workspaceId, {
      rerunOf: records.map(({ taskId }) => taskId),
      limit: MOST_COUNTED,
      ...(before === undefined ? {} : { before }),
    });
    for (const { rerunOf } of reruns) if (rerunOf !== undefined) done.add(rerunOf);
    const last = reruns.at(-1);
    if (last === undefined || reruns.length < MOST_COUNTED) return done;
    before = { createdAtMs: last.createdAtMs, taskId: last.taskId };
  }
}

async function cancelTasksBy(
  parts: TaskBulkParts,
  request: RestRequest<Static<typeof CancelTasksQuery>>,
): Promise<CancelledTasks> {
  const { tasks, taskActions } = parts;
  const { caller, query, workspaceId } = request;
  const filter = filterFor(request, OPEN, (status) => OPEN.includes(status));
  if (filter === undefined) return { matched: 0, cancelled: [], refused: [], more: false };
  const limit = limitOf(query);
  const records = await tasks.list(workspaceId, { ...filter, limit: limit + 1 });
  if (records.length === 0) await mustBeNamed(parts, request);
  const page = records.slice(0, limit);
  const counts = { matched: page.length, more: records.length > limit };
  if (query.dry_run === true) return { ...counts, cancelled: [], refused: [] };
  const results = await inTurns(page, async ({ taskId }) => {
    const outcome = await taskActions.stopTasks({ ...caller, workspaceId }, [taskId]);
    return outcome.kind === 'stopped' ? taskId : { id: taskId, error: 'it changed hands meanwhile: cancel it again' };
  });
  return {
    ...counts,
    cancelled: results.filter((one) => typeof one === 'string'),
    refused: results.filter((one) => typeof one !== 'string'),
  };
}

/** Bound on the tasks that a request looks at. */
function limitOf({ limit = 0, dry_run: isDry }: { readonly limit?: number; readonly dry_run?: boolean }): number {
  const most = isDry === true ? MOST_COUNTED : MOST_CHANGED;
  return limit === 0 ? most : Math.min(limit, most);
}

/**
 * The filter of a request, which must name something: an empty one would mean a whole workspace. So does a parameter
 * that is there and empty, as a script sends it whose variable is not set.
 * @param ordinary - statuses where the request names none
 * @returns undefined: no task that the caller may see can match
 * @throws AppError `bad_request`
 */
function filterFor(
  {
    query,
    caller,
    http,
  }: Pick<RestRequest<Static<typeof RerunTasksQuery> | Static<typeof CancelTasksQuery>>, 'query' | 'caller' | 'http'>,
  ordinary: readonly string[],
  isMeant: (status: string) => boolean,
): Filter | undefined {
  const [empty] = Object.entries(http.query as Readonly<Record<string, unknown>>).find(
    ([name, value]) => value === '' && name !== 'cursor',
  ) ?? [undefined];
  if (empty !== undefined) throw new AppError('bad_request', `${empty}: is empty; leave it out, or name tasks by it`);
  const { dry_run: _dry, limit: _limit, ...named } = query;
  const { cursor: _cursor, ...filters } = { cursor: undefined, ...named };
  if (Object.values(filters).every((value) => value === undefined))
    throw new AppError('bad_request', 'name tasks: by status, deployment_ids, failure_reasons or another filter');
  const filter = filterOf(query, caller);
  const wrong = filter?.statuses?.find((status) => !isMeant(status));
  if (wrong !== undefined)
    throw new AppError('bad_request', `status: tasks that are ${wrong} cannot be changed in that way`);
  return filter === undefined ? undefined : { ...filter, statuses: filter.statuses ?? ordinary };
}

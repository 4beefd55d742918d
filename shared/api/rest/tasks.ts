import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Anything, Timestamp, nullable } from '../fields.ts';
import { AppRecord } from './app-record.ts';
import { Count, Id, Time, listOf } from './lists.ts';
import {
  PAGE,
  PAGE_OR_OFFSET,
  QueryFlag,
  QueryId,
  QueryIds,
  QueryInteger,
  QueryList,
  QueryText,
  QueryTime,
} from './query.ts';
import { StubRecord } from './stubs.ts';
import { WorkspaceRecord } from './workspaces.ts';

/** A task record, with fields in both spellings: published clients read the second. */
export const RestTask = Type.Object({
  id: Id(),
  external_id: Id(),
  status: Type.String({
    description: 'PENDING, RUNNING or RETRY; at the end COMPLETE, ERROR, CANCELLED, TIMEOUT or EXPIRED',
  }),
  failure_reason: Type.String(),
  container_id: Type.String({ description: 'empty: not claimed yet' }),
  started_at: Timestamp(),
  ended_at: Timestamp(),
  created_at: Time(),
  updated_at: Time(),
  deployment: Type.Object({ id: nullable(Id()), name: nullable(Type.String()), version: nullable(Count()) }),
  stub: nullable(StubRecord),
  app: nullable(AppRecord),
  workspace: nullable(WorkspaceRecord),
  external_workspace: nullable(WorkspaceRecord),
  outputs: Type.Array(Type.Object({ name: Type.String(), url: Type.String(), expires_in: Count('seconds') }), {
    description: 'files that it saved; empty with skip_details',
  }),
  stats: nullable(
    Type.Object({ active_containers: Count(), queue_depth: Count() }, { description: 'of its stub, when it was read' }),
  ),
  attempts: Type.Array(
    Type.Object({
      attempt: Count('numbers have gaps where a container never began the task'),
      container_id: Type.String(),
      machine_id: Type.String({ description: 'empty: not known' }),
      started_at: Timestamp(),
      ended_at: Timestamp(),
      outcome: Type.String({ description: 'running, complete, or why it ended' }),
      error: Type.String({ description: 'the first line of its error; empty: it has none' }),
    }),
    { description: 'those that a container had; empty in lists' },
  ),
  input: nullable(
    Type.Object(
      {
        kept: Type.Boolean(),
        bytes: nullable(Count('null: not known')),
        why_not: Type.String({ description: 'why it is not kept; empty: it is' }),
      },
      { description: 'null in lists' },
    ),
  ),
  rerun_of: Type.String({ description: 'the task whose input it has; empty: it is a call of its own' }),
  redriven_from: Type.String({ description: 'the dead task that it stands for; empty: none' }),
  result: Anything({ description: 'JSON, or {"base64": …} of what is none; null in lists' }),
  result_left_out: Type.Optional(Type.Boolean({ description: 'true: the result is longer than short allows' })),
  handler: Type.String({ description: 'file and function of its stub; empty: the stub is gone, or has none' }),
  stub_id: Id(),
  stub_name: Type.String(),
  workspace_id: Id(),
  workspace_name: Type.String(),
  containerId: Type.String(),
  startedAt: Timestamp(),
  endedAt: Timestamp(),
  createdAt: Time(),
  updatedAt: Time(),
  stubId: Id(),
  stubName: Type.String(),
  workspaceId: Id(),
  workspaceName: Type.String(),
});
export type RestTask = Static<typeof RestTask>;

export const OneTaskQuery = Type.Object({
  short: QueryFlag('true: without a result of more than 16,384 characters'),
});

/** Body and query of a task's call, as they came. */
export const TaskInput = Type.Object({
  task_id: Id(),
  bytes: Count('of the input, as UTF-8'),
  input: Type.String({ description: 'the body; empty: there was none' }),
  query: Type.Record(Type.String(), Type.Array(Type.String())),
});

/** A task that has the input of another one. */
export const Rerun = Type.Object({
  task_id: Id(),
  rerun_of: Id(),
  deployment_id: Type.String({ description: 'of the version that runs it; empty: a stub without a deployment' }),
  deployment_name: Type.String(),
  version: nullable(Count()),
});

/** Ids of dead tasks. */
export const DeadTasks = Type.Object({ ids: Type.Array(Type.String(), { description: 'at most 500' }) });

export const Redriven = Type.Object({
  redriven: Type.Array(
    Type.Object({
      task_id: Id(),
      redriven_from: Id(),
      deployment_id: Type.String({ description: 'of the version that runs it; empty: a stub without a deployment' }),
      deployment_name: Type.String(),
      version: nullable(Count()),
    }),
  ),
  refused: Type.Array(
    Type.Object({
      id: Type.String({ description: 'as it was given' }),
      error: Type.String({ description: 'why it was not redriven' }),
    }),
  ),
});

export const Dropped = Type.Object({ dropped: Type.Array(Id(), { description: 'those that were dead' }) });

const TASK_FILTERS = {
  status: QueryList(),
  failure_reasons: QueryList(),
  task_ids: QueryIds(),
  stub_ids: QueryIds(),
  stub_names: QueryList(),
  stub_types: QueryList(),
  deployment_ids: QueryIds(),
  deployment_name: QueryText('a whole name: its tasks of all versions. 404 where no deployment has it'),
  container_ids: QueryIds(),
  app_id: QueryId(),
  created_at_start: QueryTime(),
  created_at_end: QueryTime(),
  min_duration: QueryInteger('milliseconds'),
  max_duration: QueryInteger('milliseconds'),
};

export const TaskQuery = Type.Object({
  ...TASK_FILTERS,
  skip_details: QueryFlag('true: without stats and outputs'),
  dead: QueryFlag('asynchronous tasks that failed for good and whose input is kept; those that ended last first'),
  public: QueryFlag("calls that this workspace made of other workspaces' public deployments, instead of its own tasks"),
  all: QueryFlag('its own tasks and those calls'),
  ...PAGE_OR_OFFSET,
});
export type TaskQuery = Static<typeof TaskQuery>;

export const RestTaskList = listOf(RestTask);

/** A task in a few hundred bytes: no configuration, no result. */
export const TaskSummary = Type.Object({
  id: Id(),
  status: Type.String(),
  failure_reason: Type.String({ description: 'empty: it did not fail' }),
  error: Type.String({ description: 'the first line of its error; empty: it has none' }),
  attempt: Count('0: no container had it'),
  sync: Type.Boolean({ description: 'whether a caller waits for it' }),
  stub_id: Id(),
  stub_name: Type.String(),
  stub_type: Type.String({ description: 'empty: the stub is gone' }),
  deployment_id: Type.String({ description: 'empty: of a stub without a deployment' }),
  deployment_name: Type.String(),
  deployment_version: nullable(Count()),
  container_id: Type.String({ description: 'empty: not claimed yet' }),
  created_at: Time(),
  started_at: Timestamp(),
  ended_at: Timestamp(),
  waited_ms: nullable(Count('from its creation to the start of its last attempt; null: it has not started')),
  duration_ms: nullable(Count('of its last attempt; null: it has not ended, or never started')),
  rerun_of: Type.String({ description: 'the task whose input it has; empty: it is a call of its own' }),
});
export type TaskSummary = Static<typeof TaskSummary>;

export const TaskSummaryQuery = Type.Object({ ...TASK_FILTERS, ...PAGE });
export type TaskSummaryQuery = Static<typeof TaskSummaryQuery>;

export const TaskSummaries = listOf(TaskSummary);

/** Tasks that one request changes at most, and tasks that a dry run counts at most. */
export const MOST_CHANGED = 200;
export const MOST_COUNTED = 1_000;

const BY_FILTER = {
  ...TASK_FILTERS,
  dry_run: QueryFlag(`true: only count them, up to ${MOST_COUNTED}`),
  limit: QueryInteger(`tasks that are looked at: ${MOST_CHANGED} when absent, and at most`),
};

/** Which tasks run again: those that failed where no status is named. One that was run again already is left out. */
export const RerunTasksQuery = Type.Object({ ...BY_FILTER, cursor: QueryText('next of the answer before') });

/** Which tasks are cancelled: all that are open where no status is named. */
export const CancelTasksQuery = Type.Object(BY_FILTER);

const ChangedTasks = {
  matched: Count('tasks that the filter means, of those looked at'),
  refused: Type.Array(Type.Object({ id: Id(), error: Type.String() }), { description: 'why a task was not changed' }),
};

export const RerunTasks = Type.Object({
  ...ChangedTasks,
  left_out: Count('tasks that match, and were run again already'),
  rerun: Type.Array(Rerun),
  next: Type.String({ description: 'cursor behind the tasks that were looked at; empty: they were all' }),
});
export type RerunTasks = Static<typeof RerunTasks>;

export const CancelledTasks = Type.Object({
  ...ChangedTasks,
  cancelled: Type.Array(Id()),
  more: Type.Boolean({ description: 'true: more tasks match. The same request goes on with them' }),
});
export type CancelledTasks = Static<typeof CancelledTasks>;

export const CancelQuery = Type.Object({ task_ids: QueryIds() });

/** Ids in the query and under both names count together: at least 1, at most 1000. */
export const CancelTasks = Type.Object({ ids: Type.Array(Type.String()), task_ids: Type.Array(Type.String()) });

/** Unknown and finished ids are skipped, so the answer names none. */
export const Cancelled = Type.Object({});

/** The answer to invoking an asynchronous kind. */
export const TaskAccepted = Type.Object({
  task_id: nullable(Id()),
  skipped: Type.Optional(
    Type.Union([Type.Literal('rate'), Type.Literal('singleton'), Type.Literal('debounce')], {
      description:
        'flow control made no task of the call. rate: task_id is null; singleton: task_id is the open task; debounce: task_id is the task that has the input now',
    }),
  ),
});

/** The answer to many calls in one request. */
export const TasksAccepted = Type.Object({
  task_ids: Type.Array(nullable(Id()), {
    description: 'in the order of the lines; null: this call was not taken, or flow control dropped it',
  }),
  refused: Type.Optional(
    Type.Object(
      { status: Type.Integer(), error: Type.String() },
      { description: 'why the first of those was not taken' },
    ),
  ),
});

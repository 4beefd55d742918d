import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Id, OneOf, Time } from './lists.ts';
import { START_AND_END } from './events.ts';
import { QueryId, QueryInteger, QueryText, QueryTime } from './query.ts';

export const LogRecord = Type.Object({
  seq_num: Count(),
  stored_at_ns: Count(),
  timestamp: Time(),
  message: Type.String({ description: 'one line' }),
  stream: OneOf(['stdout', 'stderr']),
  container_id: Type.String(),
  stub_id: Id(),
  stub_type: Type.Optional(Type.String()),
  app_id: Type.Optional(Id()),
  deployment_id: Type.Optional(Id()),
  task_id: Type.Optional(Id()),
  machine_id: Type.Optional(Type.String({ description: 'absent: the record of its container is gone' })),
  worker_id: Type.Optional(Type.String({ description: 'equal to machine_id' })),
  workspace_id: Id(),
});
export type LogRecord = Static<typeof LogRecord>;

const ABOUT = {
  object_type: QueryText('workspace, deployment, task, stub, container, app or machine; BETA9_TASK and its likes too'),
  object_id: QueryId(),
  container_id: QueryId(),
  task_id: QueryId(),
  stub_id: QueryId(),
  deployment_id: QueryId(),
  app_id: QueryId(),
  machine_id: QueryText(),
  worker_id: QueryText('as machine_id, where that is not said', { unless: 'machine_id' }),
  query: QueryText('part of a line, in any case; 50000 lines are looked at per request, newest first'),
};

export const LogQuery = Type.Object({
  ...ABOUT,
  limit: QueryInteger('100 when absent or 0, 1000 at most'),
  size: QueryInteger('as limit, where that is not said', { unless: 'limit' }),
  page: QueryInteger('0: the newest lines; at most 10000 lines back'),
  after_seq: QueryInteger('only lines after this seq_num, oldest first'),
  before_seq: QueryInteger('only lines before this seq_num: goes on where a page stopped'),
  start_time: QueryTime(),
  end_time: QueryTime('exclusive'),
});
export type LogQuery = Static<typeof LogQuery>;

const { limit: _limit, ...STREAM } = START_AND_END;

/** Lines as they come; `limit` and `page` bound no stream. */
export const LogStreamQuery = Type.Object({ ...ABOUT, ...STREAM });
export type LogStreamQuery = Static<typeof LogStreamQuery>;

export const LogPage = Type.Object({
  object_id: Type.String(),
  object_type: Type.String(),
  logs: Type.Array(LogRecord, { description: 'some 16 MiB at most: go on with next_before_seq or next_after_seq' }),
  total_expected: Count('known so far, and one more while there are more'),
  next_before_seq: Type.Optional(
    Count('lines before it were not looked at yet: the before_seq to go on with; absent: all were'),
  ),
  next_after_seq: Type.Optional(Count('with after_seq: the after_seq to go on with; absent: all were looked at')),
  next_cursor: Type.Optional(Type.String({ description: 'the next page; absent: the last' })),
});

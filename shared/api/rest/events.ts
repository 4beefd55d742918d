import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Id, Time } from './lists.ts';
import { QueryFlag, QueryId, QueryInteger, QueryList, QueryText, QueryTime } from './query.ts';

const Ids = {
  container_id: Type.Optional(Type.String()),
  stub_id: Type.Optional(Id()),
  stub_type: Type.Optional(Type.String()),
  task_id: Type.Optional(Id()),
  app_id: Type.Optional(Id()),
  machine_id: Type.Optional(Type.String()),
  worker_id: Type.Optional(Type.String()),
};

/** Fields of a kind; docs/events.md has them. */
const Data = () =>
  Type.Unsafe<Readonly<Record<string, unknown>>>({ type: 'object', description: 'fields of the kind' });

/** An event as CloudEvents 1.0 in JSON, as webhooks get it. */
export const CloudEvent = Type.Object({
  specversion: Type.Unsafe<'1.0'>({ type: 'string', const: '1.0' }),
  id: Type.String({ description: '24 hex characters' }),
  source: Type.String(),
  type: Type.String(),
  time: Time(),
  datacontenttype: Type.Unsafe<'application/json'>({ type: 'string', const: 'application/json' }),
  workspaceid: Id(),
  stubid: Type.Optional(Id()),
  taskid: Type.Optional(Id()),
  appid: Type.Optional(Id()),
  containerid: Type.Optional(Type.String()),
  workerid: Type.Optional(Type.String()),
  machineid: Type.Optional(Type.String()),
  poolname: Type.Optional(Type.String()),
  data: Data(),
});
export type CloudEvent = Static<typeof CloudEvent>;

/** An event in history and in streams. */
export const EventRecord = Type.Object({
  seq_num: Count('number within the workspace, in the order of commits; numbers may be missing'),
  stored_at_ns: Count(),
  type: Type.String(),
  timestamp: Time(),
  event_id: Type.Optional(Type.String({ description: 'of container events: what happened, such as runtime.exited' })),
  domain: Type.Optional(Type.String()),
  parent_id: Type.Optional(Type.String()),
  start_time: Type.Optional(Time()),
  end_time: Type.Optional(Time()),
  duration_ms: Type.Optional(Type.Number()),
  success: Type.Optional(Type.Boolean()),
  reason: Type.Optional(Type.String()),
  source: Type.Optional(Type.String()),
  message: Type.Optional(Type.String()),
  attrs: Type.Optional(Type.Unsafe<Readonly<Record<string, string>>>({ type: 'object' })),
  stream: Type.Optional(Type.String({ description: 'of container.log: stdout or stderr' })),
  line: Type.Optional(Type.String({ description: 'of container.log: the line that was printed' })),
  workspace_id: Id(),
  ...Ids,
  data: Data(),
  cloud_event: CloudEvent,
});
export type EventRecord = Static<typeof EventRecord>;

const ABOUT = {
  event_types: QueryList('kinds, or the begin of kinds before a *; all but audit.* when absent'),
  stub_id: QueryId(),
  app_id: QueryId(),
  task_id: QueryId(),
  container_id: QueryId(),
};

export const EventQuery = Type.Object({
  ...ABOUT,
  limit: QueryInteger('10000 when absent, 50000 at most; not 0'),
  exclude_actions: QueryList('without events whose data.action is one of these'),
  start_time: QueryTime(),
  end_time: QueryTime('exclusive'),
  before_seq: QueryInteger('only events before this seq_num: goes on where an answer was cut'),
});
export type EventQuery = Static<typeof EventQuery>;

export const EventHistory = Type.Object({
  events: Type.Array(EventRecord, { description: 'by time, then by seq_num' }),
  scanned_records: Count('rows that were looked at; 50000 at most'),
  truncated: Type.Boolean({ description: 'older events that match may exist: go on with next_before_seq' }),
  next_before_seq: Type.Optional(Count('the before_seq to go on with; absent: all were looked at')),
});
export type EventHistory = Static<typeof EventHistory>;

/** Where a stream begins and ends. */
export const START_AND_END = {
  seq_num: QueryInteger('first number to send'),
  timestamp: QueryText('first time to send: unix milliseconds, or RFC 3339'),
  start_time: QueryText('as timestamp'),
  tail_offset: QueryInteger('begin so many matching records before the newest; 10000 at most'),
  wait: QueryInteger('seconds to wait for something new at the newest record, then close'),
  until: QueryText('close at this time: unix milliseconds, or RFC 3339'),
  clamp: QueryFlag('begin at the newest record where the start lies beyond it; true when absent. false: 416'),
  limit: QueryInteger('close after so many records'),
};

export const EventStreamQuery = Type.Object({ ...ABOUT, ...START_AND_END });
export type EventStreamQuery = Static<typeof EventStreamQuery>;

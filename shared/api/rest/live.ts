// Frames of `GET /live/{ws}`: answers of routes as they change.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Time } from './lists.ts';
import { QueryInteger, QueryList } from './query.ts';

export const LiveQuery = Type.Object({
  topics: QueryList(
    'what to follow: overview, deployment:NAME, explain:ID, task:ID, tasks:FILTER, stats:FILTER, waiting, gpus:FILTER, logs:FILTER. A filter is the query of the route, with its commas escaped',
  ),
  wait: QueryInteger('seconds after which the stream ends; absent: it lasts'),
});

/** A frame's data. The event says which fields it has. */
export const LiveFrame = Type.Object({
  topic: Type.String({ description: 'as the request named it' }),
  at: Type.Optional(Time()),
  value: Type.Optional(Type.Unknown({ description: 'whole: the answer of the route' })),
  order: Type.Optional(Type.Array(Type.String(), { description: 'changed: ids of all rows in their order' })),
  rows: Type.Optional(Type.Array(Type.Unknown(), { description: 'changed: rows that are new or other' })),
  fields: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), { description: 'changed: other fields of the answer' }),
  ),
  lines: Type.Optional(Type.Array(Type.Unknown(), { description: 'lines: log records' })),
  status: Type.Optional(Type.Integer({ description: 'failed: as the route would answer' })),
  code: Type.Optional(Type.String()),
  message: Type.Optional(Type.String()),
});
export type LiveFrame = Static<typeof LiveFrame>;

// History of events, and the stream of new ones. Source: reference, REST §9.3 and §10.3.
import { EventHistory, EventQuery, EventRecord, EventStreamQuery } from '#shared/api/rest/events.ts';
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { TaskReads } from '../../../tasks/records/reads.ts';
import { eventRecordOf } from '../../../workspaces/events/envelope.ts';
import { asksForCallers, isTypeEntry } from '../../../workspaces/events/kinds.ts';
import type { EventFilter, EventReads } from '../../../workspaces/events/reads.ts';
import type { EventHub } from '../../../workspaces/events/source.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import type { Grants } from '../../../workspaces/identity/confinement.ts';
import { passingBeside } from './passing-stream.ts';
import type { PassingStreamParts } from './passing-stream.ts';
import { restRoute, streamRoute } from './route.ts';
import type { RestRoute } from './route.ts';
import { openRowStream } from './row-stream.ts';
import { endOf, firstSeq, startOf } from './stream-start.ts';

export interface EventRouteParts {
  readonly events: {
    readonly reads: Pick<EventReads, 'latest' | 'seqAt'>;
    readonly hub: EventHub;
  } & PassingStreamParts['events'];
  readonly liveLogs: PassingStreamParts['liveLogs'];
  readonly tasks: Pick<TaskReads, 'read'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

const DEFAULT_LIMIT = 10_000;
const MAX_LIMIT = 50_000;
const MOST_ENTRIES = 50;
const READERS = { scopes: ['read'], confinesToApp: true } as const satisfies Grants;

export const eventRoutes = (parts: EventRouteParts): readonly RestRoute[] => [history(parts), stream(parts)];

/** Events that happened, oldest first; without a range of time the newest ones. */
function history(parts: EventRouteParts): RestRoute {
  return restRoute({
    http: 'GET /events/{ws}/history',
    summary: 'Events that happened, by time',
    ofDeleted: true,
    grants: READERS,
    query: EventQuery,
    answer: EventHistory,
    errors: ['task_not_found'],
    handle: async ({ caller, workspaceId, query }) => {
      const { limit = DEFAULT_LIMIT, start_time: fromMs, end_time: toMs } = query;
      if (limit === 0) throw new AppError('invalid_query', 'query parameter limit must be 1 or more');
      if (fromMs !== undefined && toMs !== undefined && toMs <= fromMs)
        throw new AppError('invalid_query', 'query parameter end_time must be after start_time');
      const filter: EventFilter = {
        ...(await filterOf(parts, caller, workspaceId, query)),
        ...(query.exclude_actions === undefined ? {} : { withoutActions: query.exclude_actions }),
        ...(fromMs === undefined ? {} : { fromMs }),
        ...(toMs === undefined ? {} : { toMs }),
      };
      const most = Math.min(limit, MAX_LIMIT);
      const { events, scanned, nextBeforeSeq } = await parts.events.reads.latest(
        workspaceId,
        filter,
        most,
        query.before_seq,
      );
      return {
        events: events.toSorted((a, b) => a.atMs - b.atMs || a.seq - b.seq).map(eventRecordOf),
        scanned_records: scanned,
        truncated: nextBeforeSeq !== undefined,
        ...(nextBeforeSeq === undefined ? {} : { next_before_seq: nextBeforeSeq }),
      };
    },
  });
}

/** Events as they come, and before them those since a number or a time. */
function stream(parts: EventRouteParts): RestRoute {
  return streamRoute({
    http: 'GET /events/{ws}/stream',
    summary: 'Events as they come',
    grants: READERS,
    kind: 'events',
    query: EventStreamQuery,
    frames: { description: 'id: seq_num, event: the kind, data: the record.', data: EventRecord },
    errors: ['bad_request', 'task_not_found', 'range_not_satisfiable'],
    open: async ({ caller, workspaceId, query, http }) => {
      const { hub, reads } = parts.events;
      const start = startOf(query, http.headers);
      const end = endOf(query);
      const filter = await filterOf(parts, caller, workspaceId, query);
      const fromSeq = await firstSeq(start, query.clamp ?? true, {
        nowMs: parts.clock.nowMs(),
        tail: () => hub.tailOf(workspaceId),
        seqAt: (ms) => reads.seqAt(workspaceId, ms),
        seqOfOffset: async (rows) => (await reads.latest(workspaceId, filter, rows)).events[0]?.seq,
      });
      const { clock, log } = parts;
      const beside = passingBeside(parts, workspaceId, filter);
      return await openRowStream({ hub, workspaceId, filter, fromSeq, end, nowMs: () => clock.nowMs(), log, beside });
    },
  });
}

/**
 * Events that the query names.
 * @throws AppError `invalid_query`; `unauthorized`: who called is for administrators and primary tokens;
 * `task_not_found`
 */
async function filterOf(
  { tasks }: Pick<EventRouteParts, 'tasks'>,
  caller: Caller,
  workspaceId: WorkspaceId,
  query: EventQuery | EventStreamQuery,
): Promise<EventFilter> {
  const { event_types: types, stub_id: stubId, app_id: appId, task_id: taskId, container_id: containerId } = query;
  const wrong = types?.find((entry) => !isTypeEntry(entry));
  if (wrong !== undefined || (types?.length ?? 0) > MOST_ENTRIES)
    throw new AppError(
      'invalid_query',
      `query parameter event_types must be at most ${MOST_ENTRIES} kinds such as task.updated, or their begin before a *`,
    );
  if (asksForCallers(types) && !caller.isAdmin && caller.type !== 'workspace_primary')
    throw new AppError('unauthorized', 'Unauthorized');
  if (appId !== undefined && isOutside(caller, appId))
    throw new AppError('unauthorized', 'Unauthorized: this token counts for one app alone');
  if (taskId !== undefined && (await tasks.read(workspaceId, taskId)) === undefined)
    throw new AppError('task_not_found', 'task not found');
  return {
    ...(types === undefined ? {} : { types }),
    ...(stubId === undefined ? {} : { stubId }),
    ...(appId === undefined ? {} : { appId }),
    ...ownApp(caller),
    ...(taskId === undefined ? {} : { taskId }),
    ...(containerId === undefined ? {} : { containerId }),
  };
}

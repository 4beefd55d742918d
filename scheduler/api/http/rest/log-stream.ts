// Log lines as they come. Source: reference, REST §10.2.
import { LogRecord, LogStreamQuery } from '#shared/api/rest/logs.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { LiveLine, LiveLogs, LogHub } from '../../../fleet/logs/live-logs.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import { aboutOf, checkLogObjects, logRecord, OBJECT_ERRORS } from './logs.ts';
import type { LogObjectParts } from './logs.ts';
import { streamRoute } from './route.ts';
import type { RestRoute } from './route.ts';
import { openRowStream } from './row-stream.ts';
import { endOf, firstSeq, startOf } from './stream-start.ts';

export interface LogStreamParts extends LogObjectParts {
  readonly logs: LogReads;
  readonly liveLogs: { readonly lines: Pick<LiveLogs, 'idAt'>; readonly hub: LogHub };
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

/** A line as a stream sends it. */
export const logFrame = (line: LiveLine): Buffer =>
  Buffer.from(`id: ${line.seq}\nevent: log\ndata: ${JSON.stringify(logRecord(line))}\n\n`);

/** Lines as they are written, and before them those since a number or a time. */
export function logStream(parts: LogStreamParts): RestRoute {
  return streamRoute({
    http: 'GET /logs/{ws}/stream',
    summary: 'Log lines as they come',
    kind: 'logs',
    grants: { scopes: ['read'], confinesToApp: true },
    query: LogStreamQuery,
    frames: { description: 'id: seq_num, event: log, data: the record.', data: LogRecord },
    errors: ['bad_request', 'range_not_satisfiable', ...OBJECT_ERRORS],
    open: async ({ caller, workspaceId, query, http }) => {
      const { hub, lines } = parts.liveLogs;
      const start = startOf(query, http.headers);
      const end = endOf(query);
      const { about } = aboutOf(query, workspaceId);
      if (about.appId !== undefined && isOutside(caller, about.appId)) throw new AppError('not_found', 'app not found');
      await checkLogObjects(parts, about, { workspaceId, isAdmin: caller.isAdmin });
      const filter = { ...about, ...ownApp(caller), ...(query.query === undefined ? {} : { query: query.query }) };
      const fromSeq = await firstSeq(start, query.clamp ?? true, {
        nowMs: parts.clock.nowMs(),
        tail: () => hub.tailOf(workspaceId),
        seqAt: (ms) => lines.idAt(workspaceId, ms),
        // The lines before it are passed over, and not kept in memory.
        seqOfOffset: async (rows) =>
          (await parts.logs.read(workspaceId, { ...filter, limit: 1, page: rows - 1 })).lastSeq,
      });
      const { clock, log } = parts;
      return await openRowStream({ hub, workspaceId, filter, fromSeq, end, nowMs: () => clock.nowMs(), log });
    },
  });
}

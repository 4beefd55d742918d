// Log lines for live readers: the rows, and their readers at this replica.
import { logFrame } from '../api/http/rest/log-stream.ts';
import { LiveLogs } from '../fleet/logs/live-logs.ts';
import type { LogHub } from '../fleet/logs/live-logs.ts';
import type { DeploymentParts } from './deployments.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface LiveLogParts {
  readonly lines: LiveLogs;
  readonly hub: LogHub;
}

export function openLiveLogs(
  { db, log }: Pick<Infrastructure, 'db' | 'log'>,
  { directory }: Pick<DeploymentParts, 'directory'>,
  { metrics }: Pick<Events, 'metrics'>,
): LiveLogParts {
  const lines = new LiveLogs({ db, owners: directory });
  return { lines, hub: lines.hub(logFrame, { log, onPage: () => metrics.pages.inc({ rows: 'logs' }) }) };
}

// Events of workspaces: who writes them, who reads them, and who is told.
import { EventMetrics } from '../workspaces/events/metrics.ts';
import { EventReads } from '../workspaces/events/reads.ts';
import { eventHub } from '../workspaces/events/source.ts';
import type { EventHub } from '../workspaces/events/source.ts';
import { EventWriter } from '../workspaces/events/writer.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface Events {
  readonly writer: EventWriter;
  readonly reads: EventReads;
  /** Live readers at this replica. */
  readonly hub: EventHub;
}

export function openEvents({ db, registry, log }: Pick<Infrastructure, 'db' | 'registry' | 'log'>): Events {
  const reads = new EventReads(db);
  const metrics = new EventMetrics(registry);
  const hub = eventHub(reads, { log, onPage: () => metrics.pages.inc({ rows: 'events' }) });
  return { writer: new EventWriter(), reads, hub };
}

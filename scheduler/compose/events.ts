// Events of workspaces: who writes them, who reads them, and who is told.
import { CollectedEvents } from '../workspaces/events/collected.ts';
import { EventMetrics } from '../workspaces/events/metrics.ts';
import { PassingEvents } from '../workspaces/events/passing.ts';
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
  /** Events that live streams get, and that are not stored. */
  readonly passing: PassingEvents;
  /** Events that no change of a row brings. */
  readonly collected: CollectedEvents;
  readonly metrics: EventMetrics;
}

export function openEvents({
  db,
  registry,
  clock,
  log,
}: Pick<Infrastructure, 'db' | 'registry' | 'clock' | 'log'>): Events {
  const reads = new EventReads(db);
  const metrics = new EventMetrics(registry);
  const hub = eventHub(reads, { log, onPage: () => metrics.pages.inc({ rows: 'events' }) });
  const passing = new PassingEvents({ nowMs: () => clock.nowMs() });
  const writer = new EventWriter();
  const collected = new CollectedEvents({ db, writer, log });
  return { writer, reads, hub, passing, collected, metrics };
}

// Events as the hub of live readers takes them.
import type { EventRead } from '../../stores/store/queries/event-reads.ts';
import { eventRecordOf } from './envelope.ts';
import { Hub } from './hub.ts';
import type { HubParts } from './hub.ts';
import { passes } from './reads.ts';
import type { EventFilter, EventReads } from './reads.ts';

/** Bytes that an event has in memory beside its data, and those of its frame. */
const BYTES_BESIDE = 2_500;
/** The data stands twice in a frame, and once in the row. */
const COPIES = 4;

export type EventHub = Hub<EventRead, EventFilter>;

export function eventHub(reads: EventReads, parts: Omit<HubParts<EventRead, EventFilter>, 'source'>): EventHub {
  return new Hub<EventRead, EventFilter>({
    ...parts,
    source: {
      tails: (workspaceIds) => reads.tails(workspaceIds),
      startOf: (_workspaceId, tail, most) => Math.max(0, tail - most),
      next: (workspaceId, afterSeq, limit) => reads.next(workspaceId, afterSeq, limit),
      after: (workspaceId, filter, afterSeq, untilSeq, limit) =>
        reads.after(workspaceId, filter, afterSeq, untilSeq, limit),
      passes,
      frameOf: (event) =>
        Buffer.from(`id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify(eventRecordOf(event))}\n\n`),
      sizeOf: (event) => COPIES * event.dataBytes + BYTES_BESIDE,
    },
  });
}

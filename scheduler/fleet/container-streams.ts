// Streams into containers, which this replica orders from agents: each is a connection to the container's supervisor
// (docs/supervisor-protocol.md), whose first frame is a `request`.
import type { ServeContainer } from '#shared/protocol/generated/messages.ts';
import { OrderedStreams } from './ordered-streams.ts';

/** A container, as an agent must know it. */
export type OrderedContainer = Required<Pick<ServeContainer, 'containerId'>>;

export class ContainerStreams extends OrderedStreams<OrderedContainer> {}

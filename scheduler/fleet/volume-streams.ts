// Streams to the files of volumes, which this replica orders from agents.
import type { ServeVolume } from '#shared/protocol/generated/messages.ts';
import { OrderedStreams } from './ordered-streams.ts';

/** A volume, as an agent must know it. */
export type OrderedVolume = Required<Pick<ServeVolume, 'workspaceId' | 'volumeId' | 'driver'>>;

export class VolumeStreams extends OrderedStreams<OrderedVolume> {}

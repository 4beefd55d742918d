import { Type } from 'typebox';
import type { Static } from 'typebox';
import { MOST_RECORDING_SECONDS } from '../../domain/recordings.ts';
import { Timestamp } from '../fields.ts';
import { Count, listOf } from './lists.ts';

export const RecordingRecord = Type.Object({
  name: Type.String(),
  path: Type.String({ description: 'where the file is, on that host' }),
  host: Type.String({ description: 'host of the scheduler that leads, which writes the file' }),
  started_at: Timestamp(),
  bytes: Count(),
  state: Type.Enum(['recording', 'ended']),
  reason: Type.String({
    description:
      'why it ended: time, bytes, stopped, leadership (another scheduler leads), disk_slow, disk_failed, or cut (the scheduler was killed); empty: it goes on',
  }),
});
export type RecordingRecord = Static<typeof RecordingRecord>;

export const RecordingList = listOf(RecordingRecord);

export const StartRecording = Type.Object({
  seconds: Type.Integer({
    minimum: 1,
    maximum: MOST_RECORDING_SECONDS,
    default: 3600,
    description: 'the recording ends after them',
  }),
});

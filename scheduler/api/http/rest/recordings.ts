// Recordings of placement, for the administrator. The scheduler that leads writes them; any other passes the request
// on to it.
import { timestampOf } from '#shared/api/fields.ts';
import { RecordingList, RecordingRecord, StartRecording } from '#shared/api/rest/recordings.ts';
import type { Recording, RecordingRequest } from '../../../control/placement/recordings.ts';
import { notLeading } from '../../../control/placement/recordings.ts';
import type { AuditKind } from '../../../workspaces/events/audit.ts';
import type { InstallationTrail } from '../../../workspaces/events/installation-trail.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface RecordingRouteParts {
  /** Asks the leader. @throws AppError with a code that has a status */
  readonly recording: (request: RecordingRequest) => Promise<readonly Recording[]>;
  readonly trail: Pick<InstallationTrail, 'transaction'>;
}

export function recordingRoutes(parts: RecordingRouteParts): readonly RestRoute[] {
  /** The file has no transaction, so the entry is written once it is there. */
  const told = async (
    request: Parameters<typeof actorBehind>[0],
    kind: AuditKind,
    { name, host }: RecordingRecord,
    attrs: { readonly seconds?: number } = {},
  ): Promise<void> => {
    const target = { type: 'recording', id: name, name };
    await parts.trail.transaction((_tx, say) => {
      say(actorBehind(request), kind, { workspaceId: null, target, attrs: { host, ...attrs } });
      return Promise.resolve();
    });
  };
  const one = async (request: RecordingRequest): Promise<RecordingRecord> => {
    const [recording] = await parts.recording(request);
    if (recording === undefined) throw notLeading();
    return recordOf(recording);
  };
  return [
    restRoute({
      http: 'GET /recording',
      grants: NOT_LIMITED,
      tag: 'installation',
      summary: 'Recordings of placement on the host of the scheduler that leads, the newest first (administrator)',
      scope: 'admin',
      answer: RecordingList,
      errors: ['not_leading'],
      handle: async () => ({ data: (await parts.recording({ kind: 'list' })).map(recordOf), next: '' }),
    }),
    restRoute({
      http: 'POST /recording',
      tag: 'installation',
      summary: 'Record what placement is told and decides, into a file of the scheduler that leads (administrator)',
      scope: 'admin',
      status: 201,
      body: StartRecording,
      answer: RecordingRecord,
      errors: ['recording_under_way', 'recording_failed', 'not_leading'],
      handle: async (request) => {
        const { seconds } = request.body;
        const begun = await one({ kind: 'begin', seconds });
        await told(request, 'audit.recording.started', begun, { seconds });
        return begun;
      },
    }),
    restRoute({
      http: 'DELETE /recording',
      tag: 'installation',
      summary: 'End the recording that goes on; its file stays (administrator)',
      scope: 'admin',
      answer: RecordingRecord,
      errors: ['recording_not_found', 'not_leading'],
      handle: async (request) => {
        const ended = await one({ kind: 'end' });
        await told(request, 'audit.recording.stopped', ended);
        return ended;
      },
    }),
  ];
}

const recordOf = ({ name, path, host, startedAtMs, bytes, ended }: Recording): RecordingRecord => ({
  name,
  path,
  host,
  started_at: timestampOf(startedAtMs),
  bytes,
  state: ended === undefined ? 'recording' : 'ended',
  reason: ended ?? '',
});

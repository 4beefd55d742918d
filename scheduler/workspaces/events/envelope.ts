// The two forms of an event for people and programs: the CloudEvent that webhooks deliver, and the record of history
// and streams, which has it inside. Source: reference, REST §2.8 and §9.1. Pure.
import { timestampOf } from '#shared/api/fields.ts';
import type { CloudEvent, EventRecord } from '#shared/api/rest/events.ts';
import type { EventRow } from '../../stores/store/queries/events.ts';

/** Fields of the envelope of any event; `seq` and `storedAtMs` are a row's alone. */
export type ToldEvent = Omit<EventRow, 'seq' | 'storedAtMs'>;

const SOURCE = 'longshore';

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);
const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

/** The object without its undefined fields. */
function known<const Fields extends Readonly<Record<string, unknown>>>(fields: Fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Fields]?: Exclude<Fields[Name], undefined>;
  };
}

/** Data of an event. Those of containers have the ids that only the event's row knows. */
const dataOf = ({ type, stubType, appId, data }: ToldEvent): EventRow['data'] =>
  type.startsWith('container.') ? { ...known({ stub_type: stubType, app_id: appId }), ...data } : data;

export function cloudEventOf(event: ToldEvent): CloudEvent {
  return {
    specversion: '1.0',
    id: event.id,
    source: SOURCE,
    type: event.type,
    time: timestampOf(event.atMs),
    datacontenttype: 'application/json',
    workspaceid: event.workspaceId,
    ...known({
      stubid: event.stubId,
      taskid: event.taskId,
      appid: event.appId,
      containerid: event.containerId,
      workerid: event.machineId,
      machineid: event.machineId,
      poolname: textOf(event.data['pool_name']),
    }),
    data: dataOf(event),
  };
}

export function eventRecordOf(event: EventRow): EventRecord {
  const data = dataOf(event);
  return {
    seq_num: event.seq,
    stored_at_ns: event.storedAtMs * 1_000_000,
    type: event.type,
    timestamp: timestampOf(event.atMs),
    ...(event.type.startsWith('container.') ? containerFieldsOf(data) : {}),
    ...known({ reason: textOf(data['reason']), message: textOf(data['message']), source: textOf(data['source']) }),
    ...(event.type === 'container.log' ? known({ stream: textOf(data['stream']), line: textOf(data['line']) }) : {}),
    workspace_id: event.workspaceId,
    ...known({
      container_id: event.containerId,
      stub_id: event.stubId,
      stub_type: event.stubType,
      task_id: event.taskId,
      app_id: event.appId,
      machine_id: event.machineId,
      worker_id: event.machineId,
    }),
    data,
    cloud_event: cloudEventOf(event),
  };
}

/** Fields that container events have beside their data. */
function containerFieldsOf(data: Readonly<Record<string, unknown>>) {
  const { success, attrs } = data;
  return known({
    event_id: textOf(data['id']),
    domain: textOf(data['domain']),
    parent_id: textOf(data['parent_id']),
    start_time: textOf(data['start_time']),
    end_time: textOf(data['end_time']),
    duration_ms: numberOf(data['duration_ms']),
    success: typeof success === 'boolean' ? success : undefined,
    attrs:
      typeof attrs === 'object' && attrs !== null && !Array.isArray(attrs)
        ? (attrs as Readonly<Record<string, string>>)
        : undefined,
  });
}

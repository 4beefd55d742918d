// Callback of a task: its end, sent to the address that its stub or its caller named, signed with the
// workspace's key. Source: interface, gateway 7.4. deliveries.ts owns the guard and the order of steps.
import type { Clock } from '#shared/clock.ts';
import type { DeliveryId, ObjectId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { isEventStream, itemsText } from '#shared/domain/event-stream.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { signatureOf } from '../../workspaces/identity/signatures.ts';
import type { Db } from '../../stores/store/db.ts';
import { insertDeliveries } from '../../stores/store/queries/deliveries.ts';
import type { DeliveryRow, NewDelivery } from '../../stores/store/queries/deliveries.ts';
import { appendNewEvents, toldEvents } from '../../stores/store/queries/events.ts';
import { keepInputs } from '../../stores/store/queries/task-inputs.ts';
import { addTaskStats } from '../../stores/store/queries/task-stats.ts';
import { taskById, upsertTaskRecordsSaying } from '../../stores/store/queries/tasks.ts';
import type { TaskRow } from '../../stores/store/queries/tasks.ts';
import { errorBody } from '../records/recording.ts';
import type { TaskRecord } from '../records/task-record.ts';
import { packsOf, taskEvents } from '../records/task-events.ts';
import type { RecordedChange } from '../records/task-events.ts';
import type { Policy } from './decide.ts';
import type { DeliveryKind, Prepared } from './deliveries.ts';
import { Places } from './places.ts';
import type { Message } from './post.ts';

export const TASK_CALLBACK = 'task_callback';
const DAY_MS = 24 * 3600_000;
/**
 * Most large results in memory at once: a result kept as an object
 * may have many MiB, and is held until its receiver has read it.
 */
const LARGE_AT_ONCE = 2;
const LARGE_OF_ONE_WORKSPACE = 1;
const LARGE_WAIT_MS = 30_000;
const POLICY: Policy = { attempts: 3, baseMs: 500, lifeMs: DAY_MS };

/** Committed effects of a batch of records. */
export interface WrittenRecords {
  readonly deliveries: readonly NewDelivery[];
  /** Bytes of kept inputs that each workspace has more. */
  readonly inputBytes: ReadonlyMap<WorkspaceId, number>;
  /** Number of the last event of each workspace that got one. */
  readonly lastEvents: ReadonlyMap<WorkspaceId, number>;
}

/**
 * Writes task records and, in the same transaction, the kept inputs and the sums of tasks that are over now, a delivery
 * for each of them that has a callback, and the events of the changes. So a process that dies leaves all or none.
 * Events are of tasks whose row is now as given.
 * @param changes - all changes that the records are the newest of
 */
export async function writeRecords(
  db: Db,
  records: readonly TaskRecord[],
  changes: readonly RecordedChange[],
): Promise<WrittenRecords> {
  return await db.transaction(async (tx) => {
    const inputBytes = await keepInputs(
      tx,
      records.filter(({ status }) => isTerminalTask(status)),
    );
    const packs = packsOf(changes);
    const written = await upsertTaskRecordsSaying(tx, records, packs);
    const ended = records.filter(({ status }) => isTerminalTask(status));
    const deliveries = ended.flatMap((record) => {
      const url = written.get(record.taskId)?.callbackUrl;
      return url === undefined ? [] : [deliveryOf(record, url)];
    });
    if (deliveries.length > 0) await insertDeliveries(tx, deliveries);
    // A final row is written once, so each end is counted once. A late COMPLETE counts beside the end that it replaces.
    await addTaskStats(
      tx,
      ended.filter((record) => written.has(record.taskId)),
    );
    // The tasks' rows are locked, so nobody else tells these events meanwhile. A task whose row is new has no events:
    // they are written with its row, or after it.
    const known = [...written].filter(([, { isNew }]) => !isNew);
    const told = changes.length === 0 ? new Map() : await toldEvents(tx, new Map(known));
    const events = taskEvents(
      changes.filter(({ record }) => written.has(record.taskId)),
      told,
      new Map([...packs].filter(([taskId]) => written.get(taskId)?.isNew === true)),
    );
    return { deliveries, inputBytes, lastEvents: await appendNewEvents(tx, events) };
  });
}

const deliveryOf = (record: TaskRecord, url: string): NewDelivery => ({
  id: newId<DeliveryId>(),
  workspaceId: record.workspaceId,
  kind: TASK_CALLBACK,
  subject: record.taskId,
  event: record.status,
  url,
});

export interface CallbackParts {
  readonly db: Db;
  readonly clock: Clock;
  /** Signing key of a workspace; undefined: there is no such workspace. */
  readonly signingKeyOf: (workspaceId: WorkspaceId) => Promise<string | undefined>;
  /** Reads a result that is kept outside its row; undefined: it is gone. */
  readonly loadResult: (id: ObjectId) => Promise<string | undefined>;
}

export function taskCallbacks(parts: CallbackParts): DeliveryKind {
  const large = new Places(LARGE_AT_ONCE, LARGE_OF_ONE_WORKSPACE);
  return { policy: POLICY, prepare: (row) => prepare(parts, large, row) };
}

async function prepare(parts: CallbackParts, large: Places, row: DeliveryRow): Promise<Prepared> {
  const task = await taskById(parts.db, row.subject);
  if (task === undefined || task.workspaceId !== row.workspaceId) return { kind: 'impossible', why: 'task_gone' };
  // A late COMPLETE replaced the status that was to be sent, and has a delivery of its own.
  if (task.status !== row.event) return { kind: 'superseded' };
  const key = await parts.signingKeyOf(row.workspaceId);
  if (key === undefined) return { kind: 'impossible', why: 'workspace_gone' };
  const signed = (resultJson: string): Message => {
    const body = Buffer.from(callbackBody(resultJson));
    return { headers: callbackHeaders(task, key, body, Math.floor(parts.clock.nowMs() / 1000)), body };
  };
  if (task.resultObjectId === undefined) return { kind: 'message', message: signed(smallResult(task)) };
  const done = await large.take(LARGE_WAIT_MS, row.workspaceId);
  try {
    const kept = await parts.loadResult(task.resultObjectId);
    return {
      kind: 'message',
      message: signed(kept === undefined ? smallResult(task) : jsonText(kept)),
      done,
    };
  } catch (error) {
    done();
    throw error;
  }
}

/** Result of a task without a result object; a task that no handler answered has the error that its callers got. */
function smallResult({ result, failureReason, status }: TaskRow): string {
  return result === undefined
    ? errorBody(failureReason === '' ? status.toLowerCase() : failureReason)
    : jsonText(result);
}

/**
 * Converts a result to JSON: a generator's becomes the list of
 * its items. An external runner may end its task with any bytes.
 */
function jsonText(text: string): string {
  if (isEventStream(text)) return itemsText(text);
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

/** Body of a callback, with the result's own bytes unchanged. */
export const callbackBody = (resultJson: string): string => `{"data":${resultJson}}`;

export function callbackHeaders(
  task: { readonly taskId: TaskId; readonly status: string },
  key: string,
  body: Uint8Array,
  timestamp: number,
): Readonly<Record<string, string>> {
  return {
    'Content-Type': 'application/json',
    'X-Task-ID': task.taskId,
    'X-Task-Status': task.status,
    'X-Task-Timestamp': String(timestamp),
    'X-Task-Signature': signatureOf(key, body, timestamp),
  };
}

// The records of tasks on their way to the database: every replica appends, the leader drains.
import type { TaskId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { LeaderLease } from '../cluster/leader.ts';
import { whileLeading } from '../cluster/while-leading.ts';
import type { Db } from '../stores/store/db.ts';
import type { AcceptedTask } from '../stores/store/queries/tasks.ts';
import { acceptedJobOf, insertAcceptedTasks, taskById } from '../stores/store/queries/tasks.ts';
import { keptJobs } from '../tasks/admission/accepting.ts';
import { inputKeyOf } from '../tasks/dispatch/bodies.ts';
import { InputUpkeep } from '../tasks/inputs/upkeep.ts';
import { CaughtUp } from '../tasks/records/caught-up.ts';
import { Drainer } from '../tasks/records/drainer.ts';
import { recordOfRow } from '../tasks/records/recording.ts';
import type { TaskRecord } from '../tasks/records/task-record.ts';
import { TaskRecords } from '../tasks/records/records.ts';
import { writeRecords } from '../tasks/webhooks/callbacks.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { ObjectParts } from './objects.ts';
import type { Webhooks } from './webhooks.ts';

export interface Records {
  readonly records: TaskRecords;
  readonly drainer: Drainer;
  /** Awaited before a list of tasks is read. */
  readonly caughtUp: CaughtUp;
  /** Keeps the inputs of ended tasks within their bounds. */
  readonly inputUpkeep: InputUpkeep;
}

export function openRecords(
  { db, hot, general, keys, log, registry, clock, settings }: Infrastructure,
  { isLeader }: ClusterState,
  { deliveries: callbacks }: Webhooks,
  { writer: events }: Events,
  { objects }: ObjectParts,
): Records {
  const inputUpkeep = new InputUpkeep({
    db,
    removeObject: (taskId) => objects.removeBytes(inputKeyOf(taskId)),
    workspaceBytes: settings.LONGSHORE_WORKSPACE_INPUT_BYTES,
    clock,
    log,
  });
  const records = new TaskRecords({
    client: hot,
    keys,
    log,
    registry,
    loadFromDb: rowReader(db),
  });
  const drainer = new Drainer({
    client: general,
    keys,
    log,
    registry,
    write: async (batch, streamed) => {
      const { deliveries, inputBytes, lastEvents } = await writeRecords(db, batch, streamed);
      if (deliveries.length > 0) callbacks.wake();
      events.announce(lastEvents);
      inputUpkeep.added(inputBytes);
    },
  });
  const caughtUp = new CaughtUp({ client: hot, keys, log, drainSoon: drainSoon(drainer, isLeader) });
  return { records, drainer, caughtUp, inputUpkeep };
}

/** Reads and writes of tasks' rows, as the path of a task and its upkeep ask for them. */
export function taskRows(db: Db) {
  return {
    commit: (batch: readonly AcceptedTask[]) => insertAcceptedTasks(db, batch),
    keepJob: keptJobs(db),
    jobOf: (taskId: TaskId) => acceptedJobOf(db, taskId),
    rowOf: rowReader(db),
  };
}

function rowReader(db: Db): (taskId: TaskId) => Promise<TaskRecord | undefined> {
  return async (taskId) => {
    const row = await taskById(db, taskId);
    return row === undefined ? undefined : recordOfRow(row);
  };
}

/** Starts a flush, one at a time for any number of waiting lists. The drainer handles its own failures. */
function drainSoon(drainer: Drainer, isLeader: () => boolean): () => void {
  let isUnderWay = false;
  return () => {
    if (isUnderWay || !isLeader()) return;
    isUnderWay = true;
    void drainer
      .flush()
      .catch(() => undefined)
      .finally(() => (isUnderWay = false));
  };
}

/**
 * The part of the records, stopped last except for the stores: the
 * records known by then are written, as far as this replica leads.
 */
export function recordsPart({ records, drainer }: Records, leader: LeaderLease): Part {
  return {
    name: 'task records',
    start: () => drainWhileLeading(drainer, records, leader),
    stop: async () => {
      await records.close();
      if (leader.isLeader()) await drainer.flush();
    },
  };
}

/** Drains while this replica leads; other replicas only append. */
function drainWhileLeading(drainer: Drainer, records: TaskRecords, leader: LeaderLease): void {
  let draining = AbortSignal.abort();
  records.onAppended(() => {
    if (!draining.aborted) drainer.wake();
  });
  whileLeading(leader, (signal) => {
    draining = signal;
    void drainer.start(signal);
  });
}

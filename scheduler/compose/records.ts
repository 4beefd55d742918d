// The records of tasks on their way to the database: every replica writes its own, the leader moves spilled ones.
import type { TaskId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Db } from '../stores/store/db.ts';
import { claimSingle, releaseSingle, replaceInput } from '../stores/store/queries/task-singles.ts';
import type { AcceptedTask } from '../stores/store/queries/tasks.ts';
import {
  acceptedJobOf,
  acceptedJobsOf,
  endedTaskIds,
  runningAttempts,
  insertAcceptedTasks,
  taskById,
  tasksById,
} from '../stores/store/queries/tasks.ts';
import { keptJobs, redriveCommits } from '../tasks/admission/accepting.ts';
import { inputKeyOf } from '../tasks/dispatch/bodies.ts';
import type { SingleRows } from '../tasks/admission/singles.ts';
import { InputUpkeep } from '../tasks/inputs/upkeep.ts';
import { recordOfRow } from '../tasks/records/recording.ts';
import type { TaskRecord } from '../tasks/records/task-record.ts';
import { TaskRecords } from '../tasks/records/records.ts';
import { writeRecords } from '../tasks/webhooks/callbacks.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { ObjectParts } from './objects.ts';
import type { Webhooks } from './webhooks.ts';

/** Interval at which the leader looks for spilled records. */
const SPILL_MS = 1_000;

export interface Records {
  readonly records: TaskRecords;
  /** Moves spilled records to the database. */
  readonly moving: Part;
  /** Keeps the inputs of ended tasks within their bounds. */
  readonly inputUpkeep: InputUpkeep;
}

export function openRecords(
  { db, hot, keys, instance, log, registry, clock, settings }: Infrastructure,
  { leaderLoop, bus, presence, isAlone }: ClusterState,
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
    instance,
    // A lone process asks nobody, not even Redis who is present: that may be the process before this one.
    ...(isAlone ? {} : { bus, present: () => presence.present() }),
    load: rowReader(db),
    ended: (taskIds) => endedTaskIds(db, taskIds),
    running: (taskIds) => runningAttempts(db, taskIds),
    write: async (batch, changes) => {
      const { deliveries, inputBytes, lastEvents } = await writeRecords(db, batch, changes);
      if (deliveries.length > 0) callbacks.wake();
      events.announce(lastEvents);
      inputUpkeep.added(inputBytes);
    },
  });
  const moving = leaderLoop({
    name: 'spilled task records',
    everyMs: SPILL_MS,
    round: (signal) => records.moveSpilled(signal),
    failed: 'spilled task records do not reach the database yet',
  });
  return { records, moving, inputUpkeep };
}

/** Reads and writes of tasks' rows, as the path of a task and its upkeep ask for them. */
export function taskRows(db: Db) {
  return {
    commit: (batch: readonly AcceptedTask[]) => insertAcceptedTasks(db, batch),
    redrives: redriveCommits(db),
    keepJob: keptJobs(db),
    singleRows: singleRowsOf(db),
    jobOf: (taskId: TaskId) => acceptedJobOf(db, taskId),
    jobsOf: (taskIds: readonly TaskId[]) => acceptedJobsOf(db, taskIds),
    rowsOf: async (taskIds: readonly TaskId[]) => (await tasksById(db, taskIds)).map(recordOfRow),
  };
}

const singleRowsOf = (db: Db): SingleRows => ({
  claim: (...given) => claimSingle(db, ...given),
  release: (...given) => releaseSingle(db, ...given),
  replaceInput: (replaced) => replaceInput(db, replaced),
});

function rowReader(db: Db): (taskId: TaskId) => Promise<TaskRecord | undefined> {
  return async (taskId) => {
    const row = await taskById(db, taskId);
    return row === undefined ? undefined : recordOfRow(row);
  };
}

/** The part of the records, stopped last except for the stores: the records known by then are written. */
export function recordsPart({ records }: Records): Part {
  return { name: 'task records', stop: () => records.close() };
}

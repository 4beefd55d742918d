// Task upkeep that BullMQ does not do, each kind with one owner: deadlines, lost wake-ups, jobs that are gone or back,
// and locks of machines that do not talk. The rebuild after Redis lost its data is here as well.
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Part } from '#shared/lifecycle.ts';
import { WakeSweep } from '../tasks/dispatch/wake-sweep.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LineParts } from './lines.ts';
import type { Records } from './records.ts';
import { taskRows } from './records.ts';
import type { TaskParts } from './tasks.ts';
import type { Objects } from '../stores/objects/service.ts';
import { AddedMarks } from '../stores/queues/added-marks.ts';
import { containerById } from '../stores/store/queries/containers.ts';
import { pruneSingles } from '../stores/store/queries/task-singles.ts';
import { openQueues, queuesOfEnded, waitingDeadlines } from '../stores/store/queries/tasks.ts';
import { inputKeyOf, taskOfInputKey } from '../tasks/dispatch/bodies.ts';
import { FLOW_SWEEP_MS, FlowSweep } from '../tasks/maintenance/flow-sweep.ts';
import { registerFlowGauges } from '../tasks/maintenance/flow-gauges.ts';
import { Deadlines } from '../tasks/maintenance/deadlines.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { ForeignRunsParts } from '../tasks/foreign-runs.ts';
import { ForeignRuns } from '../tasks/foreign-runs.ts';
import { InputSweep } from '../tasks/maintenance/input-sweep.ts';
import { MissingJobs } from '../tasks/maintenance/missing-jobs.ts';
import type { MissingJobsParts } from '../tasks/maintenance/missing-jobs.ts';
import { Rebuild } from '../tasks/maintenance/rebuild.ts';
import { SuspectLeaseRenewal } from '../tasks/maintenance/suspect-lease-renewal.ts';
import type { TaskSweepParts } from '../tasks/maintenance/sweep.ts';
import { hasKeptInput } from '../stores/store/queries/task-inputs.ts';
import { TaskSweep } from '../tasks/maintenance/sweep.ts';

/** Ended tasks read at once after Redis lost data; costs the database some milliseconds. */
const ENDED_PAGE = 2_000;
const SUSPECTS_MS = 30_000;
const MISSING_MS = 5_000;
const INPUTS_MS = 3_600_000;
const KEPT_INPUTS_MS = 60_000;
const CLAIMS_MS = 300_000;
/** Age from which on the claim of a key is deleted, once its task is over. */
const CLAIM_SECONDS = 600;
const CLAIMS_AT_ONCE = 500;
/** Most queues with open tasks that a sweep of flow control looks at. */
const MOST_CONTROLLED = 20_000;

export interface TaskMaintenanceSetup {
  readonly infrastructure: Infrastructure;
  readonly clusterState: ClusterState;
  readonly targets: Pick<Targets, 'byQueue'>;
  readonly objects: Pick<Objects, 'keptBytes' | 'removeBytes'>;
  readonly lineParts: LineParts;
  readonly records: Records;
  readonly taskParts: TaskParts;
}

export interface TaskMaintenance {
  /** Parts that start before tasks; `afterTasks` start after them. */
  readonly beforeTasks: readonly Part[];
  readonly afterTasks: readonly Part[];
  readonly rebuild: Rebuild;
  readonly sweep: TaskSweep;
  readonly missing: MissingJobs;
  readonly foreign: ForeignRuns;
  readonly deadlines: Deadlines;
}

/** Parts of other rooms, and questions to them, that the return of jobs needs. */
export type ReturnNeeds = Omit<TaskSweepParts & ForeignRunsParts & MissingJobsParts, 'jobOf' | 'keepJob'>;

/** Builds the parts that return jobs to their queues with the help of the tasks' rows. */
export function buildReturns(needs: ReturnNeeds): Pick<TaskMaintenance, 'sweep' | 'missing' | 'foreign'> {
  const parts = { ...needs, ...taskRows(needs.db) };
  return { sweep: new TaskSweep(parts), missing: new MissingJobs(parts), foreign: new ForeignRuns(parts) };
}

export function openTaskMaintenance(setup: TaskMaintenanceSetup): TaskMaintenance {
  const { lineParts, objects } = setup;
  const { db, general, keys, clock, stall, log, registry } = setup.infrastructure;
  const {
    redisData: data,
    presence,
    machines,
    containers,
    slots,
    leases,
    isLeader,
    leader,
    leaderLoop,
    isAlive,
  } = setup.clusterState;
  const { records, inputUpkeep } = setup.records;
  const { attempts, changes, completion, renewal, dispatcher, callers, peers } = setup.taskParts;
  const { queues, lines } = lineParts;
  const marks = new AddedMarks(general, keys);
  const rebuild = new Rebuild({
    data,
    queues,
    renewal,
    records,
    marks,
    presence,
    endedQueues: (after) => queuesOfEnded(db, ENDED_PAGE, after),
    log,
    isLeader,
  });
  const deadlines = new Deadlines({
    due: (...page) => waitingDeadlines(db, ...page),
    queues,
    records,
    leases,
    completion,
    changes,
    clock,
    log,
    leader,
  });
  const abort = new AbortController();
  const { sweep, missing, foreign } = buildReturns({
    db,
    queues,
    records,
    clock,
    log,
    isLeader,
    leases,
    completion,
    changes,
    marks,
    generation: () => data.generation,
    calmMs: () => stall.calmMs(),
    isAlive,
    lines,
    whoHas: (taskIds) => peers.questions.whoHas(taskIds),
    isReported: async (containerId) => {
      const machineId = (await containers.rowOf(containerId))?.machineId ?? null;
      const machine = machineId === null ? undefined : machines.get(machineId);
      if (machine === undefined || machine.health === 'LOST') return true;
      const { replica } = machine.row;
      return machine.health === 'READY' && (replica === null || presence.isAlive(replica));
    },
    served: () => containers.queues(),
    isGone: async (containerId) => {
      const row = await containerById(db, containerId);
      return row !== undefined && isTerminalContainer(row.state);
    },
    signal: abort.signal,
  });
  const wakeUps = new WakeSweep({
    queues,
    consumed: () => slots.queues(),
    wake: (queue) => dispatcher.wake(queue),
    prune: () => dispatcher.prune(),
    log,
  });
  const flow = new FlowSweep({
    queues,
    leases,
    controlled: async () => {
      const open = await openQueues(db, MOST_CONTROLLED);
      const targets = await Promise.all(open.map(async (queue) => await setup.targets.byQueue(queue)));
      return open.flatMap((queue, at) => {
        const flow = targets[at]?.config.flow;
        return flow === undefined ? [] : [{ queue, flow }];
      });
    },
    log,
  });
  registerFlowGauges(registry, flow, isLeader);
  const suspects = new SuspectLeaseRenewal({
    suspects: () => [...machines.all()].filter(({ health }) => health === 'SUSPECT').map((machine) => machine.row.id),
    queues,
    leases,
    attempts,
  });
  const inputs = new InputSweep({
    inputs: async function* () {
      for await (const { key, writtenAtMs } of objects.keptBytes()) {
        const taskId = taskOfInputKey(key);
        if (taskId !== undefined) yield { taskId, writtenAtMs };
      }
    },
    remove: (taskId) => objects.removeBytes(inputKeyOf(taskId)),
    isKept: (taskId) => hasKeptInput(db, taskId),
    records,
    clock,
    log,
  });
  return {
    beforeTasks: [data, rebuild],
    afterTasks: [
      sweep,
      leaderLoop({
        name: 'missing jobs',
        everyMs: MISSING_MS,
        round: (signal) => missing.round(signal),
        failed: 'tasks without a job not looked for, trying again',
      }),
      leaderLoop({
        name: 'flow control',
        everyMs: FLOW_SWEEP_MS,
        round: (signal) => flow.round(signal),
        failed: 'slots of flow control not looked at, trying again',
      }),
      { name: 'waiting calls', stop: () => callers.stop() },
      deadlines,
      wakeUps,
      leaderLoop({
        name: 'suspect machines',
        everyMs: SUSPECTS_MS,
        round: () => suspects.round(),
        failed: 'locks of suspect machines not renewed, trying again',
      }),
      leaderLoop({
        name: 'input sweep',
        everyMs: INPUTS_MS,
        round: (signal) => inputs.round(signal),
        failed: 'inputs without a task not looked for, trying again',
      }),
      leaderLoop({
        name: 'inputs of tasks',
        everyMs: KEPT_INPUTS_MS,
        round: (signal) => inputUpkeep.round(signal),
        failed: 'kept inputs not looked at, trying again',
      }),
      leaderLoop({
        name: 'claims of keys',
        everyMs: CLAIMS_MS,
        round: async (signal) => {
          while (!signal.aborted && (await pruneSingles(db, CLAIM_SECONDS, CLAIMS_AT_ONCE)) === CLAIMS_AT_ONCE);
        },
        failed: 'old claims of keys not deleted, trying again',
      }),
      { name: 'trimming of kept inputs', stop: () => inputUpkeep.stop() },
      { name: 'foreign runs', stop: () => abort.abort() },
    ],
    rebuild,
    sweep,
    missing,
    foreign,
    deadlines,
  };
}

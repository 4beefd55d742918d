// The product's functions that the model asks. Every decision of the stories
// comes from one of these functions, in the shape that the product takes them.
import type { ContainerId, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { ObservedContainer__Output } from '#shared/protocol/generated/messages.ts';
import type { ScaleDecision, ScaleInput } from '#scheduler/control/autoscaler/decide.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import { decideScale } from '#scheduler/control/autoscaler/decide.ts';
import type { ContainerEvent, Transition } from '#scheduler/fleet/containers/state.ts';
import { containerTransition } from '#scheduler/fleet/containers/state.ts';
import { chooseContainer } from '#scheduler/tasks/dispatch/choose.ts';
import { precheck } from '#scheduler/tasks/dispatch/precheck.ts';
import { guardsAfter } from '#scheduler/fleet/guard.ts';
import { stepsFor, stepsWhenAbsent } from '#scheduler/fleet/observe.ts';
import { lostAfterMs } from '#scheduler/fleet/state.ts';
import type { PlacementMachine, PlacementRequest } from '#scheduler/control/plan/filter.ts';
import { rejectionOf } from '#scheduler/control/plan/filter.ts';
import type { Placement } from '#scheduler/control/plan/place.ts';
import { placeContainer } from '#scheduler/control/plan/place.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { AttemptOutcome } from '#scheduler/tasks/state.ts';
import { mayReplace, RANK, TASK_TRANSITIONS, verdictOf } from '#scheduler/tasks/state.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { Action } from '../../../agent/reconcile/plan.ts';
import { plan } from '../../../agent/reconcile/plan.ts';
import { aRequest } from '../plan/made.ts';
import type { Job, Machine, Observed, Queue, RecordOf, Row, Task, World } from './world.ts';
import { holdsResources, queueOf } from './world.ts';

// ---- placement ------------------------------------------------------------------------------------------------------

export interface Free {
  readonly cpu: number;
  readonly memory: number;
  readonly leased: ReadonlySet<string>;
}

/** Free resources of a machine, by the rows. */
export function freeOf(world: World, machine: Machine): Free {
  let { cpu, memory } = machine;
  const leased = new Set<string>();
  for (const row of world.rows.values()) {
    if (row.machine !== machine.id || !holdsResources(row)) continue;
    const queue = queueOf(world, row.queue);
    cpu -= queue.cpu;
    memory -= queue.memory;
    for (const uuid of row.gpus) leased.add(uuid);
  }
  return { cpu, memory, leased };
}

function candidate(world: World, machine: Machine): PlacementMachine {
  const free = freeOf(world, machine);
  return {
    machineId: machine.id as MachineId,
    poolName: 'default',
    poolOwner: null,
    requiresPoolSelector: false,
    poolPriority: 0,
    cpuWorkAllowed: machine.id !== 'm2',
    arch: '',
    gpuDriver: '',
    basePythons: null,
    freeDiskBytes: null,
    isPresent: true,
    ready: machine.health === 'READY',
    intentActive: machine.intent === 'active',
    blockedBy: machine.conditions,
    volumeDrivers: new Set(['local'] as const),
    registry: true,
    freeCpuMillicores: free.cpu,
    freeMemoryBytes: free.memory,
    totalCpuMillicores: machine.cpu,
    totalMemoryBytes: machine.memory,
    gpus: machine.gpus.map((gpu) => ({
      ...gpu,
      free: !free.leased.has(gpu.uuid),
      healthy: true,
      numaNode: 0,
      leasedAtMs: 0,
    })),
    images: new Set(),
    caches: new Set(),
  };
}

const requestOf = (queue: Queue, row: Row): PlacementRequest =>
  aRequest({
    workspaceId: 'w',
    cpuMillicores: queue.cpu,
    memoryBytes: queue.memory,
    gpu: queue.gpu,
    gpuCount: queue.gpuCount,
    seed: row.id,
  });

export const place = (world: World, row: Row): Placement =>
  placeContainer(
    requestOf(queueOf(world, row.queue), row),
    world.machines.map((machine) => candidate(world, machine)),
  );

/**
 * The store's second check, in the step that writes: whether that machine can still take the row, with these devices.
 */
export function fits(world: World, row: Row, machine: Machine, gpus: readonly string[]): boolean {
  const { leased } = freeOf(world, machine);
  const reason = rejectionOf(candidate(world, machine), requestOf(queueOf(world, row.queue), row));
  return reason === undefined && gpus.every((uuid) => !leased.has(uuid));
}

// ---- containers -----------------------------------------------------------------------------------------------------

export const move = (row: Row, event: ContainerEvent): Transition => containerTransition(row.state, event);

export const observedSteps = (row: Row, observed: Observed) =>
  stepsFor(row, { ...observed, message: '', startedAtMs: 1, oomKilled: false } as unknown as ObservedContainer__Output);

export const absentSteps = (row: Row) => stepsWhenAbsent(row);

/** Default of the agents. */
const ORPHAN_GRACE_MS = 300_000;

export function agentPlan(machine: Machine, nowMs: number): readonly Action[] {
  return plan(
    {
      wanted: machine.wanted,
      known: machine.journal,
      ending: new Map(),
      seen: machine.engine,
      attended: machine.attended,
      acked: machine.acked,
      proceeded: machine.proceeded,
      orphanGraceMs: ORPHAN_GRACE_MS,
      refused: machine.refused,
      busy: new Map(),
    },
    nowMs,
  );
}

// ---- machines -------------------------------------------------------------------------------------------------------

const inService = (world: World): readonly Machine[] =>
  world.machines.filter((machine) => machine.intent === 'active' && machine.health !== 'LOST');
const isSilent = (machine: Machine): boolean => machine.health === 'SUSPECT';

/** The guard after a look at the machines; all are of one pool. */
export function guard(world: World): void {
  const machines = inService(world).map((machine) => ({
    poolId: 1,
    silentSinceMs: isSilent(machine) ? machine.suspectSinceMs : null,
  }));
  world.guards = guardsAfter(world.guards, machines, world.nowMs, null);
  const silent = inService(world).filter(isSilent);
  const fresh = silent.filter((machine) => world.nowMs - machine.suspectSinceMs <= 60_000);
  if (fresh.length === world.machines.length) world.silentTogether = true;
  else if (silent.length === 0) world.silentTogether = false;
}

export const isOverdue = (world: World, machine: Machine): boolean =>
  machine.health === 'SUSPECT' &&
  world.nowMs - machine.suspectSinceMs >= lostAfterMs(null, 90_000) &&
  !(machine.intent === 'active' && world.guards.has(1));

// ---- scaling --------------------------------------------------------------------------------------------------------

export function scaleInput(world: World, queue: Queue, sampled: boolean): ScaleInput {
  const tasks = [...world.tasks.values()].filter((task) => task.queue === queue.name && task.job !== undefined);
  return {
    active: queue.active,
    inFlight: sampled ? tasks.length : undefined,
    waiting: tasks.filter((task) => task.job?.place !== 'active').length,
    tasksPerContainer: 1,
    minContainers: queue.min,
    maxContainers: queue.max,
    keepWarmMs: 10_000,
    containers: [...world.rows.values()]
      .filter((row) => row.queue === queue.name)
      .map((row) => ({
        id: row.id as ContainerId,
        state: row.state,
        attempts: inFlight(world, row.id),
        idleSinceMs: row.idleSinceMs,
        createdAtMs: row.createdAtMs,
        keepWarmMs: 0,
        warmUp: false,
        returned: row.returned,
        found: false,
      })),
    breaker: CLOSED_BREAKER,
    wantedInWindow: 0,
  };
}

export const scale = (input: ScaleInput, nowMs: number): ScaleDecision => decideScale(input, nowMs);

// ---- tasks ----------------------------------------------------------------------------------------------------------

export function inFlight(world: World, containerId: string): number {
  let count = 0;
  for (const attempt of world.attempts.values()) if (attempt.containerId === containerId) count += 1;
  return count;
}

/** Containers that may take a task of the queue, as the dispatcher sees them; the one it chooses. */
export function choose(world: World, queue: Queue, random: number): Row | undefined {
  const candidates = [...world.rows.values()]
    .filter((row) => row.queue === queue.name && row.state === 'RUNNING')
    .map((row) => {
      const machine = world.machines.find((one) => one.id === row.machine);
      const accepting = machine?.linked === true && machine.health === 'READY' && !row.leaving;
      return {
        containerId: row.id as ContainerId,
        slots: queue.slots,
        inFlight: inFlight(world, row.id),
        accepting,
        row,
      };
    });
  return chooseContainer(candidates, () => random)?.row;
}

export function check(world: World, task: Task, job: Job) {
  return precheck(jobOf(task, job), { nowMs: world.nowMs, callerWaits: false });
}

export function verdict(world: World, task: Task, job: Job, outcome: AttemptOutcome, stopping: boolean) {
  return verdictOf(outcome, {
    sync: false,
    timeoutMs: 60_000,
    retries: queueOf(world, task.queue).retries,
    retriesUsed: job.retriesUsed,
    losses: job.losses,
    stopping,
    died: task.diedOn.size,
  });
}

/** Redis data of a task: the entry as it is stored, for the search after secrets. */
export function jobOf(task: Task, job: Job): TaskJob {
  return {
    v: 1,
    taskId: task.id as TaskId,
    workspaceId: 'w',
    stubId: 's',
    deploymentId: null,
    kind: 'taskqueue',
    sync: false,
    replica: 'process',
    timeoutMs: 60_000,
    deadlineMs: task.deadlineMs,
    createdAtMs: 0,
    attempts: 0,
    retries: 1,
    retriesUsed: job.retriesUsed,
    losses: job.losses,
  } as unknown as TaskJob;
}

export const rankOf = (status: TaskStatus): number => RANK[status];

/** Whether the newer record wins, by the rule of the append script and the row's update. */
export const wins = (told: RecordOf, known: RecordOf): boolean => mayReplace(told, known);

/** May a task go from one status to the other, in as many listed moves as it takes? */
export function mayBecome(from: TaskStatus, to: TaskStatus): boolean {
  const seen = new Set<TaskStatus>([from]);
  for (const status of seen) for (const next of Object.values(TASK_TRANSITIONS[status])) seen.add(next);
  return seen.has(to);
}

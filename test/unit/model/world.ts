// A small installation as plain data, for stories of random steps. The data: machines with their agents and engines,
// containers' rows, asynchronous tasks with their queue entries, and every message on its way. Nothing here decides:
// rules.ts asks the product's own functions, and the files of steps carry their answers out, as the daemons do. The
// model in lines/ has synchronous tasks.
import type { Guards } from '#scheduler/fleet/guard.ts';
import type { ContainerState, TaskStatus } from '#shared/domain/status.ts';
import type { Known, Seen, Wanted } from '../../../agent/reconcile/plan.ts';

/** A container as the store has it. */
export interface Row {
  readonly id: string;
  readonly queue: string;
  state: ContainerState;
  stateBefore: ContainerState | null;
  epoch: number;
  machine: string | null;
  assignmentId: string | null;
  gpus: readonly string[];
  startFailures: number;
  /** True once the container was told to leave: it takes no new attempts. */
  leaving: boolean;
  /** True once the container came back with its lost machine. */
  returned: boolean;
  idleSinceMs: number;
  readonly createdAtMs: number;
}

/** A deployment's queue and the needs of its containers. */
export interface Queue {
  readonly name: string;
  readonly retries: number;
  readonly slots: number;
  readonly min: number;
  readonly max: number;
  readonly cpu: number;
  readonly memory: number;
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  active: boolean;
}

export interface JournalEntry extends Known {
  readonly gpus: readonly string[];
}

/** A container in the engine of a machine, with its attempts. */
export interface Engine extends Seen {
  state: Seen['state'];
  readonly gpus: readonly string[];
  exitCode: number;
  reason: string;
  ready: boolean;
  /** Attempts its runner processes work on: token to task. */
  readonly running: Map<string, string>;
}

/** The agent's result of an ended attempt, kept until the scheduler has it. */
export interface Result {
  readonly taskId: string;
  readonly containerId: string;
  readonly outcome: Outcome;
}

export type Outcome = 'ok' | 'error' | 'retry' | 'exited';

export interface Machine {
  readonly id: string;
  readonly cpu: number;
  readonly memory: number;
  readonly gpus: readonly { readonly uuid: string; readonly model: string }[];
  // The scheduler's view of the machine.
  health: 'RECONCILING' | 'READY' | 'SUSPECT' | 'LOST';
  intent: 'active' | 'cordoned' | 'draining';
  conditions: string[];
  suspectSinceMs: number;
  // The agent: its link, its journal (which outlives it), its memory of this session.
  session: number;
  /** New at every start of the agent. */
  instance: number;
  linked: boolean;
  revision: number;
  readonly journal: Map<string, JournalEntry>;
  wanted: Map<string, Wanted> | undefined;
  readonly acked: Set<string>;
  readonly proceeded: Set<string>;
  readonly refused: Set<string>;
  readonly attended: Set<string>;
  readonly engine: Engine[];
  readonly results: Map<string, Result>;
}

/** An attempt as the scheduler process that sent it remembers it. */
export interface Attempt {
  readonly taskId: string;
  readonly token: string;
  readonly lock: string;
  readonly number: number;
  readonly containerId: string;
  readonly machine: string;
  /** Instance of the agent that the attempt was sent to; undefined: adopted, so it did reach an agent. */
  readonly instance: number | undefined;
  revoked: boolean;
}

/** An entry in a queue, as BullMQ keeps it. */
export interface Job {
  place: 'waiting' | 'active' | 'delayed';
  lock: string | null;
  lockUntilMs: number;
  starts: number;
  retriesUsed: number;
  losses: number;
}

export interface RecordOf {
  status: TaskStatus;
  attempt: number;
  rank: number;
}

export interface Task {
  readonly id: string;
  readonly queue: string;
  readonly deadlineMs: number;
  /** Queue entry; undefined: the task is not in its queue. */
  job: Job | undefined;
  record: RecordOf;
  /** Lease key: the holder of the task, as the next process reads it. */
  lease: {
    readonly lock: string;
    readonly number: number;
    readonly containerId: string;
    readonly machine: string;
  } | null;
  /** Used by the invariants only. */
  readonly history: TaskStatus[];
  accepted: number;
  infrastructureCauses: number;
  /** Containers that died on it. */
  readonly diedOn: Set<string>;
  userFailures: number;
}

/** A leader's decision from its own view, on its way to the store. */
export type Decision =
  | {
      readonly kind: 'assign';
      readonly fence: number;
      readonly row: string;
      readonly epoch: number;
      readonly machine: string;
      readonly gpus: readonly string[];
    }
  | {
      readonly kind: 'leave';
      readonly fence: number;
      readonly row: string;
      readonly epoch: number;
      readonly from: ContainerState;
    };

export interface Message {
  readonly to: 'agent' | 'scheduler';
  readonly machine: string;
  readonly session: number;
  readonly body: Body;
}

export interface Observed {
  readonly containerId: string;
  readonly epoch: number;
  readonly phase: string;
  readonly exitCode: number;
  readonly reason: string;
}

export type Body =
  | {
      readonly kind: 'desired';
      readonly revision: number;
      readonly wanted: readonly (Wanted & { readonly gpus: readonly string[] })[];
    }
  | { readonly kind: 'proceed'; readonly assignmentId: string }
  | { readonly kind: 'run'; readonly taskId: string; readonly token: string; readonly containerId: string }
  | { readonly kind: 'cancel'; readonly token: string }
  | { readonly kind: 'acked'; readonly token: string }
  | { readonly kind: 'ack'; readonly containerId: string; readonly assignmentId: string; readonly epoch: number }
  | { readonly kind: 'refuse'; readonly containerId: string; readonly epoch: number }
  | { readonly kind: 'status'; readonly full: boolean; readonly observed: readonly Observed[] }
  | { readonly kind: 'not_run'; readonly taskId: string; readonly token: string }
  | { readonly kind: 'result'; readonly token: string; readonly result: Result };

export interface World {
  nowMs: number;
  serial: number;
  readonly queues: readonly Queue[];
  readonly machines: readonly Machine[];
  readonly rows: Map<string, Row>;
  readonly tasks: Map<string, Task>;
  readonly messages: Message[];
  readonly decisions: Decision[];
  /** Number of the current scheduler process, new at every start; its memory goes with it. */
  process: number;
  readonly attempts: Map<string, Attempt>;
  /** Fencing number of the current leader, and the highest that the store has seen. */
  fence: number;
  storeFence: number;
  /** The mass-disconnect guard, as the last look at the machines left it. */
  guards: Guards;
  /** True while machines that all went silent within a minute are not all back; used by the invariants only. */
  silentTogether: boolean;
  /** Events of the story, for a person. */
  readonly story: string[];
  /** Number of times that each thing took effect. */
  readonly done: Map<string, number>;
}

export const LOCK_MS = 120_000;

export function aWorld(): World {
  return {
    nowMs: 1_000_000_000,
    serial: 0,
    queues: [
      {
        name: 'wide',
        retries: 0,
        slots: 2,
        min: 0,
        max: 2,
        cpu: 500,
        memory: 512,
        gpu: [],
        gpuCount: 0,
        active: true,
      },
      {
        name: 'puts',
        retries: 1,
        slots: 1,
        min: 0,
        max: 3,
        cpu: 1000,
        memory: 256,
        gpu: [],
        gpuCount: 0,
        active: true,
      },
      {
        name: 'gpu',
        retries: 0,
        slots: 1,
        min: 1,
        max: 3,
        cpu: 250,
        memory: 256,
        gpu: ['A10G', 'any'],
        gpuCount: 1,
        active: true,
      },
      {
        name: 'pair',
        retries: 0,
        slots: 1,
        min: 0,
        max: 2,
        cpu: 250,
        memory: 256,
        gpu: ['any'],
        gpuCount: 2,
        active: true,
      },
    ],
    machines: [aMachine('m1', 2, ['A10G', 'A10G']), aMachine('m2', 2, ['L4', 'A10G', 'L4']), aMachine('m3', 1, [])],
    rows: new Map(),
    tasks: new Map(),
    messages: [],
    decisions: [],
    process: 1,
    attempts: new Map(),
    fence: 1,
    storeFence: 1,
    guards: new Map(),
    silentTogether: false,
    story: [],
    done: new Map(),
  };
}

function aMachine(id: string, cores: number, models: readonly string[]): Machine {
  return {
    id,
    cpu: cores * 1000,
    memory: cores * 1024,
    gpus: models.map((model, at) => ({ uuid: `${id}-gpu${at}`, model })),
    health: 'READY',
    intent: 'active',
    conditions: [],
    suspectSinceMs: 0,
    session: 1,
    instance: 1,
    linked: true,
    revision: 0,
    journal: new Map(),
    wanted: new Map(),
    acked: new Set(),
    proceeded: new Set(),
    refused: new Set(),
    attended: new Set(),
    engine: [],
    results: new Map(),
  };
}

export const nextId = (world: World, prefix: string): string => `${prefix}${(world.serial += 1)}`;

export function tell(world: World, what: string, line: string): void {
  world.done.set(what, (world.done.get(what) ?? 0) + 1);
  world.story.push(`${what}: ${line}`);
}

export const queueOf = (world: World, name: string): Queue => must(world.queues.find((queue) => queue.name === name));
export const machineOf = (world: World, id: string): Machine =>
  must(world.machines.find((machine) => machine.id === id));

/** The element that a step's number selects; undefined: the list is empty. */
export const pick = <T>(all: readonly T[], at: number): T | undefined => all[at % Math.max(1, all.length)];

export function must<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('the model lost something');
  return value;
}

/** Whether a row holds its resources: in every state from the assignment to the end. */
export const holdsResources = (row: Row): boolean =>
  row.machine !== null && row.state !== 'PENDING' && !['STOPPED', 'FAILED', 'LOST'].includes(row.state);

export function send(world: World, machine: Machine, to: Message['to'], body: Body): void {
  if (machine.linked) world.messages.push({ to, machine: machine.id, session: machine.session, body });
}

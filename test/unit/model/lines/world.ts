// Three scheduler processes, two machines and synchronous tasks as plain data, for stories of random steps. Nothing
// here decides: the files of steps ask scheduler/tasks/lines, and carry the answers out as the processes do.
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import type { LinkReport } from '#scheduler/tasks/lines/handover.ts';
import type { Place, Word } from '#scheduler/tasks/lines/offers.ts';
import type { Known } from '#scheduler/tasks/lines/owner.ts';
import type { TaskStatus } from '#shared/domain/status.ts';

export type Outcome = 'ok' | 'error' | 'exited';

/** Facts that the agent keeps of an order, and returns in reports and results. */
export interface Facts {
  readonly taskId: TaskId;
  readonly attempt: number;
  /** Replica of the caller. */
  readonly caller: InstanceId;
}

/** An attempt in an agent, running or ended. `facts`: null after the agent was restarted: its runner knows less. */
export interface Live {
  readonly token: string;
  readonly taskId: TaskId;
  readonly facts: Facts | null;
}

export interface Machine {
  readonly id: string;
  readonly slots: number;
  /** Session in the row; the agent has the same number. */
  session: number;
  instance: number;
  /** Process at the other end of the agent's link; null: the agent has no link. */
  linkedTo: InstanceId | null;
  /** The row. */
  replica: InstanceId | null;
  silentSinceMs: number;
  isLost: boolean;
  readonly running: Map<string, Live>;
  readonly results: Map<string, Live & { readonly outcome: Outcome }>;
}

/** An order that a process sent or adopted, and that it ends. */
export interface Order extends Facts {
  readonly token: string;
  readonly machine: string;
  session: number;
  readonly instance: number;
  /** The end is decided, and the agent may still work on it: the order holds its slot. */
  isOver: boolean;
}

/** An offer that was taken: its slot is taken, and its input is being read. */
export interface Taken extends Facts {
  readonly machine: string;
  readonly atMs: number;
}

/** A slot that is kept for another replica's offer. */
export interface Hold {
  readonly machine: string;
  readonly of: InstanceId;
  readonly untilMs: number;
}

export interface RecordOf {
  readonly taskId: TaskId;
  readonly caller: InstanceId;
  readonly owner: InstanceId;
  readonly status: TaskStatus;
  readonly attempt: number;
  readonly rank: number;
}

/** Records that one statement writes, and what happens once it is committed. */
export interface Batch {
  readonly records: Map<TaskId, RecordOf>;
  readonly acks: { readonly machine: string; readonly token: string }[];
  /** Callers who are told once their end is committed. */
  readonly answers: Map<TaskId, Facts>;
}

export interface Link {
  readonly session: number;
  readonly report: LinkReport;
  /** Attempts in the report that this process knows nothing of; those that run hold slots. */
  readonly strangers: Map<
    string,
    { readonly live: Live; readonly sinceMs: number; isRunning: boolean; outcome: Outcome | null }
  >;
}

/** A run of a scheduler process; a restarted one has another id. */
export interface Process {
  readonly id: InstanceId;
  isFrozen: boolean;
  /** When it was frozen. */
  frozenAtMs: number;
  /** When it went on after it stood still. */
  stalledAtMs: number;
  /** Tasks whose callers wait here, in order of arrival. */
  readonly callers: Map<TaskId, { place: Place; readonly sinceMs: number; readonly deadlineMs: number }>;
  readonly known: Map<TaskId, Known & { readonly atMs: number }>;
  readonly orders: Map<string, Order>;
  readonly taken: Map<TaskId, Taken>;
  readonly holds: Hold[];
  /** Links as this process sees them. */
  readonly links: Map<string, Link>;
  /** Messages of others: free slots, and since when their oldest task waits. */
  readonly told: Map<InstanceId, { free: number; readonly headMs: number | null }>;
  batch: Batch;
  /** Statement under way. */
  writing: Batch | null;
}

export type Message = { readonly from: InstanceId; readonly to: InstanceId; readonly atMs: number } & (
  | { readonly kind: 'offer'; readonly facts: Facts; readonly isLarge: boolean }
  | { readonly kind: 'recall'; readonly taskId: TaskId; readonly attempt: number; readonly ageMs: number }
  | { readonly kind: 'word'; readonly taskId: TaskId; readonly word: Word }
  | { readonly kind: 'answer'; readonly facts: Facts; readonly status: TaskStatus }
  | { readonly kind: 'room' }
  | { readonly kind: 'told'; readonly free: number; readonly headMs: number | null }
  | { readonly kind: 'handover'; readonly machine: string; readonly orders: readonly Order[] }
  | { readonly kind: 'handed'; readonly tokens: readonly string[] }
);

/** Messages of a link, in order. */
export type Wire = { readonly machine: string; readonly session: number } & (
  | { readonly kind: 'run'; readonly live: Live }
  | { readonly kind: 'cancel'; readonly token: string }
  | { readonly kind: 'acked'; readonly token: string }
  | { readonly kind: 'not_run'; readonly token: string }
  | { readonly kind: 'result'; readonly live: Live; readonly outcome: Outcome }
  | {
      readonly kind: 'report';
      readonly to: InstanceId;
      readonly instance: number;
      readonly running: readonly Live[];
      readonly finished: readonly Live[];
    }
);

export interface Task {
  readonly id: TaskId;
  readonly caller: InstanceId;
  readonly isLarge: boolean;
  row: RecordOf | null;
  runs: number;
  readonly answers: TaskStatus[];
  hasCaller: boolean;
  /** The only copy of its facts or of its result died: its record may be missing. */
  isForgotten: boolean;
}

export interface World {
  nowMs: number;
  serial: number;
  readonly processes: Process[];
  readonly lastSeen: Map<InstanceId, number>;
  readonly machines: readonly Machine[];
  readonly tasks: Map<TaskId, Task>;
  readonly bus: Message[];
  readonly wire: Wire[];
  readonly spill: RecordOf[];
  /** Statements of dead processes that the database may still carry out. */
  readonly late: RecordOf[][];
  /** Tasks that the leader ended, because their owners seemed dead. */
  readonly swept: Set<TaskId>;
  readonly story: string[];
  readonly done: Map<string, number>;
}

export const PRESENCE_MS = 10_000;
export const WAIT_LIMIT_MS = 60_000;

export function aWorld(): World {
  const world: World = {
    nowMs: 1_000_000,
    serial: 0,
    processes: [],
    lastSeen: new Map(),
    machines: [aMachine('m1', 2), aMachine('m2', 1)],
    tasks: new Map(),
    bus: [],
    wire: [],
    spill: [],
    late: [],
    swept: new Set(),
    story: [],
    done: new Map(),
  };
  for (let made = 0; made < 3; made += 1) world.processes.push(aProcess(world));
  return world;
}

const aMachine = (id: string, slots: number): Machine => ({
  id,
  slots,
  session: 0,
  instance: 1,
  linkedTo: null,
  replica: null,
  silentSinceMs: 0,
  isLost: false,
  running: new Map(),
  results: new Map(),
});

export const aProcess = (world: World): Process => ({
  id: nextId(world, 'p') as InstanceId,
  isFrozen: false,
  frozenAtMs: 0,
  stalledAtMs: Number.NEGATIVE_INFINITY,
  callers: new Map(),
  known: new Map(),
  orders: new Map(),
  taken: new Map(),
  holds: [],
  links: new Map(),
  told: new Map(),
  batch: aBatch(),
  writing: null,
});

export const aBatch = (): Batch => ({ records: new Map(), acks: [], answers: new Map() });

export const nextId = (world: World, prefix: string): string => `${prefix}${(world.serial += 1)}`;

export function tell(world: World, what: string, line: string): void {
  world.done.set(what, (world.done.get(what) ?? 0) + 1);
  world.story.push(`${what}: ${line}`);
}

export function wait(world: World, ms: number): void {
  world.nowMs += ms;
  tell(world, 'waited', `${ms} ms`);
}

/** The element that a step's number selects; undefined: the list is empty. */
export const pick = <T>(all: readonly T[], at: number): T | undefined => all[at % Math.max(1, all.length)];

export function must<T>(value: T | undefined | null): T {
  if (value === undefined || value === null) throw new Error('the model lost something');
  return value;
}

export const processOf = (world: World, id: InstanceId): Process | undefined =>
  world.processes.find((process) => process.id === id);

export const machineOf = (world: World, id: string): Machine =>
  must(world.machines.find((machine) => machine.id === id));

/** Processes that do something now. */
export const awake = (world: World): readonly Process[] => world.processes.filter(({ isFrozen }) => !isFrozen);

/** Whether other processes see that one as present. */
export function isPresent(world: World, id: InstanceId): boolean {
  const process = processOf(world, id);
  if (process !== undefined && !process.isFrozen) return true;
  const seenAtMs = process?.frozenAtMs ?? world.lastSeen.get(id);
  return seenAtMs !== undefined && world.nowMs - seenAtMs <= PRESENCE_MS;
}

/** Whether nothing more of a dead process comes from its machines. */
export const isSettled = (world: World, id: InstanceId): boolean =>
  world.machines.every(({ replica, isLost }) => replica !== id || isLost);

type Sent<T> = T extends unknown ? Omit<T, 'from' | 'to' | 'atMs'> : never;
export function publish(world: World, from: InstanceId, to: InstanceId, message: Sent<Message>): void {
  world.bus.push({ ...message, from, to, atMs: world.nowMs });
}

/** Takes slots of that machine which a process has given away. */
export function usedSlots(process: Process, machine: string): number {
  const of = ({ machine: id }: { readonly machine: string }): boolean => id === machine;
  return (
    [...process.orders.values()].filter(of).length +
    [...process.taken.values()].filter(of).length +
    process.holds.filter(of).length +
    [...(process.links.get(machine)?.strangers.values() ?? [])].filter(({ isRunning }) => isRunning).length
  );
}

/** A linked machine with a free slot. */
export function freeMachine(world: World, process: Process): Machine | undefined {
  return world.machines.find(({ id, slots }) => process.links.has(id) && usedSlots(process, id) < slots);
}

export function freeSlots(world: World, process: Process): number {
  let free = 0;
  for (const { id, slots } of world.machines)
    if (process.links.has(id)) free += Math.max(0, slots - usedSlots(process, id));
  return free;
}

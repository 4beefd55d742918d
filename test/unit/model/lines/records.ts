// Records: collected by their owner, written in one statement, spilled while the database is away. An agent is
// acknowledged, and an end that no agent can repeat is told, once its record is committed or spilled (R3).
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { mayReplace, RANK } from '#scheduler/tasks/state.ts';
import type { Batch, Facts, Process, RecordOf, World } from './world.ts';
import { aBatch, awake, isPresent, must, pick, publish, tell } from './world.ts';

/** @param owner - who has the task from now on */
export function record(
  process: Process,
  { taskId, caller, attempt }: Facts,
  status: TaskStatus,
  { rank = RANK[status], owner = process.id }: { readonly rank?: number; readonly owner?: InstanceId } = {},
): void {
  const next: RecordOf = { taskId, caller, owner, status, attempt, rank };
  const before = process.batch.records.get(taskId);
  if (before === undefined || mayReplace(next, before)) process.batch.records.set(taskId, next);
}

function write(world: World, records: Iterable<RecordOf>): void {
  for (const next of records) {
    const task = must(world.tasks.get(next.taskId));
    if (task.row !== null && !mayReplace(next, task.row)) continue;
    if (task.row !== null && isTerminalTask(task.row.status) && next.status !== 'COMPLETE')
      throw new Error(`I8: ${task.id} was ${task.row.status} and became ${next.status}`);
    task.row = next;
  }
}

/** A statement begins; at most one of a process is under way. */
export function flush(world: World, at: number): void {
  const process = pick(awake(world), at);
  if (process !== undefined) flushOf(process);
}

export function flushOf(process: Process): void {
  const { records, acks, answers } = process.batch;
  if (process.writing !== null || records.size + acks.length + answers.size === 0) return;
  process.writing = process.batch;
  process.batch = aBatch();
}

/** The database carries a statement out. A frozen process hears of it later. */
export function land(world: World, at: number): void {
  const process = pick(
    world.processes.filter(({ writing }) => writing !== null),
    at,
  );
  if (process !== undefined) landOf(world, process);
}

export function landOf(world: World, process: Process): void {
  if (process.writing === null) return;
  write(world, process.writing.records.values());
  tell(world, 'written', process.id);
  if (!process.isFrozen) written(world, process);
}

/** The database is away: the batch goes to the spill. Its statement may be carried out much later. */
export function spill(world: World, at: number, isLate: boolean): void {
  const process = pick(
    awake(world).filter(({ writing }) => writing !== null),
    at,
  );
  if (process === undefined) return;
  const records = [...must(process.writing).records.values()];
  world.spill.push(...records);
  if (isLate) world.late.push(records);
  tell(world, 'spilled', process.id);
  written(world, process);
}

function written(world: World, process: Process): void {
  const { acks, answers, records } = must<Batch>(process.writing);
  process.writing = null;
  for (const { machine, token } of acks) {
    const link = process.links.get(machine);
    if (link !== undefined) world.wire.push({ kind: 'acked', machine, session: link.session, token });
  }
  for (const facts of answers.values()) {
    const { attempt, status } = must(records.get(facts.taskId));
    if (attempt === facts.attempt) answer(world, process, facts, status);
  }
}

/** The caller is answered, once. The end of an attempt that was given back meanwhile is no answer. */
export function settle(
  world: World,
  process: Process,
  { taskId, attempt }: Pick<Facts, 'taskId' | 'attempt'>,
  status: TaskStatus,
): void {
  if (process.callers.get(taskId)?.place.attempt !== attempt) return;
  process.callers.delete(taskId);
  const task = must(world.tasks.get(taskId));
  if (task.hasCaller) task.answers.push(status);
  tell(world, 'answered', `${taskId} ${status}`);
}

/** Answers the caller, here or at its replica. */
export function answer(world: World, process: Process, facts: Facts, status: TaskStatus): void {
  if (facts.caller === process.id) settle(world, process, facts, status);
  else publish(world, process.id, facts.caller, { kind: 'answer', facts, status });
}

/** Ends a task without its agent: nobody would repeat the end, so it is committed before its caller is told. */
export function recordFirst(process: Process, facts: Facts, status: TaskStatus): void {
  record(process, facts, status);
  process.batch.answers.set(facts.taskId, facts);
}

/** The leader moves the spill into the rows. */
export function drainSpill(world: World): void {
  write(world, world.spill.splice(0));
}

/** A statement of a process that is gone is carried out after all, or never. */
export function landLate(world: World, at: number, isLost: boolean): void {
  const records = pick(world.late, at);
  if (records === undefined) return;
  world.late.splice(world.late.indexOf(records), 1);
  if (isLost) return;
  write(world, records);
  tell(world, 'written late', String(records.length));
}

/** Tasks that are open for a while get a row. */
export function tellOpen(world: World, at: number): void {
  const process = pick(awake(world), at);
  if (process !== undefined) tellOpenOf(process);
}

export function tellOpenOf(process: Process): void {
  for (const [taskId, { place }] of process.callers)
    if (place.kind === 'waiting' || place.kind === 'unsure')
      record(process, { taskId, caller: process.id, attempt: place.attempt }, 'PENDING', {
        rank: place.attempt === 0 ? 0 : 2,
      });
  for (const order of process.orders.values()) if (!order.isOver) record(process, order, 'RUNNING');
}

/**
 * The leader ends tasks that nobody has. One that waits by its row goes at once: its caller is gone or answered. One
 * that runs is lost once its machine is linked or LOST.
 */
export function sweep(world: World): void {
  const isAnswered = world.processes.every(({ id, isFrozen }) => !isFrozen || !isPresent(world, id));
  const isReported = world.machines.every(
    ({ id, session, isLost }) => isLost || world.processes.some(({ links }) => links.get(id)?.session === session),
  );
  if (!isAnswered) return;
  for (const { id, row } of world.tasks.values()) {
    if (row === null || isTerminalTask(row.status) || awake(world).some((process) => has(process, id))) continue;
    if (row.status === 'PENDING') end(world, id, row, 'CANCELLED');
    else if (isReported) end(world, id, row, 'ERROR');
  }
}

/** Answer of a replica to the question whether it has a task. */
const has = ({ orders, links, batch, writing, callers }: Process, taskId: TaskId): boolean =>
  callers.has(taskId) ||
  batch.records.has(taskId) ||
  writing?.records.has(taskId) === true ||
  [...orders.values()].some((order) => order.taskId === taskId) ||
  [...links.values()].some(({ strangers }) => [...strangers.values()].some(({ live }) => live.taskId === taskId));

function end(world: World, taskId: TaskId, row: RecordOf, status: 'CANCELLED' | 'ERROR'): void {
  write(world, [{ ...row, status, rank: RANK[status] }]);
  world.swept.add(taskId);
  tell(world, 'ended by the leader', `${taskId} ${status}`);
}

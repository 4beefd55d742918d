// Steps of the callers' replica: calls arrive, wait, are sent here or offered; owners say what became of them.
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { chooseNext, chooseOffers } from '#scheduler/tasks/lines/choose.ts';
import type { Place, Word } from '#scheduler/tasks/lines/offers.ts';
import { afterRow, check, heard, isOut, NEW, offeredTo, sentHere } from '#scheduler/tasks/lines/offers.ts';
import { revoke, sendOrder } from './orders.ts';
import { recordFirst, settle } from './records.ts';
import type { Process, World } from './world.ts';
import { awake, freeMachine, isPresent, isSettled, must, nextId, pick, publish, tell, WAIT_LIMIT_MS } from './world.ts';

const BOUND = 8;
const HOLD_MS = 250;

export function call(world: World, at: number, isLarge: boolean): void {
  const process = pick(awake(world), at);
  if (process === undefined) return;
  if (process.callers.size >= BOUND) return tell(world, 'full', process.id);
  const id = nextId(world, 't') as TaskId;
  world.tasks.set(id, {
    id,
    caller: process.id,
    isLarge,
    row: null,
    runs: 0,
    answers: [],
    hasCaller: true,
    isForgotten: false,
  });
  process.callers.set(id, { place: NEW, sinceMs: world.nowMs, deadlineMs: world.nowMs + WAIT_LIMIT_MS });
  tell(world, 'called', `${id} at ${process.id}`);
  pump(world, process);
}

/** Tasks that wait for a slot, the oldest first. */
function line(process: Process): readonly TaskId[] {
  return [...process.callers].filter(([, { place }]) => place.kind === 'waiting').map(([id]) => id);
}

/** Gives free slots to whoever is next, and offers what is left to others. */
export function pump(world: World, process: Process): void {
  for (let machine = freeMachine(world, process); machine !== undefined; machine = freeMachine(world, process)) {
    const first = line(process)[0];
    const own = first === undefined ? undefined : world.nowMs - must(process.callers.get(first)).sinceMs;
    const next = chooseNext(own, headsOf(world, process));
    if (next.kind === 'nobody') break;
    if (next.kind === 'room') {
      process.holds.push({ machine: machine.id, of: next.replica, untilMs: world.nowMs + HOLD_MS });
      process.told.set(next.replica, { ...must(process.told.get(next.replica)), headMs: null });
      publish(world, process.id, next.replica, { kind: 'room' });
      tell(world, 'room', `${process.id} has one for ${next.replica}`);
      continue;
    }
    const taskId = must(first);
    mayBegin(world, taskId);
    const entry = must(process.callers.get(taskId));
    entry.place = sentHere(entry.place);
    sendOrder(world, process, { taskId, attempt: entry.place.attempt, caller: process.id }, machine);
  }
  for (const { taskId, to } of chooseOffers(line(process), freeElsewhere(world, process)))
    offer(world, process, taskId, to);
}

function* headsOf(world: World, process: Process): Iterable<{ readonly replica: InstanceId; readonly ageMs: number }> {
  for (const [replica, { headMs }] of process.told)
    if (headMs !== null && isPresent(world, replica)) yield { replica, ageMs: world.nowMs - headMs };
}

function* freeElsewhere(world: World, process: Process): Iterable<readonly [InstanceId, number]> {
  for (const [replica, { free }] of process.told) {
    if (!isPresent(world, replica)) continue;
    const offered = [...process.callers.values()].filter(
      ({ place }) => place.kind === 'offered' && place.to === replica,
    ).length;
    yield [replica, free - offered];
  }
}

/** After a stall, a process reads the rows of its tasks before it sends them. */
function mayBegin(world: World, taskId: TaskId): void {
  if (world.swept.has(taskId)) throw new Error(`R4: ${taskId} is begun after the leader ended it`);
}

function offer(world: World, process: Process, taskId: TaskId, to: InstanceId): void {
  mayBegin(world, taskId);
  const entry = must(process.callers.get(taskId));
  entry.place = offeredTo(entry.place, to, world.nowMs);
  const { isLarge } = must(world.tasks.get(taskId));
  const facts = { taskId, attempt: entry.place.attempt, caller: process.id };
  publish(world, process.id, to, { kind: 'offer', facts, isLarge });
  tell(world, 'offered', `${taskId} (${facts.attempt}) to ${to}`);
}

/** Another replica keeps a slot for this one's oldest task. */
export function hearRoom(world: World, process: Process, from: InstanceId): void {
  const first = line(process)[0];
  if (first !== undefined) offer(world, process, first, from);
}

export function hearWord(world: World, process: Process, taskId: TaskId, word: Word, from: InstanceId): void {
  const entry = process.callers.get(taskId);
  // The free slots that the other replica told are old: nothing is offered to it before it tells again.
  const told = process.told.get(from);
  if (word.kind === 'refused' && told !== undefined) told.free = 0;
  if (entry === undefined) return;
  if (word.kind === 'returned') dropOrder(process, taskId, word.attempt);
  moveTo(
    world,
    taskId,
    entry,
    heard(entry.place, word, from, { nowMs: world.nowMs, stalledAtMs: process.stalledAtMs }),
  );
  pump(world, process);
}

/** The replica to which this process handed its own order over says that it never began. */
function dropOrder(process: Process, taskId: TaskId, attempt: number): void {
  for (const [token, order] of process.orders)
    if (order.taskId === taskId && order.attempt === attempt) process.orders.delete(token);
}

function moveTo(world: World, taskId: TaskId, entry: { place: Place }, place: Place): void {
  if (place.kind !== entry.place.kind) tell(world, `now ${place.kind}`, `${taskId} (${place.attempt})`);
  entry.place = place;
}

/** Ends a task that waits here: its record is committed before its caller is told. */
function endHere(world: World, process: Process, taskId: TaskId, status: 'TIMEOUT' | 'CANCELLED' | 'ERROR'): void {
  const entry = must(process.callers.get(taskId));
  moveTo(world, taskId, entry, { kind: 'ending', attempt: entry.place.attempt });
  recordFirst(process, { taskId, attempt: entry.place.attempt, caller: process.id }, status);
}

/** Timers of the tasks whose callers wait here. */
export function tickCallers(world: World, process: Process): void {
  const facts = {
    nowMs: world.nowMs,
    isPresent: (id: InstanceId) => isPresent(world, id),
    isSettled: (id: InstanceId) => isSettled(world, id),
  };
  for (const [taskId, entry] of process.callers) {
    if (entry.place.kind === 'waiting' && world.nowMs > entry.deadlineMs) {
      endHere(world, process, taskId, 'TIMEOUT');
      continue;
    }
    const next = check(entry.place, facts);
    moveTo(world, taskId, entry, next.place);
    if (next.kind === 'recall') {
      recall(world, process, taskId, next);
      const { attempt } = entry.place;
      // The answer may be lost, and its record there.
      const { row } = must(world.tasks.get(taskId));
      if (row !== null && isTerminalTask(row.status)) settle(world, process, { taskId, attempt }, row.status);
    } else if (next.kind === 'read_row') readRow(world, process, taskId);
  }
  process.holds.splice(0, process.holds.length, ...process.holds.filter(({ untilMs }) => world.nowMs < untilMs));
  pump(world, process);
}

function readRow(world: World, process: Process, taskId: TaskId): void {
  const { row } = must(world.tasks.get(taskId));
  const entry = must(process.callers.get(taskId));
  const facts = {
    isFinal: row !== null && isTerminalTask(row.status),
    runsAt: row?.status === 'RUNNING' ? row.owner : null,
    isComplete: world.spill.length === 0,
  };
  const next = afterRow(entry.place, facts, {
    nowMs: world.nowMs,
    self: process.id,
    isPresent: (id) => isPresent(world, id),
  });
  if (next.kind === 'answer') settle(world, process, { taskId, attempt: entry.place.attempt }, must(row).status);
  else if (next.kind === 'lost') endHere(world, process, taskId, 'ERROR');
  else moveTo(world, taskId, entry, next.place);
  if (next.kind === 'recall') recall(world, process, taskId, next);
}

function recall(
  world: World,
  process: Process,
  taskId: TaskId,
  { to, ageMs, place: { attempt } }: { readonly to: InstanceId; readonly ageMs: number; readonly place: Place },
): void {
  publish(world, process.id, to, { kind: 'recall', taskId, attempt, ageMs });
}

/** Somebody stops a task, or its caller leaves: every replica is asked, and the owner acts. */
export function cancel(world: World, at: number, leaves: boolean): void {
  const task = pick(
    [...world.tasks.values()].filter(({ row }) => row === null || !isTerminalTask(row.status)),
    at,
  );
  if (task === undefined) return;
  if (leaves) task.hasCaller = false;
  tell(world, 'cancelled', task.id);
  for (const process of awake(world)) {
    for (const order of process.orders.values())
      if (order.taskId === task.id && !order.isOver) revoke(world, process, order);
    const place = process.callers.get(task.id)?.place;
    if (place !== undefined && !isOut(place) && place.kind !== 'ending') endHere(world, process, task.id, 'CANCELLED');
  }
}

// Statements that hold after each step, and those that hold once the faults are over. Numbers are those of
// docs/invariants.md; the rules of lines/README.md are named R1 to R5.
import type { TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { judgeOffer } from '#scheduler/tasks/lines/owner.ts';
import { deliverOne, dialOf, finish, hearOne, loseMachines, thawOf, tickOf, announceOf } from './machines.ts';
import { load } from './owners.ts';
import { drainSpill, flushOf, landOf, sweep, tellOpenOf } from './records.ts';
import type { Task, World } from './world.ts';
import { must, processOf, wait } from './world.ts';

/** @throws Error naming the invariant */
export function verify(world: World): void {
  for (const task of world.tasks.values()) {
    if (task.runs > 1) fail('synchronous', `${task.id} ran ${task.runs} times`);
    if (task.answers.length > 1) fail('answers', `the caller of ${task.id} got ${task.answers.join(' and ')}`);
  }
  for (const [taskId, owners] of sendersOf(world))
    if (owners.length > 1) fail('owner', `${taskId} may be sent by ${owners.join(' and by ')}`);
}

/** Everybody who may still have a task begun. */
function sendersOf(world: World): ReadonlyMap<TaskId, readonly string[]> {
  const senders = new Map<TaskId, string[]>();
  const add = (taskId: TaskId, who: string): void => void senders.set(taskId, [...(senders.get(taskId) ?? []), who]);
  for (const { id, callers, taken } of world.processes) {
    for (const [taskId, { place }] of callers) if (place.kind === 'waiting') add(taskId, `${id}, where it waits`);
    for (const { taskId, attempt } of taken.values()) add(taskId, `${id}, which took attempt ${attempt}`);
  }
  for (const message of world.bus) {
    if (message.kind !== 'offer') continue;
    const { taskId, attempt } = message.facts;
    const receiver = processOf(world, message.to);
    if (receiver === undefined || world.nowMs - message.atMs > 60_000) continue;
    if (judgeOffer(receiver.known.get(taskId), { attempt, hasSlot: true }) === 'take')
      add(taskId, `the offer of attempt ${attempt}`);
  }
  for (const wire of world.wire) {
    const machine = world.machines.find(({ id }) => id === wire.machine);
    if (wire.kind === 'run' && machine?.session === wire.session && machine.linkedTo !== null)
      add(wire.live.taskId, `the order ${wire.live.token}`);
  }
  for (const { running } of world.machines) for (const { taskId, token } of running.values()) add(taskId, token);
  return senders;
}

const ROUNDS = 200;

/** All faults are over, and everything that is under way comes to its end. @throws Error naming what is left */
export function comeToRest(world: World): void {
  for (const process of world.processes) if (process.isFrozen) thawOf(world, process);
  for (let round = 0; round < ROUNDS && !isQuiet(world); round += 1) {
    for (const machine of world.machines)
      if (machine.linkedTo === null || processOf(world, machine.linkedTo) === undefined)
        dialOf(world, machine, must(world.processes[round % 3]));
    settleMessages(world);
    for (const process of world.processes) {
      tellOpenOf(process);
      flushOf(process);
      landOf(world, process);
    }
    settleMessages(world);
    while (world.machines.some(({ running }) => running.size > 0)) finish(world, 0, 'ok');
    settleMessages(world);
    drainSpill(world);
    loseMachines(world);
    sweep(world);
    for (const process of world.processes) {
      tickOf(world, process);
      announceOf(world, process);
      flushOf(process);
      landOf(world, process);
    }
    settleMessages(world);
    verify(world);
    wait(world, round < 10 ? 1_100 : 6_000);
  }
  for (const task of world.tasks.values()) verifyEnd(task);
  for (const { id, callers, orders, taken, holds } of world.processes) {
    if (callers.size > 0) fail('answers', `${id} has callers of ${[...callers.keys()].join(' ')}`);
    if (orders.size > 0) fail('ends', `${id} has the orders ${[...orders.keys()].join(' ')}`);
    if (taken.size + holds.length > 0) fail('slots', `${id} keeps slots`);
  }
  for (const { id, results } of world.machines) if (results.size > 0) fail('R3', `${id} keeps ${results.size} results`);
}

/** Most messages that one round of a few tasks brings forth. */
const MOST_MESSAGES = 2_000;

function settleMessages(world: World): void {
  for (let count = 0; world.wire.length + world.bus.length > 0; count += 1) {
    const [wire] = world.wire;
    if (wire !== undefined) deliverOne(world, wire, 0);
    else hearOne(world, must(world.bus[0]));
    for (const process of world.processes) while (process.taken.size > 0) load(world, process, 0);
    if (count > MOST_MESSAGES) fail('messages', 'they do not come to an end');
  }
}

const isQuiet = (world: World): boolean =>
  world.processes.every(
    ({ callers, orders, taken, holds, batch, writing }) =>
      callers.size + orders.size + taken.size + holds.length + batch.records.size + batch.acks.length === 0 &&
      writing === null,
  ) &&
  world.machines.every(({ running, results, linkedTo }) => running.size + results.size === 0 && linkedTo !== null) &&
  [...world.tasks.values()].every(({ row }) => row === null || isTerminalTask(row.status)) &&
  world.wire.length + world.spill.length + world.late.length === 0;

function verifyEnd(task: Task): void {
  const { id, answers, hasCaller, row, runs, isForgotten } = task;
  if (hasCaller && answers.length !== 1) fail('answers', `the caller of ${id} got ${answers.length} answers`);
  if (row !== null && !isTerminalTask(row.status)) fail('I10', `${id} stays ${row.status} at ${row.owner}`);
  if (isForgotten) return;
  if ((runs > 0 || answers.length > 0) && row === null) fail('I10', `${id} has no record`);
  const answer = answers[0];
  if (answer === 'COMPLETE' && row?.status !== 'COMPLETE')
    fail('R3', `the caller of ${id} got its result, and the row says ${row?.status}`);
}

function fail(invariant: string, what: string): never {
  throw new Error(`${invariant}: ${what}`);
}

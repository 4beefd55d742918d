// Steps of the owner of an order: it takes offers, sends orders, ends them, adopts those of others, hands over its own.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { heirOf, judgeOrder } from '#scheduler/tasks/lines/handover.ts';
import type { Word } from '#scheduler/tasks/lines/offers.ts';
import { judgeOffer, judgeRecall, KNOWN_MS, mayStillSend } from '#scheduler/tasks/lines/owner.ts';
import { hearWord, pump } from './callers.ts';
import { endFirst, remember, sendOrder, tellToStop } from './orders.ts';
import { answer, record } from './records.ts';
import type { Facts, Link, Live, Message, Order, Outcome, Process, Wire, World } from './world.ts';
import { freeMachine, isPresent, machineOf, must, pick, publish, tell } from './world.ts';

const STATUS_OF = { ok: 'COMPLETE', error: 'ERROR', exited: 'ERROR' } as const satisfies Record<Outcome, TaskStatus>;
/** Time for which an attempt that nobody knows waits for the replica that sent it. */
const STRANGER_MS = 30_000;

/** Tells the replica of the caller, which may be this one. */
function say(world: World, process: Process, { taskId, caller }: Facts, word: Word): void {
  if (caller === process.id) hearWord(world, process, taskId, word, process.id);
  else publish(world, process.id, caller, { kind: 'word', taskId, word });
}

// ---- offers ---------------------------------------------------------------------------------------------------------

export function hearOffer(world: World, process: Process, { facts, isLarge, from }: Message & { kind: 'offer' }): void {
  const { taskId, attempt } = facts;
  const hold = process.holds.find(({ of }) => of === from);
  const free = hold === undefined ? freeMachine(world, process) : machineOf(world, hold.machine);
  const verdict = judgeOffer(process.known.get(taskId), { attempt, hasSlot: free !== undefined });
  if (verdict === 'refuse') say(world, process, facts, { kind: 'refused', attempt });
  tell(world, verdict, `${taskId} (${attempt}) at ${process.id}`);
  if (verdict !== 'take') return;
  if (hold !== undefined) process.holds.splice(process.holds.indexOf(hold), 1);
  if (!isLarge) return sendOrder(world, process, facts, must(free));
  process.taken.set(taskId, { ...facts, machine: must(free).id, atMs: world.nowMs });
  remember(world, process, taskId, attempt, { kind: 'taken' });
}

/** The input of a taken task is there. */
export function load(world: World, process: Process, at: number): void {
  const taken = pick([...process.taken.values()], at);
  if (taken === undefined) return;
  if (!mayStillSend(world.nowMs - taken.atMs, world.nowMs - process.stalledAtMs))
    return giveBackTaken(world, process, taken);
  process.taken.delete(taken.taskId);
  const { taskId, attempt, caller, machine } = taken;
  sendOrder(world, process, { taskId, attempt, caller }, machineOf(world, machine));
}

function giveBackTaken(world: World, process: Process, taken: Facts): void {
  const { taskId, attempt } = taken;
  process.taken.delete(taskId);
  remember(world, process, taskId, attempt, { kind: 'back', wasSent: false });
  say(world, process, taken, { kind: 'returned', attempt, wasSent: false });
  tell(world, 'taken and given back', `${taskId} (${attempt}) by ${process.id}`);
}

export function hearRecall(world: World, process: Process, message: Message & { kind: 'recall' }): void {
  const { taskId, attempt, ageMs, from } = message;
  const answer = judgeRecall(process.known.get(taskId), { attempt, ageMs, self: process.id });
  if (answer === undefined) return;
  const { word, known } = answer;
  if (known !== undefined) remember(world, process, taskId, known.attempt, known.what);
  if (word.kind !== 'has') process.taken.delete(taskId);
  tell(world, `recalled: ${word.kind}`, `${taskId} (${attempt}) at ${process.id}`);
  publish(world, process.id, from, { kind: 'word', taskId, word });
}

// ---- orders ---------------------------------------------------------------------------------------------------------

function endLost(world: World, process: Process, order: Order): void {
  process.orders.delete(order.token);
  if (!order.isOver) endFirst(world, process, order, 'ERROR');
}

/** The order never began: its task is its caller's replica's again. */
function giveBack(world: World, process: Process, order: Order): void {
  process.orders.delete(order.token);
  if (order.isOver) return;
  const { taskId, attempt, caller } = order;
  remember(world, process, taskId, attempt, { kind: 'back', wasSent: true });
  // The leader ends this row if the caller's replica is dead.
  record(process, order, 'PENDING', { rank: 2, owner: caller });
  tell(world, 'never began', `${taskId} (${attempt}) says ${process.id}`);
  say(world, process, order, { kind: 'returned', attempt, wasSent: true });
}

export function hearNotRun(world: World, process: Process, token: string): void {
  const order = process.orders.get(token);
  if (order === undefined) return;
  giveBack(world, process, order);
  pump(world, process);
}

export function hearResult(world: World, process: Process, machine: string, live: Live, outcome: Outcome): void {
  const { token, facts } = live;
  const link = must(process.links.get(machine));
  const order = process.orders.get(token) ?? (facts === null ? undefined : orderOf(link, machine, token, facts));
  if (order === undefined) {
    const stranger = link.strangers.get(token);
    if (stranger !== undefined) Object.assign(stranger, { isRunning: false, outcome });
    return;
  }
  const isKnown = process.orders.delete(token);
  process.batch.acks.push({ machine, token });
  const status = STATUS_OF[outcome];
  if (!order.isOver) {
    // The agent repeats the end if this process dies before it is committed: its caller need not wait.
    record(process, order, status);
    remember(world, process, order.taskId, order.attempt, { kind: 'sent' });
    answer(world, process, order, status);
    tell(world, 'ended', `${order.taskId} (${order.attempt}) ${status} by ${process.id}`);
  } else if (outcome === 'ok') record(process, order, 'COMPLETE');
  if (!isKnown) tell(world, 'result adopted', `${order.taskId} at ${process.id}`);
  pump(world, process);
}

function orderOf({ session, report }: Link, machine: string, token: string, facts: Facts): Order {
  return { ...facts, token, machine, session, instance: Number(report.agentInstance), isOver: false };
}

// ---- machines that dial ---------------------------------------------------------------------------------------------

/** The agent's report begins a link. What it names is adopted; what it does not name is judged by it. */
export function hearReport(world: World, process: Process, wire: Wire & { kind: 'report' }): void {
  const { machine, session, instance, running, finished } = wire;
  if ((process.links.get(machine)?.session ?? 0) > session) return;
  const report = {
    sessionEpoch: session,
    agentInstance: String(instance),
    named: new Set([...running, ...finished].map(({ token }) => token)),
  };
  const link: Link = { session, report, strangers: new Map() };
  dropLink(world, process, machine);
  for (const order of [...process.orders.values()]) if (order.machine === machine) judge(world, process, order, link);
  for (const live of running) adoptNamed(world, process, machine, live, link);
  // The results of the others follow.
  for (const live of finished)
    if (live.facts === null && !process.orders.has(live.token))
      link.strangers.set(live.token, { live, sinceMs: world.nowMs, isRunning: false, outcome: null });
  // Nothing is sent before the whole report is taken in.
  process.links.set(machine, link);
  pump(world, process);
}

function judge(world: World, process: Process, order: Order, { report }: Link): void {
  const { token: hash, session: sessionEpoch, instance } = order;
  switch (judgeOrder({ hash, sessionEpoch, agentInstance: String(instance) }, report)) {
    case 'named':
      order.session = report.sessionEpoch;
      if (order.isOver) tellToStop(world, order, report.sessionEpoch);
      return;
    case 'never_began':
      return giveBack(world, process, order);
    case 'lost':
      return endLost(world, process, order);
    case 'later':
  }
}

function adoptNamed(world: World, process: Process, machine: string, live: Live, link: Link): void {
  const { token, facts } = live;
  if (process.orders.has(token)) return;
  if (facts === null) link.strangers.set(token, { live, sinceMs: world.nowMs, isRunning: true, outcome: null });
  else adopt(world, process, orderOf(link, machine, token, facts));
}

function adopt(world: World, process: Process, order: Order): void {
  process.orders.set(order.token, order);
  remember(world, process, order.taskId, order.attempt, { kind: 'sent' });
  record(process, order, 'RUNNING');
  tell(world, 'adopted', `${order.taskId} (${order.attempt}) by ${process.id}`);
  say(world, process, order, { kind: 'has', attempt: order.attempt, owner: process.id });
}

/** This process finds that a link is gone. */
export function dropLink(world: World, process: Process, machine: string): void {
  process.links.delete(machine);
  dropPromises(world, process, machine);
}

/** Slots of an earlier link are no longer kept: the agent says what is free. */
function dropPromises(world: World, process: Process, machine: string): void {
  for (const taken of [...process.taken.values()]) if (taken.machine === machine) giveBackTaken(world, process, taken);
  process.holds.splice(0, process.holds.length, ...process.holds.filter((hold) => hold.machine !== machine));
}

// ---- hand-over ------------------------------------------------------------------------------------------------------

/** Rows say where machines are: their orders go with them; those of lost machines end. */
export function handOver(world: World, process: Process): void {
  for (const machine of world.machines) {
    const link = process.links.get(machine.id);
    if (link !== undefined && (link.session < machine.session || machine.isLost)) dropLink(world, process, machine.id);
    const orders = [...process.orders.values()].filter((order) => order.machine === machine.id);
    if (machine.isLost && !process.links.has(machine.id)) {
      for (const order of orders) endLost(world, process, order);
      continue;
    }
    const row = { replica: machine.replica, sessionEpoch: machine.session };
    const moved = new Map<InstanceId, Order[]>();
    for (const order of orders) {
      const sent = { sessionEpoch: order.session };
      const to = heirOf(sent, row, process.id, (id) => isPresent(world, id));
      if (to !== undefined) moved.set(to, [...(moved.get(to) ?? []), { ...order }]);
    }
    for (const [to, given] of moved) {
      publish(world, process.id, to, { kind: 'handover', machine: machine.id, orders: given });
      tell(world, 'handed over', `${given.map(({ taskId }) => taskId).join(' ')} by ${process.id} to ${to}`);
    }
  }
}

export function hearHandover(world: World, process: Process, message: Message & { kind: 'handover' }): void {
  const { machine, orders, from } = message;
  const link = process.links.get(machine);
  if (link === undefined) return;
  const tokens: string[] = [];
  for (const order of orders) if (takeOver(world, process, order, link)) tokens.push(order.token);
  if (tokens.length > 0) publish(world, process.id, from, { kind: 'handed', tokens });
  pump(world, process);
}

/** @returns false: this process cannot judge the order */
function takeOver(world: World, process: Process, order: Order, link: Link): boolean {
  const { token: hash, session: sessionEpoch, instance, taskId, attempt } = order;
  const verdict = judgeOrder({ hash, sessionEpoch, agentInstance: String(instance) }, link.report);
  if (verdict === 'later') return false;
  const own = process.orders.get(hash);
  if (own !== undefined) {
    if (order.isOver && !own.isOver) {
      own.isOver = true;
      tellToStop(world, own, link.session);
    }
    return true;
  }
  const known = process.known.get(taskId);
  if (known !== undefined && known.attempt >= attempt && known.what.kind !== 'moved') return true;
  if (verdict === 'never_began') giveBack(world, process, order);
  else if (verdict === 'lost') endLost(world, process, order);
  else takeStranger(world, process, order, link);
  return true;
}

function takeStranger(world: World, process: Process, order: Order, link: Link): void {
  const stranger = link.strangers.get(order.token);
  if (stranger === undefined) return endLost(world, process, order);
  link.strangers.delete(order.token);
  const own = { ...order, session: link.session, instance: Number(link.report.agentInstance) };
  adopt(world, process, own);
  if (own.isOver) tellToStop(world, own, link.session);
  if (stranger.outcome !== null) hearResult(world, process, order.machine, stranger.live, stranger.outcome);
}

/** The other process has judged these orders: this one decides nothing more of them. */
export function hearHanded(world: World, process: Process, tokens: readonly string[], from: InstanceId): void {
  for (const token of tokens) {
    const order = process.orders.get(token);
    if (order === undefined || process.links.get(order.machine)?.session === order.session) continue;
    process.orders.delete(token);
    const { taskId, attempt, caller } = order;
    remember(world, process, taskId, attempt, { kind: 'moved', to: from });
    if (caller === process.id) hearWord(world, process, taskId, { kind: 'has', attempt, owner: from }, process.id);
  }
  pump(world, process);
}

// ---- timers ---------------------------------------------------------------------------------------------------------

export function tickOwner(world: World, process: Process): void {
  for (const taken of [...process.taken.values()])
    if (!mayStillSend(world.nowMs - taken.atMs, world.nowMs - process.stalledAtMs))
      giveBackTaken(world, process, taken);
  for (const [taskId, { atMs }] of process.known) if (world.nowMs - atMs > KNOWN_MS) process.known.delete(taskId);
  for (const [machine, link] of process.links)
    for (const [token, { live, sinceMs, outcome }] of link.strangers)
      if (world.nowMs - sinceMs >= STRANGER_MS) nobodys(world, process, machine, link, token, live, outcome);
}

/** Nobody handed the attempt over: its row says what it is, or it is unrecorded. */
function nobodys(
  world: World,
  process: Process,
  machine: string,
  link: Link,
  token: string,
  live: Live,
  outcome: Outcome | null,
): void {
  link.strangers.delete(token);
  const { row } = must(world.tasks.get(live.taskId));
  tell(world, 'unknown attempt', `${live.taskId} ${row?.status ?? 'without a row'}`);
  if (row !== null) {
    const { taskId, caller, status } = row;
    // A task that waits by its row was sent after that record.
    const attempt = status === 'PENDING' ? row.attempt + 1 : row.attempt;
    const order = orderOf(link, machine, token, { taskId, attempt, caller });
    if (isTerminalTask(status)) {
      process.orders.set(token, { ...order, isOver: true });
      tellToStop(world, order, link.session);
    } else adopt(world, process, order);
    if (outcome !== null) hearResult(world, process, machine, live, outcome);
    return;
  }
  tellToStop(world, { machine, token }, link.session);
  process.batch.acks.push({ machine, token });
}

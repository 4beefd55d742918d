// Orders: sent to a linked machine, ended without their agents, stopped.
import type { TaskId } from '#shared/domain/ids.ts';
import type { Known } from '#scheduler/tasks/lines/owner.ts';
import { recordFirst } from './records.ts';
import type { Facts, Machine, Order, Process, World } from './world.ts';
import { must, nextId, tell } from './world.ts';

export function remember(world: World, process: Process, taskId: TaskId, attempt: number, what: Known['what']): void {
  process.known.set(taskId, { attempt, what, atMs: world.nowMs });
}

export function sendOrder(world: World, process: Process, facts: Facts, machine: Machine): void {
  const { session, report } = must(process.links.get(machine.id));
  const token = nextId(world, 'token');
  const instance = Number(report.agentInstance);
  process.orders.set(token, { ...facts, token, machine: machine.id, session, instance, isOver: false });
  remember(world, process, facts.taskId, facts.attempt, { kind: 'sent' });
  world.wire.push({ kind: 'run', machine: machine.id, session, live: { token, taskId: facts.taskId, facts } });
  tell(world, 'sent', `${facts.taskId} (${facts.attempt}) by ${process.id} to ${machine.id} as ${token}`);
}

/** Ends an order without its agent. A task whose caller waits here has no attempt under way from now on. */
export function endFirst(world: World, process: Process, order: Order, status: 'ERROR' | 'CANCELLED'): void {
  const entry = process.callers.get(order.taskId);
  if (entry?.place.attempt === order.attempt) entry.place = { kind: 'ending', attempt: order.attempt };
  recordFirst(process, order, status);
  remember(world, process, order.taskId, order.attempt, { kind: 'sent' });
  tell(world, 'ended', `${order.taskId} (${order.attempt}) ${status} by ${process.id}`);
}

/** The end comes before the agent's: it is told to stop, and the slot stays taken until it says so. */
export function revoke(world: World, process: Process, order: Order): void {
  order.isOver = true;
  endFirst(world, process, order, 'CANCELLED');
  const link = process.links.get(order.machine);
  if (link !== undefined) tellToStop(world, order, link.session);
}

export function tellToStop(world: World, { machine, token }: Pick<Order, 'machine' | 'token'>, session: number): void {
  world.wire.push({ kind: 'cancel', machine, session, token });
}

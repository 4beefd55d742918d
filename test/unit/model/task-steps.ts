// Steps of tasks: queued, fetched for a free slot, sent, run, ended, cancelled, lost. The
// queue is a table with BullMQ's rules (a lock token holds an entry; every call on a held one
// names it). The process in front of it remembers attempts, and forgets them when it dies.
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { AttemptOutcome } from '#scheduler/tasks/state.ts';
import { check, choose, inFlight, mayBecome, rankOf, verdict, wins } from './rules.ts';
import type { Attempt, Job, Machine, Outcome, Queue, Result, Row, Task, World } from './world.ts';
import { LOCK_MS, machineOf, must, nextId, pick, send, tell } from './world.ts';

// ---- records --------------------------------------------------------------------------------------------------------

/** Records are whole; the newer one wins, in any order of arrival. */
function record(task: Task, status: TaskStatus, attempt: number, rank = rankOf(status)): void {
  const next = { status, attempt, rank };
  if (!wins(next, task.record)) return;
  const before = task.record.status;
  if (isTerminalTask(before) && status !== 'COMPLETE')
    throw new Error(`I8: ${task.id} was ${before} and became ${status}`);
  if (!mayBecome(before, status)) throw new Error(`I8: ${task.id}: no way from ${before} to ${status}`);
  task.record = next;
  if (status !== before) task.history.push(status);
  if (isTerminalTask(status)) task.lease = null;
}

// ---- queues ---------------------------------------------------------------------------------------------------------

export function enqueue(world: World, at: number): void {
  const queue = must(pick(world.queues, at));
  if (!queue.active) return;
  const id = nextId(world, 't');
  world.tasks.set(id, {
    id,
    queue: queue.name,
    deadlineMs: world.nowMs + 600_000,
    job: { place: 'waiting', lock: null, lockUntilMs: 0, starts: 0, retriesUsed: 0, losses: 0 },
    record: { status: 'PENDING', attempt: 0, rank: 0 },
    lease: null,
    history: ['PENDING'],
    accepted: 0,
    infrastructureCauses: 0,
    diedOn: new Set(),
    userFailures: 0,
  });
  tell(world, 'enqueued', `${id} in ${queue.name}`);
}

/** BullMQ's answer to a call that names the lock. */
const fence = (job: Job | undefined, lock: string): 'done' | 'gone' | 'expired' | 'superseded' => {
  if (job === undefined) return 'gone';
  if (job.lock === null) return 'expired';
  return job.lock === lock ? 'done' : 'superseded';
};

/** A slot is free: the next job is fetched for it, checked, and sent. */
export function dispatch(world: World, at: number, random: number): void {
  const queue = must(pick(world.queues, at));
  const row = choose(world, queue, random);
  if (row === undefined) return;
  const task = [...world.tasks.values()].find((one) => one.queue === queue.name && one.job?.place === 'waiting');
  const job = task?.job;
  if (task === undefined || job === undefined) return;
  const machine = machineOf(world, must(row.machine ?? undefined));
  mayTake(world, row, machine, queue);
  const token = nextId(world, 'secret-');
  const lock = `process${world.process}.lock-of-${world.serial}`;
  Object.assign(job, { place: 'active', lock, lockUntilMs: world.nowMs + LOCK_MS, starts: job.starts + 1 });
  if (isTerminalTask(task.record.status)) {
    task.job = undefined;
    return;
  }
  const found = check(world, task, job);
  if (found.kind === 'finish') {
    task.job = undefined;
    record(task, found.status, job.starts);
    tell(world, 'ended at the fetch', `${task.id} ${found.status}`);
    return;
  }
  const attempt: Attempt = {
    taskId: task.id,
    token,
    lock,
    number: job.starts,
    containerId: row.id,
    machine: machine.id,
    instance: machine.instance,
    revoked: false,
  };
  world.attempts.set(token, attempt);
  task.lease = { lock, number: job.starts, containerId: row.id, machine: machine.id };
  record(task, 'RUNNING', job.starts);
  tell(world, 'sent', `${task.id} to ${row.id} on ${machine.id} under ${token}`);
  send(world, machine, 'agent', { kind: 'run', taskId: task.id, token, containerId: row.id });
}

function mayTake(world: World, row: Row, machine: Machine, queue: Queue): void {
  const fault = (what: string): Error => new Error(`I11: ${row.id} gets an attempt ${what}`);
  if (row.state !== 'RUNNING' || row.leaving) throw fault(`while it is ${row.state}${row.leaving ? ', leaving' : ''}`);
  if (machine.health !== 'READY') throw fault(`on a machine that is ${machine.health}`);
  if (inFlight(world, row.id) >= queue.slots) throw fault('beyond its slots');
}

/** Jobs whose lock ran out come back; delayed ones that are due, too. */
export function tend(world: World): void {
  for (const task of world.tasks.values()) {
    const { job } = task;
    if (job?.place === 'delayed') job.place = 'waiting';
    if (job?.place !== 'active' || world.nowMs < job.lockUntilMs) continue;
    const held = [...world.attempts.values()].some((attempt) => attempt.lock === job.lock);
    // A living holder renews its lock.
    if (held) job.lockUntilMs = world.nowMs + LOCK_MS;
    else Object.assign(job, { place: 'waiting', lock: null });
  }
}

// ---- ends -----------------------------------------------------------------------------------------------------------

/** Ends an attempt on a report: fenced by its lock, then the record. */
function end(world: World, task: Task, attempt: Attempt, outcome: AttemptOutcome, stopping: boolean): void {
  const { job } = task;
  const held = fence(job, attempt.lock);
  if (held === 'superseded' || job === undefined) {
    // The task has ended already, or another attempt owns it.
    // Nothing changes, but a completion of the last one may be late.
    if (job === undefined && outcome === 'ok') late(world, task, attempt);
    return;
  }
  if (outcome === 'lost' || (outcome === 'exited' && !stopping)) task.diedOn.add(attempt.containerId);
  const before = { retries: job.retriesUsed, losses: job.losses };
  const found = verdict(world, task, job, outcome, stopping);
  switch (found.kind) {
    case 'final':
      task.job = undefined;
      if (outcome === 'ok') accept(task);
      record(task, found.status, attempt.number);
      break;
    case 'retry':
      if (held !== 'done') return;
      Object.assign(job, { place: 'delayed', lock: null, retriesUsed: job.retriesUsed + 1 });
      task.userFailures += 1;
      record(task, 'RETRY', attempt.number);
      break;
    case 'again':
      if (held !== 'done') return;
      Object.assign(job, { place: 'waiting', lock: null, losses: job.losses + 1 });
      task.infrastructureCauses += 1;
      task.lease = null;
      record(task, 'PENDING', attempt.number, 2);
      break;
  }
  const infrastructure = outcome === 'lost' || (outcome === 'exited' && stopping);
  if (infrastructure && job.retriesUsed !== before.retries)
    throw new Error(`I12: ${outcome} of ${task.id} used a retry of the user's`);
  tell(world, found.kind === 'final' ? 'ended' : found.kind, `${task.id} by ${outcome} of ${attempt.token}`);
}

/** Records a late completion (I8): that of the last attempt, with no newer one, replaces another end. */
function late(world: World, task: Task, attempt: Attempt): void {
  if (!isTerminalTask(task.record.status) || task.record.status === 'COMPLETE') return;
  if (task.record.attempt !== attempt.number) return;
  accept(task);
  record(task, 'COMPLETE', attempt.number);
  tell(world, 'late', `${task.id} is COMPLETE after all`);
}

function accept(task: Task): void {
  task.accepted += 1;
  if (task.accepted > 1) throw new Error(`I9: a second result of ${task.id} is accepted`);
}

/** Handles an agent's result. An attempt that this process does not know is taken over by its lease. */
export function hearResult(world: World, machine: Machine, token: string, result: Result): void {
  const task = must(world.tasks.get(result.taskId));
  const attempt = world.attempts.get(token) ?? adopt(world, machine, task, token, result.containerId);
  if (attempt !== undefined) {
    const row = world.rows.get(attempt.containerId);
    if (attempt.revoked) {
      if (result.outcome === 'ok') late(world, task, attempt);
    } else end(world, task, attempt, result.outcome, row?.leaving ?? true);
    forget(world, attempt);
  }
  send(world, machine, 'agent', { kind: 'acked', token });
}

/**
 * Adopts an attempt by its lease. The lock in the lease matches the token: in this model both carry the same number.
 */
function adopt(world: World, machine: Machine, task: Task, token: string, containerId: string): Attempt | undefined {
  const { lease, job } = task;
  if (lease === null || lease.machine !== machine.id || numberOf(lease.lock) !== numberOf(token)) return undefined;
  if (job !== undefined && job.lock !== null && job.lock !== lease.lock) return undefined;
  const attempt: Attempt = { taskId: task.id, token, revoked: false, instance: undefined, ...lease, containerId };
  world.attempts.set(token, attempt);
  tell(world, 'adopted', `${token} of ${task.id}`);
  return attempt;
}

const numberOf = (text: string): string => text.slice(text.lastIndexOf('-') + 1);

/** Frees the attempt's slot: the agent reported its end, or cannot report any more. */
function forget(world: World, attempt: Attempt): void {
  world.attempts.delete(attempt.token);
  const row = world.rows.get(attempt.containerId);
  if (row !== undefined && inFlight(world, row.id) === 0) row.idleSinceMs = world.nowMs;
}

/** Handles an attempt that no runner process got: the task is first in the queue again, and no budget is touched. */
export function hearNotRun(world: World, taskId: string, token: string): void {
  const task = must(world.tasks.get(taskId));
  const attempt = world.attempts.get(token);
  if (attempt === undefined) return;
  if (!attempt.revoked) giveBack(world, task, attempt);
  forget(world, attempt);
}

function giveBack(world: World, task: Task, attempt: Attempt): void {
  const { job } = task;
  if (fence(job, attempt.lock) !== 'done' || job === undefined) return;
  Object.assign(job, { place: 'waiting', lock: null });
  task.lease = null;
  record(task, 'PENDING', attempt.number, 2);
  tell(world, 'given back', task.id);
}

/**
 * A machine's stream came again. Attempts that it runs are taken over. Any
 * other attempt never reached the machine, or was lost with the agent before.
 */
export function hearLive(world: World, machine: Machine): void {
  const live = new Set<string>();
  for (const container of machine.engine) {
    for (const [token, taskId] of container.running) {
      live.add(token);
      if (!world.attempts.has(token))
        adopt(world, machine, must(world.tasks.get(taskId)), token, container.containerId);
    }
  }
  for (const attempt of [...world.attempts.values()]) {
    if (attempt.machine !== machine.id || live.has(attempt.token) || machine.results.has(attempt.token)) continue;
    const task = must(world.tasks.get(attempt.taskId));
    // The same agent never had the attempt; a restarted agent may have lost it with its host.
    if (!attempt.revoked && attempt.instance === machine.instance) giveBack(world, task, attempt);
    else if (!attempt.revoked) end(world, task, attempt, 'lost', false);
    forget(world, attempt);
  }
}

/** Ends attempts whose container is gone or whose machine is LOST: no report of their end will come. */
export function loseAttemptsOf(world: World, isMeant: (attempt: Attempt) => boolean): void {
  for (const attempt of [...world.attempts.values()]) {
    if (!isMeant(attempt)) continue;
    if (!attempt.revoked) end(world, must(world.tasks.get(attempt.taskId)), attempt, 'lost', false);
    forget(world, attempt);
  }
}

/** The agent's results of the container's attempts come first, on another stream: here, before the next step. */
export function containerEnded(world: World, row: Row): void {
  for (const machine of world.machines)
    for (const [token, result] of machine.results)
      if (result.containerId === row.id && machine.linked) hearResult(world, machine, token, result);
  loseAttemptsOf(world, (attempt) => attempt.containerId === row.id);
}

/** StopTasks. */
export function cancel(world: World, at: number): void {
  const task = pick(
    [...world.tasks.values()].filter((one) => !isTerminalTask(one.record.status)),
    at,
  );
  if (task === undefined) return;
  const attempt = [...world.attempts.values()].find((one) => one.taskId === task.id && !one.revoked);
  tell(world, 'cancelled', task.id);
  const { job } = task;
  task.job = undefined;
  if (attempt !== undefined) {
    send(world, machineOf(world, attempt.machine), 'agent', { kind: 'cancel', token: attempt.token });
    world.attempts.set(attempt.token, { ...attempt, revoked: true });
    return record(task, 'CANCELLED', attempt.number);
  }
  const { status, attempt: last } = task.record;
  record(task, 'CANCELLED', typeof job?.lock === 'string' && status !== 'RUNNING' ? last + 1 : last);
}

// ---- agents ---------------------------------------------------------------------------------------------------------

/** A run order arrives: a runner process takes it, or the agent says that none did. */
export function takeOrder(world: World, machine: Machine, taskId: string, token: string, containerId: string): void {
  const container = machine.engine.find((one) => one.containerId === containerId);
  const known = machine.results.has(token) || machine.engine.some((one) => one.running.has(token));
  if (known) return;
  if (container === undefined || container.state !== 'running' || !container.ready)
    return send(world, machine, 'scheduler', { kind: 'not_run', taskId, token });
  container.running.set(token, taskId);
}

/** A handler returns, raises, asks for another try. */
export function finish(world: World, at: number, outcome: Outcome): void {
  const all = world.machines.flatMap((machine) =>
    machine.engine.flatMap((container) =>
      [...container.running].map(([token, taskId]) => ({ machine, container, token, taskId })),
    ),
  );
  const found = pick(all, at);
  if (found === undefined) return;
  const { machine, container, token, taskId } = found;
  container.running.delete(token);
  const result = { taskId, containerId: container.containerId, outcome };
  machine.results.set(token, result);
  tell(world, 'handler', `${taskId} ${outcome} on ${machine.id}`);
  send(world, machine, 'scheduler', { kind: 'result', token, result });
}

/** The handler is told to stop, and does. */
export function takeCancel(world: World, machine: Machine, token: string): void {
  for (const container of machine.engine) {
    const taskId = container.running.get(token);
    if (taskId === undefined) continue;
    container.running.delete(token);
    const result = { taskId, containerId: container.containerId, outcome: 'error' as const };
    machine.results.set(token, result);
    send(world, machine, 'scheduler', { kind: 'result', token, result });
  }
}

// Steps of machines, links and processes: messages arrive, arrive twice or
// never; links break and come back; agents, hosts, schedulers and leaders die.
import { hearAck, hearRefuse, hearStatus, reportOf, transition } from './container-steps.ts';
import { guard, isOverdue } from './rules.ts';
import { hearLive, hearNotRun, hearResult, loseAttemptsOf, takeCancel, takeOrder } from './task-steps.ts';
import type { Machine, Message, World } from './world.ts';
import { machineOf, must, pick, send, tell } from './world.ts';

const UNKNOWN_FOR_MS = 24 * 3600_000;

// ---- messages -------------------------------------------------------------------------------------------------------

/** The oldest message of one direction of one session arrives; `twice`: and stays on its way. */
export function deliver(world: World, at: number, twice: boolean): void {
  const lines = new Map<string, Message>();
  for (const message of world.messages) {
    const line = `${message.machine} ${message.session} ${message.to} ${isOfTask(message) ? 'task' : 'control'}`;
    if (!lines.has(line)) lines.set(line, message);
  }
  const message = pick([...lines.values()], at);
  if (message === undefined) return;
  // Senders repeat acks, reports and results; a run order goes out once, over a stream that repeats nothing.
  if (!twice || message.body.kind === 'run') world.messages.splice(world.messages.indexOf(message), 1);
  const machine = machineOf(world, message.machine);
  // A message of an ended session says nothing about the machine now.
  if (message.session !== machine.session || !machine.linked) return;
  tell(world, twice ? 'arrived twice' : 'arrived', `${message.body.kind} to the ${message.to} (${machine.id})`);
  if (message.to === 'agent') toAgent(world, machine, message);
  else toScheduler(world, machine, message);
}

const isOfTask = ({ body }: Message): boolean => ['run', 'cancel', 'acked', 'not_run', 'result'].includes(body.kind);

function toAgent(world: World, machine: Machine, { body }: Message): void {
  switch (body.kind) {
    case 'desired':
      if (body.revision < machine.revision && machine.wanted !== undefined) return;
      machine.wanted = new Map(body.wanted.map((one) => [one.containerId, one]));
      return;
    case 'proceed':
      return void machine.proceeded.add(body.assignmentId);
    case 'run':
      return takeOrder(world, machine, body.taskId, body.token, body.containerId);
    case 'cancel':
      return takeCancel(world, machine, body.token);
    case 'acked':
      return void machine.results.delete(body.token);
    default:
      throw new Error(`a ${body.kind} is not for an agent`);
  }
}

function toScheduler(world: World, machine: Machine, { body }: Message): void {
  switch (body.kind) {
    case 'ack':
      return hearAck(world, machine, body);
    case 'refuse':
      return hearRefuse(world, machine, body);
    case 'status':
      return hearStatus(world, machine, body.full, body.observed);
    case 'not_run':
      return hearNotRun(world, body.taskId, body.token);
    case 'result':
      return hearResult(world, machine, body.token, body.result);
    default:
      throw new Error(`a ${body.kind} is not for a scheduler`);
  }
}

export function sendReport(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  send(world, machine, 'scheduler', { kind: 'status', full: true, observed: reportOf(machine) });
}

// ---- links ----------------------------------------------------------------------------------------------------------

/** The stream ends, and with it everything on its way. */
export function cut(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  if (!machine.linked) return;
  tell(world, 'cut', machine.id);
  drop(world, machine);
}

function drop(world: World, machine: Machine): void {
  machine.linked = false;
  world.messages.splice(0, world.messages.length, ...world.messages.filter(({ machine: id }) => id !== machine.id));
  if (machine.health === 'READY' || machine.health === 'RECONCILING') {
    machine.health = 'SUSPECT';
    machine.suspectSinceMs = world.nowMs;
  }
  guard(world);
}

/** The agent says hello with everything it has; differences are resolved before the machine is READY. */
export function connect(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  if (machine.linked) return;
  machine.session += 1;
  machine.linked = true;
  machine.revision = 0;
  machine.wanted = undefined;
  for (const memory of [machine.acked, machine.proceeded, machine.refused]) memory.clear();
  machine.health = 'RECONCILING';
  tell(world, 'connected', machine.id);
  hearStatus(world, machine, true, reportOf(machine));
  machine.health = 'READY';
  hearLive(world, machine);
  for (const [token, result] of machine.results) send(world, machine, 'scheduler', { kind: 'result', token, result });
}

/**
 * Judges machines that stayed away: they become LOST, their
 * containers UNKNOWN and at last LOST, and their attempts end.
 */
export function check(world: World): void {
  guard(world);
  for (const machine of world.machines) {
    const awayMs = world.nowMs - machine.suspectSinceMs;
    if (isOverdue(world, machine)) {
      if (world.silentTogether && machine.intent === 'active')
        throw new Error(`I18: ${machine.id} is given up, and all went silent together`);
      machine.health = 'LOST';
      tell(world, 'machine lost', machine.id);
      loseAttemptsOf(world, (attempt) => attempt.machine === machine.id);
    }
    if (machine.health !== 'LOST') continue;
    for (const row of world.rows.values()) {
      if (row.machine !== machine.id) continue;
      if (row.state === 'ASSIGNED') transition(world, row, 'revoke', row.epoch);
      else if (row.state !== 'UNKNOWN') transition(world, row, 'machine_lost', row.epoch);
      else if (awayMs >= UNKNOWN_FOR_MS) transition(world, row, 'expire', row.epoch);
    }
  }
}

export function setIntent(world: World, at: number, intent: Machine['intent']): void {
  const machine = must(pick(world.machines, at));
  machine.intent = intent;
  tell(world, 'intent', `${machine.id} ${intent}`);
}

export function setCondition(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  machine.conditions = machine.conditions.length > 0 ? [] : ['DockerDown'];
}

// ---- deaths ---------------------------------------------------------------------------------------------------------

/**
 * The agent dies: its journal, the containers and their attempts
 * stay; the runner processes repeat unacknowledged results.
 */
export function killAgent(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  tell(world, 'agent killed', machine.id);
  drop(world, machine);
  machine.attended.clear();
  machine.wanted = undefined;
  machine.instance += 1;
}

/** The host restarts: every container has exited, and its attempts are gone without a report. */
export function reboot(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  tell(world, 'rebooted', machine.id);
  killAgent(world, at);
  for (const container of machine.engine) {
    container.running.clear();
    if (container.state === 'running')
      Object.assign(container, { state: 'exited', exitCode: 137, reason: 'host_reboot' });
  }
  machine.results.clear();
}

/** The scheduler dies: attempts are forgotten, callers are gone, links end. Locks, leases and rows stay. */
export function killScheduler(world: World): void {
  world.process += 1;
  world.attempts.clear();
  tell(world, 'scheduler killed', `process ${world.process} follows`);
  for (const machine of world.machines) {
    drop(world, machine);
    for (const row of world.rows.values())
      if (row.machine === machine.id && row.state === 'RUNNING') row.leaving = false;
  }
  changeLeader(world);
}

/** Another replica leads; decisions of the earlier leader may still arrive. */
export function changeLeader(world: World): void {
  world.fence += 1;
  world.storeFence = world.fence;
  tell(world, 'leader', `fence ${world.fence}`);
}

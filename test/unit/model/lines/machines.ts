// Steps of machines, links and processes: messages arrive or are lost; links break and come back; everything may die.
import { afterStall } from '#scheduler/tasks/lines/offers.ts';
import { cancel, hearRoom, hearWord, pump, tickCallers } from './callers.ts';
import {
  dropLink,
  handOver,
  hearHanded,
  hearHandover,
  hearNotRun,
  hearOffer,
  hearRecall,
  hearReport,
  hearResult,
  load,
  tickOwner,
} from './owners.ts';
import { settle } from './records.ts';
import type { Live, Machine, Message, Outcome, Process, Wire, World } from './world.ts';
import { aProcess, awake, freeSlots, machineOf, must, pick, PRESENCE_MS, processOf, publish, tell } from './world.ts';

const LOST_MS = 90_000;
/** Longest way of a message between processes: a connection that is silent for longer ends. */
const BUS_MS = 60_000;

export { cancel };

// ---- messages between processes -------------------------------------------------------------------------------------

/** Any message arrives: the bus keeps no order. */
export function hear(world: World, at: number): void {
  const message = pick(
    world.bus.filter(({ to }) => processOf(world, to)?.isFrozen !== true),
    at,
  );
  if (message !== undefined) hearOne(world, message);
}

export function hearOne(world: World, message: Message): void {
  world.bus.splice(world.bus.indexOf(message), 1);
  const process = processOf(world, message.to);
  if (process === undefined || process.isFrozen || world.nowMs - message.atMs > BUS_MS) return;
  const { from } = message;
  switch (message.kind) {
    case 'offer':
      return hearOffer(world, process, message);
    case 'recall':
      return hearRecall(world, process, message);
    case 'word':
      return hearWord(world, process, message.taskId, message.word, from);
    case 'answer':
      return settle(world, process, message.facts, message.status);
    case 'room':
      return hearRoom(world, process, from);
    case 'told':
      process.told.set(from, { free: message.free, headMs: message.headMs });
      return pump(world, process);
    case 'handover':
      return hearHandover(world, process, message);
    case 'handed':
      return hearHanded(world, process, message.tokens, from);
  }
}

export function lose(world: World, at: number): void {
  const message = pick(world.bus, at);
  if (message === undefined) return;
  world.bus.splice(world.bus.indexOf(message), 1);
  tell(world, 'message lost', message.kind);
}

/** A process tells the others what it has. */
export function announce(world: World, at: number): void {
  const process = pick(awake(world), at);
  if (process !== undefined) announceOf(world, process);
}

export function announceOf(world: World, process: Process): void {
  const waiting = [...process.callers.values()].filter(({ place }) => place.kind === 'waiting');
  const headMs = waiting.length === 0 ? null : Math.min(...waiting.map(({ sinceMs }) => sinceMs));
  const free = freeSlots(world, process);
  for (const { id } of world.processes)
    if (id !== process.id) publish(world, process.id, id, { kind: 'told', free, headMs });
}

// ---- links ----------------------------------------------------------------------------------------------------------

const toAgent = ({ kind }: Wire): boolean => kind === 'run' || kind === 'cancel' || kind === 'acked';

/** The oldest message of one direction of one link arrives. */
export function deliver(world: World, at: number, choice: number): void {
  const lines = new Map<string, Wire>();
  for (const wire of world.wire) {
    const line = `${wire.machine} ${wire.session} ${toAgent(wire)}`;
    if (!lines.has(line)) lines.set(line, wire);
  }
  const wire = pick(
    [...lines.values()].filter((one) => toAgent(one) || !readerIsFrozen(world, one)),
    at,
  );
  if (wire !== undefined) deliverOne(world, wire, choice);
}

const readerOf = (world: World, wire: Wire): Process | undefined =>
  wire.kind === 'report'
    ? processOf(world, wire.to)
    : world.processes.find(({ links }) => links.get(wire.machine)?.session === wire.session);
const readerIsFrozen = (world: World, wire: Wire): boolean => readerOf(world, wire)?.isFrozen === true;

export function deliverOne(world: World, wire: Wire, choice: number): void {
  world.wire.splice(world.wire.indexOf(wire), 1);
  const machine = machineOf(world, wire.machine);
  if (toAgent(wire)) {
    if (machine.linkedTo !== null && machine.session === wire.session) agentHears(world, machine, wire, choice);
    return;
  }
  const process = readerOf(world, wire);
  if (process === undefined) return;
  if (wire.kind === 'report') hearReport(world, process, wire);
  else if (wire.kind === 'not_run') hearNotRun(world, process, wire.token);
  else if (wire.kind === 'result') hearResult(world, process, wire.machine, wire.live, wire.outcome);
}

function agentHears(world: World, machine: Machine, wire: Wire, choice: number): void {
  const { session } = wire;
  switch (wire.kind) {
    case 'run': {
      const { live } = wire;
      if (machine.running.has(live.token) || machine.results.has(live.token)) return;
      if (choice % 8 === 7) {
        world.wire.push({ kind: 'not_run', machine: machine.id, session, token: live.token });
        return tell(world, 'not run', live.taskId);
      }
      machine.running.set(live.token, live);
      if (machine.running.size > machine.slots) throw new Error(`I11: ${machine.id} runs ${machine.running.size}`);
      const task = must(world.tasks.get(live.taskId));
      task.runs += 1;
      tell(world, 'runs', `${live.taskId} on ${machine.id}`);
      return;
    }
    case 'cancel': {
      const live = machine.running.get(wire.token);
      if (live !== undefined) endOf(world, machine, live, 'error');
      return;
    }
    case 'acked':
      machine.results.delete(wire.token);
      return;
    default:
      throw new Error(`a ${wire.kind} is not for an agent`);
  }
}

function endOf(world: World, machine: Machine, live: Live, outcome: Outcome): void {
  machine.running.delete(live.token);
  machine.results.set(live.token, { ...live, outcome });
  tell(world, 'handler', `${live.taskId} ${outcome}`);
  if (machine.linkedTo !== null)
    world.wire.push({ kind: 'result', machine: machine.id, session: machine.session, live, outcome });
}

export function finish(world: World, at: number, outcome: Outcome): void {
  const found = pick(
    world.machines.flatMap((machine) => [...machine.running.values()].map((live) => ({ machine, live }))),
    at,
  );
  if (found !== undefined) endOf(world, found.machine, found.live, outcome);
}

/** The container ends, and with it all that runs in it. */
export function exit(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  for (const live of [...machine.running.values()]) endOf(world, machine, live, 'exited');
}

/** The agent's link ends; its process finds out at once, or later. */
export function cut(world: World, at: number, isSeen: boolean): void {
  const machine = must(pick(world.machines, at));
  if (machine.linkedTo === null) return;
  tell(world, 'cut', machine.id);
  unlink(world, machine);
  const process = world.processes.find(({ links }) => links.get(machine.id)?.session === machine.session);
  if (isSeen && process !== undefined && !process.isFrozen) dropLink(world, process, machine.id);
}

function unlink(world: World, machine: Machine): void {
  if (machine.linkedTo !== null) machine.silentSinceMs = world.nowMs;
  machine.linkedTo = null;
  const kept = world.wire.filter((wire) => wire.machine !== machine.id || !toAgent(wire));
  world.wire.splice(0, world.wire.length, ...kept);
}

/** An agent dials a process: it begins a session, and says what it has. */
export function dial(world: World, at: number, choice: number): void {
  const machine = must(pick(world.machines, at));
  const process = pick(awake(world), choice);
  if (process !== undefined) dialOf(world, machine, process);
}

export function dialOf(world: World, machine: Machine, process: Process): void {
  unlink(world, machine);
  machine.session += 1;
  machine.linkedTo = process.id;
  machine.replica = process.id;
  machine.isLost = false;
  tell(world, 'dialled', `${machine.id} to ${process.id}`);
  world.wire.push({
    kind: 'report',
    machine: machine.id,
    session: machine.session,
    to: process.id,
    instance: machine.instance,
    running: [...machine.running.values()],
    finished: [...machine.results.values()],
  });
  for (const { outcome, ...live } of machine.results.values())
    world.wire.push({ kind: 'result', machine: machine.id, session: machine.session, live, outcome });
}

/** The agent is restarted: the runners go on, and know neither caller nor attempt. */
export function killAgent(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  tell(world, 'agent killed', machine.id);
  unlink(world, machine);
  machine.instance += 1;
  for (const kept of [machine.running, machine.results] as Map<string, Live>[])
    for (const [token, live] of kept) {
      kept.set(token, { ...live, facts: null });
      must(world.tasks.get(live.taskId)).isForgotten = true;
    }
}

/** The host restarts, and nothing is left of what ran there. */
export function reboot(world: World, at: number): void {
  killAgent(world, at);
  const machine = must(pick(world.machines, at));
  machine.running.clear();
  machine.results.clear();
}

// ---- processes ------------------------------------------------------------------------------------------------------

export function kill(world: World, at: number, isLate: boolean): void {
  const process = pick(world.processes, at);
  if (process === undefined) return;
  tell(world, 'killed', process.id);
  world.lastSeen.set(process.id, process.isFrozen ? process.frozenAtMs : world.nowMs);
  world.processes.splice(world.processes.indexOf(process), 1, aProcess(world));
  for (const machine of world.machines) if (machine.linkedTo === process.id) unlink(world, machine);
  if (isLate && process.writing !== null) world.late.push([...process.writing.records.values()]);
  for (const task of world.tasks.values()) if (task.caller === process.id) task.hasCaller = false;
}

export function freeze(world: World, at: number): void {
  const process = pick(awake(world), at);
  if (process === undefined) return;
  Object.assign(process, { isFrozen: true, frozenAtMs: world.nowMs });
  tell(world, 'frozen', process.id);
}

export function thaw(world: World, at: number): void {
  const process = pick(
    world.processes.filter(({ isFrozen }) => isFrozen),
    at,
  );
  if (process !== undefined) thawOf(world, process);
}

export function thawOf(world: World, process: Process): void {
  process.isFrozen = false;
  tell(world, 'goes on', process.id);
  if (world.nowMs - process.frozenAtMs < PRESENCE_MS / 2) return;
  process.stalledAtMs = world.nowMs;
  for (const entry of process.callers.values()) entry.place = afterStall(entry.place);
}

/** A process looks at its timers. */
export function tick(world: World, at: number): void {
  const process = pick(awake(world), at);
  if (process !== undefined) tickOf(world, process);
}

export function tickOf(world: World, process: Process): void {
  handOver(world, process);
  tickOwner(world, process);
  tickCallers(world, process);
}

export function loadInput(world: World, at: number, choice: number): void {
  const process = pick(
    awake(world).filter(({ taken }) => taken.size > 0),
    at,
  );
  if (process !== undefined) load(world, process, choice);
}

/** The leader judges machines that stayed away. */
export function loseMachines(world: World): void {
  for (const machine of world.machines) {
    if (machine.linkedTo !== null || machine.isLost || world.nowMs - machine.silentSinceMs < LOST_MS) continue;
    machine.isLost = true;
    tell(world, 'machine lost', machine.id);
  }
}

// Steps of containers: wanted, placed, acknowledged, created, ready, stopped, gone. The leader decides, the store
// checks again, and the agents carry out their plans.
import type { ContainerEvent } from '#scheduler/fleet/containers/state.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Action } from '../../../agent/reconcile/plan.ts';
import { absentSteps, agentPlan, fits, inFlight, move, observedSteps, place, scale, scaleInput } from './rules.ts';
import { containerEnded } from './task-steps.ts';
import type { Body, Decision, Engine, Machine, Observed, Row, World } from './world.ts';
import { machineOf, must, nextId, pick, send, tell } from './world.ts';

// ---- the store ------------------------------------------------------------------------------------------------------

/** Compare-and-set of one row, as the container registry does it. */
export function transition(world: World, row: Row, event: ContainerEvent, epoch: number): boolean {
  const step = move(row, event);
  if (epoch !== row.epoch || step.kind !== 'moved') {
    tell(world, 'refused', `${row.id} ${row.state} ${event} (epoch ${epoch}, now ${row.epoch})`);
    return false;
  }
  if (step.to === 'UNKNOWN') row.stateBefore = row.state;
  tell(world, 'moved', `${row.id} ${row.state} → ${step.to} by ${event}`);
  row.state = step.to;
  if (step.to === 'RUNNING' && event === 'ready') row.idleSinceMs = world.nowMs;
  if (event === 'back_running') row.returned = true;
  if (step.to === 'STOPPING' || step.to === 'DRAINING') row.leaving = true;
  if (step.to === 'PENDING') {
    row.machine = null;
    row.assignmentId = null;
    row.gpus = [];
    row.leaving = false;
    row.returned = false;
  }
  if (step.to === 'PENDING' || isTerminalContainer(step.to)) containerEnded(world, row);
  return true;
}

// ---- the leader -----------------------------------------------------------------------------------------------------

export function scaleQueue(world: World, at: number, sampled: boolean): void {
  const queue = must(pick(world.queues, at));
  const input = scaleInput(world, queue, sampled);
  const decision = scale(input, world.nowMs);
  if (!sampled && decision.kind !== 'hold') throw new Error(`I13: a failed sample decided ${decision.kind}`);
  if (decision.kind === 'hold') return;
  if (decision.kind === 'start') {
    const live = input.containers.filter((one) => ['PENDING', 'ASSIGNED', 'STARTING', 'RUNNING'].includes(one.state));
    if (live.length + decision.count > Math.max(queue.min, queue.max))
      throw new Error(`I14: ${live.length} live and ${decision.count} more, at most ${queue.max}`);
    for (let made = 0; made < decision.count; made += 1) {
      const id = nextId(world, 'c');
      world.rows.set(id, {
        id,
        queue: queue.name,
        state: 'PENDING',
        stateBefore: null,
        epoch: 0,
        machine: null,
        assignmentId: null,
        gpus: [],
        startFailures: 0,
        leaving: false,
        returned: false,
        idleSinceMs: world.nowMs,
        createdAtMs: world.nowMs,
      });
    }
    tell(world, 'scaled up', `${queue.name} by ${decision.count}`);
    return;
  }
  for (const id of decision.containers) {
    const row = must(world.rows.get(id));
    if (inFlight(world, row.id) > 0) throw new Error(`I14: ${row.id} is chosen for scale-in with an attempt`);
    world.decisions.push({ kind: 'leave', fence: world.fence, row: row.id, epoch: row.epoch, from: row.state });
    tell(world, 'scaled down', `${row.id} of ${queue.name} is to go`);
  }
}

export function decidePlace(world: World, at: number): void {
  const row = pick(
    [...world.rows.values()].filter((one) => one.state === 'PENDING'),
    at,
  );
  if (row === undefined) return;
  const placement = place(world, row);
  if (placement.kind === 'rejected') return;
  world.decisions.push({
    kind: 'assign',
    fence: world.fence,
    row: row.id,
    epoch: row.epoch,
    machine: placement.machineId,
    gpus: placement.gpuUuids,
  });
  tell(world, 'placed', `${row.id} on ${placement.machineId} ${placement.gpuUuids.join(' ')}`);
}

/** A decision reaches the store, now or long after it was taken. */
export function write(world: World, at: number): void {
  const decision = pick(world.decisions, at);
  if (decision === undefined) return;
  world.decisions.splice(world.decisions.indexOf(decision), 1);
  if (decision.fence < world.storeFence) {
    tell(world, 'fenced off', `${decision.kind} of ${decision.row} by leader ${decision.fence}`);
    return;
  }
  const row = must(world.rows.get(decision.row));
  if (decision.kind === 'leave') return leave(world, decision, row);
  const machine = machineOf(world, decision.machine);
  if (row.epoch !== decision.epoch || row.state !== 'PENDING' || !fits(world, row, machine, decision.gpus)) {
    tell(world, 'no room', `${row.id} on ${machine.id}`);
    return;
  }
  if (machine.health !== 'READY' || machine.intent !== 'active' || machine.conditions.length > 0)
    throw new Error(`I5: ${row.id} is placed on ${machine.id}: ${machine.health}, ${machine.intent}`);
  transition(world, row, 'assign', decision.epoch);
  row.epoch += 1;
  row.machine = machine.id;
  row.assignmentId = nextId(world, 'a');
  row.gpus = decision.gpus;
}

/** Stops a container that is still without an attempt: it gets no more tasks, and then the stop. */
function leave(world: World, decision: Extract<Decision, { kind: 'leave' }>, row: Row): void {
  if (row.epoch !== decision.epoch || row.state !== decision.from || inFlight(world, row.id) > 0) return;
  row.leaving = true;
  transition(world, row, row.state === 'PENDING' || row.state === 'ASSIGNED' ? 'abandon' : 'stop', row.epoch);
}

/** Stops a container on demand, in any state. */
export function stopContainer(world: World, at: number, drain: boolean): void {
  const row = pick(
    [...world.rows.values()].filter((one) => !isTerminalContainer(one.state) && one.state !== 'STOPPING'),
    at,
  );
  if (row === undefined || row.state === 'UNKNOWN') return;
  if (drain && row.state === 'RUNNING') transition(world, row, 'drain', row.epoch);
  else transition(world, row, row.state === 'PENDING' || row.state === 'ASSIGNED' ? 'abandon' : 'stop', row.epoch);
}

/** Stops containers that have drained their attempts. */
export function stopDrained(world: World): void {
  for (const row of world.rows.values())
    if (row.state === 'DRAINING' && inFlight(world, row.id) === 0) transition(world, row, 'stop', row.epoch);
}

/** No acknowledgement in time. */
export function takeBack(world: World, at: number): void {
  const row = pick(
    [...world.rows.values()].filter((one) => one.state === 'ASSIGNED'),
    at,
  );
  if (row !== undefined) transition(world, row, 'revoke', row.epoch);
}

// ---- the link: what the scheduler sends and hears -------------------------------------------------------------------

export function sendDesired(world: World, at: number): void {
  const machine = must(pick(world.machines, at));
  const wanted = [...world.rows.values()]
    .filter((row) => row.machine === machine.id)
    .filter((row) => ['ASSIGNED', 'STARTING', 'RUNNING', 'DRAINING', 'UNKNOWN', 'STOPPING'].includes(row.state))
    .map((row) => ({
      containerId: row.id,
      assignmentId: must(row.assignmentId ?? undefined),
      epoch: row.epoch,
      stop: row.state === 'STOPPING',
      graceMs: 30_000,
      stopReason: '',
      gpus: row.gpus,
    }));
  machine.revision += 1;
  send(world, machine, 'agent', { kind: 'desired', revision: machine.revision, wanted });
}

export function hearAck(world: World, machine: Machine, body: Extract<Body, { kind: 'ack' }>): void {
  const row = world.rows.get(body.containerId);
  if (row === undefined || row.machine !== machine.id || row.assignmentId !== body.assignmentId) return;
  const already = row.state === 'STARTING' && row.epoch === body.epoch;
  if (already || transition(world, row, 'ack', body.epoch))
    send(world, machine, 'agent', { kind: 'proceed', assignmentId: body.assignmentId });
}

export function hearRefuse(world: World, machine: Machine, body: Extract<Body, { kind: 'refuse' }>): void {
  const row = world.rows.get(body.containerId);
  if (row !== undefined && row.machine === machine.id) transition(world, row, 'revoke', body.epoch);
}

export function hearStatus(world: World, machine: Machine, full: boolean, observed: readonly Observed[]): void {
  const named = new Set(observed.map((one) => one.containerId));
  for (const one of observed) {
    const row = world.rows.get(one.containerId);
    if (row === undefined || row.machine !== machine.id || row.epoch !== one.epoch) continue;
    for (const step of observedSteps(row, one)) {
      if (step.change.startFailures !== undefined) row.startFailures = step.change.startFailures;
      transition(world, row, step.event, one.epoch);
    }
  }
  if (!full) return;
  for (const row of world.rows.values()) {
    if (row.machine !== machine.id || named.has(row.id)) continue;
    for (const step of absentSteps(row)) {
      if (step.change.startFailures !== undefined) row.startFailures = step.change.startFailures;
      transition(world, row, step.event, row.epoch);
    }
  }
}

// ---- agents ---------------------------------------------------------------------------------------------------------

/** All of our containers on a machine, as a whole report gives them. */
export function reportOf(machine: Machine): readonly Observed[] {
  const said = [...machine.journal.values()].map((known): Observed => {
    const base = { containerId: known.containerId, epoch: known.epoch, exitCode: 0, reason: '' };
    if (known.stage === 'gone') return { ...base, phase: 'removed' };
    const container = machine.engine.find((one) => one.containerId === known.containerId && one.epoch === known.epoch);
    if (container === undefined) return { ...base, phase: 'preparing' };
    const { exitCode, reason } = container;
    if (container.state === 'exited') return { ...base, exitCode, reason, phase: 'exited' };
    return { ...base, phase: container.ready ? 'running' : 'starting' };
  });
  return said;
}

/** The agent does the next thing of its plan. */
export function act(world: World, at: number, choice: number): void {
  const machine = must(pick(world.machines, at));
  const action = pick(agentPlan(machine, world.nowMs), choice);
  if (action === undefined) return;
  tell(world, 'agent', `${machine.id} ${action.kind} ${action.containerId}`);
  carryOut(world, machine, action);
}

function carryOut(world: World, machine: Machine, action: Action): void {
  const remove = (dockerId: string): void => {
    const at = machine.engine.findIndex((one) => one.dockerId === dockerId);
    if (at >= 0) machine.engine.splice(at, 1);
  };
  const status = (phase: string, from: Engine | undefined): void => {
    if (!('epoch' in action)) return;
    const { exitCode = 0, reason = '' } = from ?? {};
    const { containerId, epoch } = action;
    const observed = [{ containerId, epoch, phase, exitCode, reason }];
    send(world, machine, 'scheduler', { kind: 'status', full: false, observed });
  };
  const stage = (to: 'accepted' | 'creating' | 'created' | 'gone'): void => {
    const known = must(machine.journal.get(action.containerId));
    machine.journal.set(action.containerId, { ...known, stage: to });
  };
  switch (action.kind) {
    case 'accept':
      return accept(world, machine, action);
    case 'start': {
      const known = must(machine.journal.get(action.containerId));
      stage('created');
      machine.engine.push({
        dockerId: nextId(world, 'd'),
        containerId: action.containerId,
        assignmentId: action.assignmentId,
        epoch: action.epoch,
        state: 'running',
        orphanSinceMs: world.nowMs,
        gpus: known.gpus,
        exitCode: 0,
        reason: '',
        ready: false,
        running: new Map(),
      });
      machine.attended.add(action.containerId);
      return status('starting', undefined);
    }
    case 'adopt':
      return void machine.attended.add(action.containerId);
    case 'stop': {
      const container = must(machine.engine.find((one) => one.dockerId === action.dockerId));
      exit(world, machine, container, 143, 'killed');
      return;
    }
    case 'finish': {
      const container = must(machine.engine.find((one) => one.dockerId === action.dockerId));
      status('exited', container);
      remove(action.dockerId);
      stage('gone');
      return status('removed', container);
    }
    case 'vanished':
      stage('gone');
      return status('removed', undefined);
    case 'release':
      stage('gone');
      return status('removed', undefined);
    case 'confirm-gone':
      return status('removed', undefined);
    case 'forget':
      return void machine.journal.delete(action.containerId);
    case 'remove-stray':
      return remove(action.dockerId);
    case 'interrupt':
      return;
  }
}

/**
 * Validates, writes the lease down, accepts. A device that another lease has is refused, despite the scheduler's order.
 */
function accept(world: World, machine: Machine, action: Extract<Action, { kind: 'accept' }>): void {
  const gpus = wantedGpus(machine, action.containerId, action.epoch);
  if (gpus === undefined) return;
  const taken = leasesOf(machine, action.containerId);
  if (gpus.some((uuid) => taken.has(uuid))) {
    machine.refused.add(action.assignmentId);
    tell(world, 'agent refused', `${action.containerId} on ${machine.id}`);
    send(world, machine, 'scheduler', { kind: 'refuse', containerId: action.containerId, epoch: action.epoch });
    return;
  }
  const { containerId, assignmentId, epoch } = action;
  machine.journal.set(containerId, { containerId, assignmentId, epoch, stage: 'accepted', gpus });
  machine.acked.add(assignmentId);
  send(world, machine, 'scheduler', { kind: 'ack', containerId, assignmentId, epoch });
}

/** Devices that other containers on this machine have, by the journal and by the engine. */
function leasesOf(machine: Machine, except: string): ReadonlySet<string> {
  const taken = new Set<string>();
  for (const known of machine.journal.values())
    if (known.stage !== 'gone' && known.containerId !== except) for (const uuid of known.gpus) taken.add(uuid);
  for (const container of machine.engine)
    if (container.containerId !== except) for (const uuid of container.gpus) taken.add(uuid);
  return taken;
}

function wantedGpus(machine: Machine, id: string, epoch: number): readonly string[] | undefined {
  const wanted = machine.wanted?.get(id) as { readonly epoch: number; readonly gpus?: readonly string[] } | undefined;
  return wanted?.epoch === epoch ? (wanted.gpus ?? []) : undefined;
}

/** `on_start` has returned. */
export function becomeReady(world: World, at: number): void {
  const found = pick(
    engines(world, (one) => one.state === 'running' && !one.ready),
    at,
  );
  if (found === undefined) return;
  const { machine, container } = found;
  container.ready = true;
  const { containerId, epoch } = container;
  const observed = [{ containerId, epoch, phase: 'running', exitCode: 0, reason: '' }];
  tell(world, 'ready', `${containerId} on ${machine.id}`);
  send(world, machine, 'scheduler', { kind: 'status', full: false, observed });
}

/** A container ends by itself. */
export function crash(world: World, at: number, exitCode: number): void {
  const found = pick(
    engines(world, (one) => one.state === 'running'),
    at,
  );
  if (found === undefined) return;
  tell(world, 'exited', `${found.container.containerId} with ${exitCode}`);
  exit(
    world,
    found.machine,
    found.container,
    exitCode,
    exitCode === 0 ? 'completed' : exitCode === 1 ? 'user_error' : 'killed',
  );
}

/** The attempts in the container are cut off, and its agent reports so. */
export function exit(world: World, machine: Machine, container: Engine, exitCode: number, reason: string): void {
  container.state = 'exited';
  container.exitCode = exitCode;
  container.reason = reason;
  for (const [token, taskId] of container.running) {
    const result = { taskId, containerId: container.containerId, outcome: 'exited' as const };
    machine.results.set(token, result);
    send(world, machine, 'scheduler', { kind: 'result', token, result });
  }
  container.running.clear();
}

export function engines(
  world: World,
  matches: (container: Engine) => boolean,
): readonly { readonly machine: Machine; readonly container: Engine }[] {
  return world.machines.flatMap((machine) =>
    machine.engine.filter(matches).map((container) => ({ machine, container })),
  );
}

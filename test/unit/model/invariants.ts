// The invariants of the world, checked after every step. Numbers are those of docs/invariants.md.
import { isTerminalContainer, isTerminalTask } from '#shared/domain/status.ts';
import { freeOf, jobOf } from './rules.ts';
import type { Machine, Row, World } from './world.ts';
import { holdsResources, machineOf, must, queueOf } from './world.ts';

/** Facts that the last step may not have changed. */
export interface Before {
  readonly terminal: ReadonlyMap<string, string>;
  readonly epochs: ReadonlyMap<string, number>;
  readonly intents: ReadonlyMap<string, string>;
  readonly gpusOf: ReadonlyMap<
    string,
    { readonly machine: string; readonly epoch: number; readonly gpus: readonly string[] }
  >;
}

export function remember(world: World): Before {
  const rows = [...world.rows.values()];
  return {
    terminal: new Map(rows.filter((row) => isTerminalContainer(row.state)).map((row) => [row.id, row.state])),
    epochs: new Map(rows.map((row) => [row.id, row.epoch])),
    intents: new Map(world.machines.map((machine) => [machine.id, machine.intent])),
    gpusOf: new Map(
      rows
        .filter((row) => holdsResources(row) && row.machine !== null)
        .map((row) => [row.id, { machine: must(row.machine ?? undefined), epoch: row.epoch, gpus: row.gpus }]),
    ),
  };
}

/** @throws Error naming the invariant */
export function verify(world: World, before: Before, step: string): void {
  for (const machine of world.machines) verifyMachine(world, machine);
  for (const row of world.rows.values()) verifyRow(world, row, before);
  for (const task of world.tasks.values()) verifyTask(world, task.id);
  if (step !== 'setIntent')
    for (const machine of world.machines)
      if (machine.intent !== before.intents.get(machine.id))
        fail('I17', `${machine.id} is ${machine.intent} after ${step}`);
}

function verifyMachine(world: World, machine: Machine): void {
  const free = freeOf(world, machine);
  if (free.cpu < 0 || free.memory < 0) fail('I4', `${machine.id} has ${free.cpu} mCPU and ${free.memory} MiB free`);
  const holders = new Map<string, string>();
  for (const row of world.rows.values()) {
    if (row.machine !== machine.id || !holdsResources(row)) continue;
    for (const uuid of row.gpus) {
      if (holders.has(uuid)) fail('I1', `${uuid} is leased to ${holders.get(uuid)} and ${row.id}`);
      if (!machine.gpus.some((gpu) => gpu.uuid === uuid)) fail('I7', `${row.id} on ${machine.id} has ${uuid}`);
      holders.set(uuid, row.id);
    }
  }
  // The host's own truth: the containers of the engine, regardless of any registry or journal.
  const users = new Map<string, string>();
  for (const container of machine.engine) {
    for (const uuid of container.gpus) {
      if (users.has(uuid))
        fail('I1', `${uuid} is used by ${users.get(uuid)} and ${container.containerId} on ${machine.id}`);
      users.set(uuid, container.containerId);
    }
    const known = machine.journal.get(container.containerId);
    if (known === undefined || known.epoch < container.epoch)
      fail('I3', `${container.containerId} is created without a lease`);
  }
}

function verifyRow(world: World, row: Row, before: Before): void {
  const was = before.terminal.get(row.id);
  if (was !== undefined && was !== row.state) fail('I8', `${row.id} was ${was} and is ${row.state}`);
  if (row.epoch < (before.epochs.get(row.id) ?? 0)) fail('I6', `${row.id} went back to epoch ${row.epoch}`);
  const { gpuCount } = queueOf(world, row.queue);
  if (holdsResources(row) && row.gpus.length !== gpuCount)
    fail('I7', `${row.id} has ${row.gpus.length} of ${gpuCount} GPUs`);
  // After a release, no container with the devices may run, except on a host that was given up by agreement.
  const held = before.gpusOf.get(row.id);
  if (held === undefined || holdsResources(row) || row.state === 'LOST') return;
  const running = machineOf(world, held.machine).engine.find(
    (one) => one.containerId === row.id && one.epoch === held.epoch && one.state === 'running',
  );
  if (running !== undefined)
    fail('I2', `${row.id} runs on ${held.machine}, and its place is given away (${row.state})`);
}

function verifyTask(world: World, id: string): void {
  const task = must(world.tasks.get(id));
  const over = isTerminalTask(task.record.status);
  // Nothing is lost: an open task is in its queue. An ended task may still lie there, to be taken out at its fetch.
  if (!over && task.job === undefined) fail('I10', `${id} is ${task.record.status}, and in no queue`);
  const ends = task.history.filter((status) => isTerminalTask(status));
  if (ends.length > 2 || (ends.length === 2 && ends[1] !== 'COMPLETE'))
    fail('I8', `${id} was ${task.history.join(', ')}`);
  const attempts = [...world.attempts.values()].filter((attempt) => attempt.taskId === id && !attempt.revoked);
  if (attempts.length > 1) fail('I9', `${id} has the tokens ${attempts.map(({ token }) => token).join(' and ')}`);
  const { retries } = queueOf(world, task.queue);
  if (task.userFailures > retries) fail('attempts', `${id} was retried ${task.userFailures} times, allowed ${retries}`);
  if (task.infrastructureCauses > 5) fail('I12', `${id} was lost ${task.infrastructureCauses} times and queued again`);
}

/** I22: tokens are in memory and on the wire alone. At the end of a story, because nothing that is stored goes away. */
export function verifySecrets(world: World): void {
  const stored = [...world.tasks.values()].map((task) => [
    task.record,
    task.lease,
    task.job === undefined ? null : { entry: jobOf(task, task.job), job: task.job },
  ]);
  if (JSON.stringify([stored, [...world.rows.values()]]).includes('secret-')) fail('I22', 'an attempt token is stored');
}

function fail(invariant: string, what: string): never {
  throw new Error(`${invariant}: ${what}`);
}

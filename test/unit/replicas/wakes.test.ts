import { beforeEach, describe, expect, test } from 'vitest';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, DeploymentId, InstanceId, MachineId, StubId, TaskId } from '#shared/domain/ids.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import type { Bus } from '#scheduler/cluster/bus.ts';
import { RemoteCapacity } from '#scheduler/replicas/remote-capacity.ts';
import { pickOf, Wakes } from '#scheduler/replicas/wakes.ts';

const queue = queueNameOf('d' as DeploymentId, 's' as StubId);
const taskId = 't' as TaskId;
const machineId = 'm' as MachineId;

/** A replica's knowledge of the others, which a test changes as messages would, and its messages to them. */
class World {
  readonly here = newInstanceId();
  readonly near = newInstanceId();
  readonly said: { readonly channel: string; readonly message: unknown }[] = [];
  /** Living replicas by presence's last look; `present` is Redis' current answer. */
  readonly alive = new Set<InstanceId>();
  readonly present = new Set<InstanceId>();
  readonly wakes: Wakes;
  readonly remoteCapacity: RemoteCapacity;
  #entries: ContainerEntry[] = [];
  #machine: Machine | undefined;

  constructor() {
    const bus: Bus = {
      on: () => undefined,
      onGap: () => undefined,
      publish: (channel, message) => void this.said.push({ channel, message }),
      isLive: true,
    };
    const presence = {
      isAlive: (replica: InstanceId) => this.alive.has(replica),
      ask: (replica: InstanceId) => {
        if (this.present.has(replica)) this.alive.add(replica);
        return Promise.resolve(this.alive.has(replica));
      },
    };
    this.remoteCapacity = new RemoteCapacity({
      instance: this.here,
      containers: { ofQueue: () => this.#entries },
      machines: { get: () => this.#machine },
      loads: { of: () => undefined },
    });
    this.wakes = new Wakes({
      bus,
      channelOf: (replica) => `links:${replica}`,
      instance: this.here,
      containers: { ofMachine: () => this.#entries },
      presence,
      remoteCapacity: this.remoteCapacity,
      dispatcher: { wakeHere: () => false },
    });
  }

  /** Changes the row of the container. */
  container(state: ContainerEntry['row']['state']): void {
    const row = { id: 'c' as ContainerId, state, machineId, slots: 1 };
    const entry = { row, spec: { queue } } as unknown as ContainerEntry;
    this.#entries = [entry];
    this.wakes.containerChanged({ entry, from: null, to: state, machineBefore: null, before: null });
  }

  /** Changes the row of the machine, which names the replica that has its link. */
  linkedTo(replica: InstanceId | null): void {
    this.#machine = { row: { id: machineId, replica }, health: 'READY' } as unknown as Machine;
    this.wakes.machineChanged(this.#machine);
  }
}

describe('a wake-up for which no replica is known', () => {
  let world: World;
  beforeEach(() => {
    world = new World();
  });
  const toldNear = () => [{ channel: `links:${world.near}`, message: { queue, asked: [world.here] } }];

  test('is said once when the container that already runs elsewhere is heard of', () => {
    world.alive.add(world.near);
    world.linkedTo(world.near);
    world.container('STARTING');
    world.wakes.noRoom(queue, taskId);
    expect(world.said).toEqual([]);
    world.container('RUNNING');
    world.container('RUNNING');
    expect(world.said).toEqual(toldNear());
  });

  test('is said when its machine is known to be linked to another replica', () => {
    const dead = newInstanceId();
    world.alive.add(world.near);
    world.linkedTo(dead);
    world.container('RUNNING');
    world.wakes.noRoom(queue, taskId);
    expect(world.said).toEqual([]);
    world.linkedTo(world.near);
    expect(world.said).toEqual(toldNear());
  });

  test('is said when a replica that started a moment ago turns out to be there', async () => {
    world.present.add(world.near);
    world.linkedTo(world.near);
    world.container('RUNNING');
    world.wakes.noRoom(queue, taskId);
    await Promise.resolve();
    await Promise.resolve();
    await Promise.resolve();
    expect(world.said).toEqual(toldNear());
  });

  test('is not remembered once it was said', () => {
    world.alive.add(world.near);
    world.linkedTo(world.near);
    world.container('RUNNING');
    world.wakes.noRoom(queue, taskId);
    expect(world.said).toHaveLength(1);
    world.container('RUNNING');
    world.linkedTo(world.near);
    expect(world.said).toHaveLength(1);
  });
});

test('who weighs more is picked more often, and somebody always is', () => {
  const weights = new Map([
    ['a', 1],
    ['b', 3],
  ]);
  expect([0, 0.2, 0.26, 0.99, 1].map((random) => pickOf(weights, random))).toEqual(['a', 'a', 'b', 'b', 'b']);
  expect(pickOf(new Map(), 0.5)).toBeUndefined();
});

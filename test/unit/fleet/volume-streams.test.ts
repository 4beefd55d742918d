import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { InstanceId, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { ServeVolume } from '#shared/protocol/generated/messages.ts';
import type { MachineRow } from '../../../scheduler/stores/store/queries/machines.ts';
import { VolumeStreams } from '../../../scheduler/fleet/volume-streams.ts';
import { Streams } from '../../../scheduler/tasks/streams/streams.ts';

const machine = newId<MachineId>();
const row = { id: machine } as MachineRow;
const volume = { workspaceId: 'ws', volumeId: 'v', driver: 'local' };

/** Two replicas on one bus; the machine is linked to the second. */
function twoReplicas(withinMs?: number) {
  const heard: ((message: unknown) => void)[] = [];
  const bus = {
    on: (_channel: string, handler: (message: unknown) => void) => void heard.push(handler),
    publish: (_channel: string, message: unknown) => heard.forEach((handler) => handler(message)),
  };
  const orders: ServeVolume[] = [];
  const link = { isUp: true };
  const replicas = ['far', 'near'].map((name) => {
    const streams = new Streams(name as InstanceId);
    const ordered = new VolumeStreams({
      instance: name as InstanceId,
      bus,
      channel: 'c',
      streams,
      machines: { get: () => ({ health: link.isUp ? 'READY' : 'SUSPECT' }) },
      ...(withinMs === undefined ? {} : { withinMs }),
    });
    ordered.onOrder((_machineId, order) => name === 'near' && link.isUp && orders.push(order) > 0);
    return { streams, ordered };
  });
  const [far, near] = replicas;
  if (far === undefined || near === undefined) throw new Error('no replicas');
  near.streams.onElsewhere((replica, id, bytes) => {
    expect(replica).toBe('far');
    far.streams.take(id, bytes);
  });
  return { far, near, orders, link };
}

test('a stream comes to the replica that waits, here or elsewhere, from the machine that was asked, once', async () => {
  const { far, near, orders } = twoReplicas();
  for (const waiting of [near, far]) {
    const opened = waiting.ordered.open(machine, volume, new AbortController().signal);
    const { streamId = '' } = orders.pop() ?? {};
    const [foreign, own, second] = [new PassThrough(), new PassThrough(), new PassThrough()];
    near.ordered.arrived(newId<MachineId>(), streamId, foreign);
    expect(foreign.destroyed).toBe(true);
    near.ordered.arrived(machine, streamId, own);
    expect(await opened).toBe(own);
    near.ordered.arrived(machine, streamId, second);
    expect(second.destroyed).toBe(true);
  }
});

test('an agent reaches no caller of a task by naming that task', () => {
  const { near } = twoReplicas();
  const taskId = newId<TaskId>();
  near.streams.expect(taskId, () => expect.unreachable('the caller got a stream'));
  const bytes = new PassThrough();
  near.ordered.arrived(machine, taskId, bytes);
  expect(bytes.destroyed).toBe(true);
});

test('a wait ends without a stream, and a late one is ended', async () => {
  const { far, near, orders } = twoReplicas(20);
  await expect(far.ordered.open(machine, volume, new AbortController().signal)).rejects.toMatchObject({
    code: 'machine_silent',
  });
  const late = new PassThrough();
  near.ordered.arrived(machine, orders[0]?.streamId ?? '', late);
  expect(late.destroyed).toBe(true);
  const abort = new AbortController();
  const left = near.ordered.open(machine, volume, abort.signal);
  abort.abort();
  await expect(left).rejects.toMatchObject({ code: 'machine_silent' });
});

test('a machine that was away gets the orders that wait for it once it is linked, here or elsewhere', async () => {
  const { far, near, orders, link } = twoReplicas();
  for (const waiting of [near, far]) {
    const linked = waiting.ordered.open(machine, volume, new AbortController().signal);
    waiting.ordered.machineChanged({ row, health: 'READY' });
    expect(orders).toHaveLength(1);
    near.ordered.arrived(machine, orders.pop()?.streamId ?? '', new PassThrough());
    await linked;
    link.isUp = false;
    const opened = waiting.ordered.open(machine, volume, new AbortController().signal);
    for (const health of ['SUSPECT', 'RECONCILING'] as const) waiting.ordered.machineChanged({ row, health });
    link.isUp = true;
    expect(orders).toEqual([]);
    waiting.ordered.machineChanged({ row, health: 'READY' });
    waiting.ordered.machineChanged({ row, health: 'READY' });
    expect(orders).toHaveLength(1);
    const bytes = new PassThrough();
    near.ordered.arrived(machine, orders.pop()?.streamId ?? '', bytes);
    expect(await opened).toBe(bytes);
  }
});

test('an order that a machine lost with its link is sent again, another machine’s is not, and an answered one neither', async () => {
  const { near, orders } = twoReplicas();
  const opened = near.ordered.open(machine, volume, new AbortController().signal);
  const first = orders.pop();
  near.ordered.machineChanged({ row: { ...row, id: newId<MachineId>() }, health: 'SUSPECT' });
  near.ordered.machineChanged({ row, health: 'READY' });
  expect(orders).toEqual([]);
  near.ordered.machineChanged({ row, health: 'SUSPECT' });
  near.ordered.machineChanged({ row, health: 'READY' });
  expect(orders).toEqual([first]);
  const bytes = new PassThrough();
  near.ordered.arrived(machine, first?.streamId ?? '', bytes);
  expect(await opened).toBe(bytes);
  near.ordered.machineChanged({ row, health: 'SUSPECT' });
  near.ordered.machineChanged({ row, health: 'READY' });
  expect(orders).toEqual([first]);
});

// Changes of containers: the order, its answer, and a machine that goes and comes back meanwhile.
import { expect, test } from 'vitest';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { ChangeContainer, ContainerChanged__Output } from '#shared/protocol/generated/messages.ts';
import { ContainerChanges } from '#scheduler/fleet/inside/changes.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';

const machineId = 'aaaa0001' as MachineId;
const container = { containerId: 'c-1' as ContainerId, machineId } as Parameters<ContainerChanges['change']>[0];
const NETWORK = { network: { blockNetwork: true, allowList: [] } };
const SNAPSHOT = { snapshot: { image: 'i' } };
const WITHIN_MS = 10_000;

/** Replicas on one bus; the machine is linked to those in `linked`. */
function replicas(count: number) {
  const listeners: ((message: unknown) => void)[] = [];
  const bus = {
    on: (_channel: string, listener: (message: unknown) => void) => void listeners.push(listener),
    publish: (_channel: string, message: unknown) => listeners.forEach((listener) => listener(message)),
  };
  const orders: ChangeContainer[] = [];
  const linked = new Set<number>();
  const all = Array.from({ length: count }, (_, at) => {
    const changes = new ContainerChanges({ bus, channel: 'changes' });
    changes.onOrder((_machineId, order) => linked.has(at) && orders.push(order) > 0);
    return changes;
  });
  const health = (to: string): void =>
    all.forEach((one) => one.machineChanged({ row: { id: machineId }, health: to } as Machine));
  const answer = (at: number, error = ''): void => {
    const { requestId = '' } = orders.at(-1) ?? {};
    all[at]?.changed(machineId, { requestId, error, bytes: '0' } as unknown as ContainerChanged__Output);
  };
  return { all, orders, linked, health, answer };
}

test('rules of a network are sent again to a machine that was away when they were asked for', async () => {
  const { all, orders, linked, health, answer } = replicas(1);
  const done = all[0]?.change(container, NETWORK, WITHIN_MS);
  expect(orders).toHaveLength(0);
  linked.add(0);
  health('RECONCILING');
  expect(orders).toHaveLength(0);
  health('READY');
  health('READY');
  expect(orders).toHaveLength(1);
  answer(0);
  expect(await done).toBe(0);
});

test('nor does a lost connection end them: the machine gets them again, at another replica, too', async () => {
  const { all, orders, linked, health, answer } = replicas(3);
  linked.add(1);
  const done = all[0]?.change(container, NETWORK, WITHIN_MS);
  expect(orders).toHaveLength(1);
  linked.delete(1);
  health('SUSPECT');
  linked.add(2);
  health('READY');
  expect(orders).toHaveLength(2);
  expect(orders[1]).toEqual(orders[0]);
  answer(2);
  expect(await done).toBe(0);
});

test('a snapshot is made once: a lost connection ends its request', async () => {
  const { all, orders, linked, health } = replicas(1);
  linked.add(0);
  const done = all[0]?.change(container, SNAPSHOT, WITHIN_MS);
  health('SUSPECT');
  await expect(done).rejects.toThrow('the connection to its machine was lost');
  health('READY');
  expect(orders).toHaveLength(1);
});

test("an agent's refusal is told", async () => {
  const { all, linked, answer } = replicas(1);
  linked.add(0);
  const done = all[0]?.change(container, NETWORK, WITHIN_MS);
  answer(0, 'the container does not run on this machine');
  await expect(done).rejects.toThrow('does not run on this machine');
});

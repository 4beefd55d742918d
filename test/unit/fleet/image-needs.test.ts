// The needs of machines for an image: who stands in its line before whom, and for how long a build may stand there.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { PullImageRequest__Output } from '#shared/protocol/generated/messages.ts';
import { ImageOrders } from '#scheduler/fleet/images/orders.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { ImageOrdersParts } from '#scheduler/fleet/images/orders.ts';

const MACHINE = 'machine-1' as MachineId;
const WORKSPACE = 'workspace-1' as WorkspaceId;
const IMAGE = 'registry.test/app:1';
const aMachine = {
  sessionId: 's',
  health: 'READY',
  conditions: [],
  inventory: { images: [], gpus: [] },
  row: {
    id: MACHINE,
    poolName: 'default',
    poolWorkspaceId: null,
    poolSettings: {},
    intent: 'active',
    hostDrainUntilMs: null,
    systemCordon: false,
  },
};
const MINUTE = 60_000;

function someOrders() {
  const did: string[] = [];
  const containers: object[] = [];
  const step =
    (name: string) =>
    (_key: string, _machine: string, how?: unknown): Promise<void> =>
      Promise.resolve(void did.push(typeof how === 'string' ? `${name} ${how}` : name));
  const orders = new ImageOrders({
    lines: {
      ask: (_key: string, _machine: string, _waitMs: number, { isAhead }: { isAhead: boolean }) => {
        did.push(isAhead ? 'ask ahead' : 'ask');
        return Promise.resolve({ kind: 'wait', place: 1, waiting: 1 });
      },
      hold: step('hold'),
      keep: step('keep'),
      leave: step('leave'),
    },
    machines: { all: () => [aMachine], get: () => undefined },
    containers: { ofMachine: () => containers },
    credentials: { of: () => Promise.resolve(undefined) },
    cpuWorkAllowed: () => true,
  } as unknown as ImageOrdersParts);
  const asks = (question: object = {}) =>
    orders.pull(MACHINE, {
      image: IMAGE,
      workspaceId: WORKSPACE,
      maxWaitMs: 0,
      ...question,
    } as unknown as PullImageRequest__Output);
  const starts = (): unknown => containers.push({ row: { workspaceId: WORKSPACE }, spec: { wire: { image: IMAGE } } });
  return { orders, did, containers, asks, starts };
}

beforeEach(() => void vi.useFakeTimers({ toFake: ['Date'] }));
afterEach(() => void vi.useRealTimers());

test('a pull whose container has gone keeps the permit that it has, and gets none', async () => {
  const { did, containers, asks, starts } = someOrders();
  starts();
  await asks({ pulling: true });
  containers.length = 0;
  expect(await asks({ pulling: true })).toEqual({ waitMs: 0 });
  expect(did).toEqual(['hold', 'keep']);
});

test('a build that waits in a line longer than an hour keeps its place and its credentials, for hours at most', async () => {
  const { orders, asks } = someOrders();
  orders.expect(MACHINE, WORKSPACE, [IMAGE]);
  const from = Date.now();
  let lastMs = 0;
  for (let at = 0; at < 60; at += 1) {
    vi.setSystemTime(from + at * 20 * MINUTE);
    if ((await asks({ hasWaited: true })).unwanted !== true) lastMs = at * 20 * MINUTE;
  }
  expect(lastMs).toBeGreaterThan(4 * 60 * MINUTE);
  expect(lastMs).toBeLessThanOrEqual(6 * 60 * MINUTE);
});

test('many other hints do not displace that of a machine that waits', async () => {
  const { orders, asks } = someOrders();
  orders.expect(MACHINE, WORKSPACE, [IMAGE]);
  for (let at = 0; at < 3000; at += 1) {
    orders.expect(`machine-${at + 2}` as MachineId, WORKSPACE, [IMAGE]);
    if (at % 100 === 0) expect((await asks({ hasWaited: true })).unwanted).toBeUndefined();
  }
});

test('a machine that tries again says so to its line', async () => {
  const { did, asks } = someOrders();
  for (const question of [{ again: true }, { pulled: true }, {}]) await asks({ done: true, ...question });
  expect(did).toEqual(['leave again', 'leave pulled', 'leave done']);
});

test('an image that a deploy sends ahead stands behind one that a container waits for', async () => {
  const { orders, did, asks, starts } = someOrders();
  orders.prepare({
    workspaceId: WORKSPACE,
    imageDigest: '',
    active: true,
    config: { imageId: IMAGE, gpuCount: 0, gpu: [], extra: {} },
  } as unknown as Target);
  await asks();
  starts();
  await asks();
  expect(did).toEqual(['ask ahead', 'ask']);
});

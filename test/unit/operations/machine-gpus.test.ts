// GPUs of a machine: whose they are, and what an agent's refusal becomes.
import { expect, test } from 'vitest';
import { GPU_ACTIONS } from '#shared/domain/gpus.ts';
import { changeMachineGpu, listMachineGpus } from '#scheduler/api/operations/machine-gpus.ts';
import type { GpuView } from '#scheduler/fleet/worker-service.ts';

const GPU: GpuView = {
  ...{ uuid: 'GPU-1', model: 'H100', computeCap: '9.0', memoryBytes: 80, pciBusId: '0000:1b:00.0', parentUuid: '' },
  ...{ state: 'unhealthy', why: 'Xid 48', nvlinkIsland: 2 },
};
const trail: unknown[] = [];
const workers = {
  gpuOrdered: (...told: readonly unknown[]) => {
    trail.push(told.slice(1));
    return Promise.resolve();
  },
  gpusOf: (owner: { readonly workspaceId: unknown }, id: string) =>
    id === 'm-1' && owner.workspaceId === null ? [GPU] : undefined,
};
const admin = { isAdmin: true, workspaceId: 'w-1', name: 'ops' };
const tenant = { isAdmin: false, workspaceId: 'w-1' };
const ask = (operation: { readonly handle: unknown }, caller: object, request: object): unknown =>
  (operation.handle as (caller: object, request: object, origin: object) => unknown)(caller, request, { from: '' });

test('the list is of machines that the caller owns', async () => {
  const list = listMachineGpus(workers);
  expect(await ask(list, admin, { machineId: 'm-1' })).toEqual({ ok: true, errMsg: '', gpus: [GPU] });
  expect(await ask(list, tenant, { machineId: 'm-1' })).toMatchObject({ ok: false, errMsg: 'machine not found' });
});

test('an order reaches the agent of an own machine alone; its refusal is the answer, and the audit trail has both', async () => {
  const orders: unknown[] = [];
  let refusal = '';
  const change = changeMachineGpu(workers, {
    changeGpu: (machineId, gpu) => {
      orders.push([machineId, gpu]);
      return Promise.resolve(refusal);
    },
  });
  const request = { machineId: 'm-1', uuid: 'GPU-1' };
  for (const action of GPU_ACTIONS)
    expect(await ask(change, admin, { ...request, action })).toEqual({ ok: true, errMsg: '' });
  expect(orders).toEqual(GPU_ACTIONS.map((action) => ['m-1', { uuid: 'GPU-1', action }]));
  expect(trail).toEqual(
    GPU_ACTIONS.map((action) => [
      'm-1',
      { uuid: 'GPU-1', action, outcome: '' },
      expect.objectContaining({ tokenName: 'ops' }),
    ]),
  );
  trail.length = 0;
  refusal = 'GPU GPU-1 needs its recovery first';
  expect(await ask(change, admin, { ...request, action: 'return' })).toEqual({ ok: false, errMsg: refusal });
  expect(trail).toMatchObject([['m-1', { uuid: 'GPU-1', action: 'return', outcome: refusal }, {}]]);
  trail.length = 0;
  orders.length = 0;
  expect(await ask(change, tenant, { ...request, action: 'reset' })).toMatchObject({ errMsg: 'machine not found' });
  expect(await ask(change, admin, { ...request, action: 'polish' })).toMatchObject({ ok: false });
  expect(await ask(change, admin, { ...request, uuid: 'GPU-2', action: 'exclude' })).toMatchObject({ ok: false });
  expect([orders, trail]).toEqual([[], []]);
});

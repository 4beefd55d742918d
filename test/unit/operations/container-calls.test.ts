import { describe, expect, test } from 'vitest';
import { headersToPass, isContainerCall } from '#shared/domain/container-calls.ts';
import { GATEWAY_BASE } from '#scheduler/api/http/bind.ts';
import { allOperations } from '#scheduler/api/operations/index.ts';
import type { OperationParts } from '#scheduler/api/operations/index.ts';
import { ContainerCredentials, isLiving } from '#scheduler/fleet/containers/credentials.ts';
import type { ContainerCredentialsParts } from '#scheduler/fleet/containers/credentials.ts';
import { CONTAINER_TRANSITIONS } from '#scheduler/fleet/containers/state.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';

describe('what a container may call', () => {
  test('passes its socket exactly when its credential may do it', () => {
    const operations = allOperations({} as OperationParts);
    const differing = operations.filter(({ method, path, containers }) => {
      const called = `${GATEWAY_BASE}${path.replaceAll(/\{\w+\}/g, 'some-id')}`;
      return isContainerCall(method, called) !== containers;
    });
    expect(differing.map(({ name }) => name)).toEqual([]);
  });

  test.each([
    'POST /taskqueue/a%20b',
    'POST /endpoint/a/v12',
    'GET /endpoint/a/latest/',
    'POST /function/id/some-id',
    'POST /endpoint/public/some-id',
    'POST /pod/id/some-id',
    'GET /pod/site/v1/8000/a/b',
    'GET /api/v1/task/w/t/subscribe',
    'PUT /api/v1/gateway/objects/upload/some-id',
    'GET /api/v1/map/w/keys',
    'DELETE /api/v1/map/w/entry',
    'POST /api/v1/queue/w/pop',
    'PUT /api/v1/signal/w',
    'POST /api/v1/output/w',
    'GET /api/v1/output/w/some-id/url',
  ])('includes %s', (line) => {
    const [method = '', path = ''] = line.split(' ');
    expect(isContainerCall(method, path)).toBe(true);
  });

  test.each([
    'POST /endpoint/a/warmup',
    'POST /endpoint/id/some-id/warmup',
    'PUT /endpoint/a',
    'POST /endpoint/../api/v1/gateway/tokens',
    'POST /endpoint//a',
    'GET /sandbox/container/some-id/sandbox-id/8000/',
    'GET /pod/../api/v1/gateway/tokens',
    'GET /pod',
    'GET /api/v1/task/w',
    'DELETE /api/v1/map/w/keys',
    'GET /api/v1/map/w',
    'DELETE /api/v1/queue/w',
    'DELETE /api/v1/output/w/some-id',
    'GET /api/v1/object/w/some-id/download-url',
    'GET /',
    'GET ',
    'GET /api/v1/workspace/current/..',
    'GET http://elsewhere/api/v1/workspace/current',
  ])('excludes %s', (line) => {
    const [method = '', path = ''] = line.split(' ');
    expect(isContainerCall(method, path)).toBe(false);
  });

  test('takes along the headers that are about the request, and none about who stands between', () => {
    const raw = ['Host', 'h', 'X-Mine', '1', 'x-mine', '2', 'Connection', 'close', 'X-Forwarded-Host', 'h', 'Via', 'v'];
    expect(headersToPass(raw)).toEqual([
      { name: 'X-Mine', value: '1' },
      { name: 'x-mine', value: '2' },
    ]);
  });
});

test('a credential counts while its container is acknowledged and not told to stop, and under its own epoch', () => {
  const counts = (state: ContainerState, stateBefore: ContainerState | null = null): boolean =>
    isLiving({ state, stateBefore, epoch: 2 }, 2);
  const states = Object.keys(CONTAINER_TRANSITIONS) as ContainerState[];
  expect(states.filter((state) => counts(state))).toEqual(['STARTING', 'RUNNING', 'DRAINING']);
  expect(states.filter((before) => counts('UNKNOWN', before))).toEqual(['STARTING', 'RUNNING', 'DRAINING']);
  for (const epoch of [1, 3]) expect(isLiving({ state: 'RUNNING', stateBefore: null, epoch: 2 }, epoch)).toBe(false);
});

test.each([
  ['PENDING', 2, 'read'],
  ['ASSIGNED', 2, 'read'],
  ['STOPPING', 2, 'refused'],
  // The container registry knows the previous placement: the message about this one is on its way.
  ['UNKNOWN', 1, 'read'],
  ['STOPPING', 1, 'read'],
  ['RUNNING', 1, 'read'],
  ['RUNNING', 2, 'taken'],
  ['RUNNING', 3, 'refused'],
  ['PENDING', 3, 'refused'],
] as const)(
  'a container registry that says %s under epoch %i of a credential for epoch 2: %s',
  async (state, epoch, expected) => {
    let reads = 0;
    const row = { state, stateBefore: null, epoch, machineId: 'm' };
    const credentials = new ContainerCredentials({
      // A database in which there is no such row.
      db: { query: () => ((reads += 1), Promise.resolve({ rows: [], rowCount: 0 })) },
      containers: { get: () => ({ row }) },
      invalidation: { on: () => undefined, isLive: true },
      isAlone: false,
      hasMachine: () => true,
    } as unknown as ContainerCredentialsParts);
    const live = await credentials.isLive('c' as ContainerId, 2);
    expect(reads > 0 ? 'read' : live ? 'taken' : 'refused').toBe(expected);
  },
);

import { describe, expect, test } from 'vitest';
import { makeCodecs } from '../../../scheduler/api/grpc/descriptor.ts';
import { unroutedOperations } from '../../../scheduler/api/grpc/operations/index.ts';
import type { UnroutedParts } from '../../../scheduler/api/grpc/operations/index.ts';
import { allRpcs } from '../../../scheduler/api/grpc/rpcs.ts';
import { allOperations } from '../../../scheduler/api/operations/index.ts';
import type { OperationParts } from '../../../scheduler/api/operations/index.ts';
import { ALL_RPCS } from '../../helpers/grpc-calls.ts';

const codecs = makeCodecs();
const rpcs = allRpcs([...allOperations({} as OperationParts), ...unroutedOperations({} as UnroutedParts)]);

function rpcOf(name: string) {
  const rpc = rpcs.find(({ path }) => path.endsWith(`/${name}`));
  if (rpc === undefined) throw new Error(`no call ${name}`);
  return rpc;
}

/** The request that the handler of a call gets for a message. */
function asked(
  name: string,
  message: Readonly<Record<string, unknown>>,
  headers: Readonly<Record<string, string>> = {},
): unknown {
  const rpc = rpcOf(name);
  return rpc.read(codecs.decode(rpc.request, codecs.encode(rpc.request, message)), headers);
}

/** The message that a client reads. */
function told(name: string, answer: unknown, caller: object | null = null): unknown {
  const rpc = rpcOf(name);
  return codecs.decode(rpc.response, codecs.encode(rpc.response, rpc.tell(answer, caller as never)));
}

test('the tests of callers try every call', () => {
  expect(ALL_RPCS.map(({ path }) => `/${path}`).toSorted()).toEqual(rpcs.map(({ path }) => path).toSorted());
  for (const { path, isStream, isDuplex = false } of ALL_RPCS) {
    const { stream, duplex } = rpcOf(path.split('/')[1] ?? '');
    expect([stream !== undefined, duplex !== undefined]).toEqual([isStream && !isDuplex, isDuplex]);
  }
});

describe('requests', () => {
  test('zeroes count as they are', () => {
    expect(asked('GetOrCreateStub', { stubType: 'function/deployment' })).toMatchObject({
      authorized: false,
      cpu: 0,
      keepWarmSeconds: 0,
      taskPolicy: null,
      serving: null,
      disks: null,
    });
    expect(asked('GetOrCreateStub', { authorized: true, keepWarmSeconds: 7, cpu: '250' })).toMatchObject({
      authorized: true,
      keepWarmSeconds: 7,
      cpu: 250,
    });
  });

  test('the task policy is what says timeout and retries', () => {
    const fields = { timeout: '60', retries: 4, taskPolicy: { timeout: '0', maxRetries: 2, ttl: 9 } };
    expect(asked('GetOrCreateStub', fields)).toMatchObject({
      timeout: 0,
      retries: 2,
      taskPolicy: { timeout: 0, maxRetries: 2, ttl: 9 },
    });
    expect(asked('GetOrCreateStub', { timeout: '60', retries: 4 })).toMatchObject({ timeout: 60, retries: 4 });
  });

  test('what is kept as it was sent has the names of the wire', () => {
    const { serving, pool } = asked('GetOrCreateStub', {
      serving: { servingProtocol: 'openai' },
      pool: { name: 'mine', gpu: ['A10G'] },
    }) as Readonly<Record<string, { value: unknown }>>;
    expect(serving?.value).toMatchObject({ serving_protocol: 'openai' });
    expect(pool?.value).toMatchObject({ name: 'mine', gpu: ['A10G'] });
  });

  test('filters, bytes and absent texts are read', () => {
    const filters = { 'stub-id': { values: ['a', 'b,c'] }, status: { values: [] } };
    expect(asked('ListTasks', { filters, limit: 5 })).toEqual({
      filters: { 'stub-id': ['a', 'b,c'], status: [] },
      limit: 5,
    });
    expect(asked('SignPayload', { payload: 'aGk=' })).toEqual({ payload: new Uint8Array(Buffer.from('hi')) });
    expect(asked('VerifyImageBuild', {})).toMatchObject({ imageId: '', pythonPackages: [], buildSteps: [] });
    expect(asked('DrainWorker', { workerId: 'a' })).toEqual({ workerId: 'a', deadlineSeconds: null });
  });

  test('a call that goes on is named by metadata', () => {
    const message = { stubId: 'a', args: 'aGk=', headless: true };
    expect(asked('FunctionInvoke', message)).toMatchObject({ stubId: 'a', headless: true, taskId: '', logOffset: 0 });
    const headers = { 'x-beta9-task-id': 'task', 'x-beta9-log-offset': '12' };
    expect(asked('FunctionInvoke', message, headers)).toMatchObject({ taskId: 'task', logOffset: 12 });
    // The client sends the names without values with its first call.
    const empty = { 'x-beta9-task-id': '', 'x-beta9-log-offset': '0' };
    expect(asked('FunctionInvoke', message, empty)).toMatchObject({ taskId: '', logOffset: 0 });
  });

  test('a function has as many containers as it has calls, whatever the client sends for other kinds', () => {
    const autoscaler = { type: 'queue_depth', maxContainers: 1 };
    const sent = { autoscaler, maxPendingTasks: 100 };
    expect(asked('GetOrCreateStub', { ...sent, stubType: 'function' })).toMatchObject({
      autoscaler: null,
      maxPendingTasks: 0,
    });
    expect(asked('GetOrCreateStub', { ...sent, stubType: 'endpoint' })).toMatchObject({
      autoscaler: { maxContainers: 1 },
      maxPendingTasks: 100,
    });
  });

  test('a schedule without a time is told it later', () => {
    const extraOf = (said: object) =>
      (asked('GetOrCreateStub', { stubType: 'schedule', ...said }) as { extra: string }).extra;
    expect(JSON.parse(extraOf({ extra: '{"a":1}' }))).toEqual({ a: 1, whenLater: true });
    expect(JSON.parse(extraOf({}))).toEqual({ whenLater: true });
    expect(extraOf({ extra: '{"when":"@daily"}' })).toBe('{"when":"@daily"}');
    expect(extraOf({ extra: '{' })).toBe('{');
    expect(extraOf({ stubType: 'function', extra: '{}' })).toBe('{}');
  });

  test('a change of a file and the container of a stream are read, and a message may say nothing', () => {
    expect(asked('AttachToContainer', {})).toEqual({ attachRequest: null, syncContainerWorkspace: null });
    expect(asked('AttachToContainer', { attachRequest: { containerId: 'c' } })).toMatchObject({
      attachRequest: { containerId: 'c' },
    });
    const change = { path: 'a', newPath: 'b', data: 'aGk=', op: 2 };
    expect(asked('AttachToContainer', { syncContainerWorkspace: change })).toMatchObject({
      syncContainerWorkspace: { path: 'a', newPath: 'b', isDir: false, op: 2, data: new Uint8Array(Buffer.from('hi')) },
    });
  });

  test('the rollout that replaces at once is the one that waits for nothing', () => {
    expect(asked('DeployStub', { rollout: 'replace' })).toMatchObject({ rollout: 'now' });
    expect(asked('DeployStub', { rollout: 'auto' })).toMatchObject({ rollout: 'auto' });
  });
});

describe('answers', () => {
  test('times, large numbers and lists are told', () => {
    const task = { id: 'a', status: 'COMPLETE', createdAt: '2026-11-30T10:00:00.250Z', startedAt: null };
    expect(told('ListTasks', { ok: true, errMsg: '', tasks: [task], total: 1 })).toMatchObject({
      ok: true,
      tasks: [
        { id: 'a', status: 'COMPLETE', created_at: { seconds: '1796032800', nanos: 250_000_000 }, started_at: null },
      ],
      total: 1,
    });
    const signed = { ok: true, signature: 'ab', timestamp: 2 ** 40, errorMsg: '' };
    expect(told('SignPayload', signed)).toMatchObject({ timestamp: String(2 ** 40) });
  });

  test('a volume is told with the field that this client reads, and a build without its envelope', () => {
    expect(told('GetOrCreateVolume', { ok: false, volume: null, error: 'no' })).toEqual({
      ok: false,
      err_msg: 'no',
      volume: null,
    });
    const result = { imageId: 'i', msg: 'm', done: true, success: true, pythonVersion: 'python3.11', warning: false };
    expect(told('BuildImage', { result })).toMatchObject({ image_id: 'i', msg: 'm', done: true, success: true });
  });

  test('the state of a rollout is its action, and a new machine comes with its command', () => {
    const rollout = { state: 'waiting', why: '', since: null, until: null };
    expect(told('DeployStub', { ok: true, rollout })).toMatchObject({ rollout_action: 'waiting' });
    expect(told('DeployStub', { ok: false, errMsg: 'no', rollout: null })).toMatchObject({
      err_msg: 'no',
      rollout_action: '',
    });
    const made = { ok: true, agentUpstreamUrl: 'grpcs://host:1995', agentUpstreamToken: 'secret' };
    expect(told('CreateMachine', made)).toMatchObject({
      install_command: 'LONGSHORE_SCHEDULER_ADDRESS=host:1995 LONGSHORE_JOIN_TOKEN=secret longshore agent',
    });
    expect(told('CreateMachine', { ok: false, errMsg: 'no' })).toMatchObject({ install_command: '' });
  });

  test('private pools are those of the workspace, and no administrator has any', () => {
    const answer = {
      ok: true,
      errMsg: '',
      pools: [{ name: 'mine', state: { status: 'HEALTHY', registeredMachines: 2, readyMachines: 1 } }],
    };
    expect(told('ListPrivatePools', answer, { isAdmin: false })).toMatchObject({
      pools: [{ name: 'mine', status: 'HEALTHY', machine_count: 2, ready_machine_count: 1 }],
    });
    expect(told('ListPrivatePools', answer, { isAdmin: true })).toMatchObject({ pools: [] });
  });
});

// Calls of functions over gRPC at two scheduler processes: a caller goes on at the other one, with the output that it
// lacks, and its task runs once.
import { expect } from 'vitest';
import { GrpcClient, aCuttableWay } from '../helpers/grpc-client.ts';
import type { OpenStream } from '../helpers/grpc-client.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import type { SimulatedAgent, SimulatedTask } from '../helpers/simulated-agent.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const INVOKE = 'function.FunctionService/FunctionInvoke';
const UNAVAILABLE = 14;
const WAIT_MS = 90_000;
/** `{"args": (), "kwargs": {}}` */
const ARGS = 'gASVFgAAAAAAAAB9lCiMBGFyZ3OUKYwGa3dhcmdzlH2UdS4=';
/** The result as JSON, and its pickle. */
const RESULT = { json: '{"base64":"gAVLKi4=","encoding":"cloudpickle"}', pickle: 'gAVLKi4=' };

interface World {
  readonly set: ReplicaSet;
  readonly one: Replica;
  readonly two: Replica;
  readonly agent: SimulatedAgent;
  /** Tasks that were handed to a container, each time. */
  readonly runs: SimulatedTask[];
  /** Has a task end. */
  readonly finish: (taskId: string) => void;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_GRPC_ADDRESS: '127.0.0.1:0' });
  onCleanup(() => set.stop());
  const one = await set.add();
  const two = await set.add();
  const runs: SimulatedTask[] = [];
  const ends = new Map<string, () => void>();
  const agent = await set.agent({
    handle: (task) => {
      runs.push(task);
      return new Promise((resolve) => {
        ends.set(task.taskId, () => resolve(RESULT.json));
        task.signal.addEventListener('abort', () => resolve('null'));
      });
    },
  });
  return { set, one, two, agent, runs, finish: (taskId) => ends.get(taskId)?.() };
});

/** A call whose task is handed to a container. */
async function running({ set, runs }: World, client: GrpcClient, stubId: string) {
  const stream = client.open(INVOKE, { stubId, args: ARGS }, { token: set.token });
  const taskId = String((await stream.next())?.['task_id']);
  const task = await waitFor(() => runs.find((run) => run.taskId === taskId), 'the task runs', WAIT_MS);
  return { stream, taskId, containerId: task.containerId };
}

/** The same call at another scheduler. */
function resumed({ set }: World, client: GrpcClient, stubId: string, taskId: string, seen: string): OpenStream {
  const metadata = { 'x-beta9-task-id': taskId, 'x-beta9-log-offset': String(Buffer.byteLength(seen)) };
  return client.open(INVOKE, { stubId, args: ARGS }, { token: set.token, metadata });
}

/** Reads output until it is the wanted one. */
async function outputOf(stream: OpenStream, wanted: string): Promise<string> {
  let seen = '';
  while (seen !== wanted) {
    const next = await stream.next();
    if (next === undefined) throw new Error(`the stream ended behind ${JSON.stringify(seen)}`);
    seen += String(next['output']);
  }
  return seen;
}

const statusOf = async ({ set, two }: World, taskId: string): Promise<unknown> =>
  (JSON.parse((await set.call(two, `/api/v1/task/${set.workspaceId}/${taskId}`)).text) as { status: unknown }).status;

test('a caller whose connection broke goes on at the other scheduler, and one who does not is cancelled', async ({
  world,
}) => {
  const { set, one, two, runs, finish } = world;
  const { stubId } = await set.deploy(two, 'cut', { stubType: 'function/deployment' });
  const way = await aCuttableWay(one.grpcAddress);
  const [broken, there] = [new GrpcClient(way.address), new GrpcClient(two.grpcAddress)];
  const [kept, lost] = await Promise.all([running(world, broken, stubId), running(world, broken, stubId)]);
  way.cut();
  expect(await kept.stream.ended).toMatchObject({ code: UNAVAILABLE });
  const again = resumed(world, there, stubId, kept.taskId, '');
  expect(await again.next()).toMatchObject({ task_id: kept.taskId, done: false });
  // Both callers were lost in the same moment, so the first scheduler would have cancelled both by now.
  await waitFor(async () => (await statusOf(world, lost.taskId)) === 'CANCELLED', 'the lost call ends', WAIT_MS);
  expect(await statusOf(world, kept.taskId)).toBe('RUNNING');
  finish(kept.taskId);
  const [last] = await again.rest();
  expect(last).toMatchObject({ done: true, exit_code: 0, result: RESULT.pickle });
  expect(runs.filter(({ taskId }) => taskId === kept.taskId)).toHaveLength(1);
  broken.close();
  there.close();
}, 180_000);

test('a scheduler that is killed loses no call: its caller has the rest of the output at the other one', async ({
  world,
}) => {
  const { set, one, two, agent, runs, finish } = world;
  const { stubId } = await set.deploy(two, 'killed', { stubType: 'function/deployment' });
  const [here, there] = [new GrpcClient(one.grpcAddress), new GrpcClient(two.grpcAddress)];
  const { stream, taskId, containerId } = await running(world, here, stubId);
  await agent.log({ containerId, taskId, line: 'before é' });
  const seen = await outputOf(stream, 'before é\n');
  await one.daemon.kill();
  expect(await stream.ended).toMatchObject({ code: UNAVAILABLE });
  const again = resumed(world, there, stubId, taskId, seen);
  expect(await again.next()).toMatchObject({ task_id: taskId, output: '', done: false });
  // The agent may have been linked to the scheduler that is gone.
  await waitFor(
    () =>
      agent.log({ containerId, taskId, line: 'after' }).then(
        () => true,
        () => false,
      ),
    'the agent is linked',
    WAIT_MS,
  );
  await outputOf(again, 'after\n');
  finish(taskId);
  const [last] = await again.rest();
  expect(last).toMatchObject({ done: true, exit_code: 0, result: RESULT.pickle });
  expect(runs.filter((run) => run.taskId === taskId)).toHaveLength(1);
  here.close();
  there.close();
}, 180_000);

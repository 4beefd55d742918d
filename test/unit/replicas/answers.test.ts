import { expect, test, vi } from 'vitest';
import { newId, newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, InstanceId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Replies } from '#scheduler/tasks/dispatch/replies.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { Answers } from '#scheduler/replicas/answers.ts';
import type { Bus } from '#scheduler/cluster/bus.ts';
import { Line } from '#scheduler/tasks/lines/line.ts';
import { offeredTo } from '#scheduler/tasks/lines/offers.ts';
import { Attempts } from '#scheduler/tasks/dispatch/attempts.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import type { Finished } from '#scheduler/tasks/dispatch/replies.ts';
import { seenByCaller } from '../../helpers/seen-by-caller.ts';

const queue = queueNameOf('d' as DeploymentId, 's' as StubId);
const workspaceId = newId<WorkspaceId>();
const log = createLog({ name: 'test', level: 'silent' });

/** Two replicas on a bus that a test may break, and the records they share. */
function twoReplicas() {
  const handlers = new Map<string, (message: unknown) => void>();
  const gaps: (() => void)[] = [];
  const records = new Map<TaskId, TaskRecord>();
  const wire = { broken: false, said: [] as unknown[] };
  const bus: Bus = {
    on: (channel, handler) => void handlers.set(channel, handler),
    onGap: (handler) => void gaps.push(handler),
    publish: (channel, message) => {
      wire.said.push(message);
      if (!wire.broken) handlers.get(channel)?.(JSON.parse(JSON.stringify(message)));
    },
    isLive: true,
  };
  const ended = vi.fn();
  const aReplica = (): { instance: InstanceId; replies: Replies; answers: Answers; line: Line } => {
    const instance = newInstanceId();
    const replies = new Replies();
    const line = new Line();
    replies.onLeft((taskId) => line.drop(taskId));
    const answers = new Answers({
      bus,
      channelOf: (one) => `replies:${one}`,
      instance,
      replies,
      lines: { line },
      attempts: new Attempts(),
      completion: {
        answerFrom: (record) => {
          replies.settle(record.taskId, { status: record.status, reason: 'completed', body: record.result ?? '' });
          return Promise.resolve();
        },
        revoke: () => Promise.resolve(true),
      },
      bodies: { resultText: (record) => Promise.resolve(record.result) },
      records: {
        read: (taskId) => Promise.resolve(records.get(taskId)),
        readOver: (ids) =>
          Promise.resolve({
            over: new Map([...records].filter(([taskId]) => ids.includes(taskId))),
            isComplete: true,
          }),
        endedElsewhere: ended,
      },
      log,
    });
    return { instance, replies, answers, line };
  };
  const [here, there] = [aReplica(), aReplica()];
  return {
    here,
    there,
    wire,
    ended,
    gap: () => gaps.forEach((handler) => handler()),
    /** Makes a caller that waits here for a task that ends there. */
    waiting: (): {
      taskId: TaskId;
      finished: Promise<Finished>;
      end: (body: string, attempt?: number, of?: WorkspaceId) => void;
    } => {
      const taskId = newId<TaskId>();
      const job = { taskId, replica: here.instance, workspaceId } as TaskJob;
      const { place } = here.line.add(queue, job, 0);
      here.line.move(taskId, offeredTo(place, there.instance, 0));
      const finished = here.replies.wait({ taskId, queue, job }, 60_000);
      return {
        taskId,
        finished,
        end: (body, attempt = 1, of = workspaceId) => {
          records.set(taskId, { taskId, status: 'COMPLETE', result: body } as TaskRecord);
          const finished = { status: 'COMPLETE', reason: 'completed', body } as const;
          there.replies.deliver({ ...job, workspaceId: of }, finished, attempt);
        },
      };
    },
  };
}

test('an answer goes to the replica whose caller waits, and the pending record there is not written any more', async () => {
  const world = twoReplicas();
  const { taskId, finished, end } = world.waiting();
  end('{"n":1}');
  expect(seenByCaller(await finished)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"n":1}' });
  expect(world.ended).toHaveBeenCalledWith(taskId);
});

test('an answer of another workspace, which an agent forged, is none', async () => {
  const world = twoReplicas();
  const { taskId, finished, end } = world.waiting();
  end('{"forged":1}', 1, newId<WorkspaceId>());
  await Promise.resolve();
  expect(world.here.replies.has(taskId)).toBe(true);
  end('{"n":1}');
  expect((await finished).body).toBe('{"n":1}');
});

test('a large body does not travel: it is read from the record', async () => {
  const world = twoReplicas();
  const { taskId, finished, end } = world.waiting();
  const body = JSON.stringify('x'.repeat(100_000));
  end(body);
  expect((await finished).body).toBe(body);
  expect(world.wire.said).toEqual([[taskId, 'COMPLETE', 'completed', null, 1, workspaceId]]);
});

test('an answer that was lost is found when messages arrive again', async () => {
  const world = twoReplicas();
  const { finished, end } = world.waiting();
  world.wire.broken = true;
  end('1');
  expect(world.here.replies.size).toBe(1);
  world.gap();
  expect((await finished).body).toBe('1');
});

test('and by looking it up every few seconds, for those who have waited that long; who still runs goes on waiting', async () => {
  const world = twoReplicas();
  const lost = world.waiting();
  const runs = world.waiting();
  world.wire.broken = true;
  lost.end('1');
  await world.here.answers.lookUp(60_000);
  expect(world.here.replies.size).toBe(2);
  await world.here.answers.lookUp(0);
  expect((await lost.finished).body).toBe('1');
  expect(world.here.replies.has(runs.taskId)).toBe(true);
});

test('an answer that comes twice answers once', async () => {
  const world = twoReplicas();
  const { finished, end } = world.waiting();
  end('1');
  end('2');
  await world.here.answers.lookUp(0);
  expect((await finished).body).toBe('1');
});

test('the answer of an attempt from which the task came back is none', async () => {
  const world = twoReplicas();
  const { taskId, finished, end } = world.waiting();
  const { line } = world.here;
  const back = { kind: 'waiting', attempt: 1 } as const;
  line.move(taskId, back);
  line.move(taskId, offeredTo(back, world.there.instance, 0));
  end('1', 1);
  expect(world.here.replies.has(taskId)).toBe(true);
  expect(world.ended).not.toHaveBeenCalled();
  end('2', 2);
  expect((await finished).body).toBe('2');
});

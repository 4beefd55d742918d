import { expect, test } from 'vitest';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Repairs } from '#scheduler/stores/queues/repairs.ts';
import type { RepairPort } from '#scheduler/stores/queues/repairs.ts';

const log = createLog({ name: 'test', level: 'silent' });
const queue = 'tq-a' as QueueName;
const lock = (name: string): LockToken => `${name}.${'0'.repeat(64)}` as LockToken;
const task = (name: string): TaskId => name as TaskId;

/** Queues as a repair sees them: which job is held by which token, which jobs wait. */
function aPort(): RepairPort & {
  held: { taskId: TaskId; lock: LockToken }[];
  waiting: Set<TaskId>;
  down: boolean;
} {
  return {
    held: [],
    waiting: new Set(),
    down: false,
    async heldBy(_queue, locks) {
      if (this.down) throw new Error('down');
      return this.held.filter((one) => locks.has(one.lock));
    },
    async giveBack(_queue, taskId) {
      this.held = this.held.filter((one) => one.taskId !== taskId);
      this.waiting.add(taskId);
    },
  };
}

function aRepair(port: RepairPort, limit = 100): { repairs: Repairs; pass: (ms: number) => void } {
  let nowMs = 0;
  // Timers are never due in these tests, which call the looks themselves.
  const repairs = new Repairs(port, { log, limit, lookAfterMs: [1000, 2000], nowMs: () => nowMs });
  return { repairs, pass: (ms) => (nowMs += ms) };
}

test('a job held by the token of a lost fetch is given back, others are left alone', async () => {
  const port = aPort();
  port.held = [
    { taskId: task('a'), lock: lock('lost') },
    { taskId: task('b'), lock: lock('mine') },
  ];
  const { repairs, pass } = aRepair(port);
  repairs.note({ queue, lock: lock('lost'), keep: undefined });
  expect(await repairs.check()).toBe(0);
  pass(1000);
  expect(await repairs.check()).toBe(1);
  expect(port.held).toEqual([{ taskId: task('b'), lock: lock('mine') }]);
  await repairs.close();
});

test('a fetch that was perhaps sent twice keeps the job that its caller got', async () => {
  const port = aPort();
  port.held = [
    { taskId: task('kept'), lock: lock('twice') },
    { taskId: task('extra'), lock: lock('twice') },
  ];
  const { repairs } = aRepair(port);
  repairs.note({ queue, lock: lock('twice'), keep: task('kept') });
  expect(await repairs.check(true)).toBe(1);
  expect(port.held.map(({ taskId }) => taskId)).toEqual([task('kept')]);
  await repairs.close();
});

test('a command that runs late is found by a later look, then forgotten', async () => {
  const port = aPort();
  const { repairs, pass } = aRepair(port);
  repairs.note({ queue, lock: lock('late'), keep: undefined });
  pass(1000);
  expect(await repairs.check()).toBe(0);
  port.held = [{ taskId: task('a'), lock: lock('late') }];
  pass(2000);
  expect(await repairs.check()).toBe(1);
  expect(repairs.size).toBe(0);
  await repairs.close();
});

test('looks while Redis is down do not count', async () => {
  const port = aPort();
  const { repairs, pass } = aRepair(port);
  repairs.note({ queue, lock: lock('lost'), keep: undefined });
  port.held = [{ taskId: task('a'), lock: lock('lost') }];
  port.down = true;
  for (let round = 0; round < 5; round += 1) {
    pass(10_000);
    expect(await repairs.check()).toBe(0);
  }
  port.down = false;
  pass(10_000);
  expect(await repairs.check()).toBe(1);
  expect(port.held).toEqual([]);
  await repairs.close();
});

test('past the limit the oldest is dropped', async () => {
  const { repairs } = aRepair(aPort(), 3);
  for (let count = 0; count < 10; count += 1) repairs.note({ queue, lock: lock(String(count)), keep: undefined });
  expect(repairs.size).toBe(3);
  await repairs.close();
});

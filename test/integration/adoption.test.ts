// Cost of the report of a returning machine: commands and statements do not grow with the attempts that it names.
import { describe, expect } from 'vitest';
import type { ContainerId, MachineId, TaskId } from '#shared/domain/ids.ts';
import { newAttemptToken, newId } from '#shared/domain/ids.ts';
import { commandsOf } from '../helpers/sent-commands.ts';
import { waitFor } from '../helpers/services.ts';
import { liveOf, reaches, sent, submitted } from '../helpers/submissions.ts';
import { aTarget, PlayedLink, rowsAmong } from './tasks-fixture.ts';
import { aQueueTarget, put, rowsOf, test } from './tasks-world.ts';
import type { Options, World } from './tasks-world.ts';

const REPORT = { agentInstance: 'agent-1', sessionEpoch: 2 };

/** Attempts that run, of a process that is gone. */
async function attemptsOf(start: (options?: Options) => Promise<World>, count: number, isSync: boolean) {
  const target = isSync ? aTarget() : aQueueTarget();
  const before = await start();
  const machineId = newId<MachineId>();
  const link = new PlayedLink(machineId);
  const { containerId } = before.container(target.queue, link, count);
  for (let n = 0; n < count; n += 1) await (isSync ? submitted(before, target) : put(before, target));
  await sent(link, count);
  await before.records.flush();
  await before.stop();
  return { target, containerId, machineId, running: link.orders.map(liveOf) };
}

/** A process that counts what it reads and writes of tasks' rows. */
async function counting(start: (options?: Options) => Promise<World>, options: Options = {}) {
  const counts = { running: 0, written: 0 };
  const rows = rowsOf((await start()).db);
  const after = await start({
    ...options,
    rows: {
      ...rows,
      running: (taskIds) => {
        counts.running += 1;
        return rows.running(taskIds);
      },
      write: (records, changes) => {
        counts.written += records.length;
        return rows.write(records, changes);
      },
    },
  });
  return { after, counts, commands: commandsOf(after) };
}

/** Commands that read one key or several. */
const readsIn = (commands: readonly string[]): string[] =>
  commands.filter((name) => ['get', 'mget', 'zrangebylex', 'exists', 'hget'].includes(name));

describe('a report adopts', () => {
  test.for([2, 40])('%i attempts of asynchronous tasks by two commands and a statement', async (count, { start }) => {
    const { target, containerId, machineId, running } = await attemptsOf(start, count, false);
    const { after, counts, commands } = await counting(start);
    const container = after.container(target.queue, new PlayedLink(machineId), count, containerId);
    commands.length = 0;
    expect((await after.reports.machineReported(machineId, { ...REPORT, running })).adopted).toEqual(running);
    // The leases, the locks, and the list of what the machine has beside these.
    expect(readsIn(commands)).toEqual(['mget', 'mget', 'zrangebylex']);
    expect(container.inFlight).toBe(count);
    await after.records.flush();
    expect(counts).toEqual({ running: 1, written: 0 });
  });

  test.for([2, 40])(
    '%i attempts of synchronous tasks by a statement for their rows, and one for their containers',
    async (count, { start }) => {
      const { target, containerId, machineId, running } = await attemptsOf(start, count, true);
      const asked: (readonly ContainerId[])[] = [];
      const { workspaceId, stubId } = target;
      const { after, counts, commands } = await counting(start, {
        more: {
          containersOf: (ids) => {
            asked.push([...ids]);
            return rowsAmong(ids, () => ({ machineId, workspaceId, stubId, deploymentId: null }));
          },
        },
      });
      after.container(target.queue, new PlayedLink(machineId), count, containerId);
      commands.length = 0;
      expect((await after.reports.machineReported(machineId, { ...REPORT, running })).adopted).toEqual(running);
      expect(readsIn(commands)).toEqual(['zrangebylex']);
      expect(asked).toEqual([[containerId]]);
      await after.records.flush();
      expect(counts).toEqual({ running: 1, written: 0 });
    },
  );
});

test.for([2, 40])('%i attempts that an agent does not have go back by three reads', async (count, { start }) => {
  const { target, containerId, machineId, running } = await attemptsOf(start, count, false);
  const { after, commands } = await counting(start, {
    graces: { limitMs: 10_000, reportMs: 50, restartedAgentMs: 50, movedMs: 60_000 },
  });
  let asked = 0;
  const isCurrent = (): Promise<boolean> => {
    asked += 1;
    return Promise.resolve(true);
  };
  commands.length = 0;
  await after.reports.machineReported(machineId, { ...REPORT, running: [], isCurrent });
  const isBack = async () => (await after.queues.depth(target.queue)).waiting === count;
  await waitFor(isBack, 'they wait again');
  // The leases of the machine twice, by its list and then as they are after the grace, and their locks.
  expect(readsIn(commands).filter((name) => name === 'mget')).toHaveLength(3);
  expect(asked).toBe(1);
  const link = new PlayedLink(machineId);
  after.container(target.queue, link, count, containerId);
  await sent(link, count);
  expect(link.orders.map(({ taskId }) => taskId).toSorted()).toEqual(running.map(({ taskId }) => taskId).toSorted());
});

test('an adopted attempt is recorded where no row says that it runs', async ({ start }) => {
  const { target, containerId, machineId, running } = await attemptsOf(start, 1, false);
  const { after, counts } = await counting(start);
  await after.db.query(`update tasks set status = 'PENDING', rank = 0, attempt = 0`);
  after.container(target.queue, new PlayedLink(machineId), 1, containerId);
  await after.reports.machineReported(machineId, { ...REPORT, running });
  await after.records.flush();
  expect(counts.written).toBe(1);
  expect(await reaches(after, running[0]?.taskId as TaskId, 'RUNNING')).toMatchObject({ attempt: 1 });
});

test('a long report is looked up in pages of 500, and what nobody knows is refused', async ({ start }) => {
  const { after, commands } = await counting(start);
  const running = Array.from({ length: 1_001 }, () => ({
    taskId: newId<TaskId>(),
    token: newAttemptToken(),
    containerId: 'c-unknown' as ContainerId,
  }));
  const { adopted, refused } = await after.reports.machineReported(newId<MachineId>(), { ...REPORT, running });
  expect([adopted, refused]).toEqual([[], running]);
  expect(readsIn(commands)).toEqual(['mget', 'mget', 'mget', 'zrangebylex']);
});

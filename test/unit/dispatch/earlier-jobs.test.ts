import { expect, test } from 'vitest';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { EarlierJobs } from '#scheduler/tasks/dispatch/earlier-jobs.ts';

const [here, other] = [newInstanceId(), newInstanceId()];
const KNOWN_MS = 1_000_000;

/** A look whose questions are written down. `had` and `over` are what the replicas and the rows say. */
function aLook() {
  const said = {
    had: new Set<TaskId>() as ReadonlySet<TaskId> | undefined,
    over: [] as readonly TaskId[],
    isComplete: true,
  };
  const asked: (readonly [string, number])[] = [];
  const parts = {
    redisData: { knownSinceMs: KNOWN_MS },
    instance: here,
    whoHas: (taskIds: readonly TaskId[]) => {
      asked.push(['replicas', taskIds.length]);
      return Promise.resolve(said.had);
    },
    records: {
      endedSurely: (taskIds: readonly TaskId[]) => {
        asked.push(['rows', taskIds.length]);
        return Promise.resolve({ over: said.over, isComplete: said.isComplete });
      },
    },
  };
  return { said, asked, parts, earlier: new EarlierJobs(parts) };
}

const fetched = (job: Partial<TaskJob>, starts = 1) => ({
  starts,
  job: { createdAtMs: KNOWN_MS + 1, replica: here, attempts: 0, ...job } as TaskJob,
});

test('a job is new that is fetched first and was made since the data are known; clocks of others may differ', () => {
  const { earlier, parts } = aLook();
  expect(earlier.isNew(fetched({}))).toBe(true);
  expect(earlier.isNew(fetched({}, 2))).toBe(false);
  expect(earlier.isNew(fetched({ attempts: 1 }))).toBe(false);
  expect(earlier.isNew(fetched({ isFromRow: true }))).toBe(false);
  expect(earlier.isNew(fetched({ createdAtMs: KNOWN_MS }))).toBe(false);
  expect(earlier.isNew(fetched({ createdAtMs: KNOWN_MS + 30_000, replica: other }))).toBe(false);
  expect(earlier.isNew(fetched({ createdAtMs: KNOWN_MS + 30_001, replica: other }))).toBe(true);
  const { redisData: _never, ...without } = parts;
  expect(new EarlierJobs(without).isNew(fetched({ createdAtMs: 0 }))).toBe(true);
});

test('tasks of one turn, and those that come during a look, share one question, and rows are read behind it', async () => {
  const { earlier, asked, said } = aLook();
  const [runs, ended, waits] = [newId<TaskId>(), newId<TaskId>(), newId<TaskId>()];
  said.had = new Set([runs]);
  said.over = [ended];
  const looks = [runs, ended, waits].map((taskId) => earlier.look(taskId));
  expect(await Promise.all(looks)).toEqual(['runs', 'ended', 'waits']);
  const first = Array.from({ length: 700 }, () => earlier.look(newId<TaskId>()));
  expect(new Set(await Promise.all(first))).toEqual(new Set(['waits']));
  expect(asked).toEqual([
    ['replicas', 3],
    ['rows', 3],
    ['replicas', 500],
    ['rows', 500],
    ['replicas', 200],
    ['rows', 200],
  ]);
});

test('nobody can tell while a replica does not answer, or a record may be on its way; an end is told all the same', async () => {
  const { earlier, asked, said } = aLook();
  const [ended, other] = [newId<TaskId>(), newId<TaskId>()];
  said.had = undefined;
  expect(await earlier.look(ended)).toBe('unknown');
  expect(asked).toEqual([['replicas', 1]]);
  said.had = new Set();
  said.over = [ended];
  said.isComplete = false;
  expect(await Promise.all([earlier.look(ended), earlier.look(other)])).toEqual(['ended', 'unknown']);
});

test('a look that fails fails for its tasks alone', async () => {
  const { parts, said } = aLook();
  let fails = true;
  const { endedSurely } = parts.records;
  const earlier = new EarlierJobs({
    ...parts,
    records: {
      endedSurely: (taskIds) => (fails ? Promise.reject(new Error('the database is away')) : endedSurely(taskIds)),
    },
  });
  await expect(earlier.look(newId<TaskId>())).rejects.toThrow('away');
  fails = false;
  said.isComplete = true;
  expect(await earlier.look(newId<TaskId>())).toBe('waits');
});

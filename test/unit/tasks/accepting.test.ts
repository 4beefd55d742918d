import { expect, test } from 'vitest';
import type { AcceptedTask } from '#scheduler/stores/store/queries/tasks.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import { Commits, GroupCommit } from '#scheduler/tasks/admission/accepting.ts';

const aTask = (name: string): AcceptedTask => ({
  record: {} as AcceptedTask['record'],
  job: name,
  owner: newInstanceId(),
});
/** Writes when the test says so, and keeps what it was given. */
class PlayedDatabase {
  readonly batches: string[][] = [];
  readonly #answers: { resolve: () => void; reject: (error: Error) => void }[] = [];
  readonly write = (tasks: readonly AcceptedTask[]): Promise<void> => {
    this.batches.push(tasks.map((task) => task.job));
    return new Promise((resolve, reject) => this.#answers.push({ resolve, reject }));
  };
  commits(): void {
    this.#answers.shift()?.resolve();
  }
  fails(): void {
    this.#answers.shift()?.reject(new Error('not written'));
  }
}
const aTurn = () => new Promise((resolve) => setImmediate(resolve));

test('tasks of one turn are committed together, those that come meanwhile with the next commit', async () => {
  const database = new PlayedDatabase();
  const group = new GroupCommit(database.write);
  const first = [group.commit(aTask('a')), group.commit(aTask('b'))];
  await aTurn();
  const second = [group.commit(aTask('c')), group.commit(aTask('d'))];
  await aTurn();
  expect(database.batches).toEqual([['a', 'b']]);
  database.commits();
  await Promise.all(first);
  await aTurn();
  expect(database.batches).toEqual([
    ['a', 'b'],
    ['c', 'd'],
  ]);
  database.commits();
  await Promise.all(second);
});

test('a commit that fails is told to those it was for, and to nobody else', async () => {
  const database = new PlayedDatabase();
  const group = new GroupCommit(database.write);
  const first = group.commit(aTask('a'));
  await aTurn();
  const second = group.commit(aTask('b'));
  database.fails();
  await expect(first).rejects.toThrow('not written');
  await aTurn();
  database.commits();
  await second;
  const third = group.commit(aTask('c'));
  await aTurn();
  database.commits();
  await third;
});

test('a database that does not answer is waited for by so many and no more', async () => {
  const database = new PlayedDatabase();
  const group = new GroupCommit(database.write, 2);
  const first = group.commit(aTask('a'));
  await aTurn();
  const waiting = [group.commit(aTask('b')), group.commit(aTask('c'))];
  await expect(group.commit(aTask('d'))).rejects.toMatchObject({ code: 'database_unavailable' });
  database.commits();
  await first;
  await aTurn();
  database.commits();
  await Promise.all(waiting);
});

test('a commit that does not come back refuses others after two seconds, until it ends', async () => {
  let nowMs = 0;
  const stalled = Promise.withResolvers<void>();
  const commits = new Commits({ accepting: { commit: () => stalled.promise }, nowMs: () => nowMs });
  const first = commits.commit(aTask('a'), undefined);
  nowMs = 1_000;
  const second = commits.commit(aTask('b'), undefined);
  nowMs = 1_999;
  expect(commits.isStalled()).toBe(false);
  nowMs = 2_000;
  expect(commits.isStalled()).toBe(true);
  stalled.reject(new Error('the database is away'));
  await Promise.allSettled([first, second]);
  expect(commits.isStalled()).toBe(false);
});

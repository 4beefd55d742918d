import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { Filtered } from '../../../agent/containers/address-updates.ts';
import { AddressUpdates } from '../../../agent/containers/address-updates.ts';

interface World {
  readonly updates: AddressUpdates;
  readonly ran: string[];
  readonly serving: Filtered[];
  /** Ends of programs that run, by pause container. */
  readonly ends: Map<string, (exitCode: number) => void>;
  closed: string;
}

function world(...ids: readonly string[]): World {
  const ran: string[] = [];
  const ends = new Map<string, (exitCode: number) => void>();
  const serving = ids.map((dockerId): Filtered => ({ dockerId, closed: 'a', tables: ['inet'] }));
  const self: World = {
    ran,
    ends,
    serving,
    closed: 'a',
    updates: new AddressUpdates({
      runtime: {
        exec: (dockerId) => {
          ran.push(dockerId);
          return new Promise((resolve) => ends.set(dockerId, (exitCode) => resolve({ exitCode, output: '' })));
        },
        watchNetworks: () => Promise.resolve(),
      },
      log: createLog({ name: 'test', level: 'silent' }),
      closedNow: () => self.closed,
      serving: () => serving,
      update: () => 'text',
    }),
  };
  return self;
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('filters that are up to date are left alone', async () => {
  const { updates, ran } = world('one');
  await updates.look();
  expect(ran).toEqual([]);
});

test('a look during another is one more round, and two filters are updated at once', async () => {
  const self = world('one', 'two', 'three');
  self.closed = 'b';
  const looking = self.updates.look();
  expect(self.ran).toEqual(['one', 'two']);
  self.closed = 'c';
  const again = Promise.all([self.updates.look(), self.updates.look()]);
  for (const dockerId of ['one', 'two', 'three', 'one', 'two', 'three']) {
    await expect.poll(() => self.ends.has(dockerId)).toBe(true);
    self.ends.get(dockerId)?.(0);
    self.ends.delete(dockerId);
    await settled();
  }
  await Promise.all([looking, again]);
  expect(self.ran).toHaveLength(6);
  expect(self.serving.map(({ closed }) => closed)).toEqual(['c', 'c', 'c']);
});

test('a filter that could not be updated is behind until a look succeeds', async () => {
  const self = world('one');
  self.closed = 'b';
  for (const [exitCode, closed] of [
    [1, 'a'],
    [0, 'b'],
  ] as const) {
    const looking = self.updates.look();
    self.ends.get('one')?.(exitCode);
    await looking;
    expect(self.serving[0]?.closed).toBe(closed);
  }
});

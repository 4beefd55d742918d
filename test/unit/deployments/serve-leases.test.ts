// Leases of development servers: who is served, how many a workspace may have, and what is told when one is over.
import { describe, expect, test } from 'vitest';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { StubConfig } from '../../../scheduler/domain/stub-config.ts';
import type { ServeLease } from '../../../scheduler/stores/queues/serve-leases.ts';
import { ServeLeases } from '../../../scheduler/workspaces/deployments/serve-leases.ts';
import { createLog } from '#shared/log.ts';

const workspaceId = 'w' as WorkspaceId;
const stub = (name: string): StubId => name as StubId;
const target = (name: string, stubType = 'endpoint/serve') => ({
  stubId: stub(name),
  config: { stubType } as StubConfig,
});

/** Replicas that share one store and one bus. */
function replicas(count: number) {
  const stored = new Map<string, ServeLease>();
  const handlers: ((message: unknown) => void)[] = [];
  const clock = { now: 1_000_000, nowMs: () => clock.now, monotonicMs: () => clock.now };
  const over: string[] = [];
  const changed: string[] = [];
  const all = Array.from({ length: count }, (_, index) => {
    const leases = new ServeLeases({
      store: {
        all: async () => [...stored.values()],
        write: async (lease) => void stored.set(lease.stubId, lease),
        remove: async ({ stubId }) => stored.delete(stubId),
      },
      bus: {
        on: (_channel, handler) => void handlers.push(handler),
        onGap: () => undefined,
        publish: (_channel, message) => handlers.forEach((handler) => handler(message)),
      },
      channel: 'leases',
      isLeader: () => index === 0,
      clock,
      log: createLog({ name: 'test', level: 'silent' }),
      mostOfWorkspace: 2,
      lookMs: 5,
    });
    leases.onOver((queue) => over.push(queue));
    leases.onChange((queue) => changed.push(`${index} ${queue}`));
    return leases;
  });
  return { all, clock, over, changed, stored };
}

const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 60));

describe('leases of development servers', () => {
  test('are known at every replica at once; others of the stub types are no concern', async () => {
    const { all } = replicas(2);
    const [one, two] = all;
    expect(two?.refusal(target('a'))).toMatch(/longshore serve/);
    expect(await one?.renew(workspaceId, stub('a'), 60)).toEqual({ kind: 'began' });
    expect(await two?.renew(workspaceId, stub('a'), 60)).toEqual({ kind: 'renewed' });
    expect(two?.refusal(target('a'))).toBeUndefined();
    expect(two?.refusal(target('b', 'endpoint/deployment'))).toBeUndefined();
    expect([...(two?.queues() ?? [])]).toEqual([queueNameOf(null, stub('a'))]);
  });

  test('are as many as the workspace may have; renewals count once, other workspaces not', async () => {
    const { all } = replicas(1);
    const [one] = all;
    for (const name of ['a', 'b', 'a']) await one?.renew(workspaceId, stub(name), 60);
    expect(await one?.renew(workspaceId, stub('c'), 60)).toEqual({ kind: 'full', most: 2 });
    expect(await one?.renew('other' as WorkspaceId, stub('d'), 60)).toEqual({ kind: 'began' });
    expect(await one?.end(workspaceId, stub('a'))).toBe(true);
    expect(await one?.renew(workspaceId, stub('c'), 60)).toEqual({ kind: 'began' });
  });

  test('that run out are told once, by the leader; those that end are told once, too', async () => {
    const { all, clock, over, changed, stored } = replicas(2);
    const [one, two] = all;
    await Promise.all(all.map((leases) => leases.start()));
    await two?.renew(workspaceId, stub('a'), 60);
    await two?.renew(workspaceId, stub('b'), 600);
    const [a, b] = [queueNameOf(null, stub('a')), queueNameOf(null, stub('b'))];
    expect(changed.toSorted()).toEqual([`0 ${a}`, `0 ${b}`, `1 ${a}`, `1 ${b}`]);
    clock.now += 61_000;
    await soon();
    expect(over).toEqual([a]);
    expect([one?.isServed(stub('a')), two?.isServed(stub('a')), two?.isServed(stub('b'))]).toEqual([
      false,
      false,
      true,
    ]);
    expect(await two?.end(workspaceId, stub('b'))).toBe(true);
    expect(await one?.end(workspaceId, stub('b'))).toBe(false);
    expect(over).toEqual([a, b]);
    expect(stored.size).toBe(0);
    all.forEach((leases) => leases.stop());
  });

  test('are read at a start', async () => {
    const { all, stored } = replicas(1);
    stored.set('a', { workspaceId, stubId: stub('a'), untilMs: 1_010_000 });
    await all[0]?.start();
    expect(all[0]?.isServed(stub('a'))).toBe(true);
    all[0]?.stop();
  });
});

import { expect, test } from 'vitest';
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import { Access } from '#scheduler/fleet/inside/access.ts';
import type { Waited } from '#scheduler/fleet/containers/waits.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';

test('a workspace has so many callers who wait for its containers, and others still come', async () => {
  const running: ((waited: Waited) => void)[] = [];
  const access = new Access({
    waits: {
      find: async (id) =>
        ({
          id: id as ContainerId,
          workspaceId: id.slice(0, 2) as WorkspaceId,
          machineId: 'm',
        }) as unknown as ContainerRow,
      waitUntilRunning: () => new Promise((resolve) => running.push(resolve)),
    },
    mostWaiting: 2,
  });
  const reach = (id: string): Promise<unknown> => access.reach(id, { workspaceId: null, withinMs: 1000 });
  const first = reach('w1-a');
  void reach('w1-b');
  await expect.poll(() => running.length).toBe(2);
  await expect(reach('w1-a')).rejects.toMatchObject({ code: 'too_many_connections' });
  void reach('w2-a');
  await expect.poll(() => running.length).toBe(3);
  running[0]?.({ ok: false, why: 'ended', reason: 'it has ended' });
  await expect(first).rejects.toThrow('it has ended');
  void reach('w1-a');
  await expect.poll(() => running.length).toBe(4);
});

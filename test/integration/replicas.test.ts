// Several scheduler processes on one Postgres and one Redis: answers, decisions, caches and what a dead one leaves, with agents that speak the real protocol.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import type { Replica } from '../helpers/replicas.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface Two {
  readonly set: ReplicaSet;
  /** No machine is linked to it. */
  readonly far: Replica;
  /** All machines are linked to it. */
  readonly near: Replica;
}

const test = base.extend('two', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<Two> => {
  const set = new ReplicaSet(postgres, redis);
  onCleanup(() => set.stop());
  const far = await set.add();
  const near = await set.add();
  for (let n = 0; n < 2; n += 1) await set.agent({ addresses: () => [near.agentAddress] });
  return { set, far, near };
});

test('a call at one replica runs on a machine linked to another, and is answered', async ({ two }) => {
  const { set, far, near } = two;
  const app = await set.deploy(far, 'crossing');
  const answer = await set.call(far, app.path, { body: { n: 1 } });
  expect(answer.status, answer.text).toBe(200);
  expect(jsonOf(answer)).toMatchObject({ n: 1, machineId: expect.any(String) });
  const local = await set.call(near, app.path, { body: { n: 2 } });
  expect(jsonOf(local)).toMatchObject({ n: 2 });
  await waitFor(async () => {
    const task = await set.call(far, `/api/v1/task/${set.workspaceId}/${answer.taskId}`);
    return jsonOf(task)['status'] === 'COMPLETE';
  }, 'the task is COMPLETE in the records');
});

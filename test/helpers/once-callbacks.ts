// A story of a task's callback whose receiver refuses it once, while statements meet faults. The callback arrives, and
// again only where a fault was met; it says the same each time, under the same id.
import assert from 'node:assert/strict';
import { systemClock } from '#shared/clock.ts';
import { AddressRules } from '#shared/address-rules.ts';
import { newId } from '#shared/domain/ids.ts';
import type { DeliveryId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { deliveriesOfSubject, insertDeliveries } from '#scheduler/stores/store/queries/deliveries.ts';
import { upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { taskCallbacks } from '#scheduler/tasks/webhooks/callbacks.ts';
import { Deliveries } from '#scheduler/tasks/webhooks/deliveries.ts';
import { DeliveryMetrics } from '#scheduler/tasks/webhooks/metrics.ts';
import { Poster } from '#scheduler/tasks/webhooks/post.ts';
import { aRecord, aWorkspace, silent } from '../integration/store-fixture.ts';
import { DoubtfulDb } from './doubtful-db.ts';
import type { Doubt } from './doubtful-db.ts';
import { waitFor } from './programs.ts';
import { Receiver } from './receiver.ts';

/** Statements of a callback's two tries, and one more. */
export const CALLBACK_STATEMENTS = 6;
const LOOPBACK = '127.0.0.0/8';
const WAIT_MS = 20_000;

/** A callback whose receiver fails at first. @returns the number of faults that were met */
export async function playCallbackStory(real: Db, next: () => Doubt | undefined): Promise<number> {
  const rules = AddressRules.read(LOOPBACK);
  if (!(rules instanceof AddressRules)) throw new Error(rules.wrong);
  const receiver = await new Receiver().start();
  receiver.replies.set('/end', [503, 200]);
  const db = new DoubtfulDb(real, next);
  const callbacks = taskCallbacks({
    db,
    clock: systemClock,
    signingKeyOf: () => Promise.resolve('key'),
    loadResult: () => Promise.resolve(undefined),
  });
  const deliveries = new Deliveries({
    db,
    poster: new Poster(rules, { answerMs: 5_000, wholeMs: 10_000 }),
    kinds: { task_callback: { ...callbacks, policy: { ...callbacks.policy, baseMs: 5 } } },
    metrics: new DeliveryMetrics(new Registry()),
    clock: systemClock,
    log: silent,
  });
  const { id: workspaceId } = await aWorkspace(real);
  const record = { ...aRecord({ workspaceId, status: 'COMPLETE', rank: 3, attempt: 1 }), result: '"done"' };
  const delivery = {
    id: newId<DeliveryId>(),
    workspaceId,
    kind: 'task_callback',
    subject: record.taskId,
    event: 'COMPLETE',
    url: receiver.url('/end'),
  };
  const rowOf = async () => (await deliveriesOfSubject(real, workspaceId, record.taskId, 2))[0];
  try {
    await upsertTaskRecords(real, [record]);
    await insertDeliveries(real, [delivery]);
    await waitFor(
      async () => {
        if ((await rowOf())?.dueAtMs === null) return true;
        // A claim whose process died or gave up lapses, as after two minutes; a retry need not wait.
        await real.query('update deliveries set due_at = now() where id = $1 and due_at > now()', [delivery.id]);
        await deliveries.look().catch(() => undefined);
        await db.letGo();
        return false;
      },
      'the callback is over',
      WAIT_MS,
    );
    await db.letGo();
    assert.equal((await rowOf())?.state, 'delivered');
    const requests = receiver.at('/end');
    assert.ok(requests.length >= 2 && requests.length <= 2 + db.met, `${requests.length} requests`);
    for (const { body, headers } of requests) {
      assert.equal(body, '{"data":"done"}');
      assert.equal(headers['x-task-id'], record.taskId);
    }
    return db.met;
  } finally {
    await deliveries.stop();
    await receiver.stop();
  }
}

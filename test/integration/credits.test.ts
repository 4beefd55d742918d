// Charges of requests to models, on a real Redis and a real Postgres: refusals before any work, one row for a request,
// and balances that equal grants less costs, whatever dies between.
import { expect } from 'vitest';
import { CreditAccounts } from '#scheduler/workspaces/credits/accounts.ts';
import { silent } from './store-fixture.ts';
import { aRequest, aWorkspaceId, test, usage } from './credits-fixture.ts';

test('a prepaid workspace is refused when its credits, less what is held, do not cover the most', async ({ world }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  await world.change(workspace, { mode: 'prepaid' });
  const refused = { kind: 'refused', code: 'insufficient_credits', message: expect.stringContaining('credit grant') };
  expect(await charges.reserve(aRequest(workspace))).toEqual(refused);
  await world.grant(workspace, 250);
  const [first, second, third] = [aRequest(workspace), aRequest(workspace), aRequest(workspace)];
  expect(await charges.reserve(first)).toEqual({ kind: 'admitted' });
  expect(await charges.reserve(second)).toEqual({ kind: 'admitted' });
  expect(await charges.reserve(third)).toEqual(refused);
  // The first gives its hold back, and the second costs less than was held.
  await charges.release(first.requestId);
  await charges.settle(second.requestId, usage(10, 20), 'complete');
  expect(await charges.reserve(third)).toEqual({ kind: 'admitted' });
  await charges.settle(third.requestId, usage(10, 45), 'complete');
  expect(await charges.reserve(aRequest(workspace))).toEqual({ kind: 'admitted' });
  // Costs count before the database has them.
  expect(await charges.reserve(aRequest(workspace))).toEqual(refused);
  await world.drain();
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: 100, spentMicros: 150 });
  expect(await world.book.sums(workspace)).toEqual({ pendingMicros: 0, heldMicros: 100 });
});

test('requests at the same moment never hold more than the balance', async ({ world }) => {
  const workspace = aWorkspaceId();
  await world.change(workspace, { mode: 'prepaid' });
  await world.grant(workspace, 1_050);
  const [first, second] = [world.aReplica(), world.aReplica()];
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, at) => (at % 2 === 0 ? first : second).reserve(aRequest(workspace))),
  );
  expect(answers.filter(({ kind }) => kind === 'admitted')).toHaveLength(10);
});

test('a free request is never refused, and has a row without a cost', async ({ world }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  await world.change(workspace, { mode: 'prepaid', spendLimitMicros: 0 });
  const request = aRequest(workspace, { isCharged: false });
  expect(await charges.reserve(request)).toEqual({ kind: 'admitted' });
  await charges.settle(request.requestId, usage(3, 4), 'complete');
  await world.drain();
  expect(await world.rows(workspace)).toMatchObject([{ prompt_tokens: 3, completion_tokens: 4, cost_micros: 0 }]);
});

test('a postpaid workspace is refused only by its spend limit of the month', async ({ world }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const [first, second] = [aRequest(workspace), aRequest(workspace)];
  expect(await charges.reserve(first)).toEqual({ kind: 'admitted' });
  await world.change(workspace, { spendLimitMicros: 150 });
  expect(await charges.reserve(second)).toMatchObject({ code: 'spend_limit_reached' });
  await charges.settle(first.requestId, usage(10, 5), 'complete');
  expect(await charges.reserve(second)).toEqual({ kind: 'admitted' });
  await charges.settle(second.requestId, usage(10, 45), 'complete');
  await world.drain();
  expect(await charges.reserve(aRequest(workspace))).toMatchObject({ code: 'spend_limit_reached' });
  // Costs of an earlier month count no longer.
  await world.client.hset(world.keys.creditAccount(workspace), 'month', '2020-01');
  expect(await charges.reserve(aRequest(workspace))).toEqual({ kind: 'admitted' });
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: -120, spentMicros: 120 });
});

test('settling again changes nothing, and neither does draining again', async ({ world }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const request = aRequest(workspace);
  await charges.reserve(request);
  const settling = () => charges.settle(request.requestId, usage(10, 10), 'complete');
  await Promise.all([settling(), settling()]);
  await settling();
  await charges.release(request.requestId);
  const streamed = await world.book.oldest(10);
  expect(streamed).toHaveLength(1);
  // A leader that died between its commit and the removal drains the same entries again.
  await world.drain();
  await world.client.xadd(world.keys.creditLedger, '*', 'entry', streamed[0]?.text ?? '');
  await world.client.hincrby(world.keys.creditAccount(workspace), 'pending', 30);
  await Promise.all([world.drain(), world.drain()]);
  expect(await world.rows(workspace)).toMatchObject([{ status: 'complete', cost_micros: 30 }]);
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: -30, spentMicros: 30 });
  expect(await world.book.sums(workspace)).toEqual({ pendingMicros: 0, heldMicros: 0 });
});

test('a request whose replica died is settled with the usage noted last; free when it had said nothing', async ({
  world,
}) => {
  const workspace = aWorkspaceId();
  const dead = world.aReplica();
  const [spoken, silent] = [aRequest(workspace), aRequest(workspace)];
  await dead.reserve(spoken);
  await dead.reserve(silent);
  dead.progress(spoken.requestId, usage(10, 7));
  await dead.renew();
  dead.progress(spoken.requestId, usage(10, 40));
  expect(await world.loseHolds([])).toBe(0);
  expect(await world.loseHolds([spoken.requestId])).toBe(1);
  expect(await world.loseHolds([silent.requestId])).toBe(1);
  await world.drain();
  expect(await world.rows(workspace)).toMatchObject([
    { request_id: spoken.requestId, status: 'lost', completion_tokens: 7, cost_micros: 24 },
    { request_id: silent.requestId, status: 'lost', completion_tokens: 0, cost_micros: 0 },
  ]);
  expect(await world.book.sums(workspace)).toEqual({ pendingMicros: 0, heldMicros: 0 });
});

test('a replica that was taken for dead replaces the lost row with what its caller was told', async ({ world }) => {
  const workspace = aWorkspaceId();
  const slow = world.aReplica();
  const request = aRequest(workspace);
  await slow.reserve(request);
  slow.progress(request.requestId, usage(10, 5));
  await slow.renew();
  await world.loseHolds();
  await world.drain();
  await slow.settle(request.requestId, usage(10, 30), 'complete');
  await world.drain();
  expect(await world.rows(workspace)).toMatchObject([{ status: 'complete', completion_tokens: 30, cost_micros: 70 }]);
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: -70, spentMicros: 70 });
});

test('an emptied Redis loses no settled request of a living replica, and its holds come back', async ({ world }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  await world.change(workspace, { mode: 'prepaid' });
  await world.grant(workspace, 250);
  const [settled, open] = [aRequest(workspace), aRequest(workspace)];
  await charges.reserve(settled);
  await charges.reserve(open);
  await charges.settle(settled.requestId, usage(10, 20), 'complete');
  await world.client.flushall();
  await charges.redisLost();
  expect(await charges.reserve(aRequest(workspace))).toEqual({ kind: 'admitted' });
  expect(await charges.reserve(aRequest(workspace))).toMatchObject({ code: 'insufficient_credits' });
  await world.drain();
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: 200 });
  expect(await world.book.sums(workspace)).toEqual({ pendingMicros: 0, heldMicros: 200 });
});

test('entries that a Redis lost are put back once it takes them', async ({ world, redis }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const request = aRequest(workspace);
  await charges.reserve(request);
  await charges.settle(request.requestId, usage(10, 20), 'complete');
  await world.client.del(world.keys.creditLedger);
  await redis.crash();
  const putBack = charges.redisLost();
  await redis.restart();
  await putBack;
  await world.drain();
  expect(await world.rows(workspace)).toMatchObject([{ prompt_tokens: 10, completion_tokens: 20 }]);
});

test('what is left is the balance less holds and costs on their way; while Redis is away, the balance', async ({
  world,
  redis,
}) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const accounts = new CreditAccounts({
    db: world.db,
    book: world.book,
    events: { transaction: () => Promise.reject(new Error('nothing is changed here')) },
    drainSoon: () => undefined,
    clock: { nowMs: () => Date.now() },
    log: silent,
  });
  await world.grant(workspace, 500);
  expect(await accounts.left(workspace)).toEqual({ mode: 'postpaid', leftMicros: 500 });
  await world.change(workspace, { mode: 'prepaid' });
  const [ended, open] = [aRequest(workspace), aRequest(workspace)];
  await charges.reserve(ended);
  await charges.reserve(open);
  await charges.settle(ended.requestId, usage(10, 20), 'complete');
  expect(await accounts.left(workspace)).toEqual({ mode: 'prepaid', leftMicros: 500 - 50 - 100 });
  await redis.crash();
  expect(await accounts.left(workspace)).toEqual({ mode: 'prepaid', leftMicros: 500 });
  await redis.restart();
  await expect.poll(() => world.client.status, { timeout: 10_000 }).toBe('ready');
  await charges.release(open.requestId);
  await world.drain();
});

test('an entry that Redis does not take goes to the database, once', async ({ world, redis }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const request = aRequest(workspace);
  await charges.reserve(request);
  await redis.crash();
  await expect(charges.reserve(aRequest(workspace))).rejects.toMatchObject({ code: 'queues_unavailable' });
  await charges.settle(request.requestId, usage(10, 10), 'complete');
  expect(await world.rows(workspace)).toMatchObject([{ status: 'complete', cost_micros: 30 }]);
  await redis.restart();
  await expect.poll(() => world.client.status, { timeout: 10_000 }).toBe('ready');
  // The hold survived, and lapses: its entry changes nothing.
  await world.loseHolds();
  await world.drain();
  expect(await world.rows(workspace)).toMatchObject([{ status: 'complete', cost_micros: 30 }]);
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: -30 });
  expect(await world.book.sums(workspace)).toEqual({ pendingMicros: 0, heldMicros: 0 });
});

test('entries survive the deaths of Redis and of Postgres, and are drained when both are back', async ({
  world,
  redis,
  postgres,
}) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const requests = Array.from({ length: 20 }, () => aRequest(workspace));
  for (const request of requests) await charges.reserve(request);
  await postgres.crash();
  await Promise.all(requests.map(({ requestId }) => charges.settle(requestId, usage(5, 5), 'complete')));
  await expect(world.drain()).rejects.toThrow();
  await redis.crash();
  await redis.restart();
  await postgres.restart();
  await expect.poll(() => world.drain().then(() => 'drained', String), { timeout: 30_000 }).toBe('drained');
  expect(await world.rows(workspace)).toHaveLength(20);
  expect(await world.account(workspace)).toMatchObject({ balanceMicros: -300 });
});

test('nothing is admitted while too many entries wait, and an unreadable one holds up no other', async ({ world }) => {
  const workspace = aWorkspaceId();
  const charges = world.aReplica();
  const pipeline = world.client.pipeline();
  for (let count = 0; count < 9_999; count++) pipeline.xadd(world.keys.creditLedger, '*', 'entry', '{');
  await pipeline.exec();
  const request = aRequest(workspace);
  expect(await charges.reserve(request)).toEqual({ kind: 'admitted' });
  await charges.settle(request.requestId, usage(1, 1), 'complete');
  await expect(charges.reserve(aRequest(workspace, { isCharged: false }))).rejects.toMatchObject({
    code: 'ledger_behind',
  });
  await world.client.xtrim(world.keys.creditLedger, 'MAXLEN', 3);
  await world.drain();
  expect(await world.rows(workspace)).toHaveLength(1);
  expect(await world.client.xlen(world.keys.creditLedgerAside)).toBe(2);
  expect(await charges.reserve(aRequest(workspace))).toEqual({ kind: 'admitted' });
});

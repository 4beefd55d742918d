// Calls to models are let in by their number and by the tokens that they reserve.
import { expect } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { ReservedTokens } from '#scheduler/cluster/reserved-tokens.ts';
import { waitFor } from '../helpers/services.ts';
import { sent } from '../helpers/submissions.ts';
import { PlayedLink, aTarget } from './tasks-fixture.ts';
import { test } from './tasks-started.ts';

const llm = { modelId: '', engine: '', servedModelName: '', tokenizer: '', sloTier: '', metricsPath: '/metrics' };
const serving = { protocol: 'openai', llm: { ...llm, contextLength: 1000 } } as const;
const call = (tokens: number) => ({ input: '{}', serving: { tokens, tokensPerStream: 1000, prefers: 'h' } });

test('tokens above the bound are refused until calls end; other calls and a lone long one are let in', async ({
  start,
}) => {
  const reservedTokens = new ReservedTokens({ bus: ALONE, channel: 'decide', instance: newInstanceId() });
  const one = await start({ more: { reservedTokens } });
  // At most three tasks, and three thousand tokens.
  const target = aTarget({ maxPendingTasks: 3, serving });
  const link = new PlayedLink();
  const container = one.container(target.queue, link, 3);
  const first = await one.submissions.submit(target, call(2500));
  expect(await one.submissions.submit(target, call(600))).toEqual({ kind: 'queue_full', maxPendingTasks: 3 });
  expect(await one.registry.metrics()).toContain('quota_throttles_total{resource="reserved_tokens"} 1');
  expect(await one.submissions.submit(target, call(500))).toMatchObject({ kind: 'accepted' });
  expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ kind: 'accepted' });
  // Every slot is taken, so the next call can only wait.
  const orders = await Promise.all([sent(link, 1), sent(link, 2), sent(link, 3)]);
  // The bound on tasks holds for calls to models, too, and a refused one reserves nothing.
  expect(await one.submissions.submit(target, call(0))).toMatchObject({ kind: 'queue_full' });
  expect(reservedTokens.of(target.queue)).toBe(3000);
  await waitFor(() => container.inFlight === 3 && container.tokens === 3000, 'the container counts three');
  for (const order of orders) await one.result(order);
  if (first.kind === 'accepted') await first.finished;
  await waitFor(() => reservedTokens.of(target.queue) === 0, 'nothing is reserved any more');
  await waitFor(() => container.inFlight === 0, 'every slot is free');
  expect(container.tokens).toBe(0);
  expect(await one.submissions.submit(target, call(9000))).toMatchObject({ kind: 'accepted' });
  // Without settings of the stub, the model's own context counts.
  const plain = aTarget({ maxPendingTasks: 3 });
  const long = (tokens: number) => ({ input: '{}', serving: { tokens, tokensPerStream: 100_000 } });
  expect(await one.submissions.submit(plain, long(200_000))).toMatchObject({ kind: 'accepted' });
  expect(await one.submissions.submit(plain, long(100_001))).toMatchObject({ kind: 'queue_full' });
  expect(await one.submissions.submit(plain, long(100_000))).toMatchObject({ kind: 'accepted' });
});

// Rates of requests to models on a real Redis: what is told in headers, who waits and how long, and corrections.
import { describe, expect } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { DEFAULT_WORKSPACE_LIMITS } from '#scheduler/workspaces/identity/limits.ts';
import { InferenceRates, durationText } from '#scheduler/workspaces/identity/inference-rates.ts';
import type { RateTaken } from '#scheduler/workspaces/identity/inference-rates.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface World {
  readonly ratesOf: (requests: number | null, tokens: number | null) => InferenceRates;
  readonly workspace: WorkspaceId;
  readonly limited: string[];
  /** Lets time pass, as the kept rates see it. */
  readonly pass: (ms: number) => Promise<void>;
}

const test = base.extend('world', async ({ redis }, { onCleanup }): Promise<World> => {
  const client = redis.connect({ enableOfflineQueue: false, maxRetriesPerRequest: 1 });
  await waitFor(async () => client.status === 'ready', 'the client is connected');
  onCleanup(() => client.disconnect());
  const keys = keysOf(`i${newId().slice(0, 8)}`);
  const workspace = newId<WorkspaceId>();
  const limited: string[] = [];
  const ratesOf = (requests: number | null, tokens: number | null) =>
    new InferenceRates({
      redis: client,
      keys,
      limits: {
        of: () => ({
          ...DEFAULT_WORKSPACE_LIMITS,
          rate: {
            ...DEFAULT_WORKSPACE_LIMITS.rate,
            inference_per_minute: requests,
            inference_tokens_per_minute: tokens,
          },
        }),
      },
      onLimited: (limit) => limited.push(limit),
    });
  const pass = async (ms: number) => void (await client.hincrbyfloat(keys.inferenceRate(workspace), 'at', String(-ms)));
  return { ratesOf, workspace, limited, pass };
});

test('requests are told their rates, and those above one to wait', async ({ world }) => {
  const rates = world.ratesOf(2, null);
  const first = await rates.take(world.workspace, 1_000);
  expect(first).toMatchObject({
    kind: 'taken',
    headers: { 'x-ratelimit-limit-requests': '2', 'x-ratelimit-remaining-requests': '1' },
  });
  expect(Object.keys(first.headers)).toHaveLength(3);
  await rates.take(world.workspace, 1_000);
  const third = await rates.take(world.workspace, 1_000);
  expect(third).toMatchObject({
    kind: 'limited',
    which: 'requests',
    message: expect.stringContaining('2 requests'),
    headers: { 'x-ratelimit-remaining-requests': '0' },
  });
  expect(world.limited).toEqual(['inference']);
  expect(third.kind === 'limited' ? third.retryAfterMs : 0).toBeLessThanOrEqual(30_000);
  await world.pass(30_000);
  expect((await rates.take(world.workspace, 1_000)).kind).toBe('taken');
});

test('tokens are taken at the begin and corrected at the end, once', async ({ world }) => {
  const rates = world.ratesOf(null, 1_000);
  const taken = (await rates.take(world.workspace, 900)) as RateTaken;
  expect(taken.headers['x-ratelimit-remaining-tokens']).toBe('100');
  expect(await rates.take(world.workspace, 500)).toMatchObject({ kind: 'limited', which: 'tokens' });
  taken.used(100);
  taken.used(0);
  await expect
    .poll(async () => (await rates.take(world.workspace, 0)).headers['x-ratelimit-remaining-tokens'])
    .toMatch(/^9\d\d$/);
  expect((await rates.take(world.workspace, 500)).kind).toBe('taken');
  expect(world.limited).toEqual(['inference_tokens']);
});

test('tokens beyond those reserved are owed, and a request larger than a minute waits for a full one', async ({
  world,
}) => {
  const rates = world.ratesOf(null, 1_000);
  const taken = (await rates.take(world.workspace, 50_000)) as RateTaken;
  expect(taken.headers['x-ratelimit-remaining-tokens']).toBe('0');
  taken.used(1_500);
  await expect
    .poll(async () => {
      const next = await rates.take(world.workspace, 1);
      return next.kind === 'limited' ? next.retryAfterMs : 0;
    })
    .toBeGreaterThan(25_000);
  await world.pass(90_000);
  expect((await rates.take(world.workspace, 50_000)).kind).toBe('taken');
});

test('without limits, and without Redis, every request is taken', async ({ world, redis }) => {
  expect(await world.ratesOf(null, null).take(world.workspace, 1)).toMatchObject({ kind: 'taken', headers: {} });
  const rates = world.ratesOf(1, 1);
  await redis.crash();
  for (let count = 0; count < 3; count++)
    expect(await rates.take(world.workspace, 5)).toMatchObject({ kind: 'taken', headers: {} });
  await redis.restart();
});

describe('durations', () => {
  test.for([
    [0, '0ms'],
    [12, '12ms'],
    [1_000, '1s'],
    [1_500, '1.5s'],
    [360_000, '6m0s'],
    [90_250, '1m30.25s'],
  ] as const)('%i ms', ([ms, text]) => {
    expect(durationText(ms)).toBe(text);
  });
});

import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { RollCall } from '#scheduler/stores/queues/roll-call.ts';

const [here, other] = [newInstanceId(), newInstanceId()];

function aRollCall(mostMs: number) {
  const data = {
    generation: 3,
    isSure: true,
    isSameServer: false,
    server: 'run.history',
    brokenAtMs: -Infinity,
    lostAtMs: 1_000_000,
    willSay: true,
    sure: () => Promise.resolve(),
    say: () => Promise.resolve(data.willSay),
  };
  const said = new Map<InstanceId, string>();
  const keys = keysOf();
  const asked = {
    smembers: () => Promise.resolve([here, other]),
    mget: (names: readonly string[]) =>
      Promise.resolve(names.map((name) => [...said].find(([one]) => keys.data(one) === name)?.[1] ?? null)),
  };
  const rollCall = new RollCall({
    data,
    client: asked as unknown as Redis,
    keys,
    instance: here,
    seen: () => [],
    isAlone: false,
    log: createLog({ name: 'test', level: 'silent' }),
    mostMs,
  });
  return { data, said, rollCall };
}

test('it is over when every replica has spoken of the server that answers now', async () => {
  const { data, said, rollCall } = aRollCall(60_000);
  said.set(other, `7 another.history`);
  const calling = rollCall.call(3);
  expect(rollCall.isOver()).toBe(false);
  said.set(other, `8 ${data.server}`);
  expect(await calling).toBe(true);
  expect(rollCall.isOver()).toBe(true);
  await rollCall.over();
  data.generation = 4;
  expect(rollCall.isOver()).toBe(false);
});

test('one that says nothing is waited for so long, and no longer', async () => {
  const { rollCall } = aRollCall(1);
  expect(await rollCall.call(3)).toBe(true);
});

test('a connection that is lost meanwhile has it called again; another loss of data ends it', async () => {
  const { data, said, rollCall } = aRollCall(60_000);
  said.set(other, `7 ${data.server}`);
  data.willSay = false;
  await expect(rollCall.call(3)).rejects.toThrow('connection to Redis was lost');
  data.willSay = true;
  expect(await rollCall.call(3)).toBe(true);
  data.willSay = false;
  data.generation = 4;
  expect(await rollCall.call(3)).toBe(false);
});

test('jobs of before count as such, those of other replicas a clock skew later', () => {
  const { rollCall } = aRollCall(1);
  const job = (createdAtMs: number, replica: InstanceId) => ({ createdAtMs, replica });
  expect(rollCall.mayBeBack(job(1_000_000, here))).toBe(true);
  expect(rollCall.mayBeBack(job(1_000_001, here))).toBe(false);
  expect(rollCall.mayBeBack(job(1_030_000, other))).toBe(true);
  expect(rollCall.mayBeBack(job(1_030_001, other))).toBe(false);
});

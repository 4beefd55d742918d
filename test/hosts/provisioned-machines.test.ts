/**
 * Machines of a provider that misbehaves, under processes that are killed at any statement and leaders that change: at
 * rest no instance is leaked, and none is there twice. LS_PROVISIONING_SEEDS sets the number of stories, of which
 * `npm run hosts -- provisioning-stories` tells 200 on Postgres.
 */
import { randomUUID } from 'node:crypto';
import { expect, describe } from 'vitest';
import { isSchedulable } from '#scheduler/fleet/machine.ts';
import type { ConfiguredProvider, Instance } from '#scheduler/domain/provisioning.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { openInstallation } from '#scheduler/workspaces/identity/installation.ts';
import { noteProviderCall, providerCalls, pruneProviderCalls } from '#scheduler/stores/store/queries/provider-calls.ts';
import { ownedInstances } from '#scheduler/stores/store/queries/provisioned.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { aPool, nextFence, present, Process, sealer, Story, tellStory } from '../helpers/provisioning-story.ts';
import { test as base } from '../helpers/services.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { aDb } from '../integration/store-fixture.ts';

const SEEDS = Number(process.env['LS_PROVISIONING_SEEDS'] ?? 20);

// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
const test = base.extend('db', { scope: 'file' }, async ({}, { onCleanup }): Promise<Db> => {
  const opened = await aDb('pglite');
  onCleanup(() => opened.stop());
  await openInstallation(opened.db, sealer);
  return opened.db;
});

describe('a provider that misbehaves', () => {
  const seeds = Array.from({ length: SEEDS }, (_, index) => index + 1);
  test.for(seeds)(
    'story %i: at rest nothing is leaked, and nothing doubled',
    { timeout: 120_000 },
    async (seed, { db }) => {
      await tellStory(db, seed);
    },
  );
});

describe('a provider that behaves', () => {
  test('a machine is requested, created, joins, and goes when it is idle', async ({ db }) => {
    const pool = await aPool(db, `calm-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 7);
    story.cloud.isUnruly = false;
    await story.change();
    // The answer to Join is no machine that can take work: it counts as on its way.
    const { provisioner, machines } = story.process;
    const ofPool = () => [...machines.all()].find(({ row }) => row.poolId === pool.id);
    for (let n = 0; n < 20 && (ofPool()?.row.joinedAtMs ?? null) === null; n += 1) await story.step(1);
    expect([ofPool()?.health, ...provisioner.pending(pool.id)]).toEqual(['PENDING', ofPool()?.row.id]);
    expect([provisioner.machines(pool.id), provisioner.capacity(pool.id).pending]).toEqual([[], 1]);
    await story.steps(20, 1);
    expect([provisioner.machines(pool.id), provisioner.pending(pool.id)]).toEqual([[ofPool()?.row.id], []]);
    const machineId = ofPool()?.row.id as MachineId;
    const order = provisioner.orderOf(machineId);
    expect(order).toEqual({ provider: expect.stringContaining(pool.provider), shape: pool.shape });
    expect(story.cloud.creates).toBe(1);
    const capacity = story.process.provisioner.capacity(pool.id);
    expect(capacity).toMatchObject({ pending: 0, alive: 1, hourlyCost: 2.5, unpriced: 0, lastFailure: null });
    // Another leader knows it from the row.
    await story.change();
    await story.step(1);
    expect(story.process.provisioner.orderOf(machineId)).toEqual(order);
    await story.steps(20, 0);
    expect(story.cloud.instances.size).toBe(0);
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    expect(story.process.provisioner.orderOf(machineId)).toBeUndefined();
    story.end();
  });

  test.for([
    ['whose agent ends after it joined', { connectsAtMs: Infinity }, /could not take containers within 15 min$/],
    ['with a condition that stays', { readyAtMs: Infinity }, /15 min \(Preflight\)$/],
  ] as const)('a machine %s is on its way for 15 minutes, then fails its pool', async ([, said, failure], { db }) => {
    const pool = await aPool(db, `unready-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 11);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(2, 1);
    for (const one of story.cloud.instances.values()) Object.assign(one, said);
    await story.steps(60, 1);
    const { provisioner } = story.process;
    expect([provisioner.capacity(pool.id), story.cloud.creates]).toMatchObject([{ pending: 1, alive: 1 }, 1]);
    await story.steps(40, 0);
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    expect(provisioner.capacity(pool.id)).toMatchObject({ alive: 0, lastFailure: expect.stringMatching(failure) });
    expect([story.cloud.instances.size, story.cloud.creates]).toEqual([0, 1]);
    story.end();
  });

  test('a machine whose terminate fails takes no work when its agent comes back, and none joins late', async ({
    db,
  }) => {
    const pool = await aPool(db, `failing-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 12);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(30, 2);
    const [first, second] = story.cloud.instances.values();
    if (first === undefined || second === undefined) throw new Error('there are no two instances');
    story.cloud.refusesTerminate = true;
    // The agent of the first is silent, and a third instance does not boot.
    const connectsAtMs = first.connectsAtMs;
    Object.assign(first, { connectsAtMs: Infinity });
    await story.steps(3, 3);
    const third = [...story.cloud.instances.values()].at(-1);
    if (third === undefined || third === second) throw new Error('there is no third instance');
    Object.assign(third, { joinsAtMs: Infinity, connectsAtMs: Infinity });
    // The two that end count until they are gone, so the story wants no other.
    await story.steps(120, 3);
    const states = (await present(db, pool.id)).rows.map(({ state }) => state);
    expect(states.filter((state) => state === 'terminating')).toHaveLength(2);
    Object.assign(first, { connectsAtMs });
    Object.assign(third, { joinsAtMs: 0, connectsAtMs: 0 });
    await story.steps(3, 3);
    const { machines } = story.process;
    const known = machines.get(first.machineId as MachineId);
    expect([known?.health, known?.row.intent, known && isSchedulable(known)]).toEqual(['READY', 'cordoned', false]);
    expect([third.isRefused, third.machineId]).toEqual([true, undefined]);
    story.cloud.refusesTerminate = false;
    await story.steps(90, 3);
    expect((await present(db, pool.id)).rows.map(({ state }) => state)).toEqual(['joined', 'joined', 'joined']);
    story.end();
  });

  test('a machine that never joined and cannot be terminated is told, and its pool goes on after its back-off', async ({
    db,
  }) => {
    const pool = await aPool(db, `unended-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 14);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(2, 1);
    for (const one of story.cloud.instances.values()) Object.assign(one, { joinsAtMs: Infinity });
    story.cloud.refusesTerminate = true;
    const [instanceId] = story.cloud.instances.keys();
    // Fifteen minutes until the machine has failed, and some calls of terminate.
    story.clock.aheadMs += 14 * 60_000;
    expect(await story.stepsUntil(['terminating'], 20, 1)).toEqual(['terminating']);
    await story.steps(12, 1);
    const told = () => story.process.provisioner.trouble(pool.id, pool.provider);
    expect(told()).toMatchObject({ listFailures: 0, stuck: [{ instanceId, verb: 'terminate', failure: 'not now' }] });
    const { notBeforeMs, lastFailure, alive } = story.process.provisioner.capacity(pool.id);
    expect([alive, lastFailure, notBeforeMs < story.clock.nowMs()]).toEqual([
      1,
      'its agent did not join within 15 min',
      true,
    ]);
    const goesOn = ['joined', 'terminating'];
    expect([await story.stepsUntil(goesOn, 60, 2), story.cloud.creates]).toEqual([goesOn, 2]);
    // Another leader knows from the row that the machine is stuck.
    await story.change();
    await story.step(2);
    expect(told().stuck).toMatchObject([{ instanceId, verb: 'terminate' }]);
    story.cloud.refusesTerminate = false;
    const both = ['joined', 'joined'];
    expect([await story.stepsUntil(both, 120, 2), told().stuck]).toEqual([both, []]);
    story.end();
  });

  test('while nothing can be listed, a machine that waits for it is told, and ends once somebody deleted it', async ({
    db,
  }) => {
    const pool = await aPool(db, `unlisted-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 15);
    story.cloud.isUnruly = false;
    story.cloud.refusesList = true;
    story.cloud.failsCreate = true;
    await story.change();
    await story.steps(2, 1);
    for (const one of story.cloud.instances.values()) Object.assign(one, { joinsAtMs: Infinity });
    await story.steps(10, 1);
    const { machines, provisioner } = story.process;
    const [row] = (await present(db, pool.id)).rows;
    const machineId = row?.machine_id as MachineId;
    const trouble = provisioner.trouble(pool.id, `${pool.provider}-big`);
    expect(trouble).toMatchObject({
      listFailure: 'the listing is incomplete',
      stuck: [{ machineId, instanceId: null, verb: 'list', isComing: true }],
    });
    expect(trouble.listFailures).toBeGreaterThan(2);
    // No listing proves that there is no instance, so create is not called again.
    story.clock.aheadMs += 15 * 60_000;
    await story.steps(4, 1);
    expect([(await present(db, pool.id)).rows, story.cloud.creates]).toMatchObject([[{ state: 'creating' }], 1]);

    await deleteMachine(db, machineId);
    machines.deleted(machineId);
    await story.steps(3, 0);
    const { rows } = await db.query('select state, end_why, failure from provisioned_machines where pool_id = $1', [
      pool.id,
    ]);
    expect(rows).toMatchObject([
      { state: 'gone', end_why: 'machine_deleted', failure: expect.stringMatching(/may still run$/) },
    ]);
    // The instance is none of any row, and the first listings end it.
    expect(story.cloud.instances.size).toBe(1);
    story.cloud.refusesList = false;
    for (let n = 0; n < 60 && story.cloud.instances.size > 0; n += 1) await story.step(0);
    expect([story.cloud.instances.size, provisioner.trouble(pool.id, pool.provider).listFailures]).toEqual([0, 0]);
    story.end();
  });

  test('a machine that got work is not taken back', async ({ db }) => {
    const pool = await aPool(db, `busy-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 8);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(20, 1);
    const [row] = (await present(db, pool.id)).rows;
    const machineId = row?.machine_id as MachineId;
    story.process.occupied.add(machineId);
    expect(await story.process.provisioner.shrink(machineId, 'idle')).toBe(false);
    await story.steps(5, 1);
    expect((await present(db, pool.id)).rows).toMatchObject([{ state: 'joined' }]);
    expect(story.process.machines.get(machineId)?.row.intent).toBe('active');
    story.end();
  });

  test('two providers of one account leave each other the machines, also when one is taken out of the file', async ({
    db,
  }) => {
    const pool = await aPool(db, `shared-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 11);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(20, 4);
    const made = [...story.cloud.instances.keys()];
    const { rows } = await db.query<{ provider: string }>(
      'select distinct provider from provisioned_machines where pool_id = $1 order by provider',
      [pool.id],
    );
    expect(rows.map(({ provider }) => provider)).toEqual(story.clouds.map(({ name }) => name));
    expect(made).toHaveLength(4);
    const instances = [...story.cloud.instances.values()];
    expect([...(await ownedInstances(db, 'another', instances))].toSorted()).toEqual(made.toSorted());
    const untagged = instances.map((one) => ({ ...one, requestId: '' }));
    expect((await ownedInstances(db, 'another', untagged)).size).toBe(0);
    expect((await ownedInstances(db, pool.provider, untagged)).size).toBe(2);
    await story.steps(30, 4);
    expect([...story.cloud.instances.keys()]).toEqual(made);
    await story.change(story.clouds.slice(1));
    await story.steps(30, 4);
    expect([...story.cloud.instances.keys()]).toEqual(made);
    // Machines of the missing provider end without it, and the other one finds their instances.
    await story.steps(60, 0);
    expect([...story.cloud.instances.keys()]).toEqual([]);
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    story.end();
  });

  test('an instance that ends before it joins is a failure, for which the pool waits', async ({ db }) => {
    const pool = await aPool(db, `dead-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 13);
    story.cloud.isUnruly = false;
    await story.change();
    await story.steps(2, 1);
    expect((await present(db, pool.id)).rows).toMatchObject([{ state: 'created' }]);
    story.cloud.instances.clear();
    await story.steps(30, 0);
    const { rows } = await db.query('select state, failures, failure from provisioned_machines where pool_id = $1', [
      pool.id,
    ]);
    expect(rows).toEqual([
      { state: 'failed', failures: 0, failure: 'its instance ended before it could take containers' },
    ]);
    expect(story.process.provisioner.capacity(pool.id).notBeforeMs).toBeGreaterThan(0);
    story.end();
  });

  test('a price that only create tells stays known', async ({ db }) => {
    const pool = await aPool(db, `priced-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 12);
    story.cloud.isUnruly = false;
    const list = story.cloud.list.bind(story.cloud);
    story.cloud.list = async (tag) => (await list(tag)).map((one) => ({ ...one, hourlyCost: null, address: null }));
    await story.change();
    await story.steps(20, 1);
    const { rows } = await db.query(
      'select state, hourly_cost, address is not null as has_address from provisioned_machines where pool_id = $1',
      [pool.id],
    );
    expect(rows).toEqual([{ state: 'joined', hourly_cost: 2.5, has_address: true }]);
    story.end();
  });

  test('a pool has at most five machines on their way', async ({ db }) => {
    const pool = await aPool(db, `many-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 9);
    story.cloud.isUnruly = false;
    await story.change();
    await story.process.provisioner.tick();
    const { provisioner } = story.process;
    for (let n = 0; n < 5; n += 1) await provisioner.grow(pool.id, 'demand');
    await expect(provisioner.grow(pool.id, 'demand')).rejects.toThrow(/5 machines on their way/);
    await provisioner.settled();
    story.end();
  });

  test('a replica that has not read the rows does not say that a pool is empty', async ({ db }) => {
    const pool = await aPool(db, `unread-${randomUUID().slice(0, 4)}`);
    const story = new Story(db, pool, 10);
    expect(story.process.provisioner.capacity(pool.id)).toMatchObject({ pending: 5, notBeforeMs: Infinity });
    await expect(story.process.provisioner.grow(pool.id, 'demand')).rejects.toThrow(/does not lead/);
  });
});

/** A provider whose calls of create end when the test says so. */
class HeldCloud implements ConfiguredProvider {
  readonly name: string;
  readonly timeoutMs = 120_000;
  readonly held: PromiseWithResolvers<Instance>[] = [];

  constructor(name: string) {
    this.name = name;
  }

  create(): Promise<Instance> {
    const call = Promise.withResolvers<Instance>();
    this.held.push(call);
    return call.promise;
  }

  list(): Promise<readonly Instance[]> {
    return Promise.resolve([]);
  }

  terminate(): Promise<void> {
    return Promise.resolve();
  }
}

describe('five machines asked of a provider that takes its time', () => {
  /** Four calls run, and the fifth waits for its turn. */
  async function fiveAsked(db: Db) {
    const pool = await aPool(db, `held-${randomUUID().slice(0, 4)}`);
    const [clock, cloud] = [new TestClock(), new HeldCloud(pool.provider)];
    const leader = new Process(db, await nextFence(db), pool, [cloud], clock);
    await leader.machines.start();
    await leader.provisioner.tick();
    for (let n = 0; n < 5; n += 1) await leader.provisioner.grow(pool.id, 'demand');
    await leader.idle();
    expect(cloud.held).toHaveLength(4);
    const refuseAll = (): void => {
      for (const call of cloud.held) call.reject(new Error('quota exceeded'));
    };
    return { leader, clock, cloud, refuseAll };
  }

  test('a call that waited for its turn is not made by a replica that leads no more', async ({ db }) => {
    const { leader, cloud, refuseAll } = await fiveAsked(db);
    leader.hasEnded = true;
    refuseAll();
    await leader.provisioner.settled();
    await leader.idle();
    expect(cloud.held).toHaveLength(4);
  });

  test('a call that waited for its turn heeds the back-off that began meanwhile, and is made after it', async ({
    db,
  }) => {
    const { leader, clock, cloud, refuseAll } = await fiveAsked(db);
    refuseAll();
    await leader.provisioner.settled();
    await leader.provisioner.tick();
    await leader.idle();
    expect(cloud.held).toHaveLength(4);
    clock.aheadMs += 5 * 60_000;
    await leader.provisioner.tick();
    await leader.idle();
    expect(cloud.held.length).toBeGreaterThan(4);
    leader.hasEnded = true;
    refuseAll();
    await leader.provisioner.settled();
  });
});

describe('a provider that is taken out of the file', () => {
  test('with requests under way bars its pool for ten minutes', async ({ db }) => {
    const pool = await aPool(db, `left-${randomUUID().slice(0, 4)}`);
    const [clock, cloud] = [new TestClock(), new HeldCloud(pool.provider)];
    const leader = new Process(db, await nextFence(db), pool, [cloud], clock);
    await leader.machines.start();
    await leader.provisioner.tick();
    for (let n = 0; n < 5; n += 1) await leader.provisioner.grow(pool.id, 'demand');
    await leader.idle();
    leader.clouds = [];
    for (const call of cloud.held) call.reject(new Error('not now'));
    await leader.provisioner.settled();
    expect(cloud.held).toHaveLength(4);
    expect(leader.provisioner.capacity(pool.id)).toMatchObject({ pending: 5, alive: 5 });
    clock.aheadMs += 11 * 60_000;
    for (let n = 0; n < 3; n += 1) {
      await leader.provisioner.tick();
      await leader.provisioner.settled();
    }
    expect(leader.provisioner.capacity(pool.id)).toMatchObject({ pending: 0, alive: 0 });
    expect(await present(db, pool.id)).toEqual({ rows: [], machines: [] });
    leader.hasEnded = true;
  });
});

test('the last call of each verb is kept in bounds, and goes a while after its provider left the file', async ({
  db,
}) => {
  const provider = `told-${randomUUID().slice(0, 4)}`;
  const atMs = Date.now();
  const note = (verb: string, failure: string | null, instances?: number) =>
    noteProviderCall(db, { provider, verb, failure, instances, atMs });
  await note('list', null, 2);
  await note('list', 'no such region', undefined);
  await note('list', 'x'.repeat(600), undefined);
  await note('create', null);
  const told = async () => (await providerCalls(db)).filter((call) => call.provider === provider);
  const calls = new Map((await told()).map((call) => [call.verb, call]));
  expect([...calls.keys()].toSorted()).toEqual(['create', 'list']);
  expect(calls.get('create')).toMatchObject({ failure: null, failures: 0, listedAtMs: null, instances: null });
  expect(calls.get('list')).toEqual({
    provider,
    verb: 'list',
    calledAtMs: atMs,
    failure: 'x'.repeat(500),
    failures: 2,
    listedAtMs: atMs,
    instances: 2,
  });
  await pruneProviderCalls(db, [provider], atMs + 1);
  await pruneProviderCalls(db, [], atMs);
  expect(await told()).toHaveLength(2);
  await pruneProviderCalls(db, [], atMs + 1);
  expect(await told()).toEqual([]);
});

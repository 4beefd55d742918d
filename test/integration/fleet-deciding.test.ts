// The leader's loops on a real database: containers placed, given
// back and stopped, with queues and machines played by the test.
import { describe, expect } from 'vitest';
import { ContainerActions } from '#scheduler/fleet/containers/actions.ts';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import { MachineHealth } from '#scheduler/fleet/health.ts';
import { aWorkers } from '../helpers/drains.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { test } from './deciding-fixture.ts';
import { quiet } from './tasks-fixture.ts';

describe('placement', () => {
  test('a container that its machine refuses at once is offered again, more slowly each time', async ({ world }) => {
    world.containers.onChange(({ entry, to }) => {
      if (to !== 'ASSIGNED') return;
      const change = { machineId: null, assignmentId: null };
      void world.containers.transition(entry.row.id, 'revoke', { epoch: entry.row.epoch, change });
    });
    world.waiting = 1;
    world.start();
    const startMs = performance.now();
    const offers = (): number => world.moves.filter((move) => move === 'PENDING ASSIGNED').length;
    await waitFor(() => offers() === 3, 'it was offered three times');
    expect(performance.now() - startMs).toBeGreaterThan(500);
    expect(world.entries()).toHaveLength(1);
  });

  test('more containers than fit: those that do are placed, the others wait and say why, until there is room', async ({
    world,
  }) => {
    // 100 millicores each of 4000 less 400 for the host, 64 MiB each: 36 fit.
    const made = await Promise.all(Array.from({ length: 40 }, () => world.containers.create(world.target)));
    world.waiting = 40;
    world.autoscaler.stop();
    world.placer.start();
    await waitFor(() => world.entries('ASSIGNED').length === 36, '36 are placed');
    await waitFor(
      () => made.filter((entry) => rejectionsOf(entry)?.['cpu'] === 1).length === 4,
      'four say that there is no CPU',
    );
    const [first] = world.entries('ASSIGNED');
    if (first === undefined) throw new Error('none placed');
    await world.containers.transition(first.row.id, 'abandon');
    await waitFor(() => world.entries('PENDING').length === 3, 'one more has its place');
    expect(world.entries('ASSIGNED')).toHaveLength(36);
  });
});

describe('new containers', () => {
  const statementsOf = (world: World): string[] => {
    const statements: string[] = [];
    const { query } = world.db;
    world.db.query = (sql, params) => {
      statements.push(sql);
      return query(sql, params);
    };
    return statements;
  };
  test('have their place from their first row on: one statement before the order', async ({ world }) => {
    world.placer.start();
    const statements = statementsOf(world);
    const entries = await world.placer.create(world.target, 3);
    expect(entries.map(({ row }) => [row.state, row.machineId, row.epoch])).toEqual(
      Array.from({ length: 3 }, () => ['ASSIGNED', world.link.machineId, 1]),
    );
    expect(new Set(entries.map(({ row }) => row.assignmentId)).size).toBe(3);
    expect(world.moves).toEqual(['new ASSIGNED', 'new ASSIGNED', 'new ASSIGNED']);
    expect(statements.filter((sql) => sql.includes('containers'))).toHaveLength(1);
  });

  test('for which there is no place wait for one, and a row that is not written holds nothing', async ({ world }) => {
    world.placer.start();
    const machine = world.machines.get(world.link.machineId);
    if (machine === undefined) throw new Error('no machine');
    world.machines.setRow(machine, { intent: 'cordoned' });
    const [waiting] = await world.placer.create(world.target, 1);
    expect(waiting?.row.state).toBe('PENDING');
    world.machines.setRow(machine, { intent: 'active' });
    await waitFor(() => waiting?.row.state === 'ASSIGNED', 'it is placed when there is room');
    const free = (): number => world.machines.capacity(machine).freeCpuMillicores;
    const before = free();
    // A leader with a higher fencing number exists, so the row is refused.
    world.containers.createPlaced = () => Promise.resolve([]);
    expect(await world.placer.create(world.target, 1)).toEqual([]);
    expect(free()).toBe(before);
  });
});

describe('many at once', () => {
  test('are written by few statements, and each is somewhere', async ({ world }) => {
    const statements: string[] = [];
    const { query } = world.db;
    world.db.query = (sql, params) => {
      statements.push(sql);
      return query(sql, params);
    };
    const made = await world.containers.createMany(world.target, 30);
    expect(made).toHaveLength(30);
    world.placer.start();
    await waitFor(() => world.entries('ASSIGNED').length === 30, 'all are placed');
    expect(new Set(made.map(({ row }) => row.assignmentId)).size).toBe(30);
    expect(statements.filter((sql) => sql.includes('insert into containers'))).toHaveLength(1);
    expect(statements.filter((sql) => sql.includes('update containers')).length).toBeLessThanOrEqual(10);
  });
});

describe('a database that is away for a moment', () => {
  test('a container that could not be told to go takes tasks again, and goes later', async ({ world }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const container = world.slots.get(entry.row.id);
    world.dbFails = true;
    world.waiting = 0;
    world.autoscaler.wake(world.target.queue);
    await world.decided('stop');
    await waitFor(() => container?.accepting === true, 'it takes tasks');
    expect(entry.row.state).toBe('RUNNING');
    world.dbFails = false;
    await waitFor(() => entry.row.state === 'STOPPING', 'it is told to go');
    expect(container?.accepting).toBe(false);
  });

  test('a stop by name that could not be written is an error, and changes nothing', async ({ world }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const stops = new ContainerActions(world.containers, world.slots);
    world.dbFails = true;
    await expect(
      stops.stopContainer({ workspaceId: entry.row.workspaceId, isAdmin: false }, entry.row.id),
    ).rejects.toThrow('the database is away');
    expect(world.slots.get(entry.row.id)?.accepting).toBe(true);
    world.dbFails = false;
    expect(await stops.stopContainer({ workspaceId: entry.row.workspaceId, isAdmin: false }, entry.row.id)).toBe(true);
    expect(entry.row.state).toBe('STOPPING');
  });

  test('a drain goes on when it is back', async ({ world, db }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const { machines, containers, slots, clock } = world;
    const workers = aWorkers({ db, machines, containers, slots, clock, log: quiet });
    workers.start();
    try {
      world.dbFails = true;
      expect(await workers.drain({ workspaceId: null }, world.link.machineId)).toBe(true);
      expect(entry.row.state).toBe('RUNNING');
      world.dbFails = false;
      await waitFor(() => entry.row.state === 'STOPPING', 'its container is told to stop');
    } finally {
      workers.stop();
    }
  });

  test('a lost machine is emptied when it is back, and forgotten after a day', async ({ world }) => {
    world.waiting = 1;
    world.start();
    const entry = await world.placed();
    await world.runs(entry);
    const { machines, agentReports, clock } = world;
    const machine = machines.get(world.link.machineId);
    if (machine === undefined) throw new Error('there is no machine');
    const health = healthOf(world);
    agentReports.suspect(machine.row.id, 's', 'stream_ended');
    clock.aheadMs = 125_000;
    world.dbFails = true;
    await expect(health.check()).rejects.toThrow('the database is away');
    expect([machine.health, entry.row.state]).toEqual(['LOST', 'RUNNING']);
    world.dbFails = false;
    await health.check();
    expect(entry.row.state).toBe('UNKNOWN');
    clock.aheadMs += 24 * 3600_000;
    await health.check();
    expect(entry.row.state).toBe('LOST');
  });
});

describe('the replacement of containers', () => {
  test('an exclusive container of a lost machine is replaced only when its agent must have stopped it', async ({
    world,
  }) => {
    const { config } = world.target;
    world.target = { ...world.target, config: { ...config, stopAfterDisconnectSeconds: 300 } };
    const entry = await world.idle();
    const { agentReports, clock } = world;
    const health = healthOf(world);
    agentReports.suspect(world.link.machineId, 's', 'stream_ended');
    // Once the grace after the start is over, the machine is lost.
    clock.aheadMs = 125_000;
    await health.check();
    expect(entry.row.state).toBe('UNKNOWN');
    await world.decided('hold', 'exclusive_on_lost');
    clock.aheadMs = 359_000;
    const hold = await world.decidedAgain();
    expect(hold).toMatchObject({ why: 'exclusive_on_lost' });
    expect('againAtMs' in hold && hold.againAtMs).toBeLessThan(clock.nowMs() + 1100);
    expect(world.entries()).toHaveLength(1);
    clock.aheadMs = 361_000;
    world.autoscaler.wake(world.target.queue);
    await waitFor(() => world.entries('PENDING').length === 1, 'another takes its place');
    expect(entry.row.state).toBe('UNKNOWN');
  });

  test('a machine that is silent is lost after 90 s of silence, however the wall clock is set meanwhile', async ({
    world,
  }) => {
    const entry = await world.idle();
    const health = healthOf(world);
    world.clock.aheadMs = 121_000;
    world.agentReports.suspect(world.link.machineId, 's', 'stream_ended');
    for (const steppedMs of [600_000, -600_000]) {
      world.clock.steppedMs = steppedMs;
      world.clock.aheadMs += 44_000;
      await health.check();
      expect(entry.row.state).toBe('RUNNING');
    }
    world.clock.aheadMs += 3_000;
    await health.check();
    expect(entry.row.state).toBe('UNKNOWN');
  });

  test('any other container of a lost machine is replaced at once', async ({ world }) => {
    const entry = await world.idle();
    const health = healthOf(world);
    world.agentReports.suspect(world.link.machineId, 's', 'stream_ended');
    world.clock.aheadMs = 125_000;
    await health.check();
    expect(entry.row.state).toBe('UNKNOWN');
    await waitFor(() => world.entries('PENDING').length === 1, 'another takes its place');
  });
});

/** The health watch of the world's machines, a while after the start. */
function healthOf({ machines, joining, containers, slots, clock, guardMetric }: World): MachineHealth {
  const health = new MachineHealth({
    machines,
    joining,
    containers,
    slots,
    reports: { machineLost: () => Promise.resolve() },
    clock,
    isLeader: () => true,
    fence: () => 1,
    log: quiet,
    guardMetric,
    stall: { stalledAtMs: () => null, sinceStallMs: () => Infinity, calmMs: () => Infinity },
    lostAfterMs: 90_000,
    startGraceMs: 120_000,
  });
  health.start();
  health.stop();
  return health;
}

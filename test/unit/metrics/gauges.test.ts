// The gauges of this moment, with machines and containers played by the test.
import { describe, expect, test } from 'vitest';
import { Counter, Gauge, Histogram, LabelValues, Registry, bounded } from '#shared/metrics.ts';
import { registerScaleGauges } from '#scheduler/control/autoscaler/metrics.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { registerFleetGauges } from '#scheduler/fleet/gauges.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import type { Machines } from '#scheduler/fleet/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { OpenTaskCount } from '#scheduler/stores/store/queries/task-counts.ts';
import { OpenTaskGauges } from '#scheduler/tasks/maintenance/open-task-gauges.ts';

const MIB = 1024 ** 2;

interface MachineFacts {
  readonly id?: string;
  readonly pool?: string;
  readonly health?: string;
  readonly intent?: string;
  readonly gpus?: readonly string[];
}

function aMachine(facts: MachineFacts = {}): Machine {
  const gpus = (facts.gpus ?? []).map((model, index) => ({ uuid: `${facts.id ?? 'm'}-${index}`, model }));
  const row = {
    id: facts.id ?? 'm',
    poolName: facts.pool ?? 'default',
    intent: facts.intent ?? 'active',
    systemCordon: false,
    hostDrainUntilMs: null,
  };
  return {
    row,
    health: facts.health ?? 'READY',
    conditions: [],
    inventory: { gpus, cpuMillicores: 4000, memoryBytes: 1000 * MIB },
  } as unknown as Machine;
}

const aContainer = (state: string, facts: { machineId?: string; gpu?: string; pool?: string } = {}): ContainerEntry =>
  ({
    row: { state, machineId: facts.machineId ?? null },
    spec: { kind: 'endpoint', gpu: facts.gpu === undefined ? [] : [facts.gpu], poolName: facts.pool ?? 'default' },
  }) as unknown as ContainerEntry;

/** A scheduler's gauges over a fleet that the test changes. */
function aFleet() {
  const registry = new Registry();
  const machines = new Map<string, Machine>();
  const containers: ContainerEntry[] = [];
  const state = { leads: true, nowMs: 0, refused: 0, refusedOfLeader: 0, used: 1000, leased: new Set<string>() };
  const clock = { nowMs: () => state.nowMs, monotonicMs: () => state.nowMs };
  const played: Pick<Machines, 'all' | 'get' | 'capacity' | 'refusedTransitions' | 'volumeBytes'> = {
    all: () => machines.values(),
    get: (id) => machines.get(id),
    capacity: () => ({
      totalCpuMillicores: 4000,
      freeCpuMillicores: 4000 - state.used,
      totalMemoryBytes: 1000 * MIB,
      freeMemoryBytes: 900 * MIB,
      containers: 1,
      leasedGpus: state.leased,
      freeGpus: 0,
    }),
    refusedTransitions: 0,
    volumeBytes: () => 7,
  };
  const gauges = registerFleetGauges({
    registry,
    metrics: new FleetMetrics(registry),
    machines: played,
    containers: {
      all: () => containers,
      get refusedTransitions() {
        return state.refused;
      },
      get refusedLeaderWrites() {
        return state.refusedOfLeader;
      },
    },
    clock,
    isLeader: () => state.leads,
  });
  const autoscaler = { wanted: () => [{ kind: 'endpoint', count: 3 }], degraded: 2 };
  registerScaleGauges({ registry, autoscaler, containers: { all: () => containers }, isLeader: () => state.leads });
  return {
    registry,
    machines,
    containers,
    state,
    clock,
    change(machine: Machine) {
      machines.set(machine.row.id, machine);
      gauges.machineChanged(machine);
    },
    forget(machine: Machine) {
      machines.delete(machine.row.id);
      gauges.machineChanged(machine);
    },
    /** The series of a metric, without the name. */
    async series(name: string): Promise<readonly string[]> {
      const page = await registry.metrics();
      return page
        .split('\n')
        .filter((line) => line.startsWith(`longshore_${name}{`) || line.startsWith(`longshore_${name} `))
        .map((line) => line.slice(`longshore_${name}`.length).trim());
    },
  };
}

describe('the fleet at this moment', () => {
  test('a pool with a machine shows what may happen to it at 0, on every replica', async () => {
    const fleet = aFleet();
    fleet.state.leads = false;
    fleet.change(aMachine({ pool: 'gpu' }));
    await fleet.registry.metrics();
    expect(await fleet.series('scheduler_machine_disconnects_total')).toContain('{pool="gpu",reason="contested"} 0');
  });

  test('capacity is allocated, free, or unavailable where nothing may be placed', async () => {
    const fleet = aFleet();
    fleet.change(aMachine({ id: 'a', gpus: ['A10G', 'A10G'] }));
    fleet.change(aMachine({ id: 'b', intent: 'cordoned', gpus: ['T4'] }));
    fleet.state.leased.add('a-0');
    expect(await fleet.series('scheduler_pool_cpu_cores')).toEqual([
      '{pool="default",state="allocated"} 2',
      '{pool="default",state="free"} 3',
      '{pool="default",state="unavailable"} 3',
    ]);
    expect(await fleet.series('scheduler_pool_memory_bytes')).toEqual([
      `{pool="default",state="allocated"} ${200 * MIB}`,
      `{pool="default",state="free"} ${900 * MIB}`,
      `{pool="default",state="unavailable"} ${900 * MIB}`,
    ]);
    expect(await fleet.series('scheduler_pool_gpus')).toEqual([
      '{pool="default",gpu_model="A10G",state="allocated"} 1',
      '{pool="default",gpu_model="A10G",state="free"} 1',
      '{pool="default",gpu_model="T4",state="unavailable"} 1',
    ]);
    // A failing GPU is not free, and once its container is gone, it is not allocated either.
    const failing = aMachine({ id: 'a', gpus: ['A10G', 'A10G'] });
    fleet.change({
      ...failing,
      inventory: failing.inventory && {
        ...failing.inventory,
        gpus: failing.inventory.gpus.map((gpu) => ({ ...gpu, unhealthy: true })),
      },
    });
    expect(await fleet.series('scheduler_pool_gpus')).toEqual([
      '{pool="default",gpu_model="A10G",state="allocated"} 1',
      '{pool="default",gpu_model="A10G",state="unhealthy"} 1',
      '{pool="default",gpu_model="T4",state="unavailable"} 1',
    ]);
  });

  test('machines, backlog and containers follow every change, and nothing of before stays', async () => {
    const fleet = aFleet();
    fleet.change(aMachine({ id: 'a', health: 'SUSPECT' }));
    fleet.containers.push(aContainer('PENDING', { gpu: 'A10G' }), aContainer('ASSIGNED', { machineId: 'a' }));
    expect(await fleet.series('scheduler_machines')).toEqual(['{pool="default",health="SUSPECT",intent="active"} 1']);
    expect(await fleet.series('scheduler_backlog_requests')).toEqual([
      '{pool="default",gpu_model="A10G",state="waiting"} 1',
      '{pool="default",gpu_model="none",state="placed"} 1',
    ]);
    expect(await fleet.series('autoscaler_live_containers')).toEqual([
      '{stub_type="endpoint",state="PENDING"} 1',
      '{stub_type="endpoint",state="ASSIGNED"} 1',
    ]);
    fleet.change(aMachine({ id: 'a', health: 'READY' }));
    fleet.containers.length = 0;
    expect(await fleet.series('scheduler_machines')).toEqual(['{pool="default",health="READY",intent="active"} 1']);
    expect(await fleet.series('scheduler_backlog_requests')).toEqual([]);
    expect(await fleet.series('autoscaler_live_containers')).toEqual([]);
  });

  test('a replica that does not lead says so, and leaves what is true of all to the leader', async () => {
    const fleet = aFleet();
    fleet.change(aMachine());
    expect(await fleet.series('scheduler_leader')).toEqual(['{shard="0"} 1']);
    expect(await fleet.series('autoscaler_desired_containers')).toEqual(['{stub_type="endpoint"} 3']);
    expect(await fleet.series('autoscaler_degraded_deployments')).toEqual(['2']);
    fleet.state.leads = false;
    expect(await fleet.series('scheduler_leader')).toEqual(['{shard="0"} 0']);
    expect(await fleet.series('autoscaler_desired_containers')).toEqual([]);
    expect(await fleet.series('autoscaler_degraded_deployments')).toEqual(['0']);
    expect(await fleet.series('scheduler_machines')).toEqual([]);
    expect(await fleet.series('scheduler_pool_cpu_cores')).toEqual([]);
  });

  test('a drain counts while it lasts, and its time by how it ended', async () => {
    const fleet = aFleet();
    const ends = { d: 'drained', u: 'active' } as const;
    for (const id of ['d', 'u', 'x']) fleet.change(aMachine({ id, intent: 'draining' }));
    expect(await fleet.series('scheduler_drains_active')).toEqual(['{pool="default"} 3']);
    fleet.state.nowMs = 45_000;
    for (const [id, intent] of Object.entries(ends)) fleet.change(aMachine({ id, intent }));
    fleet.forget(aMachine({ id: 'x', intent: 'draining' }));
    // Later events on these machines are no end of a drain.
    fleet.state.nowMs = 60_000;
    fleet.change(aMachine({ id: 'd', intent: 'drained', health: 'SUSPECT' }));
    fleet.change(aMachine({ id: 'u' }));
    expect(await fleet.series('scheduler_drains_active')).toEqual([]);
    expect(await fleet.series('scheduler_drain_duration_seconds_sum')).toEqual([
      '{pool="default",result="drained"} 45',
      '{pool="default",result="uncordoned"} 45',
      '{pool="default",result="deleted"} 45',
    ]);
  });

  test('refused writes only grow, however often one asks', async () => {
    const fleet = aFleet();
    fleet.state.refused = 2;
    await fleet.registry.metrics();
    fleet.state.refused = 5;
    fleet.state.refusedOfLeader = 1;
    expect(await fleet.series('scheduler_stale_writes_refused_total')).toEqual([
      '{kind="container"} 5',
      '{kind="machine"} 0',
      '{kind="leader"} 1',
    ]);
  });

  test('5,000 machines in 300 pools with 20,000 containers are a page within 250 ms, of 100 pools and the others', async () => {
    const fleet = aFleet();
    for (let n = 0; n < 5000; n += 1)
      fleet.machines.set(`m${n}`, aMachine({ id: `m${n}`, pool: `pool-${n % 300}`, gpus: ['A10G'] }));
    for (let n = 0; n < 20_000; n += 1)
      fleet.containers.push(aContainer(n % 10 === 0 ? 'PENDING' : 'RUNNING', { gpu: `model-${n % 700}` }));
    await fleet.registry.metrics();
    const took: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      const startedMs = performance.now();
      await fleet.registry.metrics();
      took.push(performance.now() - startedMs);
    }
    // The best of five counts, because other work on the machine is no property of the page.
    expect(Math.min(...took)).toBeLessThan(250);
    expect(await fleet.series('scheduler_machines')).toHaveLength(101);
    expect(await fleet.series('scheduler_machines')).toContain(
      `{pool="other",health="READY",intent="active"} ${5000 - 100 * 17}`,
    );
    expect((await fleet.series('scheduler_backlog_requests')).length).toBeLessThanOrEqual(101);
  });
});

describe('bounded labels', () => {
  test('hold for every way to write a metric', async () => {
    const registry = new Registry();
    const registers = [registry];
    const bounds = { name: new LabelValues(2) };
    const options = { help: 'h', labelNames: ['name', 'kind'], registers };
    const counter = bounded(new Counter({ name: 'c_total', ...options }), bounds);
    const gauge = bounded(new Gauge({ name: 'g', ...options }), bounds);
    const histogram = bounded(new Histogram({ name: 'h', ...options, buckets: [1] }), bounds);
    for (const name of ['a', 'b', 'c', 'd', 'a']) {
      counter.inc({ name, kind: 'k' });
      gauge.inc({ name, kind: 'k' }, 2);
      gauge.set({ name, kind: 'k' }, 7);
      histogram.observe({ name, kind: 'k' }, 0.5);
    }
    const page = await registry.metrics();
    expect(page).toContain('c_total{name="a",kind="k"} 2');
    expect(page).toContain('c_total{name="other",kind="k"} 2');
    expect(page).toContain('g{name="other",kind="k"} 7');
    expect(page).toContain('h_count{name="other",kind="k"} 2');
    expect(page).not.toContain('name="c"');
  });

  test('leave writes without labels alone', async () => {
    const registry = new Registry();
    const counter = bounded(new Counter({ name: 'plain_total', help: 'h', registers: [registry] }), {});
    counter.inc();
    counter.inc(4);
    expect(await registry.metrics()).toContain('plain_total 5');
  });
});

describe('open tasks', () => {
  const row = (facts: Partial<OpenTaskCount>): OpenTaskCount => ({
    deploymentId: 'd' as OpenTaskCount['deploymentId'],
    kind: 'taskqueue',
    status: 'PENDING',
    count: 1,
    oldestAtMs: 0,
    ...facts,
  });
  const someGauges = (answer: () => Promise<readonly OpenTaskCount[]>) => {
    const registry = new Registry();
    const countDead = () => Promise.resolve([{ kind: 'function', count: 6 }]);
    const state = { leads: true, nowMs: 100_000 };
    const clock = { nowMs: () => state.nowMs, monotonicMs: () => state.nowMs };
    const gauges = new OpenTaskGauges({ registry, count: answer, countDead, clock, isLeader: () => state.leads });
    return { registry, state, gauges };
  };

  test('are counted by kind and status; the oldest that waits goes on ageing while the database is away', async () => {
    let isAway = false;
    const rows = [
      row({ count: 3, oldestAtMs: 40_000 }),
      row({ deploymentId: null, count: 2, oldestAtMs: 70_000 }),
      row({ status: 'RUNNING', count: 4, oldestAtMs: 1000 }),
    ];
    const { registry, state, gauges } = someGauges(() =>
      isAway ? Promise.reject(new Error('the database is away')) : Promise.resolve(rows),
    );
    await gauges.check();
    isAway = true;
    await expect(gauges.check()).rejects.toThrow('away');
    state.nowMs = 110_000;
    const page = await registry.metrics();
    expect(page).toContain('longshore_task_in_state{stub_type="taskqueue",state="PENDING"} 5');
    expect(page).toContain('longshore_task_in_state{stub_type="taskqueue",state="RUNNING"} 4');
    expect(page).toContain('longshore_task_dead{stub_type="function"} 6');
    expect(page).toContain('longshore_task_oldest_pending_seconds{stub_type="taskqueue"} 70');
    expect(page).toContain('longshore_autoscaler_deployment_queue_depth{deployment_id="d"} 7');
    state.leads = false;
    expect(await registry.metrics()).not.toContain('stub_type=');
  });

  test('have a series of their own for the 200 fullest deployments, gone with the tasks', async () => {
    let many = Array.from({ length: 300 }, (_, n) =>
      row({ deploymentId: `d${n}` as OpenTaskCount['deploymentId'], count: n + 1 }),
    );
    const { registry, gauges } = someGauges(() => Promise.resolve(many));
    const depths = async (): Promise<string[]> =>
      (await registry.metrics()).split('\n').filter((line) => line.includes('deployment_id="'));
    await gauges.check();
    expect(await depths()).toHaveLength(200);
    expect((await depths()).join()).not.toContain('"d99"');
    many = many.slice(0, 1);
    await gauges.check();
    expect(await depths()).toEqual(['longshore_autoscaler_deployment_queue_depth{deployment_id="d0"} 1']);
  });
});

test('a machine that is only expected offers nothing yet', async () => {
  const fleet = aFleet();
  fleet.change({ ...aMachine({ id: 'new' }), inventory: null });
  expect(await fleet.series('scheduler_pool_cpu_cores')).toEqual([]);
  expect(await fleet.series('scheduler_machines')).toHaveLength(1);
});

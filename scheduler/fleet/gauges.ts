// Gauges of the fleet as it is now: machines, their capacity, containers without a place, drains. The values are
// counted from memory at each scrape, so that a change of one machine costs nothing here. Only the leader shows facts
// of the whole installation, so that a sum over all replicas counts them once.
import { gpuTerms } from '#shared/domain/gpu-terms.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge, Histogram, SLOW_BUCKETS, Tally } from '#shared/metrics.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';
import type { Machines } from './machines.ts';
import { isSchedulable } from './machine.ts';
import type { Machine } from './machine.ts';
import type { FleetMetrics } from './metrics.ts';

export interface FleetGaugesParts {
  readonly registry: Registry;
  readonly metrics: Pick<FleetMetrics, 'pools' | 'gpuModels' | 'showPool'>;
  readonly machines: Pick<Machines, 'all' | 'get' | 'capacity' | 'volumeBytes' | 'refusedTransitions'>;
  readonly containers: Pick<ContainerRegistry, 'all' | 'refusedTransitions' | 'refusedLeaderWrites'>;
  readonly clock: Clock;
  readonly isLeader: () => boolean;
}

/** The only shard with a leader; more may come. */
const SHARD = '0';

export interface FleetGauges {
  /** Measures the drains of machines. */
  machineChanged(machine: Pick<Machine, 'row'>): void;
}

export function registerFleetGauges(parts: FleetGaugesParts): FleetGauges {
  registerMachines(parts);
  registerCapacity(parts);
  registerVolumes(parts);
  registerBacklog(parts);
  const machineChanged = registerDrains(parts);
  const { registry, containers, machines, isLeader } = parts;
  new Gauge({
    name: 'longshore_scheduler_leader',
    help: '1 on the replica that decides, 0 on the others.',
    labelNames: ['shard'],
    registers: [registry],
    collect() {
      this.set({ shard: SHARD }, isLeader() ? 1 : 0);
    },
  });
  let counted = 0;
  let countedLeader = 0;
  let countedMachines = 0;
  new Counter({
    name: 'longshore_scheduler_stale_writes_refused_total',
    help: 'Writes that came with an outdated epoch, or from a state that does not allow them (container, machine), and desired state of a replica after another had begun to lead (leader).',
    labelNames: ['kind'],
    registers: [registry],
    collect() {
      this.inc({ kind: 'container' }, containers.refusedTransitions - counted);
      this.inc({ kind: 'machine' }, machines.refusedTransitions - countedMachines);
      countedMachines = machines.refusedTransitions;
      this.inc({ kind: 'leader' }, containers.refusedLeaderWrites - countedLeader);
      counted = containers.refusedTransitions;
      countedLeader = containers.refusedLeaderWrites;
    },
  });
  return { machineChanged };
}

function registerMachines({ registry, metrics, machines, isLeader }: FleetGaugesParts): void {
  new Gauge({
    name: 'longshore_scheduler_machines',
    help: 'Machines by what they are and what the operator wants of them; shown by the leader.',
    labelNames: ['pool', 'health', 'intent'],
    registers: [registry],
    collect() {
      for (const { row } of machines.all()) metrics.showPool(row.poolName);
      const tally = new Tally('pool', 'health', 'intent');
      for (const { row, health } of isLeader() ? machines.all() : [])
        tally.add(1, metrics.pools.of(row.poolName), health, row.intent);
      tally.writeTo(this);
    },
  });
}

function registerVolumes({ registry, machines, isLeader }: FleetGaugesParts): void {
  new Gauge({
    name: 'longshore_scheduler_volume_bytes',
    help: 'Volumes on the disks of machines, as their agents last counted them (every 15 minutes); shown by the leader.',
    registers: [registry],
    collect() {
      this.set(isLeader() ? machines.volumeBytes() : 0);
    },
  });
}

/**
 * `allocated` capacity has a container; the rest is `free`, or
 * `unavailable` while nothing may be placed on its machine.
 */
function registerCapacity({ registry, metrics, machines, isLeader }: FleetGaugesParts): void {
  const registers = [registry];
  const cpu = new Gauge({
    name: 'longshore_scheduler_pool_cpu_cores',
    help: 'Cores offered, with overcommit and without the reserve of the host; shown by the leader.',
    labelNames: ['pool', 'state'],
    registers,
    collect: () => count(),
  });
  const memory = new Gauge({
    name: 'longshore_scheduler_pool_memory_bytes',
    help: 'Memory offered, without the reserve of the host; shown by the leader.',
    labelNames: ['pool', 'state'],
    registers,
  });
  const gpus = new Gauge({
    name: 'longshore_scheduler_pool_gpus',
    help: 'GPUs: allocated, free, unavailable while nothing may be placed on their machine, or unhealthy; shown by the leader.',
    labelNames: ['pool', 'gpu_model', 'state'],
    registers,
  });
  // The registry reads gauges in the order of registration: a single walk over the machines fills all three.
  const count = (): void => {
    const cores = new Tally('pool', 'state');
    const bytes = new Tally('pool', 'state');
    const devices = new Tally('pool', 'gpu_model', 'state');
    for (const machine of isLeader() ? machines.all() : []) {
      if (machine.inventory === null) continue;
      const pool = metrics.pools.of(machine.row.poolName);
      const rest = isSchedulable(machine) ? 'free' : 'unavailable';
      const { leasedGpus, ...capacity } = machines.capacity(machine);
      cores.add((capacity.totalCpuMillicores - capacity.freeCpuMillicores) / 1000, pool, 'allocated');
      cores.add(Math.max(0, capacity.freeCpuMillicores) / 1000, pool, rest);
      bytes.add(capacity.totalMemoryBytes - capacity.freeMemoryBytes, pool, 'allocated');
      bytes.add(Math.max(0, capacity.freeMemoryBytes), pool, rest);
      for (const { uuid, model, unhealthy } of machine.inventory.gpus)
        devices.add(
          1,
          pool,
          metrics.gpuModels.of(model),
          leasedGpus.has(uuid) ? 'allocated' : unhealthy ? 'unhealthy' : rest,
        );
    }
    cores.writeTo(cpu);
    bytes.writeTo(memory);
    devices.writeTo(gpus);
  };
}

/** `waiting` containers have no machine yet; `placed` ones wait for their agent's acknowledgement. */
function registerBacklog({ registry, metrics, machines, containers, isLeader }: FleetGaugesParts): void {
  new Gauge({
    name: 'longshore_scheduler_backlog_requests',
    help: 'Containers that wait for a machine, or for its agent to take them; shown by the leader.',
    labelNames: ['pool', 'gpu_model', 'state'],
    registers: [registry],
    collect() {
      const tally = new Tally('pool', 'gpu_model', 'state');
      for (const { row, spec } of isLeader() ? containers.all() : []) {
        if (row.state !== 'PENDING' && row.state !== 'ASSIGNED') continue;
        const machine = row.machineId === null ? undefined : machines.get(row.machineId);
        const pool = metrics.pools.of(machine?.row.poolName ?? spec.poolName);
        tally.add(
          1,
          pool,
          metrics.gpuModels.of(gpuTerms(spec.gpu)[0]?.model ?? 'none'),
          row.state === 'PENDING' ? 'waiting' : 'placed',
        );
      }
      tally.writeTo(this);
    },
  });
}

function registerDrains({
  registry,
  metrics,
  machines,
  clock,
  isLeader,
}: FleetGaugesParts): FleetGauges['machineChanged'] {
  const registers = [registry];
  const duration = new Histogram({
    name: 'longshore_scheduler_drain_duration_seconds',
    help: 'From the order to drain (or this process starting) to its end.',
    labelNames: ['pool', 'result'],
    buckets: SLOW_BUCKETS,
    registers,
  });
  const since = new Map<MachineId, number>();
  const machineChanged: FleetGauges['machineChanged'] = ({ row }) => {
    const startedMs = since.get(row.id);
    const isDraining = row.intent === 'draining' && machines.get(row.id) !== undefined;
    if (isDraining && startedMs === undefined) since.set(row.id, clock.monotonicMs());
    if (isDraining || startedMs === undefined) return;
    since.delete(row.id);
    if (!isLeader()) return;
    const result = row.intent === 'drained' ? 'drained' : row.intent === 'active' ? 'uncordoned' : 'deleted';
    duration.observe({ pool: metrics.pools.of(row.poolName), result }, (clock.monotonicMs() - startedMs) / 1000);
  };
  new Gauge({
    name: 'longshore_scheduler_drains_active',
    help: 'Machines being drained; shown by the leader.',
    labelNames: ['pool'],
    registers,
    collect() {
      const tally = new Tally('pool');
      for (const { row } of isLeader() ? machines.all() : [])
        if (row.intent === 'draining') tally.add(1, metrics.pools.of(row.poolName));
      tally.writeTo(this);
    },
  });
  return machineChanged;
}

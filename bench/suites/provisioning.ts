// `provisioning`: from the moment at which a waiting container counts to the call that makes a machine for it, among
// a thousand pools with a provider; and the processor time of these pools at rest, beside a process without them. The
// loop and the list of pools are the product's own, on a real database; containers and the provider are played.
import { sleep } from '#shared/backoff.ts';
import { systemClock } from '#shared/clock.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import { ProvisioningLoop } from '#scheduler/control/provisioning/loop.ts';
import type { ProvisioningParts } from '#scheduler/control/provisioning/loop.ts';
import { NO_TROUBLE } from '#scheduler/domain/provisioning.ts';
import type { CapacityChanges, MachineOrders, PoolCapacity, PoolTrouble } from '#scheduler/domain/provisioning.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { PoolDirectory } from '#scheduler/fleet/pool-directory.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import { until } from '../control-plane.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { median } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const POOLS = 1_000;
const DEMAND_SECONDS = 0.2;
const FULL = { seconds: 60, containers: 50 } as const;
const QUICK = { seconds: 10, containers: 10 } as const;
const WAIT_MS = 30_000;
const GIB = 1024 ** 3;

export async function provisioning(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const { seconds, containers } = context.isQuick ? QUICK : FULL;
  const log = createLog({ name: 'bench', level: 'silent' });
  const postgres = await context.postgres();
  const databaseUrl = await postgres.createDatabase('provisioning');
  const db = await openDb({ databaseUrl, dataDir: place.directory, log });
  place.later(() => db.close());
  await migrate(db, log);
  await db.query(
    `insert into pools (name, cpu_overcommit, settings) select 'pool-' || n, 1, json_build_object(
       'provider', 'cloud', 'machineCpuCores', 4, 'machineMemoryMib', 8192, 'machineGpuModel', 'T4', 'machineGpuCount', 1,
       'maxMachines', 10000, 'hourlyCost', n, 'demandSeconds', ${DEMAND_SECONDS})::jsonb from generate_series(1, ${POOLS}) n`,
  );
  const world = new PlayedWorld();
  const directory = new PoolDirectory({ db, bus: ALONE, channel: 'pools', log });
  const parts: ProvisioningParts = {
    directory,
    machines: { all: () => [], get: () => undefined, capacity: () => NOTHING },
    containers: {
      pending: () => world.waiting,
      all: () => world.waiting,
      get: (id: ContainerId) => [...world.waiting].find(({ row }) => row.id === id),
      ofMachine: () => [],
    },
    changes: world,
    clock: systemClock,
    log,
    loops: new LoopMetrics(new Registry(), systemClock),
    metrics: { stepped: () => undefined },
    fence: () => 1,
    volumeHomes: () => Promise.resolve(new Map()),
    quotas: () => Promise.resolve(new Map()),
  };

  const nothing = async (): Promise<Figures> => ({ rest: await processorShare(seconds) });
  const product = async (): Promise<Figures> => {
    place.signal.throwIfAborted();
    await directory.start();
    const loop = new ProvisioningLoop(parts);
    loop.start();
    // The first look at all pools is no rest.
    await until('all pools were looked at', () => world.asked >= POOLS, WAIT_MS, place.signal);
    await sleep(1_000);
    const rest = await processorShare(seconds);
    const took: number[] = [];
    for (let count = 0; count < containers; count += 1) {
      place.signal.throwIfAborted();
      took.push(await world.oneCreateMs(loop, place.signal));
    }
    await loop.stop();
    return { rest, create: median(took) };
  };
  const rounds = await context.runRounds('provisioning', inTurn(nothing, product));
  await directory.stop();
  return {
    measures: [
      measureOf('provisioning', 'create', 'ms', rounds, slack),
      measureOf('provisioning', 'rest', '% of a core', rounds, slack),
    ],
    rounds,
  };
}

const NOTHING = {
  totalCpuMillicores: 0,
  totalMemoryBytes: 0,
  freeCpuMillicores: 0,
  freeMemoryBytes: 0,
  containers: 0,
  leasedGpus: new Set<string>(),
  freeGpus: 0,
};

/** Processor time of this process, as a share of a core in percent. */
async function processorShare(seconds: number): Promise<number> {
  const before = process.cpuUsage();
  await sleep(seconds * 1000);
  const { user, system } = process.cpuUsage(before);
  return ((user + system) / 1e6 / seconds) * 100;
}

/** Containers that wait, and a provider that notes when it is asked. */
class PlayedWorld implements CapacityChanges, MachineOrders {
  readonly waiting = new Set<ContainerEntry>();
  asked = 0;
  #calls = 0;
  #called: ((atMs: number) => void) | undefined;

  knows(): boolean {
    return true;
  }

  capacity(poolId: number): PoolCapacity {
    this.asked += 1;
    return {
      poolId,
      workspaceId: null,
      pending: 0,
      alive: 0,
      hourlyCost: 0,
      unpriced: 0,
      notBeforeMs: 0,
      lastFailure: null,
    };
  }

  trouble(): PoolTrouble {
    return NO_TROUBLE;
  }

  machines(): Iterable<MachineId> {
    return [];
  }

  pending(): Iterable<MachineId> {
    return [];
  }

  orderOf(): undefined {
    return undefined;
  }

  onChange(): void {
    // Nothing else changes capacity here.
  }

  grow(): Promise<void> {
    this.#called?.(performance.now());
    return Promise.resolve();
  }

  shrink(): Promise<boolean> {
    return Promise.resolve(false);
  }

  /** Milliseconds from the moment at which a container counts to the call for its machine. */
  async oneCreateMs(loop: ProvisioningLoop, signal: AbortSignal): Promise<number> {
    const entry = aWaiting((this.#calls += 1));
    const called = new Promise<number>((resolve, reject) => {
      this.#called = resolve;
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    });
    const sinceMs = performance.now();
    this.waiting.add(entry);
    loop.containerChanged({ entry, from: null, to: 'PENDING', machineBefore: null, before: null });
    const atMs = await called;
    this.waiting.delete(entry);
    this.#called = undefined;
    return atMs - sinceMs - DEMAND_SECONDS * 1000;
  }
}

function aWaiting(number: number): ContainerEntry {
  const id = `container-${number}` as ContainerId;
  const about = { id, machineId: null, createdAtMs: Date.now(), workspaceId: 'w' as WorkspaceId };
  const row = { ...about, state: 'PENDING', rejections: { gpu_count: 1 } };
  const spec = {
    queue: `tq-${number}` as QueueName,
    kind: 'endpoint',
    cpuMillicores: 1000,
    memoryBytes: GIB,
    gpu: ['T4'],
    gpuCount: 1,
    poolName: '',
    wire: {},
  };
  return { row, spec, tail: Promise.resolve() } as unknown as ContainerEntry;
}

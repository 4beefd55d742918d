/**
 * Pools that grow on a real database, beside placement and the pools' settings. The test plays the provider: it notes
 * what the loop asks for, makes machines that join, and takes them back.
 */
import { expect } from 'vitest';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import { openProvisioning } from '#scheduler/compose/provisioning.ts';
import { wireProvisioning } from '#scheduler/compose/wiring.ts';
import { FeasibilityCheck } from '#scheduler/control/placement/feasibility-check.ts';
import type { ProvisioningLoop } from '#scheduler/control/provisioning/loop.ts';
import { NO_TROUBLE } from '#scheduler/domain/provisioning.ts';
import type {
  CapacityChanges,
  MachineOrder,
  MachineOrders,
  PoolCapacity,
  PoolTrouble,
} from '#scheduler/domain/provisioning.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { PoolDirectory } from '#scheduler/fleet/pool-directory.ts';
import { shapeOf } from '#scheduler/fleet/pool-settings.ts';
import { Pools } from '#scheduler/fleet/pools.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { poolByName } from '#scheduler/stores/store/queries/pools.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { test as base } from './deciding-fixture.ts';
import { quiet } from './tasks-fixture.ts';

export const SHARED = { workspaceId: null };
export const CLOUD: PoolSettingsChange = {
  provider: 'cloud',
  machineCpuCores: 4,
  machineMemoryMib: 8192,
  machineGpuModel: 'T4',
  machineGpuCount: 1,
  demandSeconds: 0,
  hourlyCost: 2,
};

/** The executing half, played: machines are rows as ever, and join when the test says so. */
class PlayedCapacity implements CapacityChanges, MachineOrders {
  readonly grown: { readonly poolId: number; readonly reason: string; readonly machineId: MachineId }[] = [];
  readonly shrunk: MachineId[] = [];
  readonly joined = new Set<MachineId>();
  readonly #world: World;
  readonly #directory: () => PoolDirectory;
  readonly #listeners: ((poolId: number) => void)[] = [];
  readonly #tokens = new Map<MachineId, string>();
  readonly #orders = new Map<MachineId, MachineOrder>();
  /** Times that its facts were read. */
  asked = 0;
  grows: 'as told' | 'with an error' = 'as told';
  notBeforeMs = 0;
  troubles = NO_TROUBLE;

  constructor(world: World, directory: () => PoolDirectory) {
    this.#world = world;
    this.#directory = directory;
  }

  knows(provider: string): boolean {
    return provider === 'cloud';
  }

  capacity(poolId: number): PoolCapacity {
    this.asked += 1;
    const alive = this.grown.filter((one) => one.poolId === poolId && !this.shrunk.includes(one.machineId));
    return {
      poolId,
      workspaceId: null,
      pending: alive.filter(({ machineId }) => !this.joined.has(machineId)).length,
      alive: alive.length,
      hourlyCost: 0,
      unpriced: alive.length,
      notBeforeMs: this.notBeforeMs,
      lastFailure: null,
    };
  }

  trouble(): PoolTrouble {
    return this.troubles;
  }

  machines(poolId: number): Iterable<MachineId> {
    return this.grown
      .filter((one) => one.poolId === poolId && this.joined.has(one.machineId) && !this.shrunk.includes(one.machineId))
      .map(({ machineId }) => machineId);
  }

  pending(poolId: number): Iterable<MachineId> {
    return this.grown
      .filter((one) => one.poolId === poolId && !this.joined.has(one.machineId))
      .map(({ machineId }) => machineId);
  }

  orderOf(machineId: MachineId): MachineOrder | undefined {
    return this.#orders.get(machineId);
  }

  onChange(listener: (poolId: number) => void): void {
    this.#listeners.push(listener);
  }

  changed(poolId: number): void {
    for (const listener of this.#listeners) listener(poolId);
  }

  async grow(poolId: number, reason: string): Promise<void> {
    if (this.grows === 'with an error') throw new Error('the database is away');
    const pool = this.#directory().get(poolId);
    const shape = pool === undefined ? undefined : shapeOf(pool.settings);
    if (pool === undefined || shape === undefined) throw new Error('there is no such pool');
    const { machineId, joinToken } = await this.#world.joining.create({ workspaceId: pool.workspaceId }, pool.name);
    this.#tokens.set(machineId, joinToken);
    this.#orders.set(machineId, { provider: pool.settings.provider ?? '', shape });
    this.grown.push({ poolId, reason, machineId });
    this.changed(poolId);
  }

  async shrink(machineId: MachineId): Promise<boolean> {
    const [occupant] = this.#world.containers.ofMachine(machineId);
    if (occupant !== undefined) return false;
    const poolId = this.#world.machines.get(machineId)?.row.poolId ?? 0;
    this.shrunk.push(machineId);
    await deleteMachine(this.#world.whole, machineId);
    this.#world.machines.deleted(machineId);
    this.changed(poolId);
    return true;
  }

  /** The machine joins, as large as its pool says unless `cpuMillicores` says otherwise. */
  async join(machineId: MachineId, cpuMillicores = 4000): Promise<void> {
    const { joining, agentReports } = this.#world;
    const secret = this.#tokens.get(machineId)?.split('.')[2] ?? '';
    const facts = { nonce: machineId, fingerprint: machineId, publicKey: 'k', hostname: 'h', agentVersion: '0' };
    const { poolId } = await joining.join({ secret, ...facts });
    const gpus = [{ uuid: `GPU-${machineId}`, model: 'T4', index: 0, memoryBytes: 16e9 }];
    const inventory = { hostname: 'h', cpuMillicores, memoryBytes: 8 * 1024 ** 3, gpus, images: [] };
    const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
    await agentReports.hello(machineId, `s-${machineId}`, hello as unknown as Parameters<AgentReports['hello']>[2]);
    this.joined.add(machineId);
    agentReports.ready(machineId, `s-${machineId}`);
    this.changed(poolId);
  }
}

export interface Growing {
  readonly capacity: PlayedCapacity;
  readonly directory: PoolDirectory;
  readonly pools: Pools;
  readonly loop: ProvisioningLoop;
  readonly feasibility: FeasibilityCheck;
  readonly poolId: (name: string) => Promise<number>;
  /** Ends the loop and has another process lead, which knows nothing of what was. */
  readonly another: () => Promise<void>;
}

export const test = base.extend('growing', async ({ world, db }, { onCleanup }): Promise<Growing> => {
  await db.query("update pools set settings = '{}', updated_at = now(), deleted_at = now() where name <> 'default'");
  const aDirectory = () => new PoolDirectory({ db, bus: ALONE, channel: 'pools', log: quiet, sweepMs: 30 });
  let directory = aDirectory();
  const pools = new Pools({ db, machines: world.machines, log: quiet, written: () => directory.written() });
  const capacity = new PlayedCapacity(world, () => directory);
  const { containers, machines, placer } = world;
  const fence = (): number | undefined => (world.leads ? world.fence : undefined);
  const feasibility = new FeasibilityCheck(world.machines, world.clock);
  const begin = async (): Promise<ProvisioningLoop> => {
    const registry = new Registry();
    const provisioning = openProvisioning({
      infrastructure: { db, clock: world.clock, log: quiet, registry },
      clusterState: {
        containers,
        machines,
        fence,
        isLeader: () => world.leads,
        fleetMetrics: new FleetMetrics(registry),
      },
      events: { writer: new EventWriter() },
      directory,
      changes: capacity,
      quotas: world.quotas,
      autoscaler: world.autoscaler,
      loops: new LoopMetrics(registry, world.clock),
    });
    wireProvisioning({ containers, machines, placer, directory, provisioning, feasibility, changes: capacity });
    await directory.start();
    provisioning.start();
    return provisioning;
  };
  let leading = await begin();
  const [loop, first] = [leading, directory];
  world.placer.start();
  const end = async (): Promise<void> => {
    await leading.stop();
    await directory.stop();
  };
  const another = async (): Promise<void> => {
    await end();
    directory = aDirectory();
    leading = await begin();
  };
  onCleanup(end);
  const poolId = async (name: string): Promise<number> => (await poolByName(db, { name, workspaceId: null }))?.id ?? 0;
  return { capacity, directory: first, pools, loop, feasibility, poolId, another };
});

export const wanting = (world: World, said: object = {}): Promise<ContainerEntry> =>
  world.containers.create({
    ...world.target,
    config: { ...world.target.config, cpuMillicores: 100, memoryMib: 64, gpu: ['T4'], gpuCount: 1, ...said },
  });
export const only = async ({ capacity }: Growing): Promise<MachineId> => {
  await waitFor(() => capacity.grown.length > 0, 'a machine is asked for');
  expect(capacity.grown).toHaveLength(1);
  return capacity.grown[0]?.machineId ?? ('' as MachineId);
};

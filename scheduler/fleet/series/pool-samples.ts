// Samples of pools: every five seconds the leader counts the machines of each pool and adds up their use. Agents report
// the use of their machines to the replica that has their link; other replicas leave sums of theirs in Redis.
// Invariant: a pool has one row for a moment. A machine whose agent does not report its use counts in no sum of use.
import type { Redis } from 'ioredis';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '#shared/clock.ts';
import type { InstanceId, MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { MachineSample__Output } from '#shared/protocol/generated/messages.ts';
import { SAMPLE_STEP } from '../../domain/series.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { insertPoolSamples, MAX_POOL_SAMPLE_BATCH } from '../../stores/store/queries/pool-samples.ts';
import type { PoolSample } from '../../stores/store/queries/pool-samples.ts';
import { gpusOf } from '../capacity.ts';
import type { Machine } from '../machine.ts';
import type { Machines } from '../machines.ts';

const TICK_MS = SAMPLE_STEP * 1000;
/** Time for which a machine's report counts, and sums of a replica are in Redis. */
const LIFE_MS = 15_000;
const PER_TURN = 250;
const COUNTED = new Set<string>(['READY', 'RECONCILING', 'SUSPECT']);

type Use = Pick<PoolSample, 'cpuUsed' | 'cpuTotal' | 'memoryUsed' | 'memoryTotal' | 'diskUsed' | 'diskTotal'>;
const NO_USE: Use = { cpuUsed: 0, cpuTotal: 0, memoryUsed: 0, memoryTotal: 0, diskUsed: 0, diskTotal: 0 };

export interface PoolSamplesParts {
  readonly db: Queryable;
  readonly machines: Pick<Machines, 'all' | 'get' | 'capacity'>;
  readonly isLeader: () => boolean;
  /** Redis for other replicas; absent: there are none. */
  readonly redis: Redis | undefined;
  readonly instance: InstanceId;
  readonly keyOf: (instance: InstanceId) => string;
  /** Replicas that were present a moment ago. */
  readonly replicas: () => Iterable<InstanceId>;
  readonly clock: Clock;
  readonly log: Log;
}

export class PoolSamples {
  readonly name = 'samples of pools';
  readonly #parts: PoolSamplesParts;
  readonly #heard = new Map<MachineId, { readonly use: Use; readonly atMs: number }>();
  #timer: NodeJS.Timeout | undefined;
  #ticking: Promise<void> | undefined;
  #isStopped = false;
  #isFailing = false;

  constructor(parts: PoolSamplesParts) {
    this.#parts = parts;
  }

  /** Takes in the use of a machine that is linked here. */
  heard(machineId: MachineId, sample: MachineSample__Output | null | undefined): void {
    if (sample === null || sample === undefined || sample.intervalMs === 0) return;
    const within = (used: number, total: number): number => Math.min(whole(used), total);
    const cpuTotal = whole(sample.cpuCores) * 1000;
    const [memoryTotal, diskTotal] = [whole(sample.memoryTotalBytes), whole(sample.diskTotalBytes)];
    const use = {
      cpuUsed: within(sample.cpuMillicores, cpuTotal),
      cpuTotal,
      memoryUsed: within(sample.memoryUsedBytes, memoryTotal),
      memoryTotal,
      diskUsed: within(sample.diskUsedBytes, diskTotal),
      diskTotal,
    };
    this.#heard.set(machineId, { use, atMs: this.#parts.clock.monotonicMs() });
  }

  start(): void {
    this.#isStopped = false;
    this.#schedule();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#ticking;
  }

  /** Waits for the next moment that five seconds divide, so that every bucket has the same number of rows. */
  #schedule(): void {
    if (this.#isStopped) return;
    const nowMs = this.#parts.clock.nowMs();
    this.#timer = setTimeout(
      () => {
        this.#ticking = this.tick().finally(() => this.#schedule());
      },
      TICK_MS - (nowMs % TICK_MS),
    );
    this.#timer.unref();
  }

  /** Counts once: writes where this replica leads, else leaves the sums of its machines to the leader. */
  async tick(): Promise<void> {
    const { db, isLeader, redis, instance, keyOf, clock, log } = this.#parts;
    const atMs = Math.floor(clock.nowMs() / TICK_MS) * TICK_MS;
    try {
      const here = this.#useHere();
      if (!isLeader()) {
        if (here.size > 0) await redis?.set(keyOf(instance), JSON.stringify([...here]), 'PX', LIFE_MS);
        return;
      }
      const samples = await this.#counted(add(here, await this.#elsewhere()));
      for (let from = 0; from < samples.length; from += MAX_POOL_SAMPLE_BATCH)
        await insertPoolSamples(db, atMs, samples.slice(from, from + MAX_POOL_SAMPLE_BATCH));
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) log.warn({ err: error }, 'pools were not sampled, trying again');
      this.#isFailing = true;
    }
  }

  /** Sums of the machines that are linked here, by pool. */
  #useHere(): Map<number, Use> {
    const { machines, clock } = this.#parts;
    const sinceMs = clock.monotonicMs() - LIFE_MS;
    const sums = new Map<number, Use>();
    for (const [machineId, { use, atMs }] of this.#heard) {
      const machine = machines.get(machineId);
      if (atMs < sinceMs) this.#heard.delete(machineId);
      if (atMs < sinceMs || machine === undefined || !isCounted(machine)) continue;
      sums.set(machine.row.poolId, plus(sums.get(machine.row.poolId), use));
    }
    return sums;
  }

  async #elsewhere(): Promise<readonly (readonly [number, Use])[]> {
    const { redis, instance, keyOf, replicas } = this.#parts;
    const others = [...replicas()].filter((other) => other !== instance);
    if (redis === undefined || others.length === 0) return [];
    const texts = await redis.mget(others.map(keyOf)).catch(() => []);
    return texts.flatMap((text) => (text === null ? [] : (JSON.parse(text) as [number, Use][])));
  }

  async #counted(use: ReadonlyMap<number, Use>): Promise<readonly PoolSample[]> {
    const { machines } = this.#parts;
    const pools = new Map<number, PoolSample>();
    let index = 0;
    for (const machine of machines.all()) {
      index += 1;
      if (index % PER_TURN === 0) await nextTurn();
      if (!isCounted(machine)) continue;
      const { poolId, poolSettings } = machine.row;
      const { containers, freeGpus } = machines.capacity(machine);
      const before = pools.get(poolId) ?? {
        poolId,
        machines: 0,
        containers: 0,
        gpus: 0,
        freeGpus: 0,
        hourlyCost: 0,
        ...(use.get(poolId) ?? NO_USE),
      };
      pools.set(poolId, {
        ...before,
        machines: before.machines + 1,
        containers: before.containers + containers,
        gpus: before.gpus + gpusOf(machine).length,
        freeGpus: before.freeGpus + freeGpus,
        hourlyCost: before.hourlyCost + (poolSettings.hourlyCost ?? 0),
      });
    }
    return [...pools.values()].toSorted((a, b) => a.poolId - b.poolId);
  }
}

const isCounted = ({ row, health }: Machine): boolean => row.joinedAtMs !== null && COUNTED.has(health);

const plus = (sum: Use = NO_USE, { cpuUsed, cpuTotal, memoryUsed, memoryTotal, diskUsed, diskTotal }: Use): Use => ({
  cpuUsed: sum.cpuUsed + cpuUsed,
  cpuTotal: sum.cpuTotal + cpuTotal,
  memoryUsed: sum.memoryUsed + memoryUsed,
  memoryTotal: sum.memoryTotal + memoryTotal,
  diskUsed: sum.diskUsed + diskUsed,
  diskTotal: sum.diskTotal + diskTotal,
});

function add(here: Map<number, Use>, elsewhere: readonly (readonly [number, Use])[]): ReadonlyMap<number, Use> {
  for (const [poolId, use] of elsewhere) here.set(poolId, plus(here.get(poolId), use));
  return here;
}

/** A whole number within bounds: an agent may send any. */
const whole = (value: number): number => (value > 0 ? Math.round(Math.min(value, 2 ** 50)) : 0);

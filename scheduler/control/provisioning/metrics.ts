// Metrics of pools that grow: what the loop decided, and the machines of providers with their cost.
import type { Registry } from '#shared/metrics.ts';
import { bounded, Counter, Gauge, Tally } from '#shared/metrics.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { GrowthView } from './explain.ts';

export class ProvisioningMetrics {
  readonly #decisions: Counter<'pool' | 'step' | 'reason'>;

  constructor(registry: Registry, { pools: pool }: Pick<FleetMetrics, 'pools'>) {
    this.#decisions = bounded(
      new Counter({
        name: 'longshore_scheduler_provision_decisions_total',
        help: 'Steps of pools that grow and shrink: grow (demand, floor, min_machines), shrink (idle), failed (grow, shrink) where a step could not be written.',
        labelNames: ['pool', 'step', 'reason'],
        registers: [registry],
      }),
      { pool },
    );
  }

  stepped(step: 'grow' | 'shrink' | 'failed', reason: string, pool: string): void {
    this.#decisions.inc({ pool, step, reason });
  }
}

/** Gauges of pools with a provider, read at each scrape; shown by the leader. */
export function registerProvisionGauges(parts: {
  readonly registry: Registry;
  readonly metrics: Pick<FleetMetrics, 'pools'>;
  readonly views: () => Iterable<GrowthView>;
  readonly isLeader: () => boolean;
}): void {
  const { metrics, views, isLeader } = parts;
  const registers = [parts.registry];
  const machines = new Gauge({
    name: 'longshore_scheduler_provision_machines',
    help: 'Machines of providers: pending (on their way), present (joined, or leaving) or stuck (a call for them keeps failing); shown by the leader.',
    labelNames: ['pool', 'state'],
    registers,
    collect: () => count(),
  });
  const cost = new Gauge({
    name: 'longshore_scheduler_provision_hourly_cost',
    help: "Cost of the providers' machines in an hour, in the operator's currency, as budgets count it; shown by the leader.",
    labelNames: ['pool'],
    registers,
  });
  const waiting = new Gauge({
    name: 'longshore_scheduler_provision_waiting_containers',
    help: 'Containers that wait for a machine of the pool: awaiting one on its way, or unserved while the pool may not grow; shown by the leader.',
    labelNames: ['pool', 'state'],
    registers,
  });
  const blocked = new Gauge({
    name: 'longshore_scheduler_provision_blocked_pools',
    help: 'Pools that may not grow although something asks for it, by the bound that keeps them from it; shown by the leader.',
    labelNames: ['reason'],
    registers,
  });
  // The registry reads gauges in the order of registration: a single walk over the pools fills all of them.
  const count = (): void => {
    const byState = new Tally('pool', 'state');
    const costs = new Tally('pool');
    const containers = new Tally('pool', 'state');
    const reasons = new Tally('reason');
    for (const view of isLeader() ? views() : []) {
      const pool = metrics.pools.of(view.poolName);
      const { stuck } = view.trouble;
      const coming = stuck.filter(({ isComing }) => isComing).length;
      byState.add(view.pending - coming, pool, 'pending');
      byState.add(view.machines - view.pending - (stuck.length - coming), pool, 'present');
      byState.add(stuck.length, pool, 'stuck');
      costs.add(view.hourlyCost, pool);
      containers.add(view.awaiting, pool, 'awaiting');
      containers.add(view.unserved, pool, 'unserved');
      if (view.unserved > 0) reasons.add(1, view.verdict);
    }
    byState.writeTo(machines);
    costs.writeTo(cost);
    containers.writeTo(waiting);
    reasons.writeTo(blocked);
  };
}

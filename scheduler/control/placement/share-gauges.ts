// Gauges of how workspaces share markets, read at each scrape; shown by the leader. A workspace has series of its own
// while it is one of the largest of a market, because there may be thousands.
import type { Registry } from '#shared/metrics.ts';
import { Gauge, Tally } from '#shared/metrics.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { ReservationRow } from '../plan/reservation-report.ts';
import type { MarketReport } from '../plan/share-report.ts';

/** Workspaces of a market that have series of their own. */
const MOST_WORKSPACES = 20;
const OTHERS = 'other';

export function registerShareGauges(parts: {
  readonly registry: Registry;
  readonly metrics: Pick<FleetMetrics, 'gpuModels'>;
  readonly reports: () => readonly MarketReport[];
  /** Machines that are kept for containers that wait. */
  readonly reservations: () => readonly Pick<ReservationRow, 'market'>[];
  readonly nowMs: () => number;
  readonly isLeader: () => boolean;
}): void {
  const { metrics, reports, nowMs, isLeader } = parts;
  const registers = [parts.registry];
  const dominant = new Gauge({
    name: 'longshore_scheduler_dominant_share',
    help: 'Share of a market that a workspace holds beyond its guarantee, by weight: the 20 largest, and the sum of others; shown by the leader.',
    labelNames: ['market', 'workspace'],
    registers,
    collect: () => count(),
  });
  const fair = new Gauge({
    name: 'longshore_scheduler_fair_share',
    help: 'GPUs, or cores in the market cpu, that would be fair for a workspace now: the 20 largest, and the sum of others; shown by the leader.',
    labelNames: ['market', 'workspace'],
    registers,
  });
  const jain = new Gauge({
    name: 'longshore_scheduler_fairness_jain',
    help: "Jain's index of what workspaces hold by what would be fair: 1 is fair; shown by the leader.",
    labelNames: ['market'],
    registers,
  });
  const waiting = new Gauge({
    name: 'longshore_scheduler_waiting_containers',
    help: 'Containers that wait for a machine, by the market they count in: the 20 largest workspaces, and the sum of others; shown by the leader.',
    labelNames: ['market', 'workspace'],
    registers,
  });
  const oldest = new Gauge({
    name: 'longshore_scheduler_oldest_wait_seconds',
    help: 'Wait of the container that has waited longest, by market and priority; shown by the leader.',
    labelNames: ['market', 'class'],
    registers,
  });
  const reserved = new Gauge({
    name: 'longshore_scheduler_reservations',
    help: 'Machines that are kept for containers which need several GPUs, or half a machine, and have waited long; shown by the leader.',
    labelNames: ['market'],
    registers,
  });
  // The registry reads gauges in the order of registration: one report fills all of them.
  const count = (): void => {
    const [shares, fairShares, waits] = [
      new Tally('market', 'workspace'),
      new Tally('market', 'workspace'),
      new Tally('market', 'workspace'),
    ];
    const [indexes, ages] = [new Tally('market'), new Tally('market', 'class')];
    for (const { market: name, rows, fairness, oldestAtMs } of isLeader() ? reports() : []) {
      const market = metrics.gpuModels.of(name);
      const largest = rows.toSorted((a, b) => b.used - a.used || b.waiting - a.waiting);
      for (const [index, row] of largest.entries()) {
        const workspace = index < MOST_WORKSPACES ? row.workspaceId : OTHERS;
        shares.add(row.share, market, workspace);
        fairShares.add(row.fairShare, market, workspace);
        waits.add(row.waiting, market, workspace);
      }
      if (rows.length > 0) indexes.add(fairness, market);
      for (const [priority, atMs] of oldestAtMs) ages.add(Math.max(0, nowMs() - atMs) / 1000, market, priority);
    }
    const kept = new Tally('market');
    for (const { market } of isLeader() ? parts.reservations() : []) kept.add(1, metrics.gpuModels.of(market));
    kept.writeTo(reserved);
    shares.writeTo(dominant);
    fairShares.writeTo(fair);
    indexes.writeTo(jain);
    waits.writeTo(waiting);
    ages.writeTo(oldest);
  };
}

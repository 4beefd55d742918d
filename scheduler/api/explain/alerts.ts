// Alerts that the scheduler knows by itself: rules of deploy/prometheus/alerts.yml that follow from what it has in
// memory, each with its subject and the next step. Rules about rates and histories are left to Prometheus.
// Invariant: nothing runs while nobody reads, and one look serves all readers for a few seconds.
import type { AlertRecord } from '#shared/api/rest/alerts.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { Clock } from '#shared/clock.ts';
import { conditionOf } from '#shared/domain/conditions.ts';
import { AppError } from '#shared/errors.ts';
import type { GpuMap, MappedGpu } from '../../fleet/gpu-map.ts';
import { hostOf } from '../../fleet/host-facts.ts';
import { conditionsOf, conditionWordsOf } from '../../fleet/machine.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { WorkerService } from '../../fleet/worker-service.ts';
import type { Waiting, WaitingReads } from './waiting.ts';

export interface AlertParts {
  readonly machines: Pick<Machines, 'all'>;
  readonly workers: Pick<WorkerService, 'listWorkers'>;
  readonly gpuMap: Pick<GpuMap, 'list'>;
  readonly waiting: Pick<WaitingReads, 'of'>;
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
}

export interface AlertLook {
  readonly alerts: readonly AlertRecord[];
  readonly total: number;
  readonly atMs: number;
}

export const MOST_ALERTS = 500;
const KEPT_MS = 3_000;
const MINUTE_MS = 60_000;
/** Times after which the rules of the same names fire. */
const SILENT_MS = 2 * MINUTE_MS;
const LOST_MS = 5 * MINUTE_MS;
const UNSCHEDULABLE_MS = 10 * MINUTE_MS;
const DRAIN_LATE_MS = 15 * MINUTE_MS;
const HOT_CELSIUS = 85;
/** So many machines of a pool that are silent, and at least half of them, point to the network. */
const MANY_SILENT = 3;
/** States of GPUs that count as out; an operator knows of the others. */
const OUT: ReadonlySet<string> = new Set(['unhealthy', 'lost', 'quarantined', 'suspect']);
const CRITICAL_CONDITIONS: Readonly<Record<string, string>> = {
  EngineCannotStart: 'LongshoreEngineCannotStart',
  DockerDown: 'LongshoreDockerDown',
};
const SHARED = { workspaceId: null };

export class Alerts {
  readonly #parts: AlertParts;
  #kept: { readonly look: Promise<AlertLook>; readonly untilMs: number } | undefined;

  constructor(parts: AlertParts) {
    this.#parts = parts;
  }

  async list(): Promise<AlertLook> {
    const nowMs = this.#parts.clock.monotonicMs();
    if (this.#kept === undefined || nowMs >= this.#kept.untilMs)
      this.#kept = { look: this.#look(), untilMs: nowMs + KEPT_MS };
    const { look } = this.#kept;
    try {
      return await look;
    } catch (error) {
      if (this.#kept?.look === look) this.#kept = undefined;
      throw error;
    }
  }

  async #look(): Promise<AlertLook> {
    const { machines, workers, gpuMap, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const joined = [...machines.all()].filter(
      ({ row, health }) => row.joinedAtMs !== null && health !== 'PENDING' && health !== 'EXPIRED',
    );
    const [gpus, waits] = await Promise.all([gpuMap.list(SHARED, {}), this.#waits(nowMs)]);
    const alerts = [
      ...waits,
      ...silentPools(joined),
      ...joined.flatMap((machine) => machineAlerts(machine, nowMs)),
      ...workers.listWorkers(SHARED).flatMap(({ workerId, drain }) => {
        const deadlineMs = drain?.deadlineAtMs ?? null;
        if (drain === null || drain.remaining === 0 || deadlineMs === null || nowMs < deadlineMs + DRAIN_LATE_MS)
          return [];
        return alert('LongshoreDrainTakesLong', 'warning', ['machine', workerId, ''], deadlineMs, {
          text: `the drain of machine ${workerId} does not end: ${drain.remaining} of ${drain.total} containers are left`,
          step: 'see what blocks it: `longshore worker list`',
        });
      }),
      ...gpus.flatMap(gpuAlerts),
    ];
    const sorted = alerts.toSorted((a, b) => rankOf(a) - rankOf(b));
    return { alerts: sorted.slice(0, MOST_ALERTS), total: sorted.length, atMs: nowMs };
  }

  /** Containers that wait for too long; the absence of a leader is an alert itself. */
  async #waits(nowMs: number): Promise<readonly AlertRecord[]> {
    try {
      const { groups } = await this.#parts.waiting.of(null);
      return groups
        .filter(({ oldest_at: at }) => nowMs - Date.parse(at) >= UNSCHEDULABLE_MS)
        .flatMap((group) => [...waitAlert(group), ...growthAlerts(group)]);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'not_leading') throw error;
      return alert('LongshoreNoLeader', 'critical', ['installation', '', ''], null, {
        text: 'no scheduler decides: nothing is scaled or placed',
        step: 'see whether Redis answers, then the log of the schedulers for "leader lease"',
      });
    }
  }
}

const rankOf = ({ severity }: AlertRecord): number => (severity === 'critical' ? 0 : 1);

function alert(
  rule: string,
  severity: AlertRecord['severity'],
  [type, id, name]: readonly [AlertRecord['subject']['type'], string, string],
  sinceMs: number | null,
  said: { readonly text: string; readonly step: string },
): readonly AlertRecord[] {
  return [{ rule, severity, subject: { type, id, name }, ...said, since: timestampOf(sinceMs) }];
}

function waitAlert(group: Waiting): readonly AlertRecord[] {
  const id = group.deployment_id ?? group.stub_id;
  return alert('LongshoreContainersUnschedulable', 'warning', ['deployment', id, ''], Date.parse(group.oldest_at), {
    text: `${group.containers} containers of it find no machine: ${group.text}`,
    step: group.step === '' ? `see why: \`longshore explain ${group.oldest_id}\`` : group.step,
  });
}

function growthAlerts({ growth, oldest_at: oldestAt }: Waiting): readonly AlertRecord[] {
  return growth.flatMap((pool) => [
    ...(pool.step === '' || pool.verdict === 'awaited'
      ? []
      : alert('LongshorePoolsCannotGrow', 'warning', ['pool', pool.pool, pool.pool], Date.parse(oldestAt), {
          text: pool.text,
          step: pool.step,
        })),
    ...pool.stuck.flatMap((machine) =>
      alert('LongshoreMachinesStuck', 'warning', ['machine', machine.machine_id, ''], null, {
        text: machine.text,
        step: `\`${machine.step}\``,
      }),
    ),
  ]);
}

const isSilent = ({ health }: Machine): boolean => health === 'SUSPECT' || health === 'LOST';

function silentPools(joined: readonly Machine[]): readonly AlertRecord[] {
  return [...Map.groupBy(joined, ({ row }) => row.poolName)].flatMap(([pool, machines]) => {
    const silent = machines.filter(isSilent);
    if (silent.length < MANY_SILENT || silent.length * 2 < machines.length) return [];
    const sinceMs = Math.min(...silent.map(({ suspectSinceMs, lastSeenAtMs }) => suspectSinceMs ?? lastSeenAtMs ?? 0));
    return alert('LongshoreManyMachinesSuspect', 'critical', ['pool', pool, pool], sinceMs > 0 ? sinceMs : null, {
      text: `${silent.length} of ${machines.length} machines of pool ${pool} do not answer`,
      step: 'look at the network between machines and schedulers first, then at the machines: `longshore machine list`',
    });
  });
}

function machineAlerts(machine: Machine, nowMs: number): readonly AlertRecord[] {
  const { row, health } = machine;
  const subject = ['machine', row.id, row.hostname ?? ''] as const;
  const sinceMs = machine.suspectSinceMs ?? machine.lastSeenAtMs;
  const silentMs = sinceMs === null ? Infinity : nowMs - sinceMs;
  const contestedMs = row.contestedAtMs;
  const show = `\`longshore machine show ${row.id}\``;
  return [
    ...(health === 'LOST' && silentMs >= LOST_MS
      ? alert('LongshoreMachinesLost', 'warning', subject, sinceMs, {
          text: `machine ${row.id} is lost, and its containers are replaced elsewhere`,
          step: 'look at the host; its agent says why in `journalctl -u longshore-agent`',
        })
      : []),
    ...(isSilent(machine) && silentMs >= SILENT_MS && !(health === 'LOST' && silentMs >= LOST_MS)
      ? alert('LongshoreAgentDisconnected', 'warning', subject, sinceMs, {
          text: `the agent of machine ${row.id} has no link to a scheduler`,
          step: 'on the host, look at its agent: `journalctl -u longshore-agent`',
        })
      : []),
    ...(contestedMs !== null && conditionsOf(machine, nowMs).includes('Unauthorized')
      ? alert('LongshoreMachineContested', 'critical', subject, contestedMs, {
          text: `two agents speak as machine ${row.id}: its identity was copied or stolen`,
          step: `drain and delete it, and join its host anew: \`longshore worker drain ${row.id}\``,
        })
      : []),
    ...(isSilent(machine) ? [] : machine.conditions).flatMap((name) => {
      const rule = CRITICAL_CONDITIONS[name];
      const words = conditionWordsOf(machine)[name];
      return alert(rule ?? 'LongshoreAgentCondition', rule === undefined ? 'warning' : 'critical', subject, null, {
        text: `machine ${row.id} says ${name}: ${words ?? conditionOf(name)?.says ?? 'its agent does not say more'}`,
        step: conditionOf(name)?.step || `see its words: ${show}`,
      });
    }),
    ...(hostOf(machine.inventory)?.warnings ?? []).flatMap(({ check, found, remedy }) =>
      alert('LongshoreHostWarning', 'warning', subject, null, {
        text: `a check of machine ${row.id} warns: ${check}: ${found}`,
        step: remedy,
      }),
    ),
  ];
}

function gpuAlerts({ gpu, state, why, steps, standing, use, machineId, hostname }: MappedGpu): readonly AlertRecord[] {
  const subject = ['gpu', gpu.uuid, `${hostname === '' ? machineId : hostname}/${gpu.index}`] as const;
  const heat = use?.temperatureCelsius ?? 0;
  return [
    ...(standing === 'out' && OUT.has(state)
      ? alert('LongshoreGpuOut', 'warning', subject, null, {
          text: `GPU ${gpu.uuid} is ${state}: ${why}`,
          step: steps.join('; then '),
        })
      : []),
    ...(heat > HOT_CELSIUS
      ? alert('LongshoreGpuHot', 'warning', subject, null, {
          text: `GPU ${gpu.uuid} has ${heat} degrees`,
          step: 'look at the cooling of the host: the clocks of the GPU are held down a few degrees above',
        })
      : []),
  ];
}

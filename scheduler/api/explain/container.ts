// A container's explanation: its phase of life, the machines that refused it and why, the next event and its time.
import { nearestTexts } from '#shared/domain/gpu-terms.ts';
import type { NearGpu } from '#shared/domain/gpu-terms.ts';
import { labelTexts } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import { MORE_MEMORY } from '#shared/domain/task-failures.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { ExplainedContainer, ExplainedScaling, Explanation } from '#shared/api/explain.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { StoredSpec } from '../../fleet/containers/spec.ts';
import { ADMIN_PREEMPTED, ADMIN_PREEMPTED_WITH_CALLS, PREEMPTED, YIELDED } from '../../fleet/containers/spec.ts';
import { fellBackFrom } from '../../fleet/containers/spec.ts';
import { publicStatus } from '../../fleet/containers/state.ts';
import type { ContainerGpuUse, ContainerUsage } from '../../fleet/usage.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import { commonest, GIVE_UP_MS } from '../../control/placement/waiting.ts';
import type { WaitTexts } from './deployment.ts';
import { NO_WAIT, growthTexts, waitSteps } from './deployment.ts';
import { startTimeoutMsOf } from '../../domain/start-timeout.ts';
import { imageSteps } from './images.ts';
import { awaitedReadiness, logsStep, readinessSteps, startPhases } from './readiness.ts';
import { countsOf } from './scaling.ts';
import { startTimes } from './starts.ts';
import type { ContainerStart } from './starts.ts';
import {
  KEPT_FOREVER,
  conditionSteps,
  conditionTexts,
  driverTexts,
  gpuTexts,
  isForDevices,
  keptFor,
  oneWorkerTexts,
  rejectionStep,
  rejectionTexts,
  warmSecondsOf,
} from './texts.ts';

/** Facts of the machines that a workspace may use. */
export interface MachineFacts {
  /** Conditions that keep new containers away, with the number of machines that have each. */
  readonly conditions: Readonly<Record<string, number>>;
  /** Text of each condition from one of the machines, where its agent says more than the name. */
  readonly conditionWords: Readonly<Record<string, string>>;
  /** Unusable GPUs: their number by state and reason. */
  readonly gpus: Readonly<Record<string, number>>;
  /** GPU drivers, with the number of machines that have each. */
  readonly drivers: Readonly<Record<string, number>>;
  /** Sorts of devices, some of them where there are many. */
  readonly devices: readonly NearGpu[];
  /** Labels of each machine. */
  readonly labels: readonly Labels[];
}

export interface ContainerFacts extends MachineFacts {
  readonly row: ContainerRow;
  /** Rejections of the last placement attempt, from memory; null: none, or not known here. */
  readonly rejections: Readonly<Record<string, number>> | null;
  /** The last start of the container; undefined: none is told. */
  readonly start?: ContainerStart | undefined;
  /** Progress of its start, as its agent reports it; empty: not known. */
  readonly progress: string;
  /** Health of its machine; empty: none, or gone. */
  readonly machineHealth: string;
  /** When its machine went silent; null: the machine answers, or the time is not known. */
  readonly machineSilentSinceMs: number | null;
  /** Resource use as its machine last reported it; null: not known. */
  readonly usage: Pick<ContainerUsage, 'diskBytes' | 'diskLimitBytes' | 'gpu'> | null;
  readonly deploymentName: string;
  /** The only pool that the container may run in. */
  readonly pool: NamedPool;
  /** Limits of the workspace that the container waits for. */
  readonly quota: readonly string[];
  readonly scaling: ExplainedScaling | null;
  readonly leaderAnswered: boolean;
}

const ACK_MS = 15_000;
const TERM_MS = 30_000;
const UNKNOWN_MS = 24 * 3600_000;

export function explainContainer(facts: ContainerFacts): Explanation {
  const { row, scaling } = facts;
  const own = scaling?.containers.find((one) => one.container_id === row.id);
  const rejections = countsOf(
    own !== undefined && own.main_rejection !== '' ? own.rejections : (facts.rejections ?? row.rejections),
  );
  return {
    kind: 'container',
    id: row.id,
    workspace_id: row.workspaceId,
    state: row.state,
    since: timestampOf(sinceMs(row)),
    summary: `container ${row.id}${facts.deploymentName === '' ? '' : ` of ${facts.deploymentName}`} ${summaryOf(row)}`,
    ...waitingOf(facts, own),
    details: detailsOf(facts, own, rejections),
    next_steps: [
      ...stepsOf(facts, own, rejections),
      ...((rejections['condition'] ?? 0) > 0 ? conditionSteps(facts.conditions) : []),
    ],
    leader_answered: facts.leaderAnswered,
    task: null,
    container: {
      status: publicStatus(row.state, row.stateBefore) ?? '',
      deployment_id: row.deploymentId ?? '',
      stub_id: row.stubId,
      machine_id: row.machineId ?? '',
      machine_health: facts.machineHealth,
      epoch: row.epoch,
      created_at: timestampOf(row.createdAtMs),
      scheduled_at: timestampOf(row.scheduledAtMs),
      started_at: timestampOf(row.startedAtMs),
      ended_at: timestampOf(row.endedAtMs),
      start_failures: row.startFailures,
      reason: row.reason ?? '',
      exit_code: row.exitCode,
      message: row.message ?? '',
      rejections,
    },
    deployment: null,
    scaling,
  };
}

/** When the container entered its state, as far as its row says; for states in between, the last known time. */
function sinceMs(row: ContainerRow): number | null {
  if (isTerminalContainer(row.state)) return row.endedAtMs;
  if (row.state === 'PENDING') return row.createdAtMs;
  return row.state === 'RUNNING' ? row.startedAtMs : (row.scheduledAtMs ?? row.createdAtMs);
}

/** Text of the end, ` (oom, exit code 137)`; empty where there is no reason. */
export const reasonText = ({ reason, exitCode }: Pick<ContainerRow, 'reason' | 'exitCode'>): string =>
  reason === null ? '' : ` (${reason}${exitCode === null ? '' : `, exit code ${exitCode}`})`;

function summaryOf(row: ContainerRow): string {
  const on = row.machineId === null ? '' : ` on machine ${row.machineId}`;
  const why = reasonText(row);
  switch (row.state) {
    case 'PENDING':
      return 'has no machine yet';
    case 'ASSIGNED':
      return `has its place${on}, whose agent has not taken it yet`;
    case 'STARTING':
      return `starts${on}: ${startPhases(row.spec as StoredSpec)}`;
    case 'RUNNING':
      return `is ready${on}`;
    case 'DRAINING':
      return `finishes what it works on${on}, and takes nothing new${why}`;
    case 'STOPPING':
      return `was told to stop${on}${why}`;
    case 'UNKNOWN':
      return `was${on}, which is lost`;
    case 'STOPPED':
      return `has stopped${why}`;
    case 'FAILED':
      return `failed${why}`;
    case 'LOST':
      return `went with its machine${why}`;
  }
}

function waitingOf(
  { row, progress, machineSilentSinceMs: silentSinceMs }: ContainerFacts,
  own: ExplainedContainer | undefined,
): WaitTexts {
  const after = (ms: number | null, more: number) => timestampOf(ms === null ? null : ms + more);
  switch (row.state) {
    case 'PENDING':
      return {
        waits_for: 'a machine that takes it; then it gives up',
        until: own?.gives_up_at ?? after(row.createdAtMs, GIVE_UP_MS),
      };
    case 'ASSIGNED':
      return { waits_for: 'the word of the agent; then another machine', until: after(row.scheduledAtMs, ACK_MS) };
    case 'STARTING':
      // The time of a start begins when its image is there.
      if (progress !== '') return { waits_for: 'its image', until: null };
      return {
        waits_for: `${awaitedReadiness(row.spec as StoredSpec)}; then it fails`,
        until: after(row.scheduledAtMs, startTimeoutMs(row)),
      };
    case 'RUNNING':
      if (own === undefined || own.keep_warm_until === null) return NO_WAIT;
      return { waits_for: 'work; it is kept warm, then it may be let go', until: own.keep_warm_until };
    case 'DRAINING':
      return { waits_for: 'the end of what it works on', until: null };
    case 'STOPPING':
      return { waits_for: `its processes to end; they are killed ${TERM_MS / 1000} s after TERM`, until: null };
    case 'UNKNOWN':
      return { waits_for: 'its machine to come back; then it is given up', until: after(silentSinceMs, UNKNOWN_MS) };
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return NO_WAIT;
  }
}

const startTimeoutMs = (row: ContainerRow): number =>
  (row.spec as StoredSpec).wire?.startTimeoutMs || startTimeoutMsOf(undefined);

function detailsOf(
  facts: ContainerFacts,
  own: ExplainedContainer | undefined,
  rejections: Readonly<Record<string, number>>,
): string[] {
  const { row, scaling } = facts;
  const { lack } = facts.pool;
  const details = [
    // Commands that wait show the first detail.
    ...(facts.progress !== '' && row.state === 'STARTING' ? [facts.progress] : []),
    ...(lack === undefined ? [] : [lack.says]),
    ...rejectionTexts(rejections, facts.pool),
    ...(row.state === 'PENDING' && scaling !== null ? [...(scaling.line ?? []), ...growthTexts(scaling)] : []),
    ...facts.quota,
  ];
  if ((rejections['condition'] ?? 0) > 0) details.push(...conditionTexts(facts.conditions, facts.conditionWords));
  if ((rejections['gpu_count'] ?? 0) > 0) details.push(...gpuTexts(facts.gpus));
  if ((rejections['gpu_driver'] ?? 0) > 0)
    details.push(...driverTexts((row.spec as StoredSpec).minCuda ?? '', facts.drivers));
  if ((rejections['label'] ?? 0) > 0)
    details.push(...labelTexts((row.spec as Partial<StoredSpec>).labels, facts.labels));
  if (isForDevices(rejections))
    details.push(...nearestTexts((row.spec as Partial<StoredSpec>).gpu ?? [], facts.devices));
  if (row.reason === 'start_timeout')
    details.push(
      `it waited in vain for ${awaitedReadiness(row.spec as StoredSpec)}, ${startTimeoutMs(row) / 1000} seconds (\`start_timeout\`)`,
    );
  if (row.reason === PREEMPTED)
    details.push(
      'it is interruptible, and ends for a container of a workspace that holds less (`preempted`); its tasks run again, and use no retry',
    );
  if (row.reason === YIELDED)
    details.push(
      'it ends after its tasks for a container of a workspace that holds less (`yielded`); none of them is interrupted',
    );
  if (row.reason === ADMIN_PREEMPTED || row.reason === ADMIN_PREEMPTED_WITH_CALLS)
    details.push(
      `an administrator had it leave (\`${row.reason}\`); its tasks run again, and use no retry${row.reason === ADMIN_PREEMPTED ? '' : '; calls that outlast the notice end'}`,
    );
  if (row.startFailures > 0) details.push(failedStartsText(row));
  if (facts.start !== undefined) details.push(`its start ${startTimes(facts.start)}`);
  const { usage } = facts;
  if (usage !== null && usage.diskBytes > 0) details.push(diskText(usage));
  if (usage !== null && usage.gpu !== null) details.push(gpuText(usage.gpu));
  if (own !== undefined && own.attempts !== null && row.state === 'RUNNING') {
    details.push(`it works on ${own.attempts} of ${own.slots} tasks that it can hold`);
  }
  const asked = fellBackFrom(row);
  if (asked !== undefined) details.push(`it ${oneWorkerTexts(asked).says}`);
  if (own?.kept_forever === true) details.push(`it is never let go for want of work (${KEPT_FOREVER})`);
  if (own !== undefined && own.keep_warm_until !== null)
    details.push(`it is idle, and kept warm (${keptFor(warmSecondsOf(own))})`);
  if (facts.machineHealth !== '' && facts.machineHealth !== 'READY')
    details.push(`its machine is ${facts.machineHealth}`);
  if (scaling !== null && scaling.breaker.failures > 0) {
    details.push(
      `starts of its deployment that failed in a row: ${scaling.breaker.failures} (breaker ${scaling.breaker.phase})`,
    );
  }
  if (!facts.leaderAnswered) details.push('the leader did not answer, so what it knows is missing');
  return details;
}

function stepsOf(
  { row, pool, scaling }: ContainerFacts,
  own: ExplainedContainer | undefined,
  rejections: Readonly<Record<string, number>>,
): string[] {
  if (row.state === 'PENDING') {
    const steps =
      own === undefined ? withoutLeader(rejections, pool) : waitSteps(scaling ?? { growth: [] }, [own], pool);
    return pool.lack === undefined ? steps : [...new Set([pool.lack.step, ...steps])];
  }
  if (row.state === 'FAILED') return failedSteps(row);
  const asked = fellBackFrom(row);
  if (asked !== undefined) return [oneWorkerTexts(asked).step];
  if (row.state === 'STARTING') return readinessSteps(row.spec as StoredSpec, row.id);
  if (row.state === 'UNKNOWN') return ['bring its machine back, or delete it: `longshore machine list`'];
  return [];
}

/** Starts that were tried elsewhere, and why the last of them failed while it waits or starts again. */
function failedStartsText({ startFailures, state, message }: ContainerRow): string {
  const times = `its start failed ${startFailures === 1 ? 'once' : `${startFailures} times`} on other machines before`;
  const isBefore = state === 'PENDING' || state === 'ASSIGNED' || state === 'STARTING';
  return isBefore && message !== null ? `${times}, at last because ${message}` : times;
}

/** Steps to cure a FAILED container. */
export function failedSteps(row: ContainerRow): string[] {
  if (row.reason === 'start_timeout')
    return [
      ...readinessSteps(row.spec as StoredSpec, row.id),
      'where it needs more time, deploy it with a longer `start_timeout`',
    ];
  if (row.reason === 'oom') return [MORE_MEMORY, logsStep(row.id)];
  if (row.reason === 'gpu_driver')
    return [
      'upgrade the GPU driver of the machines (docs/gpus.md), or deploy with an image of an older CUDA version',
      'where some machines have a newer driver, say `min_cuda`: then only those are tried',
    ];
  if (row.reason === 'registry_busy')
    return ['its registry did not serve its machine: look at the registry, or give the pool a mirror of it'];
  if (row.reason !== 'image_error') return [logsStep(row.id)];
  const { wire } = row.spec as StoredSpec;
  return [...imageSteps(row.message ?? '', wire?.image ?? '', row.machineId ?? '')];
}

function withoutLeader(rejections: Readonly<Record<string, number>>, pool: NamedPool): string[] {
  const step = rejectionStep(commonest(rejections), pool);
  return Object.keys(rejections).length === 0 || step === '' ? [] : [step];
}

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

const diskText = ({ diskBytes, diskLimitBytes }: NonNullable<ContainerFacts['usage']>): string => {
  const used = `it wrote ${Math.ceil(diskBytes / MIB)} MiB to its disk`;
  if (diskLimitBytes === 0) return `${used}, which has no limit`;
  return `${used}, and may write ${Math.floor(diskLimitBytes / MIB)} MiB (LONGSHORE_AGENT_CONTAINER_DISK_MIB of its machine)`;
};

/** Text of the reported numbers only: `its 2 GPUs: 63 % busy, 40 of 160 GiB of memory used, 700 W`. */
function gpuText({ devices, utilizationPct, memoryUsedBytes, memoryTotalBytes, powerWatts }: ContainerGpuUse): string {
  const gib = (bytes: number): string => String(Math.round((bytes / GIB) * 10) / 10);
  const total = memoryTotalBytes === null ? '' : ` of ${gib(memoryTotalBytes)}`;
  const told = [
    ...(utilizationPct === null ? [] : [`${Math.round(utilizationPct)} % busy`]),
    ...(memoryUsedBytes === null ? [] : [`${gib(memoryUsedBytes)}${total} GiB of memory used`]),
    ...(powerWatts === null ? [] : [`${Math.round(powerWatts)} W`]),
  ];
  const whose = devices === 1 ? 'its GPU' : `its ${devices} GPUs`;
  return told.length === 0 ? `the driver does not tell the use of ${whose}` : `${whose}: ${told.join(', ')}`;
}

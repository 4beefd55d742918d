// Reasons as sentences for people, with the steps that cure them.
import type { HoldReason, ScaleDecision } from '../../control/autoscaler/decide.ts';
import type { RejectionReason } from '../../control/plan/filter.ts';
import type { ExplainedContainer } from '#shared/api/explain.ts';
import { driverOf, driverText } from '#shared/domain/cuda.ts';
import { conditionOf } from '#shared/domain/conditions.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import { NO_POOL, admitTo } from '../../domain/named-pool.ts';
import { WORKER_CHOICE } from '../../domain/worker-choice.ts';

const HOLDS: Readonly<Record<HoldReason, string>> = {
  at_target: 'as many containers live as are wanted',
  busy_or_warm: 'more containers live than are wanted, but each of them works or is kept warm',
  in_window: 'more containers live than are wanted now, but the window before asked for them',
  scale_in_rate: 'more containers live than are wanted, and as many as may end in a minute have ended',
  bad_sample: 'the queue could not be read, so nothing changes',
  limits_unknown: 'the limits of its workspace are not read yet, so nothing changes',
  cooling_down: 'starts failed in a row, so nothing is started before the cooldown is over',
  probing: 'one container shows whether starts work again; the others wait for it',
  host_causes:
    'its last starts failed by causes of machines or of a registry, so one container is tried at a time, after a pause',
  exclusive_on_lost:
    'a container of it may still run on a lost machine, whose agent stops it by itself; until that is certain no other takes its place',
  unplaced: 'enough containers wait for a place; the others follow as these are placed',
  after_restart: 'the scheduler has just started, so nothing that it found is stopped yet',
  new_leader: 'another scheduler process has just begun to lead, so nothing is stopped yet',
  mass_disconnect: 'many machines went silent at once, so nothing is stopped',
};

/** The event that ends a hold; follows "waits for: ". */
const HOLD_ENDS: Readonly<Record<Exclude<HoldReason, 'at_target'>, string>> = {
  busy_or_warm: 'containers beyond those wanted to end their work and their keep-warm time',
  in_window: 'the end of the window in which more were wanted',
  scale_in_rate: 'the next container to be allowed to end (`scale_in_per_minute`)',
  bad_sample: 'the queue to be readable again',
  limits_unknown: 'the limits of its workspace to be read from the database',
  cooling_down: 'the end of the cooldown; then one container probes',
  probing: 'the probe to complete a task, or to stay up for a minute',
  host_causes:
    'the end of a pause, or a container that gets ready; causes of machines and registries count for no breaker',
  exclusive_on_lost: 'the machine to come back, or the time to pass after which its agent has stopped it',
  unplaced: 'places for the containers that wait',
  after_restart: 'the quiet time after the start of the scheduler to end',
  new_leader: 'the quiet time after the change of the leader to end',
  mass_disconnect: 'the machines that went silent',
};

/** The end of a hold as text. @param why - of a decision to hold; any other text gives the empty text */
export const holdEnds = (why: string): string => (HOLD_ENDS as Readonly<Record<string, string | undefined>>)[why] ?? '';

/** A hold's text without its first part, for places that show the numbers already. */
export const withoutNumbers = (text: string): string =>
  text.replace(/^more containers live than are wanted(?: now)?, but /, '');

export function decisionText(decision: ScaleDecision): string {
  switch (decision.kind) {
    case 'hold':
      return HOLDS[decision.why];
    case 'start':
      return decision.probe
        ? 'the cooldown is over: one container is started as a probe'
        : `${containers(decision.count)} started, up to ${decision.wanted}`;
    case 'stop':
      return `${containers(decision.containers.length)} let go, down towards ${decision.wanted}`;
  }
}

interface Advice {
  /** Text that follows "3 machines: ". */
  readonly says: string;
  readonly step: string;
}

const REJECTIONS: Readonly<Record<RejectionReason | 'no_machine', Advice>> = {
  no_machine: {
    says: 'there is no machine',
    step: 'admit a machine: `longshore machine create`',
  },
  no_matching_pool: {
    says: 'of a pool that it does not name where it must or may not use, or kept for work with a GPU',
    step: 'name a pool that this workspace may use (`pool="…"`), or admit a machine: `longshore machine create`',
  },
  label: {
    says: 'without a label that it requires, or with one that it forbids',
    step: 'give a machine the label: `longshore machine label ID zone=a`, or deploy with another `placement`',
  },
  machine_not_ready: {
    says: 'not connected, or not ready',
    step: 'see that the agents run and reach the scheduler: `longshore machine list`',
  },
  cordoned: {
    says: 'cordoned or drained',
    step: 'put a machine back into service: `longshore worker list` shows them, `longshore worker uncordon ID` does it',
  },
  condition: {
    says: 'with a condition that keeps new containers away',
    step: '`longshore worker list` shows the conditions of the machines',
  },
  gpu_model: {
    says: 'without such a GPU',
    step: 'ask for another model (`gpu="any"`), or admit a machine that has it',
  },
  gpu_fact_unknown: {
    says: 'with a GPU that may be the one, if its memory, compute capability or driver were known',
    step: 'ask for a model without a condition, or see what its driver tells: `longshore machine gpu list ID`',
  },
  gpu_link: {
    says: 'whose GPUs are not linked by NVLink as it asks (`gpu_link`), or do not tell how they are linked',
    step: 'ask for fewer GPUs or without `gpu_link`, or admit a machine whose GPUs are linked (`nvidia-smi topo -m`)',
  },
  gpu_driver: {
    says: 'with a GPU driver that is too old for the CUDA version it needs',
    step: 'upgrade the GPU driver of a machine (docs/gpus.md), or deploy with an image of an older CUDA version and a lower `min_cuda`',
  },
  gpu_count: { says: 'without enough free GPUs', step: 'wait for a GPU to be free, ask for fewer, or admit a machine' },
  reserved: {
    says: 'with room that is kept for a larger request, which has waited long',
    step: 'wait for other room, or admit a machine; docs/sharing.md says what is kept, and how to keep nothing',
  },
  too_small: {
    says: 'too small for it, even when empty',
    step: 'ask for less `cpu` or `memory` (`longshore worker list` shows what each machine offers), or admit a larger machine',
  },
  cpu: { says: 'without enough free CPU', step: 'stop something, ask for less `cpu`, or admit a machine' },
  memory: { says: 'without enough free memory', step: 'stop something, ask for less `memory`, or admit a machine' },
  disk: { says: 'without enough free disk', step: 'make room on the machines, or admit another one' },
  volume: {
    says: 'cannot mount its volume: not its home, or without its driver',
    step: 'bring the machine back that its volume is on, or give machines its driver (docs/volumes.md)',
  },
  image_unavailable: {
    says: 'without its image, which was built elsewhere',
    step: 'bring the machine back that built the image; with a registry for built images every machine gets it (docs/images.md)',
  },
  base_python: {
    says: 'whose base images have other Python versions, or that can make none',
    step: 'name a `python_version` that machines have, or give machines its image (docs/images.md)',
  },
  arch: { says: 'of another processor architecture', step: "admit a machine of the image's architecture" },
  anti_affinity: { says: 'which it is kept away from after they sent it back', step: "look at the agents' logs there" },
  quota: {
    says: 'while the workspace has used up what it may have',
    step: "stop something, or have an administrator raise the workspace's limit: `longshore workspace limits` shows them",
  },
};

function adviceOf(reason: string, { name, lack }: NamedPool): Advice {
  const advice = (REJECTIONS as Readonly<Record<string, Advice | undefined>>)[reason] ?? { says: reason, step: '' };
  if (name === '') return advice;
  const admit = `admit a machine to it: ${admitTo(name)}`;
  if (reason === 'no_machine') return { ...advice, step: lack?.step ?? admit };
  if (reason !== 'no_matching_pool') return advice;
  // If machines of the pool have joined and the pool is still the reason, they are kept for work with a GPU.
  const letIn = `\`longshore pool set ${name} --cpu-work-on-gpu-machines yes\``;
  return {
    says: `not of pool ${name}, or kept for work with a GPU`,
    step: lack?.step ?? `let work without a GPU onto the machines of pool ${name} (${letIn}), or ${admit}`,
  };
}

/** Rejections as texts, the most frequent first: `2 machines without enough free CPU`. */
export const rejectionWords = (
  rejections: Readonly<Record<string, number>>,
  pool: NamedPool = NO_POOL,
): readonly string[] => byCount(rejections).map(([reason, count]) => rejectionText(reason, count, pool));

/** The same with the names of the reasons: `2 machines without enough free CPU (cpu)`. */
export const rejectionTexts = (
  rejections: Readonly<Record<string, number>>,
  pool: NamedPool = NO_POOL,
): readonly string[] =>
  byCount(rejections).map(([reason, count]) => `${rejectionText(reason, count, pool)} (${reason})`);

const byCount = (rejections: Readonly<Record<string, number>>): readonly (readonly [string, number])[] =>
  Object.entries(rejections)
    .filter(([, count]) => count > 0)
    .toSorted((a, b) => b[1] - a[1]);

const rejectionText = (reason: string, count: number, pool: NamedPool): string =>
  `${counted(count, 'machine')} ${rejectionSays(reason, pool)}`;

/** The text of a reason behind "3 machines ". */
export const rejectionSays = (reason: string, pool: NamedPool = NO_POOL): string => adviceOf(reason, pool).says;

/**
 * Conditions as texts, the most frequent first: `DiskPressure on 2 machines: too little free disk …`.
 * @param words - the words of one of these machines, by the condition's name
 */
export function conditionTexts(
  conditions: Readonly<Record<string, number>>,
  words: Readonly<Record<string, string>> = {},
): readonly string[] {
  return Object.entries(conditions)
    .toSorted((a, b) => b[1] - a[1])
    .map(([name, count]) => {
      const says = conditionOf(name)?.says;
      const why = words[name];
      return `${name} on ${counted(count, 'machine')}${says === undefined ? '' : `: ${says}`}${why === undefined ? '' : ` (${why})`}`;
    });
}

/**
 * GPUs as texts, the most frequent state first: `2 GPUs are unhealthy: Xid 79 …`.
 * @param gpus - their number by state and reason
 */
export const gpuTexts = (gpus: Readonly<Record<string, number>>): readonly string[] =>
  Object.entries(gpus)
    .toSorted((a, b) => b[1] - a[1])
    .map(([state, count]) => `${counted(count, 'GPU')} ${count === 1 ? 'is' : 'are'} ${state}`);

/**
 * The driver that is needed, and those there are: `it needs CUDA 12.8 (min_cuda), which runs on GPU drivers from 570
 * on; 3 machines have 535.183.01 (CUDA 12.2)`.
 * @param drivers - machines by the version of their driver
 */
export function driverTexts(minCuda: string, drivers: Readonly<Record<string, number>>): readonly string[] {
  const branch = driverOf(minCuda);
  const from = branch === undefined ? '' : `, which runs on GPU drivers from ${branch} on`;
  const there = Object.entries(drivers)
    .toSorted((a, b) => b[1] - a[1])
    .map(([driver, count]) => `${counted(count, 'machine')} ${count === 1 ? 'has' : 'have'} ${driverText(driver)}`);
  return minCuda === '' ? [] : [[`it needs CUDA ${minCuda} (\`min_cuda\`)${from}`, ...there].join('; ')];
}

/** Whether machines refused because of what their GPUs are. */
export const isForDevices = (rejections: Readonly<Record<string, number>>): boolean =>
  (rejections['gpu_model'] ?? 0) + (rejections['gpu_fact_unknown'] ?? 0) > 0;

/** Steps that cure these conditions. */
export const conditionSteps = (conditions: Readonly<Record<string, number>>): readonly string[] =>
  Object.keys(conditions)
    .map((name) => conditionOf(name)?.step ?? '')
    .filter((step) => step !== '');

/** Step that cures the reason most machines gave; empty when it is not known. */
export const rejectionStep = (reason: string, pool: NamedPool = NO_POOL): string => adviceOf(reason, pool).step;

export const containers = (count: number): string => counted(count, 'container');
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** Containers that serve with one worker although their stub asked for more: the fact, and the step that cures it. */
export function oneWorkerTexts(asked: number): { readonly says: string; readonly step: string } {
  return {
    says: `serves with one worker instead of ${asked}: a process with a GPU, or with threads that run after on_start, cannot be forked`,
    step: `set worker_mode to ${WORKER_CHOICE}, and deploy again`,
  };
}

/** Why an idle container has no end. */
export const KEPT_FOREVER = '`keep_warm_seconds` is negative';

/** The parameter that keeps an idle container. */
export const keptFor = (seconds: number): string => `\`keep_warm_seconds\`: ${seconds} s without work`;

/** Seconds that an idle container is kept; 0 where none ends. */
export const warmSecondsOf = ({ idle_since: since, keep_warm_until: until }: ExplainedContainer): number =>
  since === null || until === null ? 0 : Math.round((Date.parse(until) - Date.parse(since)) / 1000);

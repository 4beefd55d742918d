// Growth of pools as sentences: why a pool makes a machine or does not, and what its machines cost.
import type { ExplainedGrowth, StuckMachineRecord } from '#shared/api/explain.ts';
import { driverText } from '#shared/domain/cuda.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { StuckMachine } from '../../domain/provisioning.ts';
import type { GrowthView, Verdict } from '../../control/provisioning/explain.ts';
import { counted } from './texts.ts';

/**
 * @param isWhole - whether the reader is an administrator, who may know how much of a shared pool others use, and the
 * words of a provider's program
 */
export function shownGrowth(view: GrowthView, isWhole: boolean): ExplainedGrowth {
  const isTold = isWhole || !view.isShared;
  const told = <T>(value: T): T | null => (isTold ? value : null);
  return {
    pool: view.poolName,
    provider: view.provider,
    verdict: view.verdict,
    text: `pool ${view.poolName} ${TEXTS[view.verdict](view)}${isTold ? `${costText(view)}${failureOf(view, isWhole)}${troubleOf(view, isWhole)}` : ''}`,
    step: isTold ? stepOf(view) : '',
    until: timestampOf(view.untilMs),
    machines: told(view.machines),
    pending: told(view.pending),
    max_machines: told(view.maxMachines),
    price: view.price,
    hourly_cost: told(view.hourlyCost),
    hourly_budget: told(view.hourlyBudget),
    stuck_count: isTold ? view.trouble.stuck.length : 0,
    stuck: isTold ? view.trouble.stuck.slice(0, MOST_STUCK).map((machine) => shownStuck(machine, isWhole)) : [],
  };
}

/** Most machines that are named. */
const MOST_STUCK = 5;

function shownStuck(machine: StuckMachine, isWhole: boolean): StuckMachineRecord {
  const { machineId, instanceId, provider, verb, failures } = machine;
  const name = `machine ${machineId}${instanceId === null ? '' : ` (instance ${instanceId})`}`;
  const failure = isWhole && machine.failure !== null ? `: ${machine.failure}` : '';
  const why = `${verb} of provider ${provider} has failed ${counted(failures, 'time')} in a row${failure}`;
  return {
    machine_id: machineId,
    instance_id: instanceId ?? '',
    verb,
    failures,
    text: `${name} ${STUCK[kindOf(machine)].state}: ${why}`,
    step: STUCK[kindOf(machine)].step(machine),
  };
}

const kindOf = ({ verb, isComing }: StuckMachine) => (verb === 'list' && isComing ? 'coming' : verb);

const STUCK = {
  coming: {
    state: 'may have no instance, and no listing shows it',
    step: ({ machineId }: StuckMachine) => `longshore machine delete ${machineId}`,
  },
  list: {
    state: 'counts until a listing shows that its instance is gone',
    step: ({ provider }: StuckMachine) => checkOf(provider),
  },
  terminate: { state: 'cannot end, and is tried again by itself', step: () => 'longshore provider list' },
} as const;

/** Calls that keep failing while the pool may go on without them. */
function troubleOf({ trouble, provider }: GrowthView, isWhole: boolean): string {
  const { listFailures, listFailure, stuck } = trouble;
  const failure = isWhole && listFailure !== null ? `: ${listFailure}` : '';
  const listing =
    listFailures === 0
      ? ''
      : `; list of provider ${provider} has failed ${counted(listFailures, 'time')} in a row, so instances that ended are not noticed${failure}`;
  return `${listing}${stuck.length === 0 ? '' : `; ${counted(stuck.length, 'machine')} cannot go on`}`;
}

const round = (amount: number): number => Math.round(amount * 10_000) / 10_000;

/** Whether prices are worth a word: without any, a machine counts 1, which is no money. */
const isPriced = ({ price, hourlyBudget }: GrowthView): boolean => price !== null || hourlyBudget !== null;

function priceText(view: GrowthView): string {
  if (!isPriced(view)) return '';
  return view.price === null ? ' at a price that is not known' : ` at ${round(view.price)} an hour`;
}

/** Machines and cost of the pool: ` (3 of at most 10 machines, 2 of them on their way; 12 of at most 20 an hour)`. */
function costText(view: GrowthView): string {
  const { machines, pending, maxMachines, hourlyCost, hourlyBudget } = view;
  const budget = hourlyBudget === null ? '' : ` of at most ${round(hourlyBudget)}`;
  const cost = isPriced(view) ? `; ${round(hourlyCost)}${budget} an hour` : '';
  const coming = pending === 0 ? '' : `, ${pending} of them on their way`;
  return ` (${machines} of at most ${counted(maxMachines, 'machine')}${coming}${cost})`;
}

/** An administrator's program may print secrets of the installation, so a workspace learns only that it failed. */
function failureOf({ lastFailure, provider }: GrowthView, isWhole: boolean): string {
  if (lastFailure === null) return '';
  return `; the last call of provider ${provider} failed${isWhole ? `: ${lastFailure}` : ', and an administrator sees why'}`;
}

/** Clauses that follow the pool's name. */
const TEXTS: Readonly<Record<Verdict, (view: GrowthView) => string>> = {
  awaited: (view) => `${view.lastFailure === null ? 'makes' : 'tries to make'} a machine${priceText(view)}`,
  other_first: () => 'could serve it too, and a machine of another pool is on the way',
  too_young: (view) => `is about to make a machine${priceText(view)}`,
  has_room: () => 'has a machine with room for it, which placement is about to use',
  enough: () => 'needs no further machine',
  unknown_provider: ({ provider }) => `makes no machine: this installation has no provider ${provider}`,
  pending_bound: () => 'makes no further machine before one that is on the way has joined',
  max_machines: () => 'makes no further machine: it has as many as it may',
  hourly_budget: (view) => `makes no further machine${priceText(view)}: that would exceed its budget`,
  price_unknown: () => 'has a budget, and makes no further machine before the first one has told its price',
  backing_off: () => 'makes no machine for a while: its provider failed',
  quota: () => 'makes no machine for it: its workspace has used up what it may have',
  volume: () => 'makes no machine for it: its volume is on another machine',
  not_usable: () => 'is not for it',
  at_limit: () => 'makes no machine for it, because its workspace has what it may have of these GPUs or cores',
  label: () => 'makes machines without the labels that it requires, or with one that it forbids',
  kept_for_gpus: () => 'makes machines with GPUs, which have no room for work without one',
  gpu_model: () => 'makes machines without such a GPU',
  gpu_fact_unknown: () => 'makes machines of whose GPUs it does not say what is asked for',
  gpu_link: () => 'makes machines whose GPUs are not linked by NVLink as it asks',
  gpu_driver: ({ gpuDriver }) => `makes machines whose GPU driver is too old for it: ${driverText(gpuDriver)}`,
  gpu_count: () => 'makes machines with fewer GPUs',
  too_small: () => 'makes machines that are too small for it',
  refused: () => 'makes no machine for it for now: an empty one did not take it',
};

const checkOf = (provider: string): string => `longshore provider check ${provider}`;
const seeProvider = ({ provider }: GrowthView): string =>
  `see why provider ${provider} fails, and mend it: \`${checkOf(provider)}\``;

/** Without listings the bounds of a pool may hold machines that are gone: to raise them is no remedy. */
const stepOf = (view: GrowthView): string =>
  view.trouble.listFailures > 0 && view.verdict !== 'unknown_provider' && view.verdict !== 'too_small'
    ? seeProvider(view)
    : (STEPS[view.verdict]?.(view) ?? '');

const STEPS: Readonly<Partial<Record<Verdict, (view: GrowthView) => string>>> = {
  awaited: (view) => (view.lastFailure === null ? '' : seeProvider(view)),
  unknown_provider: ({ provider }) =>
    `add provider ${provider} to the file of providers, or correct the pool's setting`,
  max_machines: ({ poolName, maxMachines }) =>
    `let pool ${poolName} have more machines: \`longshore pool set ${poolName} --max-machines ${maxMachines + 1}\``,
  hourly_budget: ({ poolName }) => `raise its budget: \`longshore pool set ${poolName} --hourly-budget N\``,
  backing_off: seeProvider,
  label: ({ poolName }) => `where its machines have them, say so: \`longshore pool set ${poolName} --labels zone=a\``,
  gpu_fact_unknown: ({ poolName }) =>
    `say how much memory their GPUs have: \`longshore pool set ${poolName} --machine-gpu-memory-mib N\``,
  gpu_driver: ({ provider, poolName }) =>
    `have provider ${provider} make machines with a newer GPU driver, and then change a setting of pool ${poolName}; without that it tries one after a day`,
  too_small: ({ poolName }) =>
    `have pool ${poolName} make larger machines: \`longshore pool set ${poolName} --machine-cpu-cores N --machine-memory-mib N\``,
};

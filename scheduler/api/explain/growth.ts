// Growth of pools as sentences: why a pool makes a machine or does not, and what its machines cost.
import type { ExplainedGrowth } from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
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
    text: `pool ${view.poolName} ${TEXTS[view.verdict](view)}${isTold ? `${costText(view)}${failureOf(view, isWhole)}` : ''}`,
    step: isTold ? (STEPS[view.verdict]?.(view) ?? '') : '',
    until: timestampOf(view.untilMs),
    machines: told(view.machines),
    pending: told(view.pending),
    max_machines: told(view.maxMachines),
    price: view.price,
    hourly_cost: told(view.hourlyCost),
    hourly_budget: told(view.hourlyBudget),
  };
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
  kept_for_gpus: () => 'makes machines with GPUs, which have no room for work without one',
  gpu_model: () => 'makes machines without such a GPU',
  gpu_count: () => 'makes machines with fewer GPUs',
  too_small: () => 'makes machines that are too small for it',
  refused: () => 'makes no machine for it for now: an empty one did not take it',
};

const seeProvider = ({ provider }: GrowthView): string =>
  `see why provider ${provider} fails, and mend it: \`longshore provider check ${provider}\``;

const STEPS: Readonly<Partial<Record<Verdict, (view: GrowthView) => string>>> = {
  awaited: (view) => (view.lastFailure === null ? '' : seeProvider(view)),
  unknown_provider: ({ provider }) =>
    `add provider ${provider} to the file of providers, or correct the pool's setting`,
  max_machines: ({ poolName, maxMachines }) =>
    `let pool ${poolName} have more machines: \`longshore pool set ${poolName} --max-machines ${maxMachines + 1}\``,
  hourly_budget: ({ poolName }) => `raise its budget: \`longshore pool set ${poolName} --hourly-budget N\``,
  backing_off: seeProvider,
  too_small: ({ poolName }) =>
    `have pool ${poolName} make larger machines: \`longshore pool set ${poolName} --machine-cpu-cores N --machine-memory-mib N\``,
};

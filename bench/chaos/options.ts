// The command line of `npm run chaos`.
import { parseStrictly, UsageError, wholeNumber } from '../options.ts';

/** Disturbances by verb. `kill redis-rollback`: Redis comes back with data a second old. */
const DISTURBANCES = {
  kill: ['scheduler', 'redis', 'agent', 'redis-rollback', 'postgres', 'replica'],
  freeze: ['scheduler'],
  away: ['redis', 'postgres'],
  replace: ['scheduler'],
} as const;
type Verb = keyof typeof DISTURBANCES;

export type ChaosKind = { [V in Verb]: `${V} ${(typeof DISTURBANCES)[V][number]}` }[Verb];

/** Kinds under which two schedulers run on servers of their own, with simulated machines. */
export const PAIR_KINDS = [
  'kill redis-rollback',
  'kill replica',
  'freeze scheduler',
  'away redis',
  'away postgres',
  'replace scheduler',
] as const satisfies readonly ChaosKind[];
export type PairKind = (typeof PAIR_KINDS)[number];
/** Kinds under which both daemons run with real containers. */
export type RealKind = Exclude<ChaosKind, PairKind>;

export interface ChaosOptions<Kind extends ChaosKind = ChaosKind> {
  readonly rounds: number;
  /** PGlite and a private Redis child, or servers of their own. */
  readonly stores: 'embedded' | 'servers';
  readonly kind: Kind;
  /** How long a scheduler stands still, or a store is away. */
  readonly absenceMs: number;
  /** Requests that are refused or late while a store is away are findings, where the platform must go on without it. */
  readonly mustServe: boolean;
  /** Containers of the load are interruptible, and end for another workspace all the while. */
  readonly preempts: boolean;
  /** How long after the last round every task may take to end. */
  readonly settleMs: number;
  readonly jsonPath: string;
  /** Directory that keeps the daemons' logs and the handlers' records; without it they are deleted. */
  readonly keepLogsIn: string | undefined;
}

export const CHAOS_USAGE = `usage: npm run chaos -- [--kill ${DISTURBANCES.kill.join('|')} | --freeze scheduler | --away redis|postgres | --replace scheduler]
         [--preempt] [--rounds N] [--stores embedded|servers] [--for SECONDS] [--must-serve] [--settle SECONDS] [--json FILE] [--keep-logs DIR]`;
const DEFAULT_JSON = 'bench/results/chaos.jsonl';
/**
 * Work of a dead process comes back within seconds. A task that no owner saw comes back when its lock has expired and
 * two scans have found that: about five minutes at worst.
 */
const SETTLE_S = 420;
const AWAY_S = 60;
const FREEZE_S = 15;

export const isPairKind = (kind: ChaosKind): kind is PairKind => PAIR_KINDS.some((one) => one === kind);

/** @throws UsageError naming the option */
export function parseChaosOptions(args: readonly string[]): ChaosOptions {
  const values = parseStrictly(args, {
    rounds: { type: 'string' },
    stores: { type: 'string' },
    kill: { type: 'string' },
    freeze: { type: 'string' },
    away: { type: 'string' },
    replace: { type: 'string' },
    for: { type: 'string' },
    'must-serve': { type: 'boolean' },
    preempt: { type: 'boolean' },
    settle: { type: 'string' },
    json: { type: 'string' },
    'keep-logs': { type: 'string' },
  });
  const kind = kindOf(values);
  const needsServers = isPairKind(kind) || kind === 'kill postgres';
  if (needsServers && values.stores === 'embedded') throw new UsageError(`--stores: ${kind} needs servers`);
  const verb = kind.split(' ')[0];
  if (values.for !== undefined && verb !== 'away' && verb !== 'freeze')
    throw new UsageError('--for: belongs to --away and --freeze');
  if (values['must-serve'] === true && verb !== 'away') throw new UsageError('--must-serve: belongs to --away');
  const preempts = values.preempt === true;
  if (preempts && isPairKind(kind)) throw new UsageError('--preempt: belongs to kinds with one scheduler');
  return {
    rounds: wholeNumber('--rounds', values.rounds, 50, 1, 1000),
    stores: needsServers ? 'servers' : oneOf('--stores', values.stores, ['embedded', 'servers']),
    kind,
    absenceMs: wholeNumber('--for', values.for, verb === 'away' ? AWAY_S : FREEZE_S, 1, 600) * 1000,
    mustServe: values['must-serve'] === true,
    preempts,
    settleMs: wholeNumber('--settle', values.settle, SETTLE_S, 1, 3600) * 1000,
    jsonPath: values.json ?? DEFAULT_JSON,
    keepLogsIn: values['keep-logs'],
  };
}

function kindOf(values: { readonly [V in Verb]?: string | undefined }): ChaosKind {
  const verbs = Object.keys(DISTURBANCES) as Verb[];
  const [verb = 'kill', other] = verbs.filter((one) => values[one] !== undefined);
  if (other !== undefined) throw new UsageError(`--${other}: a run has one disturbance, and --${verb} was given`);
  return `${verb} ${oneOf(`--${verb}`, values[verb], DISTURBANCES[verb])}` as ChaosKind;
}

/** The first is the default. */
function oneOf<T extends string>(name: string, text: string | undefined, choices: readonly [T, ...T[]]): T {
  const found = text === undefined ? choices[0] : choices.find((choice) => choice === text);
  if (found === undefined)
    throw new UsageError(`${name}: must be ${choices.join(' or ')}, got ${JSON.stringify(text)}`);
  return found;
}

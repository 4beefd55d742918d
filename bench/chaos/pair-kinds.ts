// How each kind of disturbance of two schedulers is done: where calls and machines are, what happens in a round, and
// which answers it excuses.
import { sleep } from '#shared/backoff.ts';
import type { ChaosOptions, PairKind } from './options.ts';
import type { Pair } from './pair.ts';

/** Schedulers by their index. */
export interface Layout {
  /** Scheduler of each loop that calls. */
  readonly calls: readonly number[];
  /** Scheduler of each loop that puts. */
  readonly puts: readonly number[];
  /** Schedulers that each machine dials. */
  readonly machines: readonly (readonly number[])[];
  /** Statuses that a request may have that meets a disturbance. */
  readonly refusals: readonly number[];
  /** How long after a disturbance they may come. */
  readonly graceMs: number;
  /** Only requests to the disturbed scheduler may be refused. */
  readonly onlyOwn: boolean;
  /** How the disturbed scheduler ends, if it does: killed, its callers get no answer. */
  readonly ends: 'never' | 'killed' | 'by its signal';
  /** Requests that the platform serves while a store is away; `--must-serve` judges them. */
  readonly mustServe: readonly string[];
}

/** Age of the data with which Redis comes back. */
const OLDER_MS = 1_000;
/** Share of kills that hit a scheduler before it is ready. */
const KILL_IN_START = 0.25;
const START_MS = 1_500;
const GRACE_MS = 5_000;

/** More callers than slots: some tasks wait, some are lent, some go through BullMQ. */
const AT_BOTH = { calls: [0, 1, 0, 1, 0, 1], puts: [0, 1] };
/** A machine dials the other scheduler when its own is gone. */
const ANY_MACHINES = [
  [0, 1],
  [0, 1],
  [0, 1],
  [0, 1],
];
const PLAIN = { graceMs: GRACE_MS, onlyOwn: false, ends: 'never', mustServe: [] } as const;
/** Fewer callers than containers, whose machines are all at the first: its calls never wait, the others' cross. */
const STORE_AWAY = { ...PLAIN, calls: [0, 0, 1], puts: [0, 1], machines: [[0], [0]] };

export const LAYOUTS: Readonly<Record<PairKind, Layout>> = {
  // A loss may be noticed long after it.
  'kill redis-rollback': {
    ...PLAIN,
    ...AT_BOTH,
    machines: [[0], [0], [1], [1]],
    refusals: [503],
    graceMs: Number.POSITIVE_INFINITY,
  },
  // Every call crosses until the second is killed. Then one machine dials the first, until that is killed.
  'kill replica': {
    ...PLAIN,
    calls: [0, 0, 0, 0, 0, 0],
    puts: [0, 0],
    machines: [[1], [1], [1, 0]],
    refusals: [502, 503],
    ends: 'killed',
  },
  'freeze scheduler': { ...PLAIN, ...AT_BOTH, machines: ANY_MACHINES, refusals: [502, 503, 504] },
  'away redis': { ...STORE_AWAY, refusals: [502, 503, 504], mustServe: ['call', 'put'] },
  'away postgres': { ...STORE_AWAY, refusals: [503], mustServe: ['call'] },
  'replace scheduler': {
    ...PLAIN,
    ...AT_BOTH,
    machines: ANY_MACHINES,
    refusals: [503],
    graceMs: 0,
    onlyOwn: true,
    ends: 'by its signal',
  },
};

export interface Disturbed {
  readonly what: string;
  /** Index of the disturbed scheduler; undefined: a store. */
  readonly replica: number | undefined;
  /** Resolves when it is over. */
  readonly work: () => Promise<void>;
}

type Disturb = (pair: Pair, options: ChaosOptions<PairKind>, round: number, signal: AbortSignal) => Disturbed;

export const DISTURB: Readonly<Record<PairKind, Disturb>> = {
  'kill redis-rollback': ({ redis }, _options, _round, signal) => ({
    what: `Redis came back ${OLDER_MS} ms older`,
    replica: undefined,
    work: async () => {
      const rollBack = redis.keep();
      await sleep(OLDER_MS, signal);
      await rollBack();
    },
  }),
  'kill replica': ({ replicas }, _options, round) => {
    // The second first, because its machines have the calls of the first.
    const at = round % 2;
    const replica = replicas[at as 0 | 1];
    return {
      what: `killed the scheduler with the ${at === 0 ? 'callers' : 'machines'}`,
      replica: at,
      work: async () => {
        await replica.kill();
        while (Math.random() < KILL_IN_START) {
          await replica.start(false);
          await sleep(Math.random() * START_MS);
          await replica.kill();
        }
        await replica.start(true);
      },
    };
  },
  'freeze scheduler': ({ replicas }, { absenceMs }, round, signal) => {
    const at = round % 2;
    return {
      what: `scheduler ${at + 1} stood still`,
      replica: at,
      work: () => replicas[at as 0 | 1].freeze(absenceMs, signal),
    };
  },
  'away redis': ({ redis }, options, round, signal) => away('Redis', redis, options, round, signal),
  'away postgres': ({ postgres }, options, round, signal) => away('Postgres', postgres, options, round, signal),
  'replace scheduler': ({ replicas }, _options, round) => {
    const at = round % 2;
    return {
      what: `replaced scheduler ${at + 1}`,
      replica: at,
      work: async () => {
        await replicas[at as 0 | 1].terminate();
        await replicas[at as 0 | 1].start(true);
      },
    };
  },
};

interface Store {
  readonly crash: () => Promise<void>;
  readonly restart: () => Promise<void>;
  readonly freeze: () => void;
  readonly thaw: () => void;
}

/** In turn: a store that takes connections and stays silent, and one that is not there. Its data stay. */
function away(name: string, store: Store, { absenceMs }: ChaosOptions, round: number, signal: AbortSignal): Disturbed {
  const isSilent = round % 2 === 1;
  const leave = async (): Promise<void> => (isSilent ? store.freeze() : await store.crash());
  const comeBack = async (): Promise<void> => (isSilent ? store.thaw() : await store.restart());
  return {
    what: `${name} ${isSilent ? 'was silent' : 'was not there'} for ${absenceMs / 1000} s`,
    replica: undefined,
    work: async () => {
      await leave();
      try {
        await sleep(absenceMs, signal);
      } finally {
        await comeBack();
      }
    },
  };
}

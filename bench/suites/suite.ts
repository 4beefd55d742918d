// The context that every benchmark gets, and the result that it returns.
import type { LoadTarget } from '../load.ts';
import type { Measure, Round } from '../measure.ts';
import type { Product } from '../product.ts';
import type { Release } from '../release.ts';
import type { MeasureRound } from '../rounds.ts';
import type { PrivatePostgres } from '../../test/helpers/postgres.ts';
import type { Workplace } from '../workplace.ts';
import type { Planes } from './planes.ts';

export interface SuiteContext {
  /** Everything that the suite starts ends with it. */
  readonly place: Workplace;
  readonly isQuick: boolean;
  /** Tells how far a long preparation is. */
  readonly say: (line: string) => void;
  /** The release that the product's agent comes from. */
  readonly release: () => Promise<Release>;
  /** Each is started when first asked for, and shared by the suites. */
  readonly product: () => Promise<Product>;
  readonly queueBaseline: () => Promise<LoadTarget>;
  /** A server of the run's own; each suite makes databases on it. */
  readonly postgres: () => Promise<PrivatePostgres>;
  /** Schedulers without an engine, their machines simulated. */
  readonly planes: () => Promise<Planes>;
  /** Runs rounds of this suite, prints and writes each. */
  readonly runRounds: (suite: string, measure: MeasureRound) => Promise<readonly Round[]>;
  /** Directory where both daemons leave processor profiles. */
  readonly profileDir: string | undefined;
  /** Factor by which goals are looser in a short run. */
  readonly slack: number;
}

/** An exact count that must be right; not a matter of speed. */
export interface Check {
  readonly suite: string;
  readonly name: string;
  readonly isRight: boolean;
  readonly text: string;
}

export interface SuiteResult {
  readonly measures: readonly (Measure | undefined)[];
  readonly rounds: readonly Round[];
  /** A text below the table, and its figures for the file. */
  readonly details?: { readonly text: string; readonly figures: Readonly<Record<string, unknown>> };
  /** Checks that could be made at once. */
  readonly checks?: readonly Check[];
  /** A check for when the product has stopped and its files can be read. */
  readonly checkStopped?: (dataDir: string) => Promise<Check>;
}

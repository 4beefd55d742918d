// The conditions that every task must meet after the kill rounds. In: three accounts
// of the same work (answers to callers, records of the installation, notes of the
// handlers). Out: every contradiction between them. Pure; it trusts none of the three.
import { isFinal } from '../soak/tasks.ts';

/** A request of the load, by its own number. */
export interface Sent {
  readonly n: number;
  /** The caller waited for the result. */
  readonly sync: boolean;
  /** Task id that the caller got, with which the task was accepted. Empty: no answer came, or a refusal. */
  readonly taskId: string;
  /** Attempts that it may have by the user's budget. */
  readonly attempts: number;
  /** Attempts in which the handler raises before it succeeds. */
  readonly fails: number;
}

/** A task as the installation gives it, read by its id and found in the list of its deployment's tasks. */
export interface Kept {
  readonly status: string;
  /** JSON text. */
  readonly result: string;
  /** Status in the list of tasks; undefined: not listed. */
  readonly listed: string | undefined;
}

/** A run that a handler began. */
export interface Run {
  readonly n: number;
  readonly taskId: string;
  /** Absent where no real container ran it. */
  readonly containerId?: string;
}

export interface Books {
  readonly sent: readonly Sent[];
  readonly kept: ReadonlyMap<string, Kept>;
  /** Every final state that was ever read of a task, in the order of reading. */
  readonly seen: ReadonlyMap<string, readonly string[]>;
  readonly runs: readonly Run[];
  /** Runs that a task may have beyond its user's attempts because machines or containers were lost. */
  readonly lossesAllowed: number;
}

export type Fault =
  | 'lost'
  | 'not_ended'
  | 'two_final_states'
  | 'wrong_state'
  | 'wrong_result'
  | 'synchronous_ran_twice'
  | 'beyond_its_attempts'
  | 'complete_without_a_run'
  | 'ran_under_another_id'
  | 'run_of_nothing_sent';

export interface Finding {
  readonly fault: Fault;
  readonly text: string;
}

export const resultOf = (n: number): string => JSON.stringify({ n, square: n * n });

export function audit(books: Books): readonly Finding[] {
  const runsOf = Map.groupBy(books.runs, (run) => run.n);
  const sent = new Set(books.sent.map(({ n }) => n));
  const found = books.sent.flatMap((one) => findingsOf(one, books, runsOf.get(one.n) ?? []));
  for (const [n, runs] of runsOf) {
    if (!sent.has(n))
      found.push({ fault: 'run_of_nothing_sent', text: `n ${n} ran as ${idsOf(runs)}, and nobody sent it` });
  }
  return found;
}

/** Runs beyond those that the handlers' own failures asked for: allowed, within bounds, and worth a look. */
export function repeatedRuns(books: Books): number {
  const runsOf = Map.groupBy(books.runs, (run) => run.n);
  return books.sent.reduce((sum, one) => {
    const asked = Math.min(one.fails + 1, one.attempts);
    return sum + Math.max(0, (runsOf.get(one.n)?.length ?? 0) - asked);
  }, 0);
}

function findingsOf(one: Sent, books: Books, runs: readonly Run[]): readonly Finding[] {
  const name = `${one.sync ? 'call' : 'put'} ${one.n}`;
  const found: Finding[] = [];
  const add = (fault: Fault, text: string): void => void found.push({ fault, text: `${name}: ${text}` });
  // The same rules hold for runs of requests without an answer.
  if (one.sync && runs.length > 1) add('synchronous_ran_twice', `ran ${runs.length} times, as ${idsOf(runs)}`);
  if (!one.sync && runs.length > one.attempts + books.lossesAllowed)
    add('beyond_its_attempts', `ran ${runs.length} times, with ${one.attempts} attempts, as ${idsOf(runs)}`);
  if (new Set(runs.map((run) => run.taskId)).size > 1) add('ran_under_another_id', `ran as ${idsOf(runs)}`);
  if (one.taskId === '') return found;
  if (runs.some((run) => run.taskId !== one.taskId)) add('ran_under_another_id', `${one.taskId} ran as ${idsOf(runs)}`);
  const states = books.seen.get(one.taskId) ?? [];
  if (new Set(states).size > 1) add('two_final_states', `${one.taskId} was ${states.join(', then ')}`);
  const kept = books.kept.get(one.taskId);
  if (kept === undefined) {
    add('lost', `${one.taskId} was accepted, and nobody knows it`);
    return found;
  }
  if (kept.listed === undefined) add('lost', `${one.taskId} is ${kept.status} by its id, and is not in the list`);
  else if (kept.listed !== kept.status)
    add('two_final_states', `${one.taskId} is ${kept.status} by its id and ${kept.listed} in the list`);
  if (!isFinal(kept.status)) {
    add('not_ended', `${one.taskId} is ${kept.status}`);
    return found;
  }
  const succeeds = one.fails < one.attempts;
  const wanted = succeeds ? 'COMPLETE' : 'ERROR';
  if (kept.status !== wanted) add('wrong_state', `${one.taskId} is ${kept.status}, not ${wanted}`);
  if (kept.status !== 'COMPLETE') return found;
  if (kept.result !== resultOf(one.n)) add('wrong_result', `${one.taskId} has the result ${kept.result}`);
  if (runs.length === 0) add('complete_without_a_run', `${one.taskId} is COMPLETE, and no handler ran it`);
  return found;
}

const idsOf = (runs: readonly Run[]): string => runs.map((run) => run.taskId).join(', ');

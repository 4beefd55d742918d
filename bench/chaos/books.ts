// The books of a load under failures: what was asked, what was answered, what the handlers ran.
import { cpSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { SoakApp } from '../soak/apps.ts';
import type { Workplace } from '../workplace.ts';
import type { Books } from './audit.ts';
import { repeatedRuns } from './audit.ts';
import type { ChaosStage } from './load.ts';
import { readBack } from './read-back.ts';
import type { HandlerRecords } from './runs.ts';

/**
 * Attempts that lost machines or containers may cost beyond the user's
 * budget; nothing here loses one, but an attempt may count as lost.
 */
const LOSSES = 5;

/** Reads every account of the tasks. @param preemptions - runs of a task that may end for containers of others */
export async function closeBooks(
  stage: ChaosStage,
  apps: readonly SoakApp[],
  records: HandlerRecords,
  preemptions = 0,
): Promise<Books> {
  const { caller, sent } = stage;
  const readings = await readBack(stage, caller, apps);
  return { sent, ...readings, runs: records.read(), lossesAllowed: LOSSES + preemptions };
}

/** Copies the daemons' logs and the handlers' records to a directory. */
export function keepLogs(place: Workplace, records: HandlerRecords, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(place.directory))
    if (name.endsWith('.log')) cpSync(join(place.directory, name), join(to, name));
  if (existsSync(records.path)) cpSync(records.path, join(to, 'runs.jsonl'));
}

export interface Totals {
  readonly accepted: number;
  readonly unanswered: number;
  readonly runs: number;
  /** Runs beyond those that the handlers' failures asked for. */
  readonly repeated: number;
  /** Number of requests by operation and answer. */
  readonly counts: Readonly<Record<string, number>>;
}

export function totalsOf({ ledger, sent }: ChaosStage, books: Books): Totals {
  return {
    accepted: ledger.settled.size + ledger.open.size,
    unanswered: sent.filter(({ taskId }) => taskId === '').length,
    runs: books.runs.length,
    repeated: repeatedRuns(books),
    counts: Object.fromEntries([...ledger.counts].toSorted(([a], [b]) => a.localeCompare(b))),
  };
}

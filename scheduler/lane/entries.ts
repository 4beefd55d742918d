// What stands in Redis of a task in a lane: its job, and before it the replica that it is lent to. The scripts read that beginning: a loan that was taken back is not one any more.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../queues/jobs.ts';
import { checkTaskJob, encodeTaskJob, parseTaskJob } from '../queues/jobs.ts';

/** How the entry of a task starts that is lent to somebody. */
export const LENT_MARK = '{"lentTo":';
/** The same, to that replica. */
export const lentMark = (to: InstanceId): string => `${LENT_MARK}${JSON.stringify(to)},`;

export function encodeEntry(job: TaskJob, lentTo?: InstanceId): string {
  const text = encodeTaskJob(job);
  return lentTo === undefined ? text : lentMark(lentTo) + text.slice(1);
}

/** @throws AppError `bad_job` */
export const parseEntry = (text: string): TaskJob => withoutLoan(parseTaskJob(text));

/** An entry as another replica said it. @throws AppError `bad_job` */
export const entryOf = (value: unknown): TaskJob => withoutLoan(checkTaskJob(value));

function withoutLoan(entry: TaskJob & { readonly lentTo?: unknown }): TaskJob {
  const { lentTo: _lentTo, ...job } = entry;
  return job;
}

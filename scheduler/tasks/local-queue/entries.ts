// Entry of a lane's task in Redis: its job, preceded by the replica that it is lent to, if any. The
// scripts read that beginning: once a loan was taken back, the entry no longer names its borrower.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { checkTaskJob, encodeTaskJob, parseTaskJob } from '../../stores/queues/jobs.ts';

/** Beginning of the entry of a lent task. */
export const LENT_MARK = '{"lentTo":';
/** Beginning of the entry of a task lent to that replica. */
export const lentMark = (to: InstanceId): string => `${LENT_MARK}${JSON.stringify(to)},`;

export function encodeEntry(job: TaskJob, lentTo?: InstanceId): string {
  const text = encodeTaskJob(job);
  return lentTo === undefined ? text : lentMark(lentTo) + text.slice(1);
}

/** @throws AppError `bad_job` */
export const parseEntry = (text: string): TaskJob => withoutLoan(parseTaskJob(text));

/** Checks an entry that another replica sent. @throws AppError `bad_job` */
export const entryOf = (value: unknown): TaskJob => withoutLoan(checkTaskJob(value));

function withoutLoan(entry: TaskJob & { readonly lentTo?: unknown }): TaskJob {
  const { lentTo: _lentTo, ...job } = entry;
  return job;
}

// Entry of a local queue's task in Redis: its job, preceded by the replica that it is forwarded to, if any. The
// scripts read that beginning: once a forwarded task was taken back, the entry no longer names its receiver.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { checkTaskJob, encodeTaskJob, parseTaskJob } from '../../stores/queues/jobs.ts';

/** Beginning of the entry of a forwarded task. */
export const FORWARDED_MARK = '{"lentTo":';
/** Beginning of the entry of a task forwarded to that replica. */
export const forwardedMark = (to: InstanceId): string => `${FORWARDED_MARK}${JSON.stringify(to)},`;

export function encodeEntry(job: TaskJob, forwardedTo?: InstanceId): string {
  const text = encodeTaskJob(job);
  return forwardedTo === undefined ? text : forwardedMark(forwardedTo) + text.slice(1);
}

/** @throws AppError `bad_job` */
export const parseEntry = (text: string): TaskJob => withoutMark(parseTaskJob(text));

/** Checks an entry that another replica sent. @throws AppError `bad_job` */
export const entryOf = (value: unknown): TaskJob => withoutMark(checkTaskJob(value));

function withoutMark(entry: TaskJob & { readonly lentTo?: unknown }): TaskJob {
  const { lentTo: _lentTo, ...job } = entry;
  return job;
}

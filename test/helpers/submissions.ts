/** Tasks that a test submits to a process, and their way to a played agent and to their record. */
import type { TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { LiveReport } from '#scheduler/tasks/completion/reports.ts';
import type { RunOrder } from '#scheduler/tasks/dispatch/slots.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import type { Call, Submission } from '#scheduler/tasks/admission/calls.ts';
import { aTarget } from '../integration/tasks-fixture.ts';
import type { Process } from '../integration/tasks-fixture.ts';
import { waitFor } from './programs.ts';

export type Accepted = Extract<Submission, { kind: 'accepted' }>;

/** Submits a task, which must be accepted. */
export async function submitted(
  one: Pick<Process, 'submissions'>,
  target: Target = aTarget(),
  call: string | Call = '{"x":1}',
): Promise<Accepted> {
  const submission = await one.submissions.submit(target, typeof call === 'string' ? { input: call } : call);
  if (submission.kind !== 'accepted') throw new Error(`not accepted: ${submission.kind}`);
  return submission;
}

/** Entry of an order's attempt in the report of its agent. */
export const liveOf = ({ taskId, token, containerId, facts }: RunOrder): LiveReport => ({
  taskId,
  token,
  containerId,
  ...(facts === undefined ? {} : { facts }),
});

/** Longer than a hundred tasks take beside other work. */
const SENT_MS = 20_000;

/** Waits until the link has had that many orders. @returns the last of them */
export const sent = (link: { readonly orders: readonly RunOrder[] }, count = 1): Promise<RunOrder> =>
  waitFor(() => link.orders.length >= count && link.orders[count - 1], `${count} tasks reached the agent`, SENT_MS);

/** Waits until the task's record has that status. */
export const reaches = (one: Pick<Process, 'records'>, taskId: TaskId, status: string): Promise<TaskRecord> =>
  waitFor(async () => {
    const record = await one.records.read(taskId);
    return record?.status === status && record;
  }, `the task is ${status}`);

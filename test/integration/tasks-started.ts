/** Processes with tasks on a real Redis, ended with their test; accepted tasks, their ends and answers. */
import type { TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { ReadyContainer } from '#scheduler/tasks/dispatch/slots.ts';
import type { Finished } from '#scheduler/tasks/dispatch/replies.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { submitted as accepted } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aProcess } from './tasks-fixture.ts';

export type Options = NonNullable<Parameters<typeof aProcess>[1]>;

/** `start` makes a process, and `one` is one. @param common - options of all of them */
export const testWith = (common: Options) =>
  base
    .extend('start', async ({ redis }, { onCleanup }) => {
      const processes: Process[] = [];
      onCleanup(async () => {
        for (const one of processes) await one.stop();
      });
      return async (options: Options = {}): Promise<Process> => {
        const made = await aProcess(redis, { ...common, ...options });
        processes.push(made);
        return made;
      };
    })
    .extend('one', async ({ start }) => start());

export const test = testWith({});

/** An accepted task whose answers are counted. */
export async function submitted(
  one: Process,
  target?: Target,
  input?: string,
): Promise<Accepted & { readonly answers: Finished[] }> {
  const submission = await accepted(one, target, input);
  const answers: Finished[] = [];
  void submission.finished.then((finished) => answers.push(finished));
  return { ...submission, answers };
}
export const statusOf = async (one: Process, taskId: TaskId) => (await one.records.read(taskId))?.status;
/** A fetch that comes back empty holds a slot for its round trip. */
export const idle = (container: ReadyContainer) => waitFor(() => container.inFlight === 0, 'the slots are free');
export const answered = async (task: { readonly answers: Finished[] }, timeoutMs = 5000) =>
  seenByCaller(await waitFor(() => task.answers[0], 'the caller is answered', timeoutMs));

// Queues on which calls meet faults.
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';

/** The queues with another function in the place of that one. */
export const withCall =
  <K extends keyof TaskQueues>(
    replaced: K,
    act: (queues: TaskQueues, ...given: Parameters<TaskQueues[K]>) => ReturnType<TaskQueues[K]>,
  ) =>
  (queues: TaskQueues): TaskQueues =>
    new Proxy(queues, {
      get: (whole, name) => {
        if (name === replaced) return (...given: Parameters<TaskQueues[K]>) => act(whole, ...given);
        const value: unknown = Reflect.get(whole, name);
        return typeof value === 'function' ? value.bind(whole) : value;
      },
    });

/** The queues with another `add`. */
export const withAdd = (
  add: (queues: TaskQueues, ...given: Parameters<TaskQueues['add']>) => Promise<void>,
): ((queues: TaskQueues) => TaskQueues) => withCall('add', add);

/** The process is killed between a commit and its add: nothing is ever added. */
export const withoutAdds = withAdd(() => new Promise(() => undefined));

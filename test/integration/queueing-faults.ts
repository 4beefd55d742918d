// Queues on which adds of asynchronous tasks meet faults.
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';

/** The queues with another `add`. */
export const withAdd =
  (add: (queues: TaskQueues, ...given: Parameters<TaskQueues['add']>) => Promise<void>) =>
  (queues: TaskQueues): TaskQueues =>
    new Proxy(queues, {
      get: (whole, name) => {
        if (name === 'add') return (...given: Parameters<TaskQueues['add']>) => add(whole, ...given);
        const value: unknown = Reflect.get(whole, name);
        return typeof value === 'function' ? value.bind(whole) : value;
      },
    });

/** The process is killed between a commit and its add: nothing is ever added. */
export const withoutAdds = withAdd(() => new Promise(() => undefined));

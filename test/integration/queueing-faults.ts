// Queues on which adds of asynchronous tasks meet faults.
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';

/** The queues with another `addAgain`. */
export const withAdd =
  (add: (queues: TaskQueues, ...given: Parameters<TaskQueues['addAgain']>) => Promise<void>) =>
  (queues: TaskQueues): TaskQueues =>
    new Proxy(queues, {
      get: (whole, name) => {
        if (name === 'addAgain') return (...given: Parameters<TaskQueues['addAgain']>) => add(whole, ...given);
        const value: unknown = Reflect.get(whole, name);
        return typeof value === 'function' ? value.bind(whole) : value;
      },
    });

/** The process is killed between a commit and its add: nothing is ever added. */
export const withoutAdds = withAdd(() => new Promise(() => undefined));

// Choice among tasks and their reruns: each input runs once, and none that completed or is open. Pure.
import { isTerminalTask } from '#shared/domain/status.ts';
import type { TaskStatus } from '#shared/domain/status.ts';

export interface ChainTask {
  readonly id: string;
  readonly status: string;
  /** The task whose input it has; empty: it is no rerun. */
  readonly rerunOf: string;
  readonly createdAt: string;
}

export interface ChosenReruns {
  readonly ids: readonly string[];
  /** Tasks left out because another task with their input completed, is open, or is newer. */
  readonly leftOut: number;
}

/**
 * @param matching - tasks that the filter means, the newest first
 * @param reruns - their known reruns, and those of the tasks that they run again
 */
export function chosenReruns(matching: readonly ChainTask[], reruns: readonly ChainTask[]): ChosenReruns {
  const known = new Map([...reruns, ...matching].map((task) => [task.id, task]));
  const chains = Map.groupBy(known.values(), (task) => firstOf(task, known));
  const meant = new Set<string>();
  for (const [first, chain] of Map.groupBy(matching, (task) => firstOf(task, known))) {
    const newest = chain.reduce((one, other) => (other.createdAt > one.createdAt ? other : one));
    const others = (chains.get(first) ?? []).filter((task) => task.id !== newest.id);
    if (!others.some((other) => isOpen(other) || (other.status === 'COMPLETE' && other.createdAt > newest.createdAt)))
      meant.add(newest.id);
  }
  const ids = matching.map((task) => task.id).filter((id) => meant.has(id));
  return { ids, leftOut: matching.length - ids.length };
}

const isOpen = ({ status }: ChainTask): boolean => !isTerminalTask(status as TaskStatus);

/** Id of the first task with this input, as far as the tasks are known. */
function firstOf(task: ChainTask, known: ReadonlyMap<string, ChainTask>): string {
  const seen = new Set<string>();
  let { id, rerunOf } = task;
  while (rerunOf !== '' && !seen.has(rerunOf)) {
    id = rerunOf;
    seen.add(id);
    rerunOf = known.get(id)?.rerunOf ?? '';
  }
  return id;
}

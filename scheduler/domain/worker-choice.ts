// The choice of a worker mode, which a stub with several workers has to make. Pure.
import type { StubConfig } from './stub-config.ts';

/**
 * Whether the stub asks for several workers with a GPU and no worker mode: each container then serves with one. The
 * runner decides (decision 0105); it alone can see other obstacles to a fork.
 */
export const lacksChoice = ({
  workers,
  gpuCount,
  workerMode,
}: Pick<StubConfig, 'workers' | 'gpuCount' | 'workerMode'>): boolean =>
  workers > 1 && gpuCount > 0 && workerMode === undefined;

export const WORKER_CHOICE =
  '"spawn" (a process per worker, each runs on_start) or "thread" (handlers side by side in one process)';

// `longshore scheduler`: the daemon in the foreground, as a service runs it and as `longshore up` starts it.
import { leaveSupervisor, stopWithSupervisor } from './daemon.ts';

export async function runSchedulerCommand(env: NodeJS.ProcessEnv): Promise<number> {
  stopWithSupervisor();
  const { runScheduler } = await import('#scheduler/main.ts');
  try {
    return await runScheduler(env);
  } finally {
    leaveSupervisor();
  }
}

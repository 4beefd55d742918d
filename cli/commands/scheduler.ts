// `longshore scheduler`: the daemon in the foreground, as a service runs it and as `longshore up` starts it.
import { underSupervisor } from './daemon.ts';

export function runSchedulerCommand(env: NodeJS.ProcessEnv): Promise<number> {
  return underSupervisor(async () => {
    const { runScheduler } = await import('#scheduler/process.ts');
    return runScheduler(env);
  });
}

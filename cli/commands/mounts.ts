// `longshore mounts`: the mount helper in the foreground, as `longshore up` starts it.
import { underSupervisor } from './daemon.ts';

export function runMountsCommand(env: NodeJS.ProcessEnv): Promise<number> {
  return underSupervisor(async () => {
    const { runMounts } = await import('#agent/mounts/process.ts');
    await runMounts(env);
    return 0;
  });
}

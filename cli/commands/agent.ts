// `longshore agent`: the daemon in the foreground, as a service runs it and as `longshore up` starts it.
import { underSupervisor } from './daemon.ts';

export function runAgentCommand(env: NodeJS.ProcessEnv): Promise<number> {
  return underSupervisor(async () => {
    const { runAgent } = await import('#agent/main.ts');
    await runAgent(env);
    return 0;
  });
}

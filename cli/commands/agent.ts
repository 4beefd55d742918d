// `longshore agent`: the daemon in the foreground, as a service runs it and as `longshore up` starts it.
import { leaveSupervisor, stopWithSupervisor } from './daemon.ts';

export async function runAgentCommand(env: NodeJS.ProcessEnv): Promise<number> {
  stopWithSupervisor();
  const { runAgent } = await import('#agent/main.ts');
  try {
    return await runAgent(env);
  } finally {
    leaveSupervisor();
  }
}

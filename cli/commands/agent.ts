// `longshore agent`: the daemon in the foreground, as a service runs it and as `longshore up` starts it.
import { print, printJson } from '../print.ts';
import { underSupervisor } from './daemon.ts';

export function runAgentCommand(env: NodeJS.ProcessEnv): Promise<number> {
  return underSupervisor(async () => {
    const { runAgent } = await import('#agent/process.ts');
    await runAgent(env);
    return 0;
  });
}

/** @returns 1 when a check failed */
export async function runAgentCheck(asJson: boolean, env: NodeJS.ProcessEnv): Promise<number> {
  const [{ checkMachine }, { findingsText }] = await Promise.all([
    import('#agent/preflight/check.ts'),
    import('#agent/preflight/finding.ts'),
  ]);
  const findings = await checkMachine(env);
  const isReady = findings.every(({ level }) => level !== 'failed');
  if (asJson) printJson({ ready: isReady, findings });
  else print(findingsText(findings));
  return isReady ? 0 : 1;
}

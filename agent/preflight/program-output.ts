// Runs a program of the host for a short output, with a deadline.
import { inheritedEnv, runProgram } from '#shared/child-process.ts';

/** The program's output; empty when it is absent, fails, or does not answer in time. */
export async function programOutput(program: string, args: readonly string[], deadlineMs: number): Promise<string> {
  const end = await runProgram(program, args, { deadlineMs, env: { ...inheritedEnv(), LC_ALL: 'C' } });
  return end.kind === 'ended' && end.exitCode === 0 ? end.stdout : '';
}

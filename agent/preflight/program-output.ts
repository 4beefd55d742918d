// Runs a program of the host for a short output, with a deadline.
const MAX_OUTPUT_CHARS = 64 * 1024;

/** The program's output; empty when it is absent, fails, or does not answer in time. */
export async function programOutput(program: string, args: readonly string[], deadlineMs: number): Promise<string> {
  const { execa } = await import('execa');
  const { NOTIFY_SOCKET: _hidden, ...env } = process.env;
  const { stdout, exitCode } = await execa(program, [...args], {
    extendEnv: false,
    env: { ...env, LC_ALL: 'C' },
    stdin: 'ignore',
    stderr: 'ignore',
    reject: false,
    timeout: deadlineMs,
    killSignal: 'SIGKILL',
    maxBuffer: MAX_OUTPUT_CHARS,
  });
  return exitCode === 0 ? stdout : '';
}

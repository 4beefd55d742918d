// Runs commands of `longshore` in the test's own process, which takes a tenth of the time of a process for each.
import { runProgram } from '#cli/program.ts';

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs one command, and returns what it wrote. Commands run one after another; none may read stdin.
 * @param env - variables of Longshore for the command; the process's own ones are put aside meanwhile
 */
export async function runCommand(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Ended> {
  if (!env['LONGSHORE_CONTEXT_FILE']) throw new Error('a test names a file of contexts of its own');
  const before = { ...process.env };
  for (const name of Object.keys(before)) if (name.startsWith('LONGSHORE_')) delete process.env[name];
  Object.assign(process.env, env);
  const [stdout, stderr] = [capture(process.stdout), capture(process.stderr)];
  try {
    const code = await runProgram(args);
    return { code, stdout: stdout.text(), stderr: stderr.text() };
  } finally {
    stdout.release();
    stderr.release();
    for (const name of Object.keys(env)) delete process.env[name];
    Object.assign(process.env, before);
  }
}

function capture(stream: NodeJS.WriteStream) {
  const own = Object.getOwnPropertyDescriptor(stream, 'write');
  let text = '';
  const write = (chunk: Uint8Array | string): boolean => {
    text += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8');
    return true;
  };
  Object.defineProperty(stream, 'write', { configurable: true, writable: true, value: write });
  return {
    text: () => text,
    release: () => {
      if (own === undefined) Reflect.deleteProperty(stream, 'write');
      else Object.defineProperty(stream, 'write', own);
    },
  };
}

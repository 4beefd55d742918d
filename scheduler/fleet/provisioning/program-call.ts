// A run of an operator's program, without a shell and in a process group of its own. A deadline ends the group. A
// process that left the group, such as the master of an SSH connection, may keep the pipes: nothing waits for it.
import { spawn } from 'node:child_process';

/** Time in which the pipes may end after the program; longer only while a process that it left behind keeps them. */
const GRACE_MS = 500;
const KEPT_ERRORS = 4_000;

export interface ProgramCall {
  readonly words: readonly string[];
  readonly input: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly timeoutMs: number;
  /** Bytes of standard output after which the program is killed. */
  readonly mostOutput: number;
}

export type ProgramEnd = { readonly errors: string } & (
  | { readonly kind: 'exited'; readonly code: number; readonly output: string }
  | { readonly kind: 'signalled'; readonly signal: string }
  | { readonly kind: 'late' | 'too_much' }
  | { readonly kind: 'unstarted'; readonly code: string }
);

/** @returns how the program ended; `errors`: whole words at the end of its standard error */
export async function runProgram(call: ProgramCall): Promise<ProgramEnd> {
  const { words, input, env, cwd, timeoutMs, mostOutput } = call;
  const [program = '', ...args] = words;
  const child = spawn(program, args, { cwd, env: { ...env }, detached: true, stdio: 'pipe' });
  const output: Buffer[] = [];
  let bytes = 0;
  let errors = '';
  let isCut = false;
  let stopped: 'late' | 'too_much' | undefined;
  let exited: { readonly code: number | null; readonly signal: string | null } | undefined;
  let grace: NodeJS.Timeout | undefined;
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const stop = (why: 'late' | 'too_much'): void => {
    if (stopped !== undefined) return;
    stopped = why;
    endGroup(child.pid);
    // A process in the kernel's hands may survive even this signal.
    grace ??= setTimeout(() => resolve(undefined), GRACE_MS);
  };
  child.stdout?.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > mostOutput) stop('too_much');
    else output.push(chunk);
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    isCut ||= errors.length + text.length > KEPT_ERRORS;
    errors = (errors + text).slice(-KEPT_ERRORS);
  });
  // A program that does not read its input closes it.
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  child.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown cause'));
  child.once('close', () => resolve(undefined));
  child.once('exit', (code, signal) => {
    exited = { code, signal };
    // Pipes are read once more between the timer and the end.
    grace ??= setTimeout(() => setImmediate(() => resolve(undefined)), GRACE_MS);
  });
  const timer = setTimeout(() => stop('late'), timeoutMs);
  const unstarted = await promise;
  clearTimeout(timer);
  clearTimeout(grace);
  for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.destroy();
  if (stopped !== undefined || exited?.code !== 0) endGroup(child.pid);
  // The beginning of a cut text may be a part of a secret, which nothing would recognise.
  const told = { errors: isCut ? errors.replace(/^\S+/, '') : errors };
  if (stopped !== undefined) return { ...told, kind: stopped };
  if (exited === undefined) return { ...told, kind: 'unstarted', code: unstarted ?? 'unknown cause' };
  const { code, signal } = exited;
  return code === null
    ? { ...told, kind: 'signalled', signal: signal ?? 'a signal' }
    : { ...told, kind: 'exited', code, output: Buffer.concat(output).toString('utf8') };
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The group has ended.
  }
}

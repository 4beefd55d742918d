/**
 * Runs a program to its end, with a deadline and a bound on its output. Uses Node's own module, because daemons do this
 * at rest, and a library for it takes several MiB of memory in each of them (decision 0133). The program has its own
 * process group, so that its children are killed with it.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess, SpawnOptions } from 'node:child_process';

const MAX_OUTPUT_CHARS = 64 * 1024;

export interface ProgramOptions {
  readonly deadlineMs: number;
  /** Environment; absent: `inheritedEnv()`. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  /** Characters of each stream; a program that writes more is killed. */
  readonly maxOutput?: number;
  /** Called with the whole output so far at each piece; each piece restarts the deadline. */
  readonly onOutput?: (output: string) => void;
}

export type ProgramEnd =
  /** `exitCode` is null when a signal ended the program, or its output passed the bound. */
  | { readonly kind: 'ended'; readonly exitCode: number | null; readonly stdout: string; readonly stderr: string }
  /** The program does not exist, may not be run, or the host has no room for a process. */
  | { readonly kind: 'not_started'; readonly error: Error }
  /** Killed at the deadline. A program that sleeps in the kernel may survive that: `gone` resolves at its end. */
  | { readonly kind: 'timeout'; readonly group: number; readonly gone: Promise<void> };

export type StartedEnd =
  /** A signal ended the program where `exitCode` is null. */
  { readonly exitCode: number | null } | { readonly error: Error };

/**
 * Starts a program. Every failure of the start is told by `ended`, also one that Node throws: it throws most errors of
 * the kernel, and tells a few as an event. Without a free file descriptor the child has no streams, whatever their type
 * says.
 * @returns `child` is absent where nothing was started
 */
export function startProgram(
  path: string,
  args: readonly string[],
  options: SpawnOptions,
): { readonly child?: ChildProcess; readonly ended: Promise<StartedEnd> } {
  let child: ChildProcess;
  try {
    child = spawn(path, [...args], options);
  } catch (error) {
    return { ended: Promise.resolve({ error: error instanceof Error ? error : new Error(String(error)) }) };
  }
  const ended = new Promise<StartedEnd>((resolve) => {
    child.on('error', (error) => resolve({ error }));
    child.on('close', (exitCode) => resolve({ exitCode }));
  });
  return { child, ended };
}

/** @param path - an absolute path, or a name on the path */
export function runProgram(path: string, args: readonly string[], options: ProgramOptions): Promise<ProgramEnd> {
  const { deadlineMs, cwd, maxOutput = MAX_OUTPUT_CHARS, onOutput, env = inheritedEnv() } = options;
  const { child, ended } = startProgram(path, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    env: { ...env },
    cwd,
  });
  const gone = new Promise<void>((resolve) => child?.once('exit', () => resolve()));
  const kill = (): unknown => child?.pid !== undefined && signalGroup(child.pid, 'SIGKILL');
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      kill();
      // The handles must not keep this process alive.
      child?.unref();
      child?.stdout?.destroy();
      child?.stderr?.destroy();
      resolve({ kind: 'timeout', group: child?.pid ?? 0, gone });
    }, deadlineMs);
    const texts = { stdout: '', stderr: '' };
    let passedBound = false;
    for (const name of ['stdout', 'stderr'] as const) {
      child?.[name]?.setEncoding('utf8').on('data', (text: string) => {
        if (passedBound) return;
        texts[name] += text;
        if (texts[name].length > maxOutput) {
          passedBound = true;
          texts[name] = texts[name].slice(0, maxOutput);
          kill();
        } else if (name === 'stdout' && onOutput !== undefined) {
          timer.refresh();
          onOutput(texts.stdout);
        }
      });
    }
    void ended.then((end) => {
      clearTimeout(timer);
      if ('error' in end) resolve({ kind: 'not_started', error: end.error });
      else resolve({ kind: 'ended', exitCode: passedBound ? null : end.exitCode, ...texts });
    });
  });
}

/** This process's environment without systemd's socket: only the daemon itself speaks to systemd. */
export function inheritedEnv(): Record<string, string | undefined> {
  const { NOTIFY_SOCKET: _hidden, ...env } = process.env;
  return env;
}

/** @param signal - 0: nothing is sent. @returns whether the group exists */
export function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    return false;
  }
}

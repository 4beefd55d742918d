/**
 * Runs a program to its end, with a deadline and a bound on its output. Uses Node's own module, because daemons do this
 * at rest, and a library for it takes several MiB of memory in each of them (decision 0133). The program has its own
 * process group, so that its children are killed with it.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import type { Readable } from 'node:stream';

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

/** @param path - an absolute path, or a name on the path */
export function runProgram(path: string, args: readonly string[], options: ProgramOptions): Promise<ProgramEnd> {
  const { deadlineMs, cwd, maxOutput = MAX_OUTPUT_CHARS, onOutput, env = inheritedEnv() } = options;
  return new Promise((resolve) => {
    let child: ChildProcess;
    try {
      child = spawn(path, [...args], { stdio: ['ignore', 'pipe', 'pipe'], detached: true, env: { ...env }, cwd });
    } catch (error) {
      // Most errors of the kernel are thrown, and a few come as an event.
      resolve({ kind: 'not_started', error: error instanceof Error ? error : new Error(String(error)) });
      return;
    }
    const gone = new Promise<void>((ended) => child.once('exit', () => ended()));
    const kill = (): unknown => child.pid !== undefined && signalGroup(child.pid, 'SIGKILL');
    // Without a free file descriptor the child has no streams, whatever their type says.
    const streams: Readonly<Record<'stdout' | 'stderr', Readable | null | undefined>> = child;
    const timer = setTimeout(() => {
      kill();
      // The handles must not keep this process alive.
      child.unref();
      streams.stdout?.destroy();
      streams.stderr?.destroy();
      resolve({ kind: 'timeout', group: child.pid ?? 0, gone });
    }, deadlineMs);
    child.on('error', (error) => {
      clearTimeout(timer);
      resolve({ kind: 'not_started', error });
    });
    const texts = { stdout: '', stderr: '' };
    let passedBound = false;
    for (const name of ['stdout', 'stderr'] as const) {
      streams[name]?.setEncoding('utf8').on('data', (text: string) => {
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
    child.on('close', (exitCode) => {
      clearTimeout(timer);
      resolve({ kind: 'ended', exitCode: passedBound ? null : exitCode, ...texts });
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

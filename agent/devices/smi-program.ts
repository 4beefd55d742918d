/**
 * The GPU tool as a child process with a deadline: a hanging driver blocks the child, never the agent. At the deadline
 * the child's process group is killed. A child that survives the kill (it sleeps in the kernel) is left behind. Until
 * it has gone, neither its device nor all devices together are asked again, so that at most one such child exists per
 * device.
 */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { withDeadline } from '#shared/backoff.ts';
import { inheritedEnv, runProgram } from '#shared/child-process.ts';
import { hasCode } from '../durable.ts';
import type { ToolOutput } from './parse.ts';

/** Wait for the child's end after the kill. */
const REAP_MS = 500;
const MAX_OUTPUT = 1024 * 1024;

export type Run =
  | ({ readonly kind: 'done' } & ToolOutput)
  | { readonly kind: 'timeout' }
  | { readonly kind: 'missing'; readonly path: string };

/** @param id - the device that is asked for; empty: all of them */
export type AskTool = (args: readonly string[], id: string, deadlineMs: number) => Promise<Run>;

export class SmiProgram {
  readonly #path: string;
  /** Children that survived their kill, by the device that they were asked for; empty: all devices. */
  readonly #undead = new Map<string, number>();

  constructor(path: string) {
    this.#path = path;
  }

  readonly ask: AskTool = async (args, id, deadlineMs) => {
    if (this.#isStuck(id)) return { kind: 'timeout' };
    // Most machines lack the tool: looking for its file first spares them a process.
    const late = (): Error => new Error('no answer where programs lie');
    const found = await withDeadline(isThere(this.#path), deadlineMs, late).catch(() => true);
    if (!found) return { kind: 'missing', path: this.#path };
    // A child may have survived its kill meanwhile.
    if (this.#isStuck(id)) return { kind: 'timeout' };
    const end = await runProgram(this.#path, id === '' ? args : [`--id=${id}`, ...args], {
      deadlineMs,
      maxOutput: MAX_OUTPUT,
      env: { ...inheritedEnv(), LC_ALL: 'C' },
    });
    switch (end.kind) {
      case 'ended':
        return { kind: 'done', exitCode: end.exitCode ?? 255, stdout: end.stdout, stderr: end.stderr };
      case 'not_started':
        if (hasCode(end.error, 'ENOENT', 'EACCES', 'ENOTDIR')) return { kind: 'missing', path: this.#path };
        return { kind: 'done', exitCode: 255, stdout: '', stderr: end.error.message };
      case 'timeout':
        await this.#reap(id, end.gone);
        return { kind: 'timeout' };
    }
  };

  #isStuck(id: string): boolean {
    return id === '' ? this.#undead.size > 0 : this.#undead.has(id);
  }

  /** Waits for the end of a killed child; one that goes on is counted until it ends. */
  async #reap(id: string, gone: Promise<void>): Promise<void> {
    await withDeadline(gone, REAP_MS, () => new Error('timeout')).catch(() => {
      this.#undead.set(id, (this.#undead.get(id) ?? 0) + 1);
      void gone.then(() => {
        const left = (this.#undead.get(id) ?? 1) - 1;
        if (left > 0) this.#undead.set(id, left);
        else this.#undead.delete(id);
      });
    });
  }
}

/** Whether a program of that name exists on the path. */
async function isThere(name: string): Promise<boolean> {
  const folders = name.includes('/') ? [''] : (process.env['PATH'] ?? '').split(delimiter);
  const found = await Promise.allSettled(
    folders.map((folder) => access(folder === '' ? name : join(folder, name), constants.X_OK)),
  );
  return found.some(({ status }) => status === 'fulfilled');
}

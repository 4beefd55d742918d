// Everything a run makes, and how it goes away: a temporary directory, children, containers with the run's label.
// `main.ts` opens a workplace and closes it however the run ends.
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BenchChild } from './child.ts';
import type { ChildOptions } from './child.ts';
import { cpuPerCall } from './cpu.ts';
import { BenchEngine } from './engine.ts';
import type { Figures } from './measure.ts';
import { outsideShare } from './outside.ts';
import { readMachineTicks } from './processes.ts';

export interface Workplace {
  readonly runId: string;
  readonly directory: string;
  readonly engine: BenchEngine;
  readonly signal: AbortSignal;
  /** Environment of every child: enough to run programs, none of the caller's Longshore settings. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Starts a child; the workplace stops it unless it was stopped before. */
  start(options: Omit<ChildOptions, 'logPath'>): BenchChild;
  /** Called at the end, last registered first. */
  later(work: () => Promise<void>): void;
  /** The share of the machine that others used during the work. */
  watch<T>(work: () => Promise<T>): Promise<{ readonly value: T; readonly outside: number }>;
  /** Adds the processor time of each role during the work, per call, to the figures. */
  cpuOf<T extends { readonly figures: Figures; readonly answered: number }>(work: () => Promise<T>): Promise<Figures>;
  /** A part of this workplace; its `close` ends what the part has started or registered, and nothing else. */
  part(): Workplace;
  /** Ends everything. @returns the things that could not be ended */
  close(): Promise<readonly string[]>;
}

/**
 * Variables that tools need. Everything else of the environment
 * stays outside, so that a run measures the same everywhere.
 */
const PASSED_ON = ['PATH', 'HOME', 'TMPDIR', 'LANG', 'DOCKER_HOST', 'LONGSHORE_CA_BUNDLE'];

export async function openWorkplace(signal: AbortSignal): Promise<Workplace> {
  const runId = `bench-${randomBytes(4).toString('hex')}`;
  // Short, because paths of sockets end at 107 bytes.
  const directory = await mkdtemp(join(tmpdir(), 'lsb-'));
  const engine = new BenchEngine(runId, process.env['DOCKER_HOST']);
  const env: Record<string, string | undefined> = {};
  for (const name of PASSED_ON) if (process.env[name] !== undefined) env[name] = process.env[name];
  const children = new Map<number, string>();
  let started = 0;
  const partOf = (undo: (() => Promise<void>)[]): Workplace => ({
    runId,
    directory,
    engine,
    signal,
    env,
    start(options) {
      started += 1;
      const child = new BenchChild({ ...options, logPath: join(directory, `${started}-${options.name}.log`) });
      children.set(child.pid, child.name);
      undo.push(() => child.stop());
      return child;
    },
    later: (work) => void undo.push(work),
    async watch(work) {
      const before = readMachineTicks();
      await engine.noteContainers();
      const value = await work();
      await engine.noteContainers();
      return { value, outside: outsideShare(before, readMachineTicks(), process.pid, engine.known) };
    },
    async cpuOf(work) {
      const before = readMachineTicks().processes;
      const { figures, answered } = await work();
      const roles = { generatorPid: process.pid, children, containerIds: engine.known };
      return { ...figures, ...cpuPerCall(before, readMachineTicks().processes, roles, answered) };
    },
    part() {
      const own: (() => Promise<void>)[] = [];
      undo.push(async () => {
        const problems = await undoAll(own);
        if (problems.length > 0) throw new Error(problems.join('; '));
      });
      return partOf(own);
    },
    close: () => undoAll(undo),
  });
  return partOf([() => rm(directory, { recursive: true, force: true, maxRetries: 3 }), () => engine.removeAll()]);
}

/** Empties the list from its end. @returns what failed */
async function undoAll(undo: (() => Promise<void>)[]): Promise<readonly string[]> {
  const problems: string[] = [];
  for (let work = undo.pop(); work !== undefined; work = undo.pop()) {
    try {
      await work();
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
    }
  }
  return problems;
}

/** A port of 127.0.0.1 that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        typeof address === 'object' && address !== null ? resolve(address.port) : reject(new Error('no port')),
      );
    });
  });
}

/** A slot table with one container's socket, and the messages between it and the scheduler and agent around it. */
// The fixtures of these tests take nothing from others; vitest wants the empty pattern.
/* oxlint-disable no-empty-pattern */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test as base } from 'vitest';
import type { RunTask__Output, TaskFromAgent, TaskResult } from '#shared/protocol/generated/messages.ts';
import { createLog } from '#shared/log.ts';
import type { TaskSink } from '../../agent/slots/attempts.ts';
import type { PrintedLine, ReadyFacts } from '../../agent/slots/container-facts.ts';
import type { OpenBytes } from '../../agent/slots/streams.ts';
import { RunnerSlots } from '../../agent/slots/slots.ts';
import { FakeRunner } from './fake-runner.ts';
import { until } from './fake-scheduler.ts';

export class Sink implements TaskSink {
  readonly sent: TaskFromAgent[] = [];
  send(message: TaskFromAgent): boolean {
    this.sent.push(message);
    return true;
  }
  onceWritable(callback: () => void): void {
    callback();
  }
  result(taskId: string): Promise<TaskResult> {
    return until(`the result of ${taskId}`, () => {
      for (const { result } of this.sent) if (result?.taskId === taskId) return result;
      return undefined;
    });
  }
}

export const ID = 'endpoint-1';

export interface World {
  readonly table: RunnerSlots;
  readonly sink: Sink;
  readonly path: string;
  readonly log: PrintedLine[];
  readonly failures: string[];
  readonly stops: string[];
  readonly violations: string[];
  readonly readies: ReadyFacts[];
  /** Reported numbers of slots whose processes do not serve again yet. */
  readonly restarting: number[];
  /** Reported numbers of attempts of retired processes, beside each of the above. */
  readonly retired: number[];
  add(facts?: { workers?: number; concurrentRequests?: number; ready?: ReadyFacts; timeoutMs?: number }): Promise<void>;
  /** Says how streams to the scheduler are opened; none can be until then. */
  opens(opening: OpenBytes): void;
  /** A single-mode runner that is ready. */
  single(slots?: number): Promise<FakeRunner>;
  run(taskId: string, rest?: Partial<RunTask__Output>): void;
}

export const test = base.extend('world', async ({}, { onCleanup }): Promise<World> => {
  const dir = await mkdtemp(join(tmpdir(), 'lss-'));
  const path = join(dir, 's', 'agent.sock');
  const world = {
    log: [],
    failures: [],
    stops: [],
    violations: [],
    readies: [],
    restarting: [],
    retired: [],
  } as unknown as World;
  let open: OpenBytes = () => undefined;
  const table = new RunnerSlots(
    { open: (line) => open(line), onCount: () => undefined },
    createLog({ name: 'test', level: 'silent' }),
  );
  table.onReady((_id, ready) => world.readies.push(ready));
  table.onFailed((_id, message) => world.failures.push(message));
  table.onLog((record) => world.log.push(record));
  table.onMustStop((_id, reason) => world.stops.push(reason));
  table.onViolation((_id, rule) => world.violations.push(rule));
  table.onSlots((_id, { restarting, retired }) => {
    world.restarting.push(restarting);
    world.retired.push(retired);
  });
  const sink = new Sink();
  table.connect(sink);
  onCleanup(async () => {
    table.close();
    await rm(dir, { recursive: true, force: true });
  });
  return Object.assign(world, {
    table,
    sink,
    path,
    opens: (opening: typeof open) => void (open = opening),
    add: (facts: Parameters<World['add']>[0] = {}) =>
      table.add({
        containerId: ID,
        workers: facts.workers ?? 1,
        concurrentRequests: facts.concurrentRequests ?? 1,
        timeoutMs: facts.timeoutMs ?? 0,
        socketPath: path,
        ready: facts.ready,
      }),
    single: async (slots = 1) => {
      const runner = await FakeRunner.process(path, { containerId: ID, process: 0, slots: 0 });
      runner.send('ready', { mode: 'single', slots, onStartMs: 12 });
      await until('ready', () => world.readies.length > 0);
      return runner;
    },
    run: (taskId: string, rest: Partial<RunTask__Output> = {}) =>
      table.run({
        taskId,
        token: `token-${taskId}`,
        containerId: ID,
        timeoutMs: 0,
        query: '',
        input: Buffer.from('{"a":1}'),
        part: 0,
        last: true,
        stream: false,
        facts: Buffer.alloc(0),
        ...rest,
      }),
  });
});

export const named = (taskId: string): { taskId: string; token: string } => ({ taskId, token: `token-${taskId}` });

// Upkeep of flow control, a round of the leader every 15 s. It mends what a killed process, or a Redis without data,
// left: a slot without a task is freed, a task that has its slots and waits all the same is made ready, free slots go
// to tasks that wait for them, and a job without a slot or a place gets it. Invariant F9: no more of a control run than
// may, each held task has a deadline, and no slot is without a task.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { kindOfControl } from '../../domain/flow.ts';
import type { FlowConfig } from '../../domain/flow-settings.ts';
import type { FlowTask, JobState, QueueDepth, TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Leases } from '../dispatch/leases.ts';

export const FLOW_SWEEP_MS = 15_000;
const BATCH = 500;
/** Rounds after which held tasks are looked at, too: a missing one is noticed when it is to be made ready. */
const HELD_EVERY = 8;
/** Most controls that are filled in a round; the others come in the next ones. */
const MOST_FILLED = 10_000;

export interface FlowSweepParts {
  readonly queues: Pick<TaskQueues, 'flow' | 'depths' | 'release' | 'read' | 'waitingIds' | 'activeIds'>;
  readonly leases: Pick<Leases, 'heldAmong'>;
  /** Queues with open tasks whose stubs have flow control. */
  readonly controlled: () => Promise<readonly ControlledQueue[]>;
  readonly log: Log;
}

export interface ControlledQueue {
  readonly queue: QueueName;
  readonly flow: FlowConfig;
}

export class FlowSweep {
  readonly #parts: FlowSweepParts;
  #rounds = 0;
  /** Tasks that had no job when they were looked at last: the adds of some were under way. */
  #absent: ReadonlySet<TaskId> = new Set();
  /** Whether the last look found queues with flow control. */
  #hasControlled = false;
  /** Held tasks by kind of control, as the last round found them. */
  #held: ReadonlyMap<string, number> = new Map();

  constructor(parts: FlowSweepParts) {
    this.#parts = parts;
  }

  /** Held tasks by kind of control. */
  get held(): ReadonlyMap<string, number> {
    return this.#held;
  }

  /** @throws when Redis does not answer */
  async round(signal?: AbortSignal): Promise<void> {
    const { queues } = this.#parts;
    const looksAtAll = this.#rounds % HELD_EVERY === 0;
    this.#rounds += 1;
    const known = new Set<TaskId>();
    const looked = new Set<TaskId>();
    const absent = new Set<TaskId>();
    const controls = new Set<string>();
    const held = new Map<string, number>();
    let cursor = '0';
    do {
      const page = await queues.flow().page(cursor);
      cursor = page.cursor;
      for (const { taskId, heldBy } of page.tasks) {
        if (known.has(taskId)) continue;
        known.add(taskId);
        if (heldBy === undefined) continue;
        held.set(kindOfControl(heldBy), (held.get(kindOfControl(heldBy)) ?? 0) + 1);
        if (controls.size < MOST_FILLED) controls.add(heldBy);
      }
      const some = looksAtAll ? page.tasks : page.tasks.filter(({ heldBy }) => heldBy === undefined);
      for (const { taskId } of some) looked.add(taskId);
      await this.#look(some, absent);
    } while (cursor !== '0');
    for (const taskId of this.#absent) if (known.has(taskId) && !looked.has(taskId)) absent.add(taskId);
    this.#absent = absent;
    // Where nothing has flow control, queues are looked for now and then.
    if (looksAtAll || known.size > 0 || this.#hasControlled) await this.#restore({ known, held, looksAtAll }, signal);
    this.#held = held;
    const names = [...controls];
    for (let at = 0; at < names.length && signal?.aborted !== true; at += BATCH)
      await queues.flow().fill(names.slice(at, at + BATCH));
  }

  /** Looks where the jobs of these tasks are. @param absent - gets those without one */
  async #look(tasks: readonly FlowTask[], absent: Set<TaskId>): Promise<void> {
    const { queues, leases, log } = this.#parts;
    const jobs = await queues.flow().jobsOf(tasks);
    const at = (index: number): JobState => jobs[index] ?? { exists: true, dueMs: undefined };
    const without = tasks.filter((_task, index) => !at(index).exists);
    // An external runner has such a task, or it runs on since Redis lost its job.
    const running = await leases.heldAmong(without.map(({ taskId }) => taskId));
    for (const { queue, taskId } of without) {
      if (running.has(taskId)) continue;
      if (!this.#absent.has(taskId)) {
        absent.add(taskId);
        continue;
      }
      await queues.release(taskId);
      log.info({ taskId, queue }, 'a slot without a task is free again');
    }
    for (const [index, { queue, taskId, heldBy }] of tasks.entries()) {
      const { dueMs } = at(index);
      if (heldBy !== undefined || dueMs === undefined) continue;
      const job = await queues.read(queue, taskId);
      if (job === undefined) continue;
      // A job that waits for its retry has no slot; one that is delayed to its deadline was to be made ready.
      if (job.deadlineMs === dueMs) await queues.flow().promote(queue, taskId);
      else await queues.release(taskId);
    }
  }

  /** Finds jobs of controlled queues that have neither slot nor place. */
  async #restore(
    {
      known,
      held,
      looksAtAll,
    }: { readonly known: ReadonlySet<TaskId>; readonly held: Map<string, number>; readonly looksAtAll: boolean },
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { queues, controlled } = this.#parts;
    const found = await controlled();
    this.#hasControlled = found.length > 0;
    const depths: QueueDepth[] = [];
    for (let at = 0; at < found.length && signal?.aborted !== true; at += BATCH)
      depths.push(...(await queues.depths(found.slice(at, at + BATCH).map(({ queue }) => queue))));
    for (const [index, { queue, flow }] of found.entries()) {
      const depth = depths[index];
      if (signal?.aborted === true || depth === undefined) return;
      const isThrottled = flow.throttle !== undefined;
      if (isThrottled) held.set('throttle', (held.get('throttle') ?? 0) + depth.delayed);
      if (flow.concurrency === undefined && flow.limits === undefined) continue;
      const place = async (ids: readonly TaskId[], isActive: boolean): Promise<void> => {
        const some = ids.filter((taskId) => !known.has(taskId));
        for (let at = 0; at < some.length && signal?.aborted !== true; at += BATCH)
          await Promise.all(some.slice(at, at + BATCH).map((taskId) => this.#place(queue, taskId, isActive)));
      };
      // Running tasks have their slots before others ask for them.
      if (depth.active > 0) await place(await queues.activeIds(queue), true);
      // Jobs that wait without delay ask for their slots when they are fetched, and those of a throttle at their turns.
      if (depth.delayed > 0 && (looksAtAll || !isThrottled)) await place(await queues.waitingIds(queue), false);
    }
  }

  async #place(queue: QueueName, taskId: TaskId, isActive: boolean): Promise<void> {
    const { queues } = this.#parts;
    const job = await queues.read(queue, taskId);
    if (job?.flow === undefined) return;
    if (!isActive) {
      const [state] = await queues.flow().jobsOf([{ queue, taskId }]);
      if (state?.dueMs !== job.deadlineMs) return;
    }
    await queues.flow().restore(queue, job, isActive);
  }
}

// Slots of flow control in Redis, and the tasks that wait for one (lua/take-flow.lua). A control counts the tasks that
// have a slot of it; a task has slots of all its controls, or waits for the first that has none.
import type { Redis } from 'ioredis';
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import { isRecord } from '#shared/json.ts';
import { controlsOf, throttlesOfQueue } from '../../domain/flow.ts';
import type { TaskFlow } from '../../domain/flow.ts';
import type { TaskJob } from './jobs.ts';
import type { Keys } from './keys.ts';
import { defineScript } from './scripts.ts';
import type { Script } from './scripts.ts';
import type { FlowTask, HeldBy } from './task-queues.ts';

/** Most tasks that get slots in one step; the sweep goes on. */
const MOST_FREED = 100;
const PAGE = 500;
/** Controls counted by one round trip. */
const TOGETHER = 500;
/** Most members looked at for a list of controls. */
const MOST_LISTED = 100_000;

export type Taking = 'add' | 'start' | 'ask' | 'force';
/** `turnMs`: the task may start then. */
export type Taken = 'yes' | 'held' | { readonly turnMs: number };

/** A task that starts within this time of its own turn is not late. */
const LATE_MS = 1_000;

/** Arguments of the question to a throttle; undefined: it is not asked. */
function throttleOf(queue: QueueName, flow: TaskFlow, how: Taking): readonly (string | number)[] | undefined {
  const { key, everyMs, atMs = 0, isDue } = flow;
  if (everyMs === undefined || how === 'add' || how === 'force') return undefined;
  const nowMs = Date.now();
  if (isDue === true && nowMs >= atMs && nowMs < atMs + Math.max(everyMs, LATE_MS)) return undefined;
  return [`${throttlesOfQueue(queue)}${key}`, everyMs, nowMs, how === 'start' ? 'reserve' : ''];
}

/** Length of a turn, rounded up: a key never has one more before others have theirs. */
const turnOf = (weight: number): number => Math.ceil(1e6 / weight) / 1e6;

export class FlowBook {
  readonly #client: Redis;
  readonly #keys: Keys['flow'];
  readonly #paces: Keys['flowPaces'];
  readonly #turns: Keys['flowTurns'];
  readonly #turn: Script;
  readonly #take: Script;
  readonly #free: Script;

  constructor(client: Redis, keys: Pick<Keys, 'flow' | 'flowPaces' | 'flowTurns'>) {
    this.#client = client;
    this.#keys = keys.flow;
    this.#paces = keys.flowPaces;
    this.#turns = keys.flowTurns;
    this.#turn = defineScript(client, 'longshoreTakeTurn');
    this.#take = defineScript(client, 'longshoreTakeFlow');
    this.#free = defineScript(client, 'longshoreFreeFlow');
  }

  /**
   * Gives the task its slots.
   * @param how - `add`: it does not start yet; `start`: it starts now, or at its turn, which is its own then; `ask`: it
   *   starts now or not at all; `force`: it runs
   */
  async take(queue: QueueName, job: TaskJob, how: Taking): Promise<Taken> {
    const { flow } = job;
    if (flow === undefined) return 'yes';
    const controls = controlsOf(queue, job.workspaceId, flow).flat();
    const throttle = throttleOf(queue, flow, how);
    if (controls.length === 0 && throttle === undefined) return 'yes';
    const place = String(job.createdAtMs - (flow.headStart ?? 0) * 1000).padStart(16, '0');
    const answer = await this.#take.run(
      ...this.#keys,
      this.#paces(job.workspaceId),
      job.taskId,
      queue,
      place,
      how === 'force' ? 'force' : '',
      ...(throttle ?? ['', '', '', '']),
      ...controls,
    );
    if (answer === 1) return 'yes';
    return answer === 0 ? 'held' : { turnMs: Number(answer) };
  }

  /** The job with its place among the turns of its queue. */
  async inTurn(queue: QueueName, job: TaskJob): Promise<TaskJob> {
    const { flow } = job;
    if (flow?.fair === undefined || flow.turn !== undefined) return job;
    const { key, weight } = flow.fair;
    const turn = Number(await this.#turn.run(this.#turns(queue), `k${key}`, turnOf(weight)));
    return { ...job, flow: { ...flow, turn } };
  }

  /** The queue is at this turn: keys that come now begin there. */
  async begun(queue: QueueName, turn: number): Promise<void> {
    await this.#client.zadd(this.#turns(queue), 'GT', turn, '');
  }

  /** Takes the task off its controls. @returns the tasks that have their slots now */
  async free(taskId: TaskId): Promise<readonly FlowTask[]> {
    return tasksIn(await this.#free.run(...this.#keys, taskId, MOST_FREED));
  }

  /** Gives free slots of the controls to those who wait. @returns the tasks that have their slots now */
  async fill(controls: readonly string[]): Promise<readonly FlowTask[]> {
    return tasksIn(await this.#free.run(...this.#keys, '', MOST_FREED, ...controls));
  }

  /** The task as it stands; undefined: it is under no control. */
  async look(taskId: TaskId): Promise<(FlowTask & { readonly most: number }) | undefined> {
    const text = await this.#client.hget(this.#keys[0], taskId);
    return text === null ? undefined : entryOf(taskId, text);
  }

  async page(cursor: string): Promise<{ readonly tasks: readonly FlowTask[]; readonly cursor: string }> {
    const [next, found] = await this.#client.hscan(this.#keys[0], cursor, 'COUNT', PAGE);
    const tasks: FlowTask[] = [];
    for (let at = 0; at + 1 < found.length; at += 2) tasks.push(entryOf(found[at] as TaskId, found[at + 1] ?? ''));
    return { tasks, cursor: next };
  }

  /** Counts of the controls, in their order. */
  async counts(names: readonly string[]): Promise<readonly { readonly running: number; readonly waiting: number }[]> {
    const [, slots, held] = this.#keys;
    const found: { running: number; waiting: number }[] = [];
    for (let at = 0; at < names.length; at += TOGETHER) {
      const some = names.slice(at, at + TOGETHER).map(async (name) => {
        const range = [`[${name}\0`, `(${name}\u0001`] as const;
        const [running, waiting] = await Promise.all([
          this.#client.zlexcount(slots, ...range),
          this.#client.zlexcount(held, ...range),
        ]);
        return { running, waiting };
      });
      found.push(...(await Promise.all(some)));
    }
    return found;
  }

  /** Controls whose names begin so, those with most tasks that wait first. */
  async controls(prefix: string, limit: number): Promise<readonly Omit<HeldBy, 'most'>[]> {
    const [, slots, held] = this.#keys;
    const range = [`[${prefix}`, `(${prefix}\u{10FFFF}`, 'LIMIT', 0, MOST_LISTED] as const;
    const [running, waiting] = await Promise.all([
      this.#client.zrangebylex(slots, ...range),
      this.#client.zrangebylex(held, ...range),
    ]);
    const found = new Map<string, { name: string; running: number; waiting: number }>();
    const of = (member: string): { running: number; waiting: number } => {
      const name = member.slice(0, member.indexOf('\0'));
      const known = found.get(name) ?? { name, running: 0, waiting: 0 };
      found.set(name, known);
      return known;
    };
    for (const member of running) of(member).running += 1;
    for (const member of waiting) of(member).waiting += 1;
    return [...found.values()]
      .toSorted((a, b) => b.waiting - a.waiting || b.running - a.running || (a.name < b.name ? -1 : 1))
      .slice(0, limit);
  }
}

function tasksIn(answer: unknown): readonly FlowTask[] {
  const texts = answer as readonly string[];
  const tasks: FlowTask[] = [];
  for (let at = 0; at + 1 < texts.length; at += 2)
    tasks.push({ queue: texts[at] as QueueName, taskId: texts[at + 1] as TaskId, heldBy: undefined });
  return tasks;
}

function entryOf(taskId: TaskId, text: string): FlowTask & { readonly most: number } {
  const entry: unknown = JSON.parse(text);
  const { q, h, c } = isRecord(entry) ? entry : {};
  const heldBy = typeof h === 'string' ? h : undefined;
  const most = Array.isArray(c)
    ? c.find((control: unknown) => Array.isArray(control) && control[0] === heldBy)
    : undefined;
  return { taskId, queue: String(q) as QueueName, heldBy, most: Array.isArray(most) ? Number(most[1]) : 0 };
}

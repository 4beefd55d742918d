// Questions to all replicas about tasks that are in the memory of one, which are synchronous tasks and attempts of all:
// stop a synchronous one, or say which of them you have. A present replica that does not answer leaves a question open.
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Clock } from '#shared/clock.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { Ending } from '../../domain/endings.ts';
import type { Completion } from '../completion/completion.ts';
import type { Attempts } from '../dispatch/attempts.ts';
import type { Lines } from './lines.ts';
import type { Moves } from './moves.ts';
import { isOut, NEW } from './offers.ts';

const SILENT_MS = 2_000;
/** A stop ends with a commit. */
const STOP_MS = 10_000;
/** How long a task is looked at that another replica was offered, and how often; longer than an offer gets lost. */
const OUT_MS = 2_000;
const OUT_LOOK_MS = 100;

type Question =
  | readonly ['stop', InstanceId, number, TaskId, Ending]
  | readonly ['has', InstanceId, number, readonly TaskId[]];
/** Tasks that the replica has, or has stopped. */
type Answer = readonly ['answer', InstanceId, number, readonly TaskId[]];

export interface QuestionsParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly channelOf: (replica: InstanceId) => string;
  readonly instance: InstanceId;
  /** Other replicas that are present. */
  readonly present: () => Iterable<InstanceId>;
  readonly lines: Pick<Lines, 'line' | 'order'>;
  readonly moves: Pick<Moves, 'hasStranger'>;
  readonly attempts: Pick<Attempts, 'current' | 'has'>;
  readonly completion: Pick<Completion, 'revoke' | 'endUnsent' | 'takeOut'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly silentMs?: number;
}

interface Open {
  readonly missing: Set<InstanceId>;
  readonly found: Set<TaskId>;
  readonly isEnough: () => boolean;
  readonly over: () => void;
}

export class Questions {
  readonly #parts: QuestionsParts;
  readonly #open = new Map<number, Open>();
  #number = 0;

  constructor(parts: QuestionsParts) {
    this.#parts = parts;
    const { bus, channel, channelOf, instance } = parts;
    bus.on(channel, (message) => {
      const question = message as Question;
      const [, from, number] = question;
      if (from === instance) return;
      const answer = (taskIds: readonly TaskId[]): void =>
        bus.publish(channelOf(from), ['answer', instance, number, taskIds] satisfies Answer);
      if (question[0] === 'has') answer(question[3].filter((taskId) => this.#has(taskId)));
      else void this.#stop(question[3], question[4], answer);
    });
    bus.on(channelOf(instance), (message) => {
      const [kind, from, number, taskIds] = message as Answer;
      if (kind !== 'answer') return;
      const open = this.#open.get(number);
      if (open === undefined) return;
      open.missing.delete(from);
      for (const taskId of taskIds) open.found.add(taskId);
      if (open.missing.size === 0 || open.isEnough()) open.over();
    });
  }

  async #stop(taskId: TaskId, ending: Ending, answer: (taskIds: readonly TaskId[]) => void): Promise<void> {
    try {
      answer((await this.#stopHere(taskId, ending)) ? [taskId] : []);
    } catch (error) {
      this.#parts.log.warn({ err: error, taskId }, 'a task was not stopped for another replica');
    }
  }

  /** Ends a task that is in the memory of this replica, also where another has it. @returns false: it is not here */
  async #stopHere(taskId: TaskId, ending: Ending): Promise<boolean> {
    const { lines } = this.#parts;
    if (await this.#stopOnce(taskId, ending)) return true;
    // An offer is on its way to its replica, or comes back.
    const untilMs = performance.now() + OUT_MS;
    while (performance.now() < untilMs && isOut(lines.line.get(taskId)?.place ?? NEW)) {
      if (await this.#askToStop(taskId, ending, OUT_MS)) return true;
      await sleep(OUT_LOOK_MS);
      if (await this.#stopOnce(taskId, ending)) return true;
    }
    return false;
  }

  async #stopOnce(taskId: TaskId, ending: Ending): Promise<boolean> {
    const { attempts, completion, lines, clock } = this.#parts;
    const attempt = attempts.current(taskId);
    if (attempt !== undefined)
      return await completion.revoke(attempt, 'cancelled', ending, clock.nowMs() - attempt.sentAtMs);
    const order = lines.order(taskId);
    if (order !== undefined) return await completion.endUnsent(order, ending);
    const task = lines.line.get(taskId);
    return task !== undefined && (await completion.takeOut(task.queue, task.job, ending));
  }

  #has(taskId: TaskId): boolean {
    const { attempts, lines, moves } = this.#parts;
    if (attempts.has(taskId)) return true;
    return lines.line.get(taskId) !== undefined || lines.order(taskId) !== undefined || moves.hasStranger(taskId);
  }

  /** Has the replica that has the task end it, which may be this one. @returns false: none does, as far as they said */
  async stop(taskId: TaskId, ending: Ending): Promise<boolean> {
    return (await this.#stopHere(taskId, ending)) || (await this.#askToStop(taskId, ending));
  }

  async #askToStop(taskId: TaskId, ending: Ending, waitMs = STOP_MS): Promise<boolean> {
    const { instance } = this.#parts;
    const ask = (number: number): Question => ['stop', instance, number, taskId, ending];
    return (await this.#ask(ask, waitMs, (found) => found.size > 0)).found.has(taskId);
  }

  /** Which of these tasks some replica has. @returns undefined: a present one did not answer */
  async whoHas(taskIds: readonly TaskId[]): Promise<ReadonlySet<TaskId> | undefined> {
    const { instance } = this.#parts;
    const ask = (number: number): Question => ['has', instance, number, taskIds];
    const { found, isWhole } = await this.#ask(ask, this.#parts.silentMs ?? SILENT_MS, () => false);
    return isWhole ? new Set([...found, ...taskIds.filter((taskId) => this.#has(taskId))]) : undefined;
  }

  async #ask(
    question: (number: number) => Question,
    waitMs: number,
    isEnough: (found: ReadonlySet<TaskId>) => boolean,
  ): Promise<{ readonly found: ReadonlySet<TaskId>; readonly isWhole: boolean }> {
    const { bus, channel, present } = this.#parts;
    const missing = new Set(present());
    const found = new Set<TaskId>();
    if (missing.size === 0) return { found, isWhole: true };
    const number = (this.#number += 1);
    const over = Promise.withResolvers<void>();
    this.#open.set(number, { missing, found, isEnough: () => isEnough(found), over: over.resolve });
    const timer = setTimeout(over.resolve, waitMs);
    bus.publish(channel, question(number));
    await over.promise;
    clearTimeout(timer);
    this.#open.delete(number);
    const others = new Set(present());
    return { found, isWhole: [...missing].every((replica) => !others.has(replica)) };
  }
}

// Synchronous tasks that cross replicas. The caller's replica offers a task that waits to a replica that seems to have
// a free slot; what has become of it is told by words, asked for by recalls, and found in rows (offers.ts, owner.ts).
// A slot that frees here may be kept for another replica's older task (kept-slots.ts). Messages use the bus: each may
// be lost, and is then asked for again.
import type { InstanceId, QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Bus } from '../../cluster/bus.ts';
import { LOST } from '../../domain/endings.ts';
import { checkTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Completion } from '../completion/completion.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { ReadyContainer } from '../dispatch/slots.ts';
import type { TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import { chooseOffers } from './choose.ts';
import { KeptSlots } from './kept-slots.ts';
import type { LineTask } from './line.ts';
import type { Lines } from './lines.ts';
import { afterRow, check, offeredTo } from './offers.ts';
import type { Check, Place, Word } from './offers.ts';
import type { Others } from './others.ts';
import { judgeOffer, judgeRecall } from './owner.ts';

const TICK_MS = 1_000;
/** Offers that this process reads so soon after it stood still may be old: they are refused. */
const LATE_MS = 1_000;
/** Longest wait of a replica that stops for the others' word that they offer it nothing more. */
const LEAVE_MS = 1_000;

type Offer = readonly ['offer', InstanceId, QueueName, number, TaskJob];
type Told = readonly ['word', InstanceId, TaskId, Word, WorkspaceId];
type Recall = readonly ['recall', InstanceId, TaskId, number, number, WorkspaceId];
/** A slot is kept for the other replica's oldest task; that one has none any more. */
type Room = readonly ['room' | 'none', InstanceId, QueueName];
/** This replica stops, and takes no more offers; the other one makes none any more. */
type Leaving = readonly ['leaving' | 'left', InstanceId];
export type LinesMessage = Offer | Told | Recall | Room | Leaving;

export interface CrossingParts {
  readonly bus: Bus;
  readonly channelOf: (replica: InstanceId) => string;
  readonly instance: InstanceId;
  readonly lines: Lines;
  readonly others: Pick<Others, 'roomKept' | 'tellNow'>;
  readonly dispatcher: Pick<Dispatcher, 'hasRoom' | 'take' | 'free' | 'keepsRoom' | 'onLineWaits'>;
  /** Slots of a queue's containers at other replicas, as they told last. */
  readonly capacity: (queue: QueueName) => ReadonlyMap<InstanceId, { readonly free: number; readonly slots: number }>;
  readonly isPresent: (replica: InstanceId) => boolean;
  /** Other replicas that are present. */
  readonly present: () => Iterable<InstanceId>;
  /** Whether each machine that was linked to that dead replica is linked elsewhere, or LOST. */
  readonly isSettled: (replica: InstanceId) => boolean;
  /** Replica to which the machine of the task's container is linked, by its row; null: none, or it is not known. */
  readonly runsAt: (task: TaskId) => Promise<InstanceId | null>;
  readonly records: Pick<TaskRecords, 'readOver'>;
  readonly completion: Pick<Completion, 'answerFrom' | 'endQueued'>;
  readonly sinceStallMs: () => number;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Free slots of another replica for a queue, as of a moment, and the tasks that were out there then. */
interface Seen {
  /** undefined: as its loads tell. */
  readonly free: 0 | undefined;
  readonly out: number;
}

export class Crossing {
  readonly name = 'lines';
  readonly #parts: CrossingParts;
  readonly #kept: KeptSlots;
  readonly #seen = new Map<InstanceId, Map<QueueName, Seen>>();
  /** Replicas that stop. */
  readonly #leaving = new Set<InstanceId>();
  /** Present while this replica stops: replicas that may still offer it something. */
  #waitsFor: { readonly replicas: Set<InstanceId>; readonly over: () => void } | undefined;
  #ticking = false;
  #again = false;

  constructor(parts: CrossingParts) {
    this.#parts = parts;
    this.#kept = new KeptSlots(parts.dispatcher);
    const { bus, channelOf, instance, dispatcher, lines } = parts;
    bus.on(channelOf(instance), (message) => this.#heard(message as LinesMessage));
    bus.onGap(() => void this.tick());
    dispatcher.onLineWaits((queue) => this.#offerAll(queue));
    dispatcher.keepsRoom((queue, replica, container) => this.#keep(queue, replica, container));
    lines.onUnsure(() => setImmediate(() => void this.tick()));
  }

  start(): void {
    const { signal, log } = this.#parts;
    void repeat(
      TICK_MS,
      signal,
      () => this.tick(),
      (error) => log.warn({ err: error }, 'lines not looked at'),
    );
  }

  stop(): void {
    this.#kept.stop();
  }

  /**
   * Takes no more offers, because this replica stops. Resolves when no more can come, or after a second: messages of
   * a replica arrive in order, so that its last offer comes before its answer.
   */
  async leave(): Promise<void> {
    const replicas = new Set(this.#parts.present());
    const over = Promise.withResolvers<void>();
    this.#waitsFor = { replicas, over: over.resolve };
    if (replicas.size === 0) return;
    for (const replica of replicas) this.#publish(replica, ['leaving', this.#parts.instance]);
    const timer = setTimeout(over.resolve, LEAVE_MS);
    await over.promise;
    clearTimeout(timer);
  }

  #hearLeaving(from: InstanceId): void {
    const { isPresent, instance } = this.#parts;
    for (const replica of this.#leaving) if (!isPresent(replica)) this.#leaving.delete(replica);
    this.#leaving.add(from);
    this.#publish(from, ['left', instance]);
  }

  #hearLeft(from: InstanceId): void {
    const { replicas, over } = this.#waitsFor ?? {};
    if (replicas?.delete(from) === true && replicas.size === 0) over?.();
  }

  say(to: InstanceId, { taskId, workspaceId }: Pick<TaskJob, 'taskId' | 'workspaceId'>, word: Word): void {
    this.#publish(to, ['word', this.#parts.instance, taskId, word, workspaceId]);
  }

  /** Notes that the loads of that replica were told: its free slots are known as of now. */
  loadsTold(replica: InstanceId): void {
    const { lines, capacity } = this.#parts;
    const seen = new Map<QueueName, Seen>();
    for (const queue of lines.line.queues()) {
      const out = lines.line.outTo(queue, replica);
      if (out > 0) seen.set(queue, { free: undefined, out });
    }
    this.#seen.set(replica, seen);
    // The replica may have refused before, or its message about a slot that it kept got lost.
    for (const queue of [...lines.line.queues()])
      if (lines.line.waitingCount(queue) > 0 && (capacity(queue).get(replica)?.free ?? 0) > 0) this.#offerAll(queue);
  }

  /** Offers what waits to replicas that may have free slots by now. */
  offerWaiting(queue: QueueName): void {
    if (this.#parts.lines.line.waitingCount(queue) > 0) this.#offerAll(queue);
  }

  #publish(to: InstanceId, message: LinesMessage): void {
    const { bus, channelOf } = this.#parts;
    bus.publish(channelOf(to), message);
  }

  #heard(message: LinesMessage): void {
    switch (message[0]) {
      case 'offer':
        return this.#hearOffer(message);
      case 'word': {
        const [, from, taskId, word, workspaceId] = message;
        // An agent may forge the facts of an attempt, but not the workspace of its containers.
        if (this.#parts.lines.line.get(taskId)?.job.workspaceId !== workspaceId) return;
        return this.#hearWord(from, taskId, word);
      }
      case 'recall':
        return this.#hearRecall(message);
      case 'leaving':
        return this.#hearLeaving(message[1]);
      case 'left':
        return this.#hearLeft(message[1]);
      case 'room': {
        const [, from, queue] = message;
        const first = this.#leaving.has(from) ? undefined : this.#parts.lines.line.first(queue);
        if (first === undefined) this.#publish(from, ['none', this.#parts.instance, queue]);
        else this.#offer(first, from);
        return;
      }
      case 'none': {
        const [, from, queue] = message;
        const container = this.#kept.take(queue, from);
        if (container !== undefined) this.#parts.dispatcher.free(container);
      }
    }
  }

  // ---- the replica of the caller ------------------------------------------------------------------------------------

  #offerAll(queue: QueueName): void {
    const { bus, lines, others } = this.#parts;
    const { line } = lines;
    if (line.waitingCount(queue) === 0) return;
    if (bus.isLive) {
      const free = this.#freeElsewhere(queue);
      const most = free.reduce((sum, [, slots]) => sum + Math.max(0, slots), 0);
      const waiting: TaskId[] = [];
      if (most > 0)
        for (const { job } of line.waiting(queue)) {
          waiting.push(job.taskId);
          if (waiting.length >= most) break;
        }
      for (const { taskId, to } of chooseOffers(waiting, free)) {
        const task = line.get(taskId);
        if (task !== undefined) this.#offer(task, to);
      }
    }
    if (line.waitingCount(queue) > 0) others.tellNow(queue);
  }

  #freeElsewhere(queue: QueueName): (readonly [InstanceId, number])[] {
    const { lines, capacity, isPresent } = this.#parts;
    const free: (readonly [InstanceId, number])[] = [];
    for (const [replica, now] of capacity(queue)) {
      if (!isPresent(replica) || this.#leaving.has(replica)) continue;
      const seen = this.#seen.get(replica)?.get(queue);
      const out = lines.line.outTo(queue, replica);
      const slots = (seen?.free ?? now.free) + (seen?.out ?? 0) - out;
      free.push([replica, Math.min(slots, now.slots - out)]);
    }
    return free;
  }

  #offer({ queue, job, place }: LineTask, to: InstanceId): void {
    const { lines, instance } = this.#parts;
    const next = offeredTo(place, to, performance.now());
    lines.line.move(job.taskId, next);
    this.#publish(to, ['offer', instance, queue, next.attempt, job]);
  }

  #hearWord(from: InstanceId, taskId: TaskId, word: Word): void {
    const { lines } = this.#parts;
    const task = lines.line.get(taskId);
    if (task !== undefined && isRefusal(word, task.place, from)) {
      // Noted first: a task that waits again is offered in this tick.
      let seen = this.#seen.get(from);
      if (seen === undefined) this.#seen.set(from, (seen = new Map()));
      seen.set(task.queue, { free: 0, out: lines.line.outTo(task.queue, from) - 1 });
    }
    lines.heard(taskId, word, from);
  }

  /** Looks at every task that is neither in the line nor sent from here. Runs each second, and after gaps. */
  async tick(): Promise<void> {
    this.#again = this.#ticking;
    if (this.#ticking) return;
    this.#ticking = true;
    for (const replica of this.#seen.keys()) if (!this.#parts.isPresent(replica)) this.#seen.delete(replica);
    const { lines, isPresent, isSettled, log } = this.#parts;
    try {
      const toRead: LineTask[] = [];
      const facts = { nowMs: performance.now(), isPresent, isSettled };
      for (const task of [...lines.line.elsewhere()]) {
        const next: Check = check(task.place, facts);
        lines.moveTo(task, next.place);
        if (next.kind === 'recall') this.#recall(task, next);
        else if (next.kind === 'read_row') toRead.push(task);
      }
      if (toRead.length > 0) await this.#readRows(toRead);
    } catch (error) {
      log.info({ err: error }, 'rows of waiting calls not read, trying again');
    } finally {
      this.#ticking = false;
    }
    // Tasks came back meanwhile.
    if (this.#again) await this.tick();
  }

  #recall({ job }: LineTask, { to, place, ageMs }: Extract<Check, { readonly kind: 'recall' }>): void {
    const { taskId, workspaceId } = job;
    this.#publish(to, ['recall', this.#parts.instance, taskId, place.attempt, Math.round(ageMs), workspaceId]);
  }

  async #readRows(tasks: readonly LineTask[]): Promise<void> {
    const { records } = this.#parts;
    const { over, isComplete } = await records.readOver(tasks.map(({ job }) => job.taskId));
    await Promise.all(tasks.map((task) => this.#readRow(task, over.get(task.job.taskId), isComplete)));
  }

  async #readRow(task: LineTask, record: TaskRecord | undefined, isComplete: boolean): Promise<void> {
    const { lines, completion, instance, isPresent, runsAt } = this.#parts;
    const { taskId } = task.job;
    const { place } = task;
    const isFinal = record !== undefined && isTerminalTask(record.status);
    const at = place.kind === 'orphaned' && !isFinal ? await runsAt(taskId) : null;
    if (lines.line.get(taskId)?.place !== place) return;
    const facts = { nowMs: performance.now(), self: instance, isPresent };
    const next = afterRow(place, { isFinal, runsAt: at, isComplete }, facts);
    switch (next.kind) {
      case 'answer':
        if (record !== undefined) await completion.answerFrom(record);
        break;
      case 'lost':
        lines.line.move(taskId, { kind: 'ending', attempt: place.attempt });
        await completion.endQueued(task.queue, task.job, LOST, { status: 'RUNNING', attempt: place.attempt });
        break;
      case 'place':
        lines.moveTo(task, next.place);
        break;
      case 'recall':
        lines.moveTo(task, next.place);
        this.#recall(task, next);
    }
  }

  // ---- the replica with the slot ------------------------------------------------------------------------------------

  #keep(queue: QueueName, replica: InstanceId, container: ReadyContainer): void {
    const { others, instance } = this.#parts;
    others.roomKept(queue, replica);
    this.#kept.keep(queue, replica, container);
    this.#publish(replica, ['room', instance, queue]);
  }

  #hearOffer([, from, queue, attempt, sent]: Offer): void {
    const { lines, dispatcher, sinceStallMs, log } = this.#parts;
    let job: TaskJob;
    try {
      job = checkTaskJob(sent);
    } catch (error) {
      log.warn({ err: error, replica: from }, 'another replica offers a task that cannot be read');
      return;
    }
    const { taskId } = job;
    const kept = this.#kept.take(queue, from);
    const isTaking = this.#waitsFor === undefined && sinceStallMs() >= LATE_MS;
    const hasSlot = isTaking && (kept !== undefined || dispatcher.hasRoom(queue));
    const verdict = judgeOffer(lines.known.get(taskId), { attempt, hasSlot });
    const isTaken = verdict === 'take' && dispatcher.take(queue, job, attempt, kept);
    if (isTaken) return;
    if (kept !== undefined && verdict !== 'take') dispatcher.free(kept);
    if (verdict !== 'ignore') this.say(from, job, { kind: 'refused', attempt });
  }

  #hearRecall([, from, taskId, attempt, ageMs, workspaceId]: Recall): void {
    const { lines, instance } = this.#parts;
    const answer = judgeRecall(lines.known.get(taskId), {
      attempt,
      ageMs,
      self: instance,
      keptMs: lines.known.keptMs(),
    });
    if (answer === undefined) return;
    if (answer.known !== undefined) lines.known.remember(taskId, answer.known);
    if (answer.word.kind !== 'has') lines.dropTaken(taskId, attempt);
    this.say(from, { taskId, workspaceId }, answer.word);
  }
}

/** Whether a replica says that it has no slot; a refusal that was asked for says that the offer got lost. */
const isRefusal = ({ kind, attempt }: Word, place: Place, from: InstanceId): boolean =>
  kind === 'refused' &&
  place.kind === 'offered' &&
  place.to === from &&
  place.attempt === attempt &&
  place.heardAtMs === place.sinceMs;

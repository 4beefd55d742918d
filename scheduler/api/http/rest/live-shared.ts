// A topic that somebody follows: its route is read again when something happened in the workspace, and seldom else. All
// readers of a topic who see the same share the reading and the bytes of its frames.
// Invariants: without a reader there is no timer and no reading. The readings of a workspace take turns, and a share of
// the time together. The number of topics is bounded, for each workspace and in all.
import type { FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { problemOf } from '../error-map.ts';
import { sseFrame } from '../sse.ts';
import { changesBetween, seenOf, wholeOf } from './live-changes.ts';
import type { Seen } from './live-changes.ts';
import { viewOf } from './live-topics.ts';
import type { Topic } from './live-topics.ts';
import { Turns } from './live-turns.ts';
import { compileQuery } from './query.ts';

export interface SharedParts {
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly log: Log;
  /** Topics of one workspace, and of all, that are read here. */
  readonly most?: { readonly ofWorkspace: number; readonly ofReplica: number };
  /** Characters of answers of one workspace, and of all, that are kept here. */
  readonly mostKept?: { readonly ofWorkspace: number; readonly ofReplica: number };
}

/** A follower of topics. */
export interface TopicReader {
  readonly caller: Caller;
  readonly http: FastifyRequest;
  /** Takes a frame of a topic that it follows. */
  take(topic: Topic, frame: Buffer): void;
}

export const MOST_SHARED = { ofWorkspace: 200, ofReplica: 2_000 } as const;
export const MOST_KEPT = { ofWorkspace: 8 * 1024 * 1024, ofReplica: 64 * 1024 * 1024 } as const;
const PACE_MS = 500;
const IDLE_MS = 5_000;
const LONGEST_PAUSE_MS = 10_000;
/** Time between two readings of what has ended. */
const ENDED_MS = 60_000;
const WITHIN_MS = 30_000;

export class SharedTopics {
  readonly #parts: SharedParts;
  readonly #topics = new Map<string, SharedTopic>();
  readonly #byWorkspace = new Map<WorkspaceId, Set<SharedTopic>>();
  readonly #kept: KeptAnswers;
  /** They outlive their topics until they are rested: who dials anew gains nothing. */
  readonly #turns = new Map<WorkspaceId, Turns>();

  constructor(parts: SharedParts) {
    this.#parts = parts;
    this.#kept = new KeptAnswers(parts.mostKept);
  }

  /** Topics that are followed. */
  get size(): number {
    return this.#topics.size;
  }

  /**
   * Follows a topic from now on: the reader gets its whole answer, then what changes.
   * @returns a function that ends it
   * @throws AppError `too_many_streams`, `streams_full`
   */
  follow(workspaceId: WorkspaceId, topic: Topic, reader: TopicReader): Following {
    const key = `${workspaceId} ${viewOf(reader.caller)} ${originOf(reader.http)} ${topic.text}`;
    const known = this.#topics.get(key);
    const shared = known ?? this.#open(key, workspaceId, topic);
    shared.join(reader);
    return {
      whole: () => shared.sendWhole(reader),
      end: () => {
        shared.leave(reader);
        if (!shared.isOver || this.#topics.get(key) !== shared) return;
        this.#topics.delete(key);
        const others = this.#byWorkspace.get(workspaceId);
        others?.delete(shared);
        if (others?.size === 0) this.#byWorkspace.delete(workspaceId);
      },
    };
  }

  #open(key: string, workspaceId: WorkspaceId, topic: Topic): SharedTopic {
    const { most = MOST_SHARED } = this.#parts;
    const own = this.#byWorkspace.get(workspaceId) ?? new Set();
    if (own.size >= most.ofWorkspace)
      throw new AppError('too_many_streams', `this workspace follows ${most.ofWorkspace} topics here: close some tabs`);
    if (this.#topics.size >= most.ofReplica)
      throw new AppError('streams_full', `this scheduler has ${most.ofReplica} topics that are followed: try again`);
    const shared = new SharedTopic(this.#parts, this.#kept, this.#turnsOf(workspaceId), workspaceId, topic);
    this.#topics.set(key, shared);
    this.#byWorkspace.set(workspaceId, own.add(shared));
    return shared;
  }

  #turnsOf(workspaceId: WorkspaceId): Turns {
    const known = this.#turns.get(workspaceId);
    if (known !== undefined) return known;
    for (const [id, turns] of this.#turns) if (!this.#byWorkspace.has(id) && turns.isRested) this.#turns.delete(id);
    const made = new Turns(() => this.#parts.clock.monotonicMs());
    this.#turns.set(workspaceId, made);
    return made;
  }

  /** Something happened in a workspace, or may have in any of them. */
  wake(workspaceId: WorkspaceId | undefined): void {
    const woken = workspaceId === undefined ? this.#topics.values() : (this.#byWorkspace.get(workspaceId) ?? []);
    for (const topic of woken) topic.wake();
  }
}

export interface Following {
  /** Sends the whole answer again, because the reader missed frames. */
  readonly whole: () => void;
  readonly end: () => void;
}

const originOf = ({ protocol, host }: FastifyRequest): string => `${protocol}://${host}`;

/** Counts the characters of kept answers. */
class KeptAnswers {
  readonly #most: NonNullable<SharedParts['mostKept']>;
  readonly #byWorkspace = new Map<WorkspaceId, number>();
  #total = 0;

  constructor(most: SharedParts['mostKept'] = MOST_KEPT) {
    this.#most = most;
  }

  /** @throws AppError `too_many_streams`, `streams_full`: the workspace, or the scheduler, has no places left */
  add(workspaceId: WorkspaceId, size: number): void {
    const own = (this.#byWorkspace.get(workspaceId) ?? 0) + size;
    if (size > 0 && own > this.#most.ofWorkspace)
      throw new AppError(
        'too_many_streams',
        'the answers that this workspace follows here are too large: close some tabs, or follow shorter lists',
      );
    if (size > 0 && this.#total + size > this.#most.ofReplica)
      throw new AppError('streams_full', 'the answers that are followed at this scheduler are too large: try again');
    if (own === 0) this.#byWorkspace.delete(workspaceId);
    else this.#byWorkspace.set(workspaceId, own);
    this.#total += size;
  }
}

class SharedTopic {
  readonly #parts: SharedParts;
  readonly #kept: KeptAnswers;
  readonly #turns: Turns;
  readonly #workspaceId: WorkspaceId;
  readonly #topic: Topic;
  readonly #query: Readonly<Record<string, unknown>>;
  readonly #readers = new Set<TopicReader>();
  #seen: Seen | undefined;
  /** Frame of the whole answer, which all who join get until the next reading. */
  #whole: Buffer | undefined;
  /** The inside of the last failure's frame; undefined: the last reading did not fail. */
  #failed: string | undefined;
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Whether it waits for its turn, or is read. */
  #isInTurn = false;
  #isWoken = false;
  /** By the clock that nobody sets: before it, nothing is read. */
  #pausedUntilMs = 0;

  /** @throws AppError `invalid_query` of the topic's own query */
  constructor(parts: SharedParts, kept: KeptAnswers, turns: Turns, workspaceId: WorkspaceId, topic: Topic) {
    this.#parts = parts;
    this.#kept = kept;
    this.#turns = turns;
    this.#workspaceId = workspaceId;
    this.#topic = topic;
    const { query } = topic.route;
    this.#query = query === undefined ? {} : compileQuery(query)(topic.query);
  }

  get isOver(): boolean {
    return this.#readers.size === 0;
  }

  join(reader: TopicReader): void {
    this.#readers.add(reader);
    // Until a reading is there, the reader gets the next one.
    this.sendWhole(reader);
    if (this.#seen === undefined || this.#failed !== undefined) this.wake();
    else this.#next();
  }

  leave(reader: TopicReader): void {
    this.#readers.delete(reader);
    if (!this.isOver) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#turns.leave(this.#read);
    this.#forget();
  }

  sendWhole(reader: TopicReader): void {
    if (this.#seen !== undefined) reader.take(this.#topic, this.#wholeFrame(this.#seen));
    if (this.#failed !== undefined) reader.take(this.#topic, this.#frame('failed', this.#failed));
  }

  wake(): void {
    this.#isWoken = true;
    this.#next();
  }

  /** Arms the timer of the next reading. */
  #next(): void {
    if (this.#isInTurn || this.isOver) return;
    const { idleMs = IDLE_MS } = this.#topic.rule;
    const nowMs = this.#parts.clock.monotonicMs();
    const pauseMs = Math.max(0, this.#pausedUntilMs - nowMs);
    if (this.#timer !== undefined) {
      if (!this.#isWoken) return;
      clearTimeout(this.#timer);
    }
    const waitMs = this.#isWoken ? pauseMs : Math.max(pauseMs, idleMs);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#isInTurn = true;
      this.#turns.wait(this.#read);
    }, waitMs).unref();
  }

  readonly #read = async (): Promise<void> => {
    const { clock, log } = this.#parts;
    const [reader] = this.#readers;
    if (reader === undefined) return;
    this.#isWoken = false;
    let isEnded = false;
    try {
      const { route, rule } = this.#topic;
      const { withinMs = WITHIN_MS } = route;
      const reading = route.handle({
        caller: reader.caller,
        workspaceId: this.#workspaceId,
        params: this.#topic.params,
        query: this.#query,
        body: {},
        http: reader.http,
        answerHeaders: new Map(),
      });
      const late = (): AppError => new AppError('deadline_exceeded', `no answer within ${withinMs} ms`);
      const answer = await withDeadline(reading, withinMs, late);
      if (!this.isOver) this.#tell(seenOf(answer, rule.steady));
      isEnded = rule.isEnded?.(answer as Readonly<Record<string, unknown>>) ?? false;
      this.#failures = 0;
    } catch (error) {
      const problem = problemOf(error);
      if (problem.status >= 500) log.info({ err: error, topic: this.#topic.text }, 'a topic cannot be read now');
      this.#failures += 1;
      const { status, code, message } = problem;
      const said = JSON.stringify({ status, code, message }).slice(1, -1);
      const isNew = this.#failed !== said;
      this.#failed = said;
      if (isNew) this.#send(this.#frame('failed', said));
    }
    this.#isInTurn = false;
    const { paceMs = PACE_MS } = this.#topic.rule;
    const pauseMs = Math.min(paceMs * 2 ** Math.min(this.#failures, 5), LONGEST_PAUSE_MS);
    this.#pausedUntilMs = clock.monotonicMs() + (isEnded ? ENDED_MS : pauseMs);
    // A failure is looked at again without an event.
    if (this.#failures > 0) this.#isWoken = true;
    this.#next();
  };

  #tell(seen: Seen): void {
    const before = this.#seen;
    this.#forget();
    this.#kept.add(this.#workspaceId, seen.size);
    const hadFailed = this.#failed !== undefined;
    this.#seen = seen;
    this.#failed = undefined;
    const changes = before === undefined || hadFailed ? undefined : changesBetween(before, seen);
    if (changes === '') return;
    this.#send(changes === undefined ? this.#wholeFrame(seen) : this.#frame('changed', changes));
  }

  #forget(): void {
    if (this.#seen !== undefined) this.#kept.add(this.#workspaceId, -this.#seen.size);
    this.#seen = undefined;
    this.#whole = undefined;
  }

  #send(frame: Buffer): void {
    for (const reader of this.#readers) reader.take(this.#topic, frame);
  }

  #wholeFrame(seen: Seen): Buffer {
    return (this.#whole ??= this.#frame('whole', `"value":${wholeOf(seen)}`));
  }

  #frame(event: string, inside: string): Buffer {
    const at = new Date(this.#parts.clock.nowMs()).toISOString();
    return sseFrame({ event, data: `{"topic":${JSON.stringify(this.#topic.text)},"at":"${at}",${inside}}` });
  }
}

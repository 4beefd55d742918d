// A stream of everything that a screen shows: topics, each of which is the answer of a route as it changes. So a
// browser needs one connection, and a reading serves all who follow the same.
import type { FastifyRequest } from 'fastify';
import { LiveFrame, LiveQuery } from '#shared/api/rest/live.ts';
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { EventHub } from '../../../workspaces/events/source.ts';
import { problemOf } from '../error-map.ts';
import { sseFrame } from '../sse.ts';
import type { SseOut, SsePlace, SseSource, SseStreams } from '../sse.ts';
import { CollectedLines } from './live-lines.ts';
import { SharedTopics } from './live-shared.ts';
import type { Following, TopicReader } from './live-shared.ts';
import { isOfLines, readTopics, topicProblem } from './live-topics.ts';
import type { ReadTopics, Topic } from './live-topics.ts';
import { compileQuery } from './query.ts';
import { streamRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface LiveParts {
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly log: Log;
  readonly events: { readonly hub: Pick<EventHub, 'onWoken'> };
  /** Each topic of lines takes a place of its own, as its route would. */
  readonly streams: Pick<SseStreams, 'take' | 'leave'>;
}

/** @param all - the routes of the API, asked when a request comes */
export function liveRoute(parts: LiveParts, all: () => readonly RestRoute[]): RestRoute {
  let shared: SharedTopics | undefined;
  const topics = (): SharedTopics => {
    if (shared !== undefined) return shared;
    const made = new SharedTopics(parts);
    parts.events.hub.onWoken((workspaceId) => made.wake(workspaceId));
    shared = made;
    return made;
  };
  return streamRoute({
    http: 'GET /live/{ws}',
    summary: 'Answers of routes as they change, many in one stream',
    kind: 'live',
    // Each topic is judged as its route is.
    grants: { scopes: ['invoke', 'read'], confinesToApp: true },
    query: LiveQuery,
    frames: {
      description:
        'event whole: the answer of a topic; changed: rows and fields of it that are other; lines: log lines; failed: it cannot be read, and is tried again unless the topic itself is wrong.',
      data: LiveFrame,
    },
    open: async (request) => {
      const wanted = readTopics(request.query.topics, all());
      const stream = new LiveStream(parts, request, topics(), wanted, request.query.wait);
      await Promise.all(wanted.topics.filter(isOfLines).map((topic) => stream.open(topic)));
      return stream;
    },
  });
}

class LiveStream implements SseSource, TopicReader {
  readonly caller: Caller;
  readonly http: FastifyRequest;
  readonly #parts: Pick<LiveParts, 'clock' | 'streams'>;
  readonly #request: RestRequest;
  readonly #workspaceId: WorkspaceId;
  readonly #shared: SharedTopics;
  readonly #topics: readonly Topic[];
  /** By the clock that nobody sets. */
  readonly #endMs: number;
  readonly #following = new Map<string, Following>();
  readonly #lines: CollectedLines[] = [];
  readonly #places: SsePlace[] = [];
  /** Frames of topics that cannot be followed; they are sent first. */
  readonly #refused: Buffer[];
  /** Topics whose frames were left out, because the caller did not read. */
  readonly #missed = new Set<string>();
  #stream: SseOut | undefined;
  #isFull = false;

  constructor(
    parts: Pick<LiveParts, 'clock' | 'streams'>,
    request: RestRequest,
    shared: SharedTopics,
    { topics, refused }: ReadTopics,
    waitSeconds = Infinity,
  ) {
    this.#endMs = parts.clock.monotonicMs() + waitSeconds * 1000;
    this.#parts = parts;
    this.#request = request;
    this.caller = request.caller;
    this.http = request.http;
    this.#workspaceId = request.workspaceId;
    this.#shared = shared;
    this.#topics = topics;
    this.#refused = refused.map(({ text, error }) => refusal(text, error));
  }

  /** Opens the lines of a topic. */
  async open(topic: Topic): Promise<void> {
    const { route, text, query } = topic;
    try {
      this.#mayFollow(topic);
      this.#places.push(this.#parts.streams.take('logs', this.#workspaceId));
      const read = route.query === undefined ? {} : compileQuery(route.query)(query);
      const source = await route.stream?.open({ ...this.#request, params: topic.params, query: read });
      if (source === undefined) return;
      const { clock } = this.#parts;
      const pass = (frame: Buffer): boolean => this.#write(frame);
      this.#lines.push(new CollectedLines({ topic: text, source, pass, nowMs: () => clock.monotonicMs() }));
    } catch (error) {
      this.#refused.push(refusal(text, error));
    }
  }

  begin(stream: SseOut): void {
    this.#stream = stream;
    for (const frame of this.#refused.splice(0)) this.#write(frame);
    for (const lines of this.#lines) lines.begin();
    for (const topic of this.#topics) if (!isOfLines(topic)) this.#follow(topic);
  }

  #follow(topic: Topic): void {
    try {
      this.#mayFollow(topic);
      this.#following.set(topic.text, this.#shared.follow(this.#workspaceId, topic, this));
    } catch (error) {
      this.#write(refusal(topic.text, error));
    }
  }

  /** @throws AppError `unauthorized` */
  #mayFollow(topic: Topic): void {
    const problem = topicProblem(this.caller, topic);
    if (problem !== undefined) throw new AppError('unauthorized', problem);
  }

  take({ text }: Topic, frame: Buffer): void {
    // A caller who reads slowly gets the whole answer later, and no queue of changes.
    if (this.#isFull) this.#missed.add(text);
    else this.#write(frame);
  }

  #write(frame: Buffer): boolean {
    if (this.#stream?.isOpen !== true) return false;
    if (!this.#stream.write(frame)) this.#isFull = true;
    return !this.#isFull;
  }

  drained(): void {
    this.#isFull = false;
    const missed = [...this.#missed];
    this.#missed.clear();
    for (const text of missed) this.#following.get(text)?.whole();
    for (const lines of this.#lines) lines.drained();
  }

  tick(nowMs: number): void {
    for (const lines of this.#lines) lines.tick(nowMs);
    if (this.#parts.clock.monotonicMs() >= this.#endMs) this.#stream?.end();
  }

  closed(): void {
    for (const following of this.#following.values()) following.end();
    this.#following.clear();
    for (const lines of this.#lines) lines.close();
    for (const place of this.#places) this.#parts.streams.leave(place);
  }
}

function refusal(topic: string, error: unknown): Buffer {
  const { status, code, message } = problemOf(error);
  return sseFrame({ event: 'failed', data: JSON.stringify({ topic, status, code, message }) });
}

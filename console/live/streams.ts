// Topics that this browser follows, by one stream for each workspace. Answers are kept here, and changed as the stream
// tells. The shared worker runs this for all tabs; a browser without such workers runs it in each tab.
// Invariants: without a follower there is no stream and no timer. A stream that breaks is dialled again, ever more
// seldom, and its followers are told what is lost and since when.
import { createParser } from 'eventsource-parser';

/** Why a topic is not fresh. */
export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly retryAfterSeconds?: number | undefined;
}

/** Word on a topic to one who follows it. */
export type Told =
  | { readonly kind: 'value'; readonly value: unknown; readonly atMs: number }
  | { readonly kind: 'lines'; readonly lines: readonly unknown[] }
  /** The scheduler cannot read it; or, if `isLost`, the stream is broken. It is tried again. */
  | { readonly kind: 'failed'; readonly problem: Problem; readonly isLost: boolean };

export interface Follow {
  readonly workspaceId: string;
  /** Such as `task:ID`; topics of logs are never shared. */
  readonly topic: string;
  /** Number of the first line; only for logs. */
  readonly fromSeq?: number | undefined;
}

/** Sends the request of a stream. It throws a {@link Problem} that is an error, such as an ApiError. */
export type Dial = (path: string, signal: AbortSignal) => Promise<Response>;

/** Streams of one browser: a browser has six connections to a host by HTTP/1.1. */
const MOST_WORKSPACES = 3;
/** Topics of one stream, and those of logs among them: fewer than a scheduler takes. */
const MOST_TOPICS = 50;
const MOST_LOGS = 16;
/** Characters of a topic: fewer than a scheduler takes, because the number of a line may follow. */
const LONGEST_TOPIC = 450;
/** Characters of all topics in an address: a scheduler takes 16 KiB with the headers. */
const LONGEST_ADDRESS = 12_000;
/** Screens change several topics at once. */
const COLLECTED_MS = 20;
const FIRST_AGAIN_MS = 300;
const LONGEST_AGAIN_MS = 10_000;
/** The scheduler writes at least each 15 s. */
const SILENT_MS = 45_000;

const TOO_MANY: Problem = {
  status: 429,
  code: 'too_many_topics',
  message: 'this browser shows too many screens at once: close some tabs',
};

const TOO_LONG: Problem = {
  status: 400,
  code: 'topic_too_long',
  message: 'this filter is too long to be followed: shorten it',
};

export class LiveStreams {
  readonly #dial: Dial;
  readonly #streams = new Map<string, WorkspaceStream>();

  constructor(dial: Dial) {
    this.#dial = dial;
  }

  /** Follows a topic. @returns a function that ends it */
  follow(follow: Follow, tell: (told: Told) => void): () => void {
    const { workspaceId } = follow;
    const known = this.#streams.get(workspaceId);
    if (known === undefined && this.#streams.size >= MOST_WORKSPACES) {
      tell({ kind: 'failed', problem: TOO_MANY, isLost: false });
      return () => undefined;
    }
    const stream = known ?? new WorkspaceStream(workspaceId, this.#dial);
    this.#streams.set(workspaceId, stream);
    const end = stream.follow(follow, tell);
    return () => {
      end();
      if (stream.isOver && this.#streams.get(workspaceId) === stream) this.#streams.delete(workspaceId);
    };
  }

  /** Dials all streams again, because the session is another one. */
  redial(): void {
    for (const stream of this.#streams.values()) stream.redial();
  }
}

interface Kept {
  readonly topic: string;
  readonly isLogs: boolean;
  readonly tells: Set<(told: Told) => void>;
  value: Record<string, unknown> | undefined;
  atMs: number;
  problem: Problem | undefined;
  fromSeq: number | undefined;
}

const isLogs = (topic: string): boolean => topic === 'logs' || topic.startsWith('logs:');

class WorkspaceStream {
  readonly #workspaceId: string;
  readonly #dial: Dial;
  /** By topic; each of logs by a key of its own. */
  readonly #kept = new Map<string, Kept>();
  #logs = 0;
  #abort: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  /** Why the stream is broken; undefined: it is not. */
  #lost: Problem | undefined;

  constructor(workspaceId: string, dial: Dial) {
    this.#workspaceId = workspaceId;
    this.#dial = dial;
  }

  get isOver(): boolean {
    return this.#kept.size === 0;
  }

  follow({ topic, fromSeq }: Follow, tell: (told: Told) => void): () => void {
    const ofLogs = isLogs(topic);
    this.#logs += 1;
    const key = ofLogs ? `${topic} ${this.#logs}` : topic;
    const known = this.#kept.get(key);
    const logs = [...this.#kept.values()].filter((one) => one.isLogs).length;
    const isLong = topic.length > LONGEST_TOPIC;
    const address = [...this.#kept.values()].reduce((sum, one) => sum + writtenLength(one.topic), writtenLength(topic));
    const isFull = this.#kept.size >= MOST_TOPICS || (ofLogs && logs >= MOST_LOGS) || address > LONGEST_ADDRESS;
    if (isLong || (known === undefined && isFull)) {
      // Others go on: the scheduler never sees this topic.
      tell({ kind: 'failed', problem: isLong ? TOO_LONG : TOO_MANY, isLost: false });
      return () => undefined;
    }
    const kept: Kept = known ?? {
      topic,
      isLogs: ofLogs,
      tells: new Set(),
      value: undefined,
      atMs: 0,
      problem: undefined,
      fromSeq,
    };
    this.#kept.set(key, kept);
    kept.tells.add(tell);
    if (kept.value !== undefined) tell({ kind: 'value', value: kept.value, atMs: kept.atMs });
    const problem = this.#lost ?? kept.problem;
    if (problem !== undefined) tell({ kind: 'failed', problem, isLost: this.#lost !== undefined });
    if (known === undefined) this.redial();
    return () => {
      kept.tells.delete(tell);
      if (kept.tells.size > 0 || this.#kept.get(key) !== kept) return;
      this.#kept.delete(key);
      this.redial();
    };
  }

  /** Dials with the topics of now. */
  redial(): void {
    this.#failures = 0;
    this.#arm(COLLECTED_MS);
  }

  #arm(waitMs: number): void {
    clearTimeout(this.#timer);
    if (this.isOver) {
      this.#abort?.abort();
      this.#abort = undefined;
      return;
    }
    this.#timer = setTimeout(() => void this.#run(), waitMs);
  }

  async #run(): Promise<void> {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    let problem: Problem = { status: 0, code: '', message: 'the connection to the scheduler broke' };
    try {
      await this.#read(abort);
    } catch (error) {
      if (isProblem(error)) {
        const { status, code, message, retryAfterSeconds } = error;
        problem = { status, code, message, retryAfterSeconds };
      }
    }
    if (this.#abort !== abort) return;
    this.#abort = undefined;
    this.#lost = problem;
    for (const kept of this.#kept.values()) tellAll(kept, { kind: 'failed', problem, isLost: true });
    this.#failures += 1;
    // A session that is over does not come back by asking.
    if (problem.status === 401) return;
    const pauseMs = Math.min(LONGEST_AGAIN_MS, FIRST_AGAIN_MS * 2 ** (this.#failures - 1));
    this.#arm(Math.max((problem.retryAfterSeconds ?? 0) * 1000, pauseMs));
  }

  async #read(abort: AbortController): Promise<void> {
    // Several of logs may say the same.
    const byTopic = new Map<string, Kept[]>();
    for (const kept of this.#kept.values()) {
      const text = topicOf(kept);
      byTopic.set(text, [...(byTopic.get(text) ?? []), kept]);
    }
    const query = new URLSearchParams({ topics: [...byTopic.keys()].join(',') });
    const path = `/live/${this.#workspaceId}?${query.toString()}`;
    const answer = await this.#dial(path, abort.signal);
    if (this.#abort !== abort) return;
    this.#failures = 0;
    const wasLost = this.#lost !== undefined;
    this.#lost = undefined;
    // Lines say nothing until somebody prints.
    if (wasLost) for (const kept of this.#kept.values()) if (kept.isLogs) tellAll(kept, { kind: 'lines', lines: [] });
    const parser = createParser({
      onEvent: ({ event, data }) => {
        const frame = JSON.parse(data) as Frame;
        for (const kept of byTopic.get(frame.topic) ?? []) take(kept, event ?? '', frame);
      },
    });
    const text = new TextDecoder();
    const reader = answer.body?.getReader();
    let silence: ReturnType<typeof setTimeout> | undefined;
    try {
      for (;;) {
        clearTimeout(silence);
        silence = setTimeout(() => void reader?.cancel().catch(() => undefined), SILENT_MS);
        // Safari has no other way to read a body in pieces.
        const piece = await reader?.read();
        if (piece?.value === undefined || this.#abort !== abort) return;
        parser.feed(text.decode(piece.value, { stream: true }));
      }
    } finally {
      clearTimeout(silence);
    }
  }
}

/** Characters of a topic in an address, with its comma. */
const writtenLength = (topic: string): number => encodeURIComponent(topic).length + 3;

const isProblem = (error: unknown): error is Problem & Error =>
  error instanceof Error && 'status' in error && typeof error.status === 'number';

/** The topic as a dial names it: lines begin behind the last one that came. */
function topicOf({ topic, isLogs: ofLogs, fromSeq }: Kept): string {
  if (!ofLogs || fromSeq === undefined) return topic;
  return `${topic}${topic.includes(':') ? '&' : ':'}seq_num=${fromSeq}`;
}

interface Frame {
  readonly topic: string;
  readonly at?: string;
  readonly value?: Record<string, unknown>;
  readonly order?: readonly string[];
  readonly rows?: readonly Record<string, unknown>[];
  readonly fields?: Readonly<Record<string, unknown>>;
  readonly lines?: readonly { readonly seq_num: number }[];
  readonly status?: number;
  readonly code?: string;
  readonly message?: string;
}

function take(kept: Kept, event: string, frame: Frame): void {
  switch (event) {
    case 'whole':
      kept.value = frame.value;
      break;
    case 'changed':
      kept.value = patched(kept.value ?? {}, frame);
      break;
    case 'lines': {
      const last = frame.lines?.at(-1)?.seq_num;
      if (last !== undefined) kept.fromSeq = last + 1;
      return tellAll(kept, { kind: 'lines', lines: frame.lines ?? [] });
    }
    case 'failed':
      kept.problem = { status: frame.status ?? 0, code: frame.code ?? '', message: frame.message ?? '' };
      return tellAll(kept, { kind: 'failed', problem: kept.problem, isLost: false });
    default:
      return;
  }
  kept.problem = undefined;
  kept.atMs = frame.at === undefined ? Date.now() : Date.parse(frame.at);
  tellAll(kept, { kind: 'value', value: kept.value, atMs: kept.atMs });
}

/** An answer with changes of rows and fields. */
export function patched(
  value: Readonly<Record<string, unknown>>,
  { order, rows = [], fields = {} }: Pick<Frame, 'order' | 'rows' | 'fields'>,
): Record<string, unknown> {
  const next = { ...value, ...fields };
  if (!Array.isArray(value['data']) || (order === undefined && rows.length === 0)) return next;
  const before = value['data'] as readonly Readonly<Record<string, unknown>>[];
  const byId = new Map([...before, ...rows].map((row) => [idOf(row), row]));
  const ids = order ?? before.map(idOf);
  return { ...next, data: ids.flatMap((id) => byId.get(id) ?? []) };
}

/** As the scheduler tells rows apart: `scheduler/api/http/rest/live-changes.ts`. */
const idOf = (row: Readonly<Record<string, unknown>>): string =>
  String(row['id'] ?? row['external_id'] ?? row['container_id'] ?? row['uuid'] ?? row['oldest_id']);

function tellAll({ tells }: Kept, told: Told): void {
  for (const tell of tells) tell(told);
}

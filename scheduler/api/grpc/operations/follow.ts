// A task as its caller follows it: its output bit by bit, and its end. Changes come from the workspace's events, lines
// from its log; a look at the task every few seconds finds what no event told.
// Invariant: the output is the task's lines in the order of their numbers, so that a caller who comes back elsewhere
// goes on behind the bytes that it has.
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { LiveLine, LogHub } from '../../../fleet/logs/live-logs.ts';
import type { TaskReads } from '../../../tasks/records/reads.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import type { Subscription, Taken } from '../../../workspaces/events/hub.ts';
import type { EventHub } from '../../../workspaces/events/source.ts';
import { CODES, RpcStatus } from '../statuses.ts';

export interface FollowParts {
  readonly tasks: Pick<TaskReads, 'read'>;
  readonly events: { readonly hub: Pick<EventHub, 'knownTail' | 'subscribe'> };
  readonly liveLogs: { readonly hub: Pick<LogHub, 'knownTail' | 'subscribe'> };
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly log: Log;
}

export interface FollowedTask {
  readonly workspaceId: WorkspaceId;
  readonly taskId: TaskId;
  /** Number of the first line that may be the task's. */
  readonly fromSeq: number;
  /** Bytes of the output that the caller has. */
  readonly skipBytes: number;
}

export type Followed =
  | { readonly kind: 'output'; readonly text: string }
  | { readonly kind: 'ended'; readonly record: TaskRecord };

const LOOK_EVERY_MS = 5_000;
/** The last lines of a task may be stored a moment after its end. */
const LATE_MS = 400;
/** Characters that wait for a caller above which the log waits. */
const MOST_WAITING = 256 * 1024;

/** Tells of a task until it has ended, or the signal says that nobody follows it any more. */
export async function* follow(
  parts: FollowParts,
  { workspaceId, taskId, fromSeq, skipBytes }: FollowedTask,
  signal: AbortSignal,
): AsyncGenerator<Followed> {
  const { clock, log } = parts;
  const bell = new Bell();
  const lines = new Lines(bell, skipBytes);
  const changes = new Changes(bell);
  const subscriptions: Subscription[] = [];
  try {
    const failed = (error: unknown): void => log.info({ err: error, taskId }, 'a task is followed without its events');
    let isCut = false;
    const unreadable = (error: unknown): void => {
      failed(error);
      isCut = true;
      bell.ring();
    };
    // Earlier events are of no use: the first look finds what they told.
    const fromEvent = (await parts.events.hub.knownTail(workspaceId)) + 1;
    subscriptions.push(
      await parts.events.hub.subscribe(workspaceId, { types: ['task.*'], taskId }, fromEvent, {
        take: () => changes.take(),
        failed,
      }),
    );
    const reader = { take: (line: LiveLine) => lines.take(line), failed: unreadable };
    lines.from = await parts.liveLogs.hub.subscribe(workspaceId, { taskId }, fromSeq, reader);
    subscriptions.push(lines.from);
    for (const subscription of subscriptions) subscription.start();
    let lookedMs = -Infinity;
    let ended: { readonly record: TaskRecord; readonly atMs: number } | undefined;
    while (!signal.aborted) {
      const text = lines.text();
      if (text !== '') {
        yield { kind: 'output', text };
        continue;
      }
      if (isCut) throw new RpcStatus(CODES.unavailable, 'the output cannot be read now: call again');
      const nowMs = clock.monotonicMs();
      if (ended !== undefined) {
        const restMs = Math.max(ended.atMs, lines.cameMs(clock)) + LATE_MS - nowMs;
        if (restMs <= 0) return yield { kind: 'ended', record: ended.record };
        await bell.heard(restMs, signal);
        continue;
      }
      const restMs = lookedMs + LOOK_EVERY_MS - nowMs;
      if (!changes.any() && restMs > 0) {
        await bell.heard(restMs, signal);
        continue;
      }
      lookedMs = nowMs;
      const record = await parts.tasks.read(workspaceId, taskId).catch(failed);
      if (record !== undefined && isTerminalTask(record.status)) ended = { record, atMs: clock.monotonicMs() };
    }
  } finally {
    for (const subscription of subscriptions) subscription.end();
  }
}

/** Wakes the one who waits, at once where it rang before. */
class Bell {
  #hasRung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#hasRung = true;
    this.#wake?.();
  }

  async heard(mostMs: number, signal: AbortSignal): Promise<void> {
    if (!this.#hasRung && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => this.#wake?.(), mostMs);
        const aborted = (): void => this.#wake?.();
        signal.addEventListener('abort', aborted, { once: true });
        this.#wake = () => {
          clearTimeout(timer);
          signal.removeEventListener('abort', aborted);
          this.#wake = undefined;
          resolve();
        };
      });
    }
    this.#hasRung = false;
  }
}

class Changes {
  readonly #bell: Bell;
  #hasAny = false;

  constructor(bell: Bell) {
    this.#bell = bell;
  }

  take(): Taken {
    this.#hasAny = true;
    this.#bell.ring();
    return 'more';
  }

  /** Whether the task changed since the last time that this was asked. */
  any(): boolean {
    const had = this.#hasAny;
    this.#hasAny = false;
    return had;
  }
}

class Lines {
  readonly #bell: Bell;
  from: Subscription | undefined;
  #skipBytes: number;
  #text = '';
  #hasNew = false;
  #isFull = false;
  #cameMs = -Infinity;

  constructor(bell: Bell, skipBytes: number) {
    this.#bell = bell;
    this.#skipBytes = skipBytes;
  }

  take({ line }: LiveLine): Taken {
    this.#text += this.#unseen(`${line}\n`);
    this.#hasNew = true;
    this.#isFull = this.#text.length >= MOST_WAITING;
    this.#bell.ring();
    return this.#isFull ? 'full' : 'more';
  }

  /** The output since the last time that this was asked. */
  text(): string {
    const text = this.#text;
    this.#text = '';
    if (this.#isFull) {
      this.#isFull = false;
      this.from?.resume();
    }
    return text;
  }

  /** When the last line came, as far as this was asked often enough. */
  cameMs(clock: Pick<Clock, 'monotonicMs'>): number {
    if (this.#hasNew) this.#cameMs = clock.monotonicMs();
    this.#hasNew = false;
    return this.#cameMs;
  }

  #unseen(text: string): string {
    if (this.#skipBytes === 0) return text;
    const bytes = Buffer.from(text, 'utf8');
    const skipped = Math.min(this.#skipBytes, bytes.length);
    this.#skipBytes -= skipped;
    return bytes.subarray(skipped).toString('utf8');
  }
}

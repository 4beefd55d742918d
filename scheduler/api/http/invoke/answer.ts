// The answer to a call whose task was submitted.
import type { FastifyReply } from 'fastify';
import { isEventStream } from '#shared/domain/event-stream.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Submission } from '../../../tasks/admission/calls.ts';
import type { Finished } from '../../../tasks/dispatch/replies.ts';
import { EVENT_STREAM, cutWhenUnread, headersOf } from './event-stream.ts';
import type { EventStream } from './event-stream.ts';
import { KEY_REUSED } from './idempotency-key.ts';
import { outcomes, UNAVAILABLE, UNAVAILABLE_STATUS } from './outcomes.ts';
import { send, sendCoded } from './refusal.ts';

/** Largest answer that is not watched: so much lies in the socket's own buffer, read or not. */
const MOST_UNWATCHED = 64 * 1024;

/** @param isOwn - the caller is of the deployment's workspace */
export function answer(
  submission: Submission,
  target: Target,
  reply: FastifyReply,
  events: EventStream,
  fail: (error: unknown) => void,
  isOwn: boolean,
): void {
  if (submission.kind !== 'accepted') {
    // The add to the queue seemed to fail, yet a container got the task and its events went out.
    if (events.hasBegun) return events.cut();
    return answerRefused(submission, reply);
  }
  reply.headers(headersOf(submission.taskId));
  if (submission.isReplay === true) reply.header('idempotency-replayed', 'true');
  if (!target.sync) return send(reply, 200, JSON.stringify({ task_id: submission.taskId }));
  const { raw } = reply;
  const left = (): void => {
    if (!raw.writableEnded) submission.callerLeft();
  };
  raw.once('close', left);
  submission.finished.then(
    (finished: Finished) => {
      raw.off('close', left);
      if (events.hasBegun) events.end(finished);
      else if (finished.status === 'COMPLETE' && isEventStream(finished.body))
        void reply.code(200).headers(EVENT_STREAM).send(finished.body);
      else send(reply, outcomes.httpStatusOf(finished.status, finished.reason), bodyFor(finished, isOwn));
      if (finished.body.length > MOST_UNWATCHED) cutWhenUnread(raw);
    },
    (error: unknown) => {
      raw.off('close', left);
      fail(error);
    },
  );
  // A caller who hung up before this line causes no further `close` event.
  if (raw.destroyed) left();
}

/** The body of an answer. Strangers who call a public deployment get the last line of a failed start alone. */
export function bodyFor({ reason, body }: Finished, isOwn: boolean): string {
  if (isOwn || reason !== 'start_failed') return body;
  const { error } = JSON.parse(body) as { readonly error: string };
  return JSON.stringify({ error: error.trimEnd().split('\n').at(-1)?.trim() });
}

const SKIPPED = {
  rate: 'the call was dropped: calls of its key come more often than the deployment takes them',
  singleton: 'the call was skipped: its key has an open task',
  debounce: 'a task of its key that waits has its input now',
} as const;

/** Status and text of a refusal, for an answer that has other calls in it, too. */
export function textOf(submission: Exclude<Submission, { kind: 'accepted' }>): {
  readonly status: number;
  readonly error: string;
} {
  switch (submission.kind) {
    case 'queue_full':
      return { status: 429, error: `exceeded max pending tasks: ${submission.maxPendingTasks}` };
    case 'bad_flow':
      return { status: 400, error: submission.why };
    case 'flow_rate_exceeded': {
      const whose = submission.key === '' ? 'calls' : `calls of the key ${submission.key}`;
      return {
        status: 429,
        error: `${whose} come more often than the deployment takes them: wait ${submission.retryAfterSeconds} s`,
      };
    }
    case 'too_many_flow_keys':
      return {
        status: 429,
        error: `this workspace has ${submission.most} keys of rates and throttles in use, and may have no more`,
      };
    case 'skipped':
      return { status: 200, error: SKIPPED[submission.by] };
    case 'queue_bytes_reached':
      return { status: 429, error: `the limit bytes.queue is reached: ${submission.limit}` };
    case 'rate_limited':
      return {
        status: 429,
        error: `this workspace calls more often than it may: wait ${submission.retryAfterSeconds} s`,
      };
    case 'key_reused':
      return { status: 422, error: KEY_REUSED };
    case 'keys_exhausted':
      return { status: 429, error: `this workspace has ${submission.most} idempotency keys, and may have no more` };
    case 'unavailable':
      return {
        status: UNAVAILABLE_STATUS,
        error: submission.detail ?? UNAVAILABLE[submission.reason].text,
      };
  }
}

/** The answer to a call that was not taken. */
export function answerRefused(submission: Exclude<Submission, { kind: 'accepted' }>, reply: FastifyReply): void {
  switch (submission.kind) {
    case 'queue_full':
      return send(reply, 429, JSON.stringify({ error: textOf(submission).error }));
    case 'bad_flow':
      return sendCoded(reply, 400, submission.code, submission.why);
    case 'skipped':
      return send(reply, 200, JSON.stringify({ task_id: submission.taskId, skipped: submission.by }));
    case 'too_many_flow_keys':
      return sendCoded(reply, 429, 'too_many_flow_keys', textOf(submission).error);
    case 'queue_bytes_reached':
      return send(
        reply,
        429,
        JSON.stringify({
          error: `the inputs of this workspace's tasks take the ${submission.limit} bytes that its limit bytes.queue allows: wait until tasks have ended, or have an administrator raise it`,
          code: 'queue_bytes_reached',
        }),
      );
    case 'flow_rate_exceeded':
    case 'rate_limited': {
      const seconds = submission.retryAfterSeconds;
      void reply.header('retry-after', String(seconds));
      return sendCoded(reply, 429, submission.kind, textOf(submission).error);
    }
    case 'key_reused':
      return sendCoded(reply, 422, 'idempotency_key_reused', KEY_REUSED);
    case 'keys_exhausted':
      return sendCoded(
        reply,
        429,
        'too_many_idempotency_keys',
        `this workspace has ${submission.most} idempotency keys of the last 24 hours, and may have no more`,
      );
    case 'unavailable': {
      const { text, code } = UNAVAILABLE[submission.reason];
      if (submission.retryAfterSeconds !== undefined) {
        void reply.header('retry-after', String(submission.retryAfterSeconds));
      }
      return send(reply, UNAVAILABLE_STATUS, JSON.stringify({ error: submission.detail ?? text, code }));
    }
  }
}

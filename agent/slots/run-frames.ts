// Translates between messages of the link and run frames of the socket: headers, outcomes, error bodies.
import type { RunTask__Output } from '#shared/protocol/generated/messages.ts';
import type { Outcome } from './attempts.ts';

export const errorBody = (text: string): Buffer => Buffer.from(JSON.stringify({ error: text }), 'utf8');

/** Maps a runner's outcome of an attempt to ours; anything unknown is an error. */
export function outcomeOf(text: string): Outcome {
  switch (text) {
    case 'ok':
    case 'error':
    case 'invalid':
    case 'retry':
    case 'timeout':
    case 'cancelled':
      return text;
    default:
      return 'error';
  }
}

/**
 * The header of a task's first (mostly only) part.
 * @param isAnnounced - the runner says when it calls the handler; else the hand-over counts as the start
 */
export function firstHeader(task: RunTask__Output, isAnnounced: boolean): object {
  const base = {
    taskId: task.taskId,
    token: task.token,
    timeoutMs: task.timeoutMs,
    part: 0,
    last: task.last,
    // Saves a frame of the runner.
    ...(isAnnounced ? {} : { started: false }),
    ...(task.stream ? { stream: true } : {}),
  };
  return task.query === '' ? base : { ...base, query: JSON.parse(task.query) as unknown };
}

export const partHeader = (task: RunTask__Output): object => ({
  taskId: task.taskId,
  token: task.token,
  part: task.part,
  last: task.last,
});

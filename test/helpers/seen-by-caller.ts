// Outcome of a synchronous task as the invoke surface tells its caller.
import { outcomes } from '#scheduler/api/http/invoke/outcomes.ts';
import type { Finished } from '#scheduler/tasks/dispatch/replies.ts';

export interface SeenByCaller {
  readonly status: Finished['status'];
  readonly httpStatus: number;
  readonly body: string;
}

/** undefined: there is no outcome. */
export function seenByCaller(finished: Finished): SeenByCaller;
export function seenByCaller(finished: Finished | undefined): SeenByCaller | undefined;
export function seenByCaller(finished: Finished | undefined): SeenByCaller | undefined {
  if (finished === undefined) return undefined;
  const { status, reason, body } = finished;
  return { status, httpStatus: outcomes.httpStatusOf(status, reason), body };
}

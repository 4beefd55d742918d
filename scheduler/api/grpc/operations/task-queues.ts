// Task queues: a task is put, and those that wait are counted.
import {
  TaskQueueLengthRequest,
  TaskQueueLengthResponse,
  TaskQueuePutRequest,
  TaskQueuePutResponse,
} from '#shared/api/calls.ts';
import type { TaskQueues } from '../../../stores/queues/task-queues.ts';
import type { Submissions } from '../../../tasks/admission/submissions.ts';
import { putByOf } from '../../../workspaces/identity/confinement.ts';
import { textOf } from '../../http/invoke/answer.ts';
import { inputOf } from '../../http/invoke/input.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';
import { targetOf } from './target.ts';
import type { TargetParts } from './target.ts';

export interface TaskQueueParts extends TargetParts {
  readonly submissions: Pick<Submissions, 'submit'>;
  readonly flow: Pick<TaskQueues, 'depth'>;
}

const KINDS = ['taskqueue'];
const NO_CALLBACK = 'callback_url is not taken with a task: name it in the decorator';

export function taskQueuePut(parts: TaskQueueParts): UnroutedOperation {
  const refused = (errMsg: string) => ({ ok: false, errMsg, taskId: '' });
  return unrouted({
    name: 'TaskQueuePut',
    scope: 'any',
    containers: true,
    grants: { scopes: ['invoke'], confinesToApp: true },
    request: TaskQueuePutRequest,
    response: TaskQueuePutResponse,
    handle: async (caller, { stubId, payload }) => {
      const target = await targetOf(parts, caller, stubId, KINDS);
      if (typeof target === 'string') return refused(target);
      const input = await inputOf(Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength));
      if (typeof input === 'string') return refused(`payload: ${input}`);
      if (input.callbackUrl !== undefined && input.callbackUrl !== null) return refused(NO_CALLBACK);
      const putBy = putByOf(caller);
      const submission = await parts.submissions.submit(target, {
        input: input.text,
        ...(putBy === undefined ? {} : { putBy }),
      });
      // Flow control gave the call to a task that is there, or skipped it: nothing is wrong, as over HTTP.
      if (submission.kind === 'skipped') return { ok: true, errMsg: '', taskId: submission.taskId ?? '' };
      if (submission.kind !== 'accepted') return refused(textOf(submission).error);
      return { ok: true, errMsg: '', taskId: submission.taskId };
    },
  });
}

/** Counts the tasks that no container has taken. */
export function taskQueueLength(parts: TaskQueueParts): UnroutedOperation {
  return unrouted({
    name: 'TaskQueueLength',
    scope: 'any',
    grants: { scopes: ['read'], confinesToApp: true },
    request: TaskQueueLengthRequest,
    response: TaskQueueLengthResponse,
    handle: async (caller, { stubId }) => {
      const target = await targetOf(parts, caller, stubId, KINDS);
      if (typeof target === 'string') return { ok: false, errMsg: target, length: 0 };
      const { waiting, prioritized, delayed, held } = await parts.flow.depth(target.queue);
      return { ok: true, errMsg: '', length: waiting + prioritized + delayed + held };
    },
  });
}

// The input of a task, and another run of it. The input is the caller's data, so the scope read does not show it.
import { Rerun, TaskInput } from '#shared/api/rest/tasks.ts';
import { AppError } from '#shared/errors.ts';
import type { Submission } from '../../../tasks/admission/calls.ts';
import type { TaskInputs } from '../../../tasks/inputs/inputs.ts';
import type { Reruns } from '../../../tasks/inputs/reruns.ts';
import { invokeProblem, putByOf } from '../../../workspaces/identity/confinement.ts';
import { textOf } from '../invoke/answer.ts';
import { KEY_PROBLEM, callKeyOf, keyOf } from '../invoke/idempotency-key.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';
import { QUEUES_AWAY, taskFor } from './tasks.ts';
import type { TaskRouteParts } from './tasks.ts';

export interface TaskInputRouteParts extends Pick<TaskRouteParts, 'directory' | 'tasks'> {
  readonly taskInputs: Pick<TaskInputs, 'read' | 'about'>;
  readonly reruns: Pick<Reruns, 'run'>;
}

const noInput = (taskId: string, why: string): AppError =>
  new AppError('input_not_kept', `the input of task ${taskId} is not there: ${why}`);

export function taskInputRoutes(parts: TaskInputRouteParts): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /task/{ws}/{taskId}/input',
      summary: 'The input of a task, as it came',
      grants: { scopes: ['invoke'], confinesToApp: true },
      answer: TaskInput,
      errors: ['task_not_found', 'input_not_kept', QUEUES_AWAY],
      handle: async (request) => {
        const record = await taskFor(parts, request);
        const found = await parts.taskInputs.read(record);
        if ('why' in found) throw noInput(record.taskId, found.why);
        const { input, job } = found;
        return { task_id: record.taskId, bytes: Buffer.byteLength(input), input, query: job.query ?? {} };
      },
    }),
    restRoute({
      http: 'POST /task/{ws}/{taskId}/rerun',
      summary: 'Run a task again: a new task with its input, for the version that serves now',
      grants: { scopes: ['invoke'], confinesToApp: true },
      status: 201,
      answer: Rerun,
      errors: [
        'task_not_found',
        'input_not_kept',
        'deployment_not_found',
        'deployment_stopped',
        'queue_full',
        'queue_bytes_reached',
        'invalid_flow_key',
        'invalid_flow_priority',
        'flow_rate_exceeded',
        'call_skipped',
        'too_many_flow_keys',
        'invalid_idempotency_key',
        'idempotency_key_reused',
        'too_many_idempotency_keys',
        'call_not_taken',
        QUEUES_AWAY,
      ],
      handle: async (request) => {
        const { caller, http } = request;
        const key = keyOf(http.headers['idempotency-key']);
        if (key === null) throw new AppError('invalid_idempotency_key', KEY_PROBLEM);
        const record = await taskFor(parts, request);
        const outcome = await parts.reruns.run(record, {
          putBy: putByOf(caller),
          mayCall: (target) => invokeProblem(caller, target.appId) === undefined,
          keyOf:
            key === undefined
              ? undefined
              : // A rerun and a call with the same key are two calls.
                (call, target) => callKeyOf(`${key}#${record.taskId}`, call, { target, caller, asksNewest: true }),
        });
        switch (outcome.kind) {
          case 'no_deployment':
            throw new AppError(
              'deployment_not_found',
              `task ${record.taskId} cannot run again: its deployment was deleted`,
            );
          case 'stopped':
            throw new AppError(
              'deployment_stopped',
              `task ${record.taskId} cannot run again: ${outcome.target.deploymentName} is stopped (\`longshore deployment start\`)`,
            );
          case 'no_input':
            throw noInput(record.taskId, outcome.why);
          case 'rerun': {
            const { submission, target } = outcome;
            if (submission.kind !== 'accepted') throw refusalOf(submission);
            // A synchronous task waits in this replica, as for a caller; its end is in its record.
            submission.finished.catch(() => undefined);
            return {
              task_id: submission.taskId,
              rerun_of: record.taskId,
              deployment_id: target.deploymentId ?? '',
              deployment_name: target.deploymentId === null ? '' : target.deploymentName,
              version: target.deploymentId === null ? null : target.version,
            };
          }
        }
      },
    }),
  ];
}

/** The refusal of admission, as REST tells it. */
function refusalOf(submission: Exclude<Submission, { kind: 'accepted' }>): AppError {
  const { error } = textOf(submission);
  const seconds = 'retryAfterSeconds' in submission ? submission.retryAfterSeconds : undefined;
  const details = seconds === undefined ? {} : { retryAfterSeconds: seconds };
  switch (submission.kind) {
    case 'key_reused':
      return new AppError('idempotency_key_reused', error);
    case 'keys_exhausted':
      return new AppError('too_many_idempotency_keys', error);
    case 'unavailable':
      return new AppError('call_not_taken', error, { details });
    case 'rate_limited':
      return new AppError('rate_limited', error, { details });
    case 'bad_flow':
      return new AppError(submission.code, error);
    case 'flow_rate_exceeded':
      return new AppError('flow_rate_exceeded', error, { details });
    case 'skipped':
      return new AppError('call_skipped', error);
    case 'too_many_flow_keys':
      return new AppError('too_many_flow_keys', error);
    case 'queue_full':
    case 'queue_bytes_reached':
      return new AppError(submission.kind, error);
  }
}

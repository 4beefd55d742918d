// Calls of functions whose caller follows the output and gets the result. A call is a task that outlives its stream: a
// client whose stream broke off comes back with the task's id and the bytes that it has, to any replica.
import { FunctionInvokeRequest, FunctionInvokeResponse } from '#shared/api/calls.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import { isRecord } from '#shared/json.ts';
import { jsonTextOf } from '#shared/json-text.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { CALLER_LEFT } from '../../../domain/endings.ts';
import type { Ending } from '../../../domain/endings.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { UnavailableReason } from '../../../tasks/admission/calls.ts';
import type { LostCallers } from '../../../tasks/admission/lost-callers.ts';
import type { Submissions } from '../../../tasks/admission/submissions.ts';
import type { TaskReads } from '../../../tasks/records/reads.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import type { CodeTrust } from '../../../workspaces/deployments/code-trust.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { putByOf } from '../../../workspaces/identity/confinement.ts';
import { textOf } from '../../http/invoke/answer.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';
import { CODES, RpcStatus } from '../statuses.ts';
import { LEFT, REVOKED, STOPS } from '../stream-ends.ts';
import { follow } from './follow.ts';
import type { FollowedTask, FollowParts } from './follow.ts';
import { pickledResult } from './pickle.ts';
import { NO_STUB, targetOf } from './target.ts';
import type { TargetParts } from './target.ts';

export interface FunctionParts extends FollowParts, TargetParts {
  readonly submissions: Pick<Submissions, 'submit'>;
  readonly tasks: Pick<TaskReads, 'read' | 'resultText'>;
  readonly cancelTask: (taskId: TaskId, ending: Ending) => Promise<void>;
  readonly settings: { readonly maxInvokeBodyBytes: number };
  readonly lostCallers: Pick<LostCallers, 'came' | 'isHere' | 'lost'>;
  /** Whether a container of the second stub may bring code into those of the first. */
  readonly mayTakeCode: CodeTrust;
}

const KINDS = ['function', 'schedule'];
/** How inputs are written, and that the result must be the very value: the runner reads both. */
const QUERY = { longshore_values: ['pickle'], longshore_results: ['exact'] } as const;
/** Most bytes of a result: a message of this client has 16 MiB. */
const MOST_RESULT = 15 * 1024 * 1024;
const FAILED = 1;
/** Last characters of the output that are compared with the text of a failure. */
const COMPARED = 8_192;

/** Refusals of a moment, before which nothing was done. Clients of `.map()` take each refusal for a failed input. */
const PASSING: ReadonlySet<UnavailableReason> = new Set(['records_behind', 'commits_failing', 'adds_waiting']);
const TAKEN_WITHIN_MS = 60_000;
const AGAIN = { baseMs: 250, capMs: 2_000, floorMs: 100 } as const;

const NO_BYTES = new Uint8Array();
const nothing = { taskId: '', output: '', done: false, exitCode: 0, result: NO_BYTES };

export function functionInvoke(parts: FunctionParts): UnroutedOperation {
  return unrouted({
    name: 'FunctionInvoke',
    scope: 'full',
    containers: true,
    request: FunctionInvokeRequest,
    response: FunctionInvokeResponse,
    stream: async function* (caller, request, signal) {
      const target = await targetOf(parts, caller, request.stubId, KINDS);
      if (typeof target === 'string')
        throw new RpcStatus(target === NO_STUB ? CODES.not_found : CODES.invalid_argument, target);
      if (caller.container !== undefined && !(await parts.mayTakeCode(target.stubId, caller.container.stubId)))
        throw new RpcStatus(CODES.invalid_argument, 'this container may not send code to that function');
      const { headless } = request;
      const isNew = request.taskId === '';
      const task = isNew
        ? await submitted(parts, caller, target, request, signal)
        : await known(parts, target, request);
      const { taskId } = task;
      // A stream may last for hours: it does not hold its arguments.
      request.args = NO_BYTES;
      const gone = parts.lostCallers.came(taskId, !isNew);
      let isOver = false;
      try {
        yield { ...nothing, taskId };
        let last = '';
        for await (const said of follow(parts, task, signal)) {
          if (said.kind === 'output') {
            last = (last + said.text).slice(-COMPARED);
            yield { ...nothing, output: said.text };
            continue;
          }
          const end = await endOf(parts, said.record, last);
          isOver = true;
          yield { ...nothing, ...end, taskId, done: true };
        }
      } finally {
        gone();
        if (!isOver && !headless) left(parts, task, signal);
      }
    },
  });
}

async function submitted(
  { submissions, liveLogs, settings, clock }: FunctionParts,
  caller: Caller,
  target: Target,
  { args }: FunctionInvokeRequest,
  signal: AbortSignal,
): Promise<FollowedTask> {
  const most = settings.maxInvokeBodyBytes;
  if (args.length > most)
    throw new RpcStatus(CODES.invalid_argument, `args has ${args.length} bytes, and an input has at most ${most}`);
  const { workspaceId } = target;
  // No line of the task is before those that are there now.
  const fromSeq = (await liveLogs.hub.knownTail(workspaceId)) + 1;
  const putBy = putByOf(caller);
  const pickle = Buffer.from(args.buffer, args.byteOffset, args.byteLength).toString('base64');
  const call = { input: `{"pickle":"${pickle}"}`, query: QUERY, ...(putBy === undefined ? {} : { putBy }) };
  const untilMs = clock.monotonicMs() + TAKEN_WITHIN_MS;
  for (let attempt = 0; ; attempt += 1) {
    const submission = await submissions.submit(target, call);
    if (submission.kind === 'accepted') return { workspaceId, taskId: submission.taskId, fromSeq, skipBytes: 0 };
    const mayPass = submission.kind === 'unavailable' && PASSING.has(submission.reason);
    if (mayPass && clock.monotonicMs() < untilMs && (await sleep(backoffMs(attempt, AGAIN), signal))) continue;
    const { status, error } = textOf(submission);
    throw new RpcStatus(status === 429 ? CODES.resource_exhausted : CODES.unknown, error);
  }
}

/** The task of a call that goes on. */
async function known(
  { tasks }: FunctionParts,
  { workspaceId, stubId }: Target,
  { taskId, logOffset }: FunctionInvokeRequest,
): Promise<FollowedTask> {
  const record = await tasks.read(workspaceId, taskId.toLowerCase());
  if (record === undefined || record.stubId !== stubId) throw new RpcStatus(CODES.not_found, 'task not found');
  return { workspaceId, taskId: record.taskId, fromSeq: 1, skipBytes: Math.max(0, logOffset) };
}

/** The caller left before the end. */
function left(
  { cancelTask, lostCallers, log }: FunctionParts,
  { taskId }: FollowedTask,
  { aborted, reason }: AbortSignal,
): void {
  // Another stream of the caller is open, or the client comes to another scheduler.
  if (lostCallers.isHere(taskId) || reason === STOPS || reason === REVOKED) return;
  const cancel = (): void =>
    void cancelTask(taskId, CALLER_LEFT).catch((error: unknown) =>
      log.warn({ err: error, taskId }, 'a caller left, and its task goes on'),
    );
  if (aborted && reason === LEFT) cancel();
  else lostCallers.lost(taskId, cancel);
}

/** The last message: the result, or what is to be read behind the output. */
async function endOf(
  { tasks }: FunctionParts,
  record: TaskRecord,
  output: string,
): Promise<Partial<FunctionInvokeResponse>> {
  const text = await tasks.resultText(record);
  if (record.status === 'COMPLETE') {
    const result = pickledResult(text ?? 'null');
    if (result.length <= MOST_RESULT) return { exitCode: 0, result };
    const why = `the result has ${result.length} bytes, and this client takes ${MOST_RESULT}: write it into a volume`;
    return { exitCode: FAILED, output: `${why}\n` };
  }
  const why = failureOf(record, text);
  return { exitCode: FAILED, output: output.includes(why) ? '' : `${why}\n` };
}

function failureOf({ failureReason, status }: TaskRecord, result: string | undefined): string {
  const body = result === undefined ? undefined : jsonTextOf(result)?.value;
  const error = isRecord(body) ? body['error'] : undefined;
  if (typeof error === 'string' && error !== '') return error;
  return failureReason === '' ? `the task ended as ${status}` : failureReason;
}

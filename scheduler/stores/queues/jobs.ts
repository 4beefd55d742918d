// Data of a job in a task queue: everything that running the task
// needs, so that the path from queue to container reads no SQL.
import Type from 'typebox';
import type { Static } from 'typebox';
import { Compile } from 'typebox/compile';
import type { DeploymentId, InstanceId, ObjectId, PutBy, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { StubKind } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import { MOST_KEY_CHARACTERS } from '../../domain/flow-settings.ts';

/** Name of every job in BullMQ; the kind of the task stands in its data. */
export const TASK_JOB_NAME = 'task';

const Id = <T extends string>() => Type.Unsafe<T>(Type.String({ minLength: 1, maxLength: 128 }));

/** An attempt that ended without ending its task. */
export const PastAttempt = Type.Object({
  attempt: Type.Integer({ minimum: 0 }),
  containerId: Type.String({ maxLength: 128 }),
  machineId: Type.String({ maxLength: 128 }),
  startedAtMs: Type.Integer({ minimum: 0 }),
  endedAtMs: Type.Integer({ minimum: 0 }),
  /** Reason why the attempt ended. */
  outcome: Type.String({ maxLength: 128 }),
  /** The first line of its error. Absent: it has none. */
  error: Type.Optional(Type.String({ maxLength: 512 })),
});
export type PastAttempt = Static<typeof PastAttempt>;

/** Most of them that a task keeps, the latest: more than its retries and losses together. */
export const MOST_PAST = 12;

/** Version 1 of a job's data. Fields are only added; a reader gives a missing new field its default. */
export const TaskJob = Type.Object({
  v: Type.Literal(1),
  taskId: Id<TaskId>(),
  workspaceId: Id<WorkspaceId>(),
  stubId: Id<StubId>(),
  deploymentId: Type.Union([Id<DeploymentId>(), Type.Null()]),
  kind: Id<StubKind>(),
  /** Whether a caller waits for the answer. */
  sync: Type.Boolean(),
  /** Replica that accepted the task; a synchronous caller waits there. */
  replica: Id<InstanceId>(),
  /** Request body as it came, UTF-8. Absent: empty, or in the object named by `inputObjectId` (above 64 KiB). */
  input: Type.Optional(Type.String()),
  inputObjectId: Type.Optional(Id<ObjectId>()),
  /** Bytes of the input in that object. */
  inputBytes: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Why the input goes with the end of the task. Absent: it is kept. */
  forgetsInput: Type.Optional(Type.Union([Type.Literal('off'), Type.Literal('too_large')])),
  /** The task whose input this one has. Absent: it is a call of its own. */
  rerunOf: Type.Optional(Id<TaskId>()),
  /** The dead task that this one stands for. Absent: none. */
  redrivenFrom: Type.Optional(Id<TaskId>()),
  /** Flow control of the task (domain/flow.ts). Absent: none. */
  flow: Type.Optional(
    Type.Object({
      key: Type.String({ maxLength: MOST_KEY_CHARACTERS }),
      most: Type.Optional(Type.Integer({ minimum: 1 })),
      limits: Type.Optional(Type.Record(Type.String(), Type.Integer({ minimum: 1 }))),
      everyMs: Type.Optional(Type.Number({ minimum: 0 })),
      atMs: Type.Optional(Type.Integer({ minimum: 0 })),
      isDue: Type.Optional(Type.Boolean()),
      headStart: Type.Optional(Type.Integer()),
      isGathered: Type.Optional(Type.Boolean()),
      fair: Type.Optional(Type.Object({ key: Type.String(), weight: Type.Number({ minimum: 0 }) })),
      turn: Type.Optional(Type.Number({ minimum: 0 })),
    }),
  ),
  /** Query parameters of the invoke, each with its values in order. */
  query: Type.Optional(Type.Record(Type.String(), Type.Array(Type.String()))),
  /** Whether the bytes of the call pass through a stream of their own. Absent: the input is here. */
  stream: Type.Optional(Type.Boolean()),
  /** Stub whose container put the task, or the token of the scope invoke, which may read it. Absent: neither did. */
  putBy: Type.Optional(Id<PutBy>()),
  /** Tokens and preference of a call to a model. Absent: another call. */
  serving: Type.Optional(
    Type.Object({
      tokens: Type.Integer({ minimum: 0 }),
      tokensPerStream: Type.Integer({ minimum: 1 }),
      prefers: Type.Optional(Type.String({ maxLength: 64 })),
    }),
  ),
  /** Workspace that called a public deployment of another. Absent: the own, or nobody known. */
  calledBy: Type.Optional(Id<WorkspaceId>()),
  /** Execution limit of one attempt, in milliseconds; 0: none. */
  timeoutMs: Type.Integer({ minimum: 0 }),
  /** Epoch milliseconds after which a task still waiting is not run any more. */
  deadlineMs: Type.Integer({ minimum: 0 }),
  createdAtMs: Type.Integer({ minimum: 0 }),
  /** Attempts before this job was added (0; more when it was rebuilt from its row). Attempt numbers never go back. */
  attempts: Type.Integer({ minimum: 0 }),
  /**
   * Whether the job was made from the task's row. Another process may have made it before, and the task may have ended
   * since: whoever fetches the job looks. Absent: it was made with the task.
   */
  isFromRow: Type.Optional(Type.Boolean()),
  /** User retries allowed for this task (0 to 5), and those used up. */
  retries: Type.Integer({ minimum: 0 }),
  retriesUsed: Type.Integer({ minimum: 0 }),
  /** Attempts lost to infrastructure causes. Absent: none. */
  losses: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Attempts that ended with an interruptible container, for another one. Absent: none. */
  preemptions: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Containers that died while they ran the task, each once. Absent: none. */
  diedOn: Type.Optional(Type.Array(Type.String({ maxLength: 128 }), { maxItems: 8 })),
  /** URL that is told how the task ended. Absent: none. */
  callbackUrl: Type.Optional(Type.String({ maxLength: 2048 })),
  /** Earlier attempts that ended without ending the task, oldest first. Absent: none. */
  past: Type.Optional(Type.Array(PastAttempt, { maxItems: MOST_PAST })),
});
export type TaskJob = Static<typeof TaskJob>;

const checked = Compile(TaskJob);

/** Reads a job's data as stored in Redis. @throws AppError `bad_job` naming the first field that is wrong */
export function parseTaskJob(text: string): TaskJob {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new AppError('bad_job', 'a queued job is not JSON', { cause: error });
  }
  return checkTaskJob(value);
}

/** Checks a job's data that is parsed already. @throws AppError `bad_job` */
export function checkTaskJob(value: unknown): TaskJob {
  if (checked.Check(value)) return value;
  const first = checked.Errors(value)[0];
  throw new AppError(
    'bad_job',
    `a queued job is malformed at ${first?.instancePath || '/'}: ${first?.message ?? 'unknown'}`,
  );
}

export function encodeTaskJob(job: TaskJob): string {
  return JSON.stringify(job);
}

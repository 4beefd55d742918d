// Facts of an order, which its agent keeps as bytes and returns in the report at the start of a link: with them another
// replica adopts the attempt, although the one that sent it is dead and no row names it yet. Facts hold no input and no
// secret. An agent may forge them, as it may forge the results of its own containers; so they are checked against the
// row of the container.
import Type from 'typebox';
import type { Static } from 'typebox';
import { Compile } from 'typebox/compile';
import type { MachineId, QueueName } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { TaskJob } from '../../stores/queues/jobs.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';

/** Ids of ticks are of version 5, and everybody can compute them: no synchronous task has one. */
const RANDOM_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/**
 * Fields of a job that the end of its task needs. None names anything outside of its container, as an agent may forge
 * them.
 */
const OF_JOB = [
  'v',
  'taskId',
  'workspaceId',
  'stubId',
  'deploymentId',
  'kind',
  'sync',
  'replica',
  'stream',
  'serving',
  'timeoutMs',
  'deadlineMs',
  'createdAtMs',
  'attempts',
  'retries',
  'retriesUsed',
] as const satisfies readonly (keyof TaskJob)[];

const Facts = Type.Object({
  v: Type.Literal(1),
  /** Number of the attempt. */
  attempt: Type.Integer({ minimum: 1, maximum: 1_000_000 }),
  queue: Type.Unsafe<QueueName>(Type.String({ minLength: 1, maxLength: 128 })),
  sentAtMs: Type.Integer({ minimum: 0 }),
  job: Type.Pick(TaskJob, OF_JOB, { additionalProperties: false }),
});
export type Facts = Static<typeof Facts>;

/** Most bytes of facts. */
const MOST_BYTES = 4 * 1024;

const checked = Compile(Facts);

export function encodeFacts(job: TaskJob, order: Pick<Facts, 'attempt' | 'queue' | 'sentAtMs'>): Buffer {
  const kept: Partial<Record<keyof TaskJob, unknown>> = {};
  for (const field of OF_JOB) kept[field] = job[field];
  return Buffer.from(JSON.stringify({ v: 1, ...order, job: kept }));
}

/** @returns undefined: the agent has no facts of the attempt, or they are not a scheduler's */
export function parseFacts(bytes: Uint8Array): Facts | undefined {
  if (bytes.length === 0 || bytes.length > MOST_BYTES) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes).toString('utf8'));
  } catch {
    return undefined;
  }
  return checked.Check(value) && value.job.sync && RANDOM_ID.test(value.job.taskId) ? value : undefined;
}

/**
 * Whether an attempt with these facts may run in that container of that machine.
 * @param container - undefined: there is no row
 */
export const agrees = (
  { job, queue }: Facts,
  machineId: MachineId,
  container: Pick<ContainerRow, 'machineId' | 'workspaceId' | 'deploymentId' | 'stubId'> | undefined,
): boolean =>
  container?.machineId === machineId &&
  container.workspaceId === job.workspaceId &&
  container.deploymentId === job.deploymentId &&
  container.stubId === job.stubId &&
  queueNameOf(container.deploymentId, container.stubId) === queue;

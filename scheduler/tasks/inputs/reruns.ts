// Another run of a task: a new task with the same input, for the version that serves now. It passes the admission of
// every call, so limits, rates and quotas hold, and a commit in doubt is settled as any other.
import type { PutBy } from '#shared/domain/ids.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import type { Call, CallKey, Submission } from '../admission/calls.ts';
import type { Submissions } from '../admission/submissions.ts';
import type { TaskRecord } from '../records/task-record.ts';
import type { TaskInputs } from './inputs.ts';

export interface RerunsParts {
  readonly inputs: Pick<TaskInputs, 'read'>;
  readonly targets: Pick<Targets, 'byDeployment' | 'byName' | 'byStub'>;
  readonly submissions: Pick<Submissions, 'submit'>;
}

export interface Rerun {
  /** Whether the new task stands for a dead one, which is dead no more. No other ever does. */
  readonly isRedrive?: boolean;
  /** The caller, where it may read only its own tasks. */
  readonly putBy?: PutBy | undefined;
  /** Whether the caller may call that target. */
  readonly mayCall: (target: Target) => boolean;
  /** The key of the new call; absent: every rerun is a new task. */
  readonly keyOf?: ((call: Call, target: Target) => CallKey) | undefined;
}

export type RerunOutcome =
  | { readonly kind: 'rerun'; readonly submission: Submission; readonly target: Target }
  /** The deployment was deleted, or may not be called by this caller. */
  | { readonly kind: 'no_deployment' }
  | { readonly kind: 'stopped'; readonly target: Target }
  /** @see TaskInputs.read */
  | { readonly kind: 'no_input'; readonly why: string };

export class Reruns {
  readonly #parts: RerunsParts;

  constructor(parts: RerunsParts) {
    this.#parts = parts;
  }

  async run(record: TaskRecord, { isRedrive, putBy, mayCall, keyOf }: Rerun): Promise<RerunOutcome> {
    const target = await this.#targetOf(record);
    if (target === undefined || !mayCall(target)) return { kind: 'no_deployment' };
    const found = await this.#parts.inputs.read(record);
    if ('why' in found) return { kind: 'no_input', why: found.why };
    if (!target.active) return { kind: 'stopped', target };
    const { query, callbackUrl, flow } = found.job;
    const call: Call = {
      input: found.input,
      rerunOf: record.taskId,
      ...(isRedrive === true ? { redrivenFrom: record.taskId } : {}),
      ...(flow === undefined || flow.key === '' || target.config.flow === undefined ? {} : { key: flow.key }),
      ...(flow?.headStart === undefined || target.config.flow?.priority === undefined
        ? {}
        : { priority: flow.headStart }),
      ...(query === undefined ? {} : { query }),
      // The address may be the first caller's own, who waits for a result.
      ...(callbackUrl === undefined ? {} : { callbackUrl }),
      ...(putBy === undefined ? {} : { putBy }),
    };
    const key = keyOf?.(call, target);
    const submission = await this.#parts.submissions.submit(target, {
      ...call,
      ...(key === undefined ? {} : { idempotency: key }),
    });
    return { kind: 'rerun', submission, target };
  }

  /** The version that calls of the task's deployment reach now; of a stub without a deployment the stub. */
  async #targetOf({ workspaceId, stubId, deploymentId }: TaskRecord): Promise<Target | undefined> {
    const { targets } = this.#parts;
    if (deploymentId === null) return await targets.byStub(stubId);
    const own = await targets.byDeployment(deploymentId);
    if (own === undefined) return undefined;
    return (await targets.byName(workspaceId, own.kind, own.deploymentName, null)) ?? own;
  }
}

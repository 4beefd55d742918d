import { ChangeLimits, LimitsRecord } from '#shared/api/rest/limits.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { CreditsLeft } from '../../../workspaces/credits/accounts.ts';
import { centsOf } from '../../../workspaces/credits/cost.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { WorkspaceUse } from '../../../stores/store/queries/quotas.ts';
import { readChange } from '../../../workspaces/identity/limits.ts';
import type { WorkspaceLimits } from '../../../workspaces/identity/limits.ts';
import type { HandMadeContainers } from '../../../fleet/containers/hand-made.ts';
import type { Rates } from '../../../workspaces/identity/rates.ts';
import type { Limits } from '../../../workspaces/identity/workspace-limits.ts';
import { actorBehind } from '../origin.ts';
import type { CreditRouteParts } from './credits.ts';
import { REST_BODY_LIMIT } from './rest.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface LimitsParts {
  readonly limits: Pick<Limits, 'of' | 'change' | 'counts'>;
  /** Current usage of the workspace. */
  readonly usageOf: (workspaceId: WorkspaceId) => LimitsRecord['usage'];
  readonly handMade: Pick<HandMadeContainers, 'countOf'>;
  readonly creditAccounts: CreditRouteParts['creditAccounts'];
  /** `LONGSHORE_MAX_INVOKE_BODY_BYTES` */
  readonly maxInvokeBodyBytes: number;
  /** `LONGSHORE_TASK_DAYS`, `LONGSHORE_LOG_DAYS`, `LONGSHORE_EVENT_DAYS` */
  readonly retention: { readonly tasksDays: number; readonly logsDays: number; readonly eventsDays: number };
}

/** Limits and usage of a workspace. PUT changes the named limits, and is for the administrator. */
export function limitRoutes(parts: LimitsParts): readonly RestRoute[] {
  const show = async (id: WorkspaceId, limits: WorkspaceLimits) => {
    const [counts, credit] = await Promise.all([parts.limits.counts(id), parts.creditAccounts.left(id)]);
    return limitsRecord(id, limits, parts.usageOf(id), counts, billingOf(credit), parts);
  };
  return [
    restRoute({
      http: 'GET /workspace/{ws}/limits',
      grants: READERS_OF_ALL,
      summary: 'What a workspace may have, and has',
      answer: LimitsRecord,
      handle: async ({ workspaceId }) => show(workspaceId, await parts.limits.of(workspaceId)),
    }),
    restRoute({
      http: 'PUT /workspace/{ws}/limits',
      summary: 'Change limits by group and name; null: the default again (administrator)',
      scope: 'admin',
      body: ChangeLimits,
      readBody: readChange,
      answer: LimitsRecord,
      errors: ['workspace_not_found'],
      handle: async (request) => {
        const { workspaceId, body } = request;
        return show(workspaceId, await parts.limits.change(workspaceId, body, actorBehind(request)));
      },
    }),
  ];
}

/** Bounds the requests of a workspace in a minute; an administrator's are not bounded. */
export function restRate(
  limits: Pick<Limits, 'of'>,
  rates: Pick<Rates, 'take'>,
): (caller: Caller, kind: 'rest' | 'state') => Promise<void> {
  return async (caller, kind) => {
    if (caller.isAdmin) return;
    const { rate } = await limits.of(caller.workspaceId);
    const perMinute = kind === 'rest' ? rate.rest_per_minute : rate.state_per_minute;
    const seconds = perMinute === null ? undefined : await rates.take(caller.workspaceId, kind, perMinute);
    if (seconds === undefined) return;
    throw new AppError('rate_limited', `this workspace may send ${perMinute} requests a minute: wait ${seconds} s`, {
      details: { retryAfterSeconds: seconds },
    });
  };
}

/** Timeouts of a synchronous call's execution and of a container's start; asynchronous tasks have their stub's own. */
const TIMEOUTS = { endpoint_seconds: 600, task_seconds: null, container_start_seconds: 900 };

const billingOf = ({ mode, leftMicros }: CreditsLeft): LimitsRecord['billing'] => ({
  mode,
  credits_cents: mode === 'prepaid' ? centsOf(leftMicros) : null,
});

const limitsRecord = (
  id: WorkspaceId,
  limits: WorkspaceLimits,
  usage: LimitsRecord['usage'],
  used: WorkspaceUse,
  billing: LimitsRecord['billing'],
  { maxInvokeBodyBytes, retention, handMade }: LimitsParts,
): LimitsRecord => ({
  workspace_id: id,
  concurrency: limits.concurrency,
  usage,
  stub: limits.stub,
  tasks: limits.tasks,
  timeouts: TIMEOUTS,
  requests: { max_body_bytes: REST_BODY_LIMIT, max_invoke_body_bytes: maxInvokeBodyBytes },
  rate: limits.rate,
  counts: {
    tokens: { used: used.tokens, limit: limits.counts.tokens },
    webhooks: { used: used.webhooks, limit: limits.counts.webhooks },
    // These things cannot be made yet.
    databases: { used: 0, limit: limits.counts.databases },
    stacks: { used: used.stacks, limit: limits.counts.stacks },
    volumes: { used: used.volumes, limit: limits.counts.volumes },
    deployments: { used: used.deployments, limit: limits.counts.deployments },
    stubs: { used: used.stubs, limit: limits.counts.stubs },
    objects: { used: used.objects, limit: limits.counts.objects },
    pools: { used: used.pools, limit: limits.counts.pools },
    unjoined_machines: { used: used.unjoinedMachines, limit: limits.counts.unjoined_machines },
    sandboxes: { used: handMade.countOf(id), limit: limits.counts.sandboxes },
    shared_entries: { used: used.sharedEntries, limit: limits.counts.shared_entries },
  },
  bytes: {
    logs_per_day: { used: used.logBytesToday, limit: limits.bytes.logs_per_day },
    objects: { used: used.objectBytes, limit: limits.bytes.objects },
    queue: { used: used.queueBytes, limit: limits.bytes.queue },
    shared: { used: used.sharedBytes, limit: limits.bytes.shared },
    volumes: { used: usage.volume_bytes, limit: limits.bytes.volumes },
    images: { used: used.imageBytes, limit: limits.bytes.images },
  },
  retention: {
    logs_days: retention.logsDays,
    events_days: retention.eventsDays,
    tasks_days: retention.tasksDays,
  },
  billing,
});

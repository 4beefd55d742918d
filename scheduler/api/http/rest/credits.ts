// Credits of a workspace, its usage of models, and the ledger behind both. A workspace sees its own; the administrator
// changes all.
import { timestampOf } from '#shared/api/fields.ts';
import {
  ChangeCredit,
  CreditGranted,
  CreditRecord,
  GrantCredit,
  LEDGER_KINDS,
  LedgerList,
  LedgerQuery,
  MOST_CREDIT_MICROS,
  MOST_GRANT_TEXT,
  USAGE_GROUPS,
  UsageQuery,
  UsageRecord,
} from '#shared/api/rest/credits.ts';
import type { Static } from 'typebox';
import type { LedgerKind, LedgerRow, UsageGroup } from '#shared/api/rest/credits.ts';
import { AppError } from '#shared/errors.ts';
import type { AccountState, CreditAccounts } from '../../../workspaces/credits/accounts.ts';
import type { LedgerRowRead } from '../../../stores/store/queries/ledger-rows.ts';
import type { UsageGroupSums, UsageSums } from '../../../stores/store/queries/ledger-usage.ts';
import { actorBehind } from '../origin.ts';
import { cursorOf, pageLimit, pageOf } from './paging.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface CreditRouteParts {
  readonly creditAccounts: Pick<CreditAccounts, 'show' | 'left' | 'change' | 'grant' | 'usage' | 'ledger'>;
}

const MOST_RANGE_MS = 400 * 86_400_000;

export const creditRoutes = ({ creditAccounts }: CreditRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /credit/{ws}',
    grants: READERS_OF_ALL,
    summary: 'Credits of a workspace: balance, holds, mode and spend limit',
    ofDeleted: true,
    answer: CreditRecord,
    errors: ['queues_unavailable'],
    handle: async ({ workspaceId }) => recordOf(await creditAccounts.show(workspaceId)),
  }),
  restRoute({
    http: 'PUT /credit/{ws}',
    summary: 'Change the mode or the spend limit (administrator)',
    scope: 'admin',
    body: ChangeCredit,
    readBody: readChange,
    answer: CreditRecord,
    errors: ['workspace_not_found', 'queues_unavailable'],
    handle: async (request) => {
      const { mode, spend_limit_micros: spendLimitMicros } = request.body;
      const change = {
        ...(mode === undefined ? {} : { mode }),
        ...(spendLimitMicros === undefined ? {} : { spendLimitMicros }),
      };
      return recordOf(await creditAccounts.change(request.workspaceId, change, actorBehind(request)));
    },
  }),
  restRoute({
    http: 'POST /credit/{ws}/grant',
    summary: 'Add credits to the balance, once for each key (administrator)',
    scope: 'admin',
    body: GrantCredit,
    answer: CreditGranted,
    errors: ['workspace_not_found', 'credit_grant_exists', 'queues_unavailable'],
    handle: async (request) => {
      const { amount_micros: micros, key, note } = request.body;
      if (micros === 0) throw new AppError('invalid_body', 'amount_micros must not be 0');
      for (const [name, text] of [
        ['key', key],
        ['note', note],
      ] as const) {
        if (text !== undefined && (text.length > MOST_GRANT_TEXT || /\p{Cc}/u.test(text)))
          throw new AppError(
            'invalid_body',
            `${name} must have at most ${MOST_GRANT_TEXT} characters, none of control`,
          );
      }
      const given = { micros, ...(key === undefined ? {} : { key }), ...(note === undefined ? {} : { note }) };
      const { granted, account } = await creditAccounts.grant(request.workspaceId, given, actorBehind(request));
      return { granted, account: recordOf(account) };
    },
  }),
  restRoute({
    http: 'GET /usage/{ws}',
    grants: READERS_OF_ALL,
    summary:
      'Requests to models, their tokens and costs; time of containers and GPUs; by day, model, deployment and more',
    ofDeleted: true,
    query: UsageQuery,
    answer: UsageRecord,
    handle: async ({ workspaceId, query }) => {
      const { fromMs, toMs } = rangeOf(query);
      const { rows, truncated, total } = await creditAccounts.usage({ workspaceId, fromMs, toMs }, groupsOf(query.by));
      return {
        from: timestampOf(fromMs),
        to: timestampOf(toMs),
        data: rows.map(rowOf),
        truncated,
        total: sumsOf(total),
      };
    },
  }),
  restRoute({
    http: 'GET /credit/{ws}/ledger',
    grants: READERS_OF_ALL,
    summary: 'Rows of the ledger, the newest first: requests to models, grants and time of containers',
    ofDeleted: true,
    query: LedgerQuery,
    answer: LedgerList,
    handle: async ({ workspaceId, query }) => {
      const limit = pageLimit(query);
      const before = cursorOf(query);
      if (before !== undefined && !/^[0-9]{1,18}$/.test(before.id))
        throw new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
      const rows = await creditAccounts.ledger({
        workspaceId,
        ...rangeOf(query),
        ...(query.kind === undefined ? {} : { kinds: kindsOf(query.kind) }),
        ...(query.model === undefined ? {} : { model: query.model }),
        ...(query.token === undefined ? {} : { tokenId: query.token }),
        limit: limit + 1,
        ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, id: before.id } }),
      });
      const { page, next } = pageOf(rows, limit, (row) => ({ atMs: row.createdAtMs, id: row.id }));
      return { data: page.map(ledgerRowOf), next };
    },
  }),
];

/** @throws AppError `invalid_query` */
function rangeOf({ from, to }: { readonly from?: number; readonly to?: number }) {
  const now = new Date();
  const toMs = to ?? now.getTime();
  const fromMs = from ?? Date.UTC(now.getUTCFullYear(), now.getUTCMonth());
  if (fromMs >= toMs) throw new AppError('invalid_query', 'query parameter to must be after from');
  if (toMs - fromMs > MOST_RANGE_MS)
    throw new AppError('invalid_query', 'query parameter to must be at most 400 days after from');
  return { fromMs, toMs };
}

function kindsOf(said: readonly string[]): readonly LedgerKind[] {
  const odd = said.find((one) => !LEDGER_KINDS.includes(one as LedgerKind));
  if (odd !== undefined)
    throw new AppError(
      'invalid_query',
      `query parameter kind has ${JSON.stringify(odd.slice(0, 40))}: ${LEDGER_KINDS.join(', ')}`,
    );
  return said as readonly LedgerKind[];
}

/** Reads a change. A null is a value here: no spend limit. */
function readChange(sent: Readonly<Record<string, unknown>>): Static<typeof ChangeCredit> {
  const { mode, spend_limit_micros: limit } = sent;
  if (mode === undefined && limit === undefined)
    throw new AppError('invalid_body', 'give mode or spend_limit_micros, or both');
  if (mode !== undefined && mode !== 'prepaid' && mode !== 'postpaid')
    throw new AppError('invalid_body', 'mode must be prepaid or postpaid');
  if (limit !== undefined && limit !== null && !isWithin(limit, MOST_CREDIT_MICROS))
    throw new AppError(
      'invalid_body',
      `spend_limit_micros must be a whole number from 0 to ${MOST_CREDIT_MICROS}, or null`,
    );
  return {
    ...(mode === undefined ? {} : { mode }),
    ...(limit === undefined ? {} : { spend_limit_micros: limit }),
  };
}

const isWithin = (value: unknown, most: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most;

function groupsOf(said: readonly string[] = []): readonly UsageGroup[] {
  const groups = USAGE_GROUPS.filter((group) => said.includes(group));
  const odd = said.find((one) => !USAGE_GROUPS.includes(one as UsageGroup));
  if (odd !== undefined)
    throw new AppError(
      'invalid_query',
      `query parameter by has ${JSON.stringify(odd.slice(0, 40))}: ${USAGE_GROUPS.join(', ')}`,
    );
  return groups;
}

const recordOf = (state: AccountState): CreditRecord => ({
  workspace_id: state.workspaceId,
  mode: state.mode,
  balance_micros: state.balanceMicros,
  held_micros: state.heldMicros,
  available_micros: state.availableMicros,
  month: state.month,
  spent_micros: state.spentMicros,
  spend_limit_micros: state.spendLimitMicros,
});

const sumsOf = (sums: UsageSums) => ({
  requests: sums.requests,
  prompt_tokens: sums.promptTokens,
  completion_tokens: sums.completionTokens,
  cost_micros: sums.costMicros,
  container_seconds: sums.containerMs / 1000,
  gpu_seconds: sums.gpuMs / 1000,
});

const rowOf = (row: UsageGroupSums): UsageRecord['data'][number] => ({
  ...(row.day === undefined ? {} : { day: row.day }),
  ...(row.model === undefined ? {} : { model: row.model }),
  ...(row.tokenId === undefined ? {} : { token_id: row.tokenId }),
  ...(row.appId === undefined ? {} : { app_id: row.appId }),
  ...(row.deployment === undefined ? {} : { deployment: row.deployment }),
  ...(row.gpuModel === undefined ? {} : { gpu_model: row.gpuModel }),
  ...sumsOf(row),
});

const ledgerRowOf = (row: LedgerRowRead): LedgerRow => ({
  request_id: row.requestId,
  kind: row.kind,
  created_at: timestampOf(row.createdAtMs),
  status: row.status,
  token_id: row.kind === 'grant' ? null : row.tokenId,
  model: row.model,
  type: row.type,
  stream: row.stream,
  prompt_tokens: row.promptTokens,
  completion_tokens: row.completionTokens,
  estimated: row.estimated,
  prompt_micros_per_million: row.promptMicrosPerMillion,
  completion_micros_per_million: row.completionMicrosPerMillion,
  request_micros: row.requestMicros,
  cost_micros: row.costMicros,
  grant_micros: row.grantMicros,
  container_id: row.containerId,
  stub_id: row.stubId,
  container_seconds: row.containerMs / 1000,
  gpu_seconds: row.gpuMs / 1000,
  note: row.note,
});

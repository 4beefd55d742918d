import {
  ChangeQueue,
  DeploymentList,
  DeploymentQuery,
  DeploymentRecord,
  DeploymentUrl,
  DeploymentUrlQuery,
  FlowQuery,
  FlowRecord,
  MOST_KEYS,
} from '#shared/api/rest/deployments.ts';
import { AppError } from '#shared/errors.ts';
import { isUuid, queueNameOf } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { ChangeOutcome, DeploymentFilter, Deployments } from '../../../workspaces/deployments/deployments.ts';
import { urlTargetOf } from '../../../workspaces/deployments/deployments.ts';
import { storedConfig } from '../../../domain/stub-config.ts';
import { keyOfControl, keysOfQueue, limitControl } from '../../../domain/flow.ts';
import { paceText } from '../../../domain/flow-settings.ts';
import type { TaskQueues } from '../../../stores/queues/task-queues.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { invokeUrl, urlFormOf } from '../../../workspaces/deployments/urls.ts';
import type { UrlForm, UrlSettings } from '../../../workspaces/deployments/urls.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import type { Grants } from '../../../workspaces/identity/confinement.ts';
import type { Origin } from '../../operations/operation.ts';
import type { DeploymentRow } from '../../../stores/store/queries/deployments.ts';
import type { StubRow } from '../../../stores/store/queries/stubs.ts';
import type { Actor } from '../../../workspaces/events/audit.ts';
import { actorBehind } from '../origin.ts';
import { longPage } from './long-pages.ts';
import { cursorOf, pageLimit, pageOf, pageOffset } from './paging.ts';
import { deploymentRecord } from './records.ts';
import { restRoute } from './route.ts';
import { QUEUES_AWAY } from './tasks.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface DeploymentRouteParts {
  readonly directory: Directory;
  readonly deployments: Deployments;
  readonly urls: UrlSettings;
  readonly flow: Pick<TaskQueues, 'controls' | 'controlsNamed' | 'depth'>;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

export function deploymentRoutes(parts: DeploymentRouteParts): readonly RestRoute[] {
  const urlOf = (request: RestRequest, row: DeploymentRow, stub?: StubRow, form?: UrlForm): string => {
    const { baseUrl } = parts.originOf(request.http);
    const target =
      stub === undefined
        ? { stubId: row.stubId, stubType: row.stubType, public: false, deployment: row }
        : urlTargetOf(stub, row);
    return invokeUrl(baseUrl, target, parts.urls, form);
  };
  const show = (
    request: RestRequest,
    row: DeploymentRow,
    related: Omit<Parameters<typeof deploymentRecord>[1], 'invokeUrl'>,
  ) => deploymentRecord(row, { ...related, invokeUrl: urlOf(request, row, related.stub) });
  return [
    restRoute({
      http: 'GET /deployment/{ws}',
      summary: 'Deployments, newest first',
      grants: READERS,
      query: DeploymentQuery,
      answer: DeploymentList,
      handle: async (request) => {
        const { caller, query, workspaceId } = request;
        const limit = pageLimit(query);
        const before = cursorOf(query);
        if (query.app_id !== undefined && isOutside(caller, query.app_id)) {
          return query.pagination === false ? [] : { data: [], next: '' };
        }
        const rows = await parts.deployments.list(
          { workspaceId },
          {
            ...filterOf(query),
            ...ownApp(caller),
            limit: limit + 1,
            offset: pageOffset(query),
            ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, id: before.id } }),
          },
        );
        const cursorAt = (row: DeploymentRow) => ({ atMs: row.createdAtMs, id: row.id });
        const workspace = await parts.directory.workspace(workspaceId);
        const answer = await longPage({
          ...pageOf(rows, limit, cursorAt),
          cursorAt,
          show: async (some) => {
            const [stubs, apps] = await Promise.all([
              parts.directory.stubs(some.map((row) => row.stubId)),
              parts.directory.appsOf(
                workspaceId,
                some.map((row) => row.appId),
              ),
            ]);
            return some.map((row) =>
              show(request, row, { stub: stubs.get(row.stubId), app: apps.get(row.appId), workspace }),
            );
          },
          stubOf: ({ stub }) => stub,
        });
        if (query.pagination !== false) return answer;
        if (answer.next !== '') request.answerHeaders.set(NEXT_CURSOR, answer.next);
        return answer.data;
      },
    }),
    restRoute({
      http: 'GET /deployment/{ws}/{deploymentId}',
      summary: 'One deployment',
      grants: READERS,
      answer: DeploymentRecord,
      errors: [NOT_FOUND],
      handle: async (request) => {
        const { caller, workspaceId, params } = request;
        const row = await parts.deployments.find({ workspaceId }, params['deploymentId'] ?? '');
        if (row === undefined || isOutside(caller, row.appId)) throw notFound();
        const [stub, apps, workspace] = await Promise.all([
          parts.directory.stub(row.stubId),
          parts.directory.appsOf(workspaceId, [row.appId]),
          parts.directory.workspace(workspaceId),
        ]);
        return show(request, row, { stub, app: apps.get(row.appId), workspace });
      },
    }),
    restRoute({
      http: 'GET /deployment/{ws}/flow/{deploymentId}',
      summary: 'Keys of flow control of a deployment, those with most tasks that wait first',
      grants: READERS,
      query: FlowQuery,
      answer: FlowRecord,
      errors: [NOT_FOUND, QUEUES_AWAY],
      handle: async (request) => {
        const { caller, workspaceId, params, query } = request;
        const row = await parts.deployments.find({ workspaceId }, params['deploymentId'] ?? '');
        if (row === undefined || isOutside(caller, row.appId)) throw notFound();
        const stub = await parts.directory.stub(row.stubId);
        const flow = stub === undefined ? undefined : storedConfig(stub.config).flow;
        const queue = queueNameOf(row.id, row.stubId);
        const limit = Math.min(query.limit ?? MOST_KEYS, MOST_KEYS);
        const limits = Object.entries(flow?.limits ?? {});
        const [controls, counts, { held, delayed, waiting, prioritized, active }] = await Promise.all([
          parts.flow.controls(keysOfQueue(queue), limit),
          parts.flow.controlsNamed(limits.map(([name]) => limitControl(workspaceId, name))),
          parts.flow.depth(queue),
        ]);
        return {
          concurrency: flow?.concurrency ?? null,
          key: flow?.key ?? '',
          throttle: flow?.throttle === undefined ? '' : paceText(flow.throttle),
          rate: flow?.rate === undefined ? '' : paceText(flow.rate),
          priority: flow?.priority ?? null,
          debounce: flow?.debounce ?? null,
          singleton: flow?.singleton ?? '',
          fair_key: flow?.fairKey ?? '',
          paused: row.queuePaused,
          limit: row.queueLimit,
          waiting: waiting + prioritized,
          running: active,
          held,
          delayed,
          limits: limits.map(([name, most], at) => ({ name, most, running: 0, waiting: 0, ...counts[at] })),
          data: controls.map(({ name, running, waiting }) => ({ key: keyOfControl(name), running, waiting })),
        };
      },
    }),
    restRoute({
      http: 'PATCH /deployment/{ws}/flow/{deploymentId}',
      summary: 'Pause or bound the queue of a name, all its versions, or let it go on',
      scope: 'full',
      grants: { confinesToApp: true },
      body: ChangeQueue,
      errors: [NOT_FOUND, QUEUES_AWAY],
      handle: async (request) => {
        const { caller, workspaceId, params, body } = request;
        const row = await parts.deployments.find({ workspaceId }, params['deploymentId'] ?? '');
        if (row === undefined || isOutside(caller, row.appId)) throw notFound();
        const { paused, limit } = body;
        if (paused === undefined && limit === undefined)
          throw new AppError('invalid_body', 'paused or limit must be given');
        const change = {
          ...(paused === undefined ? {} : { paused }),
          ...(limit === undefined ? {} : { limit: limit === 0 ? null : limit }),
        };
        const by = actorBehind(request);
        const outcome = await parts.deployments.controlQueue({ workspaceId }, row.id, change, by);
        if (outcome.kind === 'not_found') throw notFound();
        if (outcome.kind === 'refused') throw new AppError('bad_request', outcome.text);
        return undefined;
      },
    }),
    restRoute({
      http: 'GET /deployment/{deploymentId}/url',
      summary: 'Where a deployment is invoked',
      grants: READERS,
      query: DeploymentUrlQuery,
      answer: DeploymentUrl,
      errors: [NOT_FOUND],
      handle: async (request) => {
        const { caller, params, query } = request;
        const row = await parts.deployments.find(caller, params['deploymentId'] ?? '');
        if (row === undefined || isOutside(caller, row.appId)) throw notFound();
        return { url: urlOf(request, row, await parts.directory.stub(row.stubId), urlFormOf(query.url_type ?? '')) };
      },
    }),
    verb(parts.deployments, 'POST /deployment/{ws}/start/{deploymentId}', 'Start a deployment', (owner, id, by) =>
      parts.deployments.start(owner, id, by),
    ),
    verb(parts.deployments, 'POST /deployment/{ws}/stop/{deploymentId}', 'Stop a deployment', (owner, id, by) =>
      parts.deployments.stop(owner, id, by),
    ),
    verb(
      parts.deployments,
      'POST /deployment/{ws}/rollback/{deploymentId}',
      'Let calls of the name reach this older version again',
      (owner, id, by) => parts.deployments.rollBack(owner, id, by),
    ),
    verb(parts.deployments, 'DELETE /deployment/{ws}/{deploymentId}', 'Stop and delete a deployment', (owner, id, by) =>
      parts.deployments.delete(owner, id, by),
    ),
  ];
}

/** Header of a bare list that was cut: the cursor at which the rest begins. */
const NEXT_CURSOR = 'x-next-cursor';

const READERS = { scopes: ['read'], confinesToApp: true } as const satisfies Grants;
const NOT_FOUND = 'deployment_not_found';
const notFound = (): AppError => new AppError(NOT_FOUND, 'deployment not found');

/** A route that performs a verb and answers with an empty body. */
function verb(
  deployments: Pick<Deployments, 'find'>,
  http: string,
  summary: string,
  act: (owner: Pick<Caller, 'workspaceId'>, deploymentId: string, by: Actor) => Promise<ChangeOutcome>,
): RestRoute {
  return restRoute({
    http,
    summary,
    scope: 'full',
    grants: { confinesToApp: true },
    errors: [NOT_FOUND],
    handle: async (request) => {
      const { caller, workspaceId, params } = request;
      if (caller.confined !== undefined) {
        const row = await deployments.find({ workspaceId }, params['deploymentId'] ?? '');
        if (row === undefined || isOutside(caller, row.appId)) throw notFound();
      }
      const outcome = await act({ workspaceId }, params['deploymentId'] ?? '', actorBehind(request));
      if (outcome.kind === 'not_found') throw notFound();
      if (outcome.kind === 'refused') throw new AppError('bad_request', outcome.text);
      return undefined;
    },
  });
}

function filterOf(query: DeploymentQuery): Omit<DeploymentFilter, 'limit'> {
  const { search_query: search, active, subdomain, stub_ids: stubIds, app_id: appId } = query;
  const { min_containers: minContainers, created_at_start: createdFromMs, created_at_end: createdToMs } = query;
  const name = query.name ?? (search !== undefined && !isUuid(search) ? search : undefined);
  const version = versionOf(query.version);
  // A kind without a suffix means the type of its deployments.
  const stubTypes = query.stub_type?.map((type) => (kindOf(type) === type ? `${type}/deployment` : type));
  return {
    ...(search === undefined || !isUuid(search) ? {} : { ids: [search.toLowerCase()] }),
    ...(name === undefined ? {} : { nameContains: name }),
    ...(active === undefined ? {} : { active }),
    ...(version === undefined ? {} : { version }),
    ...(stubTypes === undefined ? {} : { stubTypes }),
    ...(subdomain === undefined ? {} : { subdomain }),
    ...(stubIds === undefined ? {} : { stubIds }),
    ...(appId === undefined ? {} : { appId }),
    ...(minContainers === undefined ? {} : { minContainers: Math.min(minContainers, 2 ** 31 - 1) }),
    ...(createdFromMs === undefined ? {} : { createdFromMs }),
    ...(createdToMs === undefined ? {} : { createdToMs }),
    showDeleted: query.show_deleted ?? false,
  };
}

/** Reads `3` and `v3`; 0, `latest` and a client's `undefined` mean any version. */
function versionOf(text: string | undefined): number | undefined {
  if (text === undefined || text === 'latest' || text === 'undefined') return undefined;
  const [, digits] = /^v?([0-9]{1,9})$/.exec(text) ?? [];
  if (digits === undefined)
    throw new AppError('invalid_query', 'query parameter version must be a number or v and a number');
  return Number(digits) === 0 ? undefined : Number(digits);
}

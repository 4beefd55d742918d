// Routes of the models that a workspace owns. Those that change something are closed to restricted tokens. The
// administrator alone changes public models. Ids with a slash are percent-encoded in paths.
import { timestampOf } from '#shared/api/fields.ts';
import { ChangeModel, CreateModel, ModelDeleted, ModelList, ModelRecord } from '#shared/api/rest/models.ts';
import { PAGE } from '#shared/api/rest/query.ts';
import { Type } from 'typebox';
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import type { By, ModelService } from '../../../workspaces/models/service.ts';
import { actorBehind } from '../origin.ts';
import { nameCursorOf, pageByName, pageLimit } from './paging.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface ModelRouteParts {
  readonly models: Pick<ModelService, 'list' | 'one' | 'create' | 'change' | 'delete'>;
}

const idOf = ({ params }: Pick<RestRequest, 'params'>): string => params['modelId'] ?? '';
const byOf = (request: Pick<RestRequest, 'caller' | 'http'>): By => ({
  actor: actorBehind(request),
  isAdmin: request.caller.isAdmin,
});

export const modelRoutes = ({ models }: ModelRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /model/{ws}',
    grants: READERS_OF_ALL,
    summary: 'Models that the workspace owns, by id',
    query: Type.Object(PAGE),
    answer: ModelList,
    errors: ['invalid_cursor'],
    handle: async ({ workspaceId, query }) => {
      const limit = pageLimit(query);
      const rows = await models.list(workspaceId, nameCursorOf(query), limit + 1);
      const { page, next } = pageByName(rows, limit);
      return { data: page.map(recordOf), next };
    },
  }),
  restRoute({
    http: 'POST /model/{ws}',
    summary: 'Add a model with the servers behind it',
    scope: 'full',
    status: 201,
    body: CreateModel,
    answer: ModelRecord,
    errors: ['invalid_model', 'model_exists', 'too_many_models'],
    handle: async (request) => recordOf(await models.create(request.workspaceId, request.body, byOf(request))),
  }),
  restRoute({
    http: 'GET /model/{ws}/{modelId}',
    grants: READERS_OF_ALL,
    summary: 'A model of the workspace',
    answer: ModelRecord,
    errors: ['model_not_found'],
    handle: async (request) => recordOf(await models.one(request.workspaceId, idOf(request))),
  }),
  restRoute({
    http: 'PATCH /model/{ws}/{modelId}',
    summary: 'Change the fields that are given',
    scope: 'full',
    body: ChangeModel,
    answer: ModelRecord,
    errors: ['invalid_model', 'model_exists', 'model_not_found'],
    handle: async (request) =>
      recordOf(await models.change(request.workspaceId, idOf(request), request.body, byOf(request))),
  }),
  restRoute({
    http: 'DELETE /model/{ws}/{modelId}',
    summary: 'Delete a model',
    scope: 'full',
    answer: ModelDeleted,
    errors: ['model_not_found'],
    handle: async (request) => {
      await models.delete(request.workspaceId, idOf(request), byOf(request));
      return {};
    },
  }),
];

const recordOf = (row: ModelRow): ModelRecord => ({
  id: row.name,
  external_id: row.id,
  type: row.type,
  visibility: row.isPublic ? 'public' : 'workspace',
  active: row.active,
  name: row.details.displayName,
  description: row.details.description,
  owned_by: row.details.ownedBy === '' ? row.workspaceName : row.details.ownedBy,
  context_length: row.details.contextLength,
  max_output_tokens: row.details.maxOutputTokens,
  embedding: row.details.embedding,
  capabilities: row.details.capabilities,
  supported_parameters: [...row.details.supportedParameters],
  input_schema: row.details.inputSchema,
  output_schema: row.details.outputSchema,
  default_parameters: row.details.defaultParameters,
  shutdown_date: row.details.shutdownDate,
  prices: {
    prompt_micros_per_million: row.prices.promptMicrosPerMillion,
    completion_micros_per_million: row.prices.completionMicrosPerMillion,
    request_micros: row.prices.requestMicros,
  },
  backends: [...row.backends],
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});

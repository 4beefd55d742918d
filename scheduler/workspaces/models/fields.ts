// Checks the fields of a model as somebody gave them, and completes them. Pure. Sentences name the field.
import {
  BACKEND_DEPLOYMENT_KINDS,
  BACKEND_KINDS,
  MODEL_ID,
  MODEL_TYPES,
  MODEL_VISIBILITIES,
  MOST_MODEL_BACKENDS,
} from '#shared/domain/models.ts';
import type { ChangeModel, CreateModel, ModelBackend, ModelCapabilities } from '#shared/api/rest/models.ts';
import { JsonText, membersOf, stringifyExactly } from '#shared/json-text.ts';
import type { ModelType, Prices } from '../../domain/inference.ts';
import type { ModelDetails, NewModel } from '../../stores/store/queries/models.ts';

const MOST_NAME = 100;
const MOST_DESCRIPTION = 2000;
const MOST_DATE = 40;
const MOST_PARAMETERS = 100;
const MOST_FREE_JSON = 64 * 1024;
const SERVED_NAME = 200;
const DEPLOYMENT_NAME = 128;
const ID = new RegExp(MODEL_ID);
const FREE: Prices = { promptMicrosPerMillion: 0, completionMicrosPerMillion: 0, requestMicros: 0 };

/** Capabilities of the usual engines, for fields that are not given. */
const CAPABILITIES: Readonly<Record<ModelType, ModelCapabilities>> = {
  chat: {
    streaming: true,
    tools: true,
    parallel_tool_calls: true,
    response_format: ['text', 'json_object', 'json_schema'],
    vision: false,
    logprobs: true,
    seed: true,
    reasoning: false,
  },
  completion: { streaming: true, logprobs: true, seed: true },
  embedding: {},
  rerank: {},
  image: {},
  custom: { streaming: false },
};

export type CheckedModel = Omit<NewModel, 'id' | 'workspaceId'>;

/** The parts of a model that a change builds on. */
type Before = CheckedModel;

/** A sentence about the first wrong field, or the fields of the model. */
export function checkNew(given: CreateModel, urlProblem: (url: string) => string | undefined): CheckedModel | string {
  if (!ID.test(given.id)) return 'id must be name or org/name, each of letters, digits, dot, dash and underscore';
  if (!(MODEL_TYPES as readonly string[]).includes(given.type)) return `type must be one of ${MODEL_TYPES.join(', ')}`;
  if (given.type === 'embedding' && (given.embedding?.dimensions ?? 0) === 0) {
    return 'embedding.dimensions must be given: callers size their index by it';
  }
  const before: Before = {
    name: given.id,
    type: given.type,
    isPublic: false,
    active: true,
    prices: FREE,
    details: {
      displayName: '',
      description: '',
      ownedBy: '',
      contextLength: null,
      maxOutputTokens: null,
      embedding: null,
      capabilities: CAPABILITIES[given.type],
      supportedParameters: [],
      inputSchema: null,
      outputSchema: null,
      defaultParameters: new JsonText('{}'),
      shutdownDate: null,
    },
    backends: [],
  };
  return checkChange(before, given, urlProblem);
}

/** A sentence about the first wrong field, or the model as it is after the change. */
export function checkChange(
  before: Before,
  given: ChangeModel,
  urlProblem: (url: string) => string | undefined,
): CheckedModel | string {
  const problem = textProblem(given) ?? embeddingProblem(before.type, given) ?? sizeProblem(given);
  if (problem !== undefined) return problem;
  const { prices } = given;
  const backends = given.backends === undefined ? before.backends : checkBackends(given.backends, urlProblem);
  if (typeof backends === 'string') return backends;
  return {
    name: before.name,
    type: before.type,
    isPublic: given.visibility === undefined ? before.isPublic : given.visibility === 'public',
    active: given.active ?? before.active,
    prices:
      prices === undefined
        ? before.prices
        : {
            promptMicrosPerMillion: prices.prompt_micros_per_million,
            completionMicrosPerMillion: prices.completion_micros_per_million,
            requestMicros: prices.request_micros,
          },
    details: detailsAfter(before.details, given),
    backends,
  };
}

function detailsAfter(before: ModelDetails, given: ChangeModel): ModelDetails {
  return {
    displayName: given.name ?? before.displayName,
    description: given.description ?? before.description,
    ownedBy: given.owned_by ?? before.ownedBy,
    contextLength: given.context_length === undefined ? before.contextLength : given.context_length || null,
    maxOutputTokens: given.max_output_tokens === undefined ? before.maxOutputTokens : given.max_output_tokens || null,
    embedding: given.embedding ?? before.embedding,
    capabilities: { ...before.capabilities, ...given.capabilities },
    supportedParameters: given.supported_parameters ?? before.supportedParameters,
    inputSchema: given.input_schema ?? before.inputSchema,
    outputSchema: given.output_schema ?? before.outputSchema,
    defaultParameters: given.default_parameters ?? before.defaultParameters,
    shutdownDate: given.shutdown_date === undefined ? before.shutdownDate : given.shutdown_date || null,
  };
}

function textProblem(given: ChangeModel): string | undefined {
  const bounds = [
    ['name', given.name, MOST_NAME],
    ['description', given.description, MOST_DESCRIPTION],
    ['owned_by', given.owned_by, MOST_NAME],
    ['shutdown_date', given.shutdown_date, MOST_DATE],
  ] as const;
  for (const [field, text, most] of bounds) {
    if ((text?.length ?? 0) > most) return `${field} must have at most ${most} characters`;
  }
  if (given.visibility !== undefined && !MODEL_VISIBILITIES.includes(given.visibility)) {
    return `visibility must be one of ${MODEL_VISIBILITIES.join(', ')}`;
  }
  return undefined;
}

function embeddingProblem(type: ModelType, { embedding }: ChangeModel): string | undefined {
  if (embedding === undefined) return undefined;
  if (type !== 'embedding') return 'embedding is for models of the type embedding';
  if (embedding.dimensions === 0) return 'embedding.dimensions must be at least 1';
  if ((embedding.supported_dimensions?.length ?? 0) > MOST_PARAMETERS)
    return `embedding.supported_dimensions must have at most ${MOST_PARAMETERS} entries`;
  return undefined;
}

function sizeProblem(given: ChangeModel): string | undefined {
  if ((given.supported_parameters?.length ?? 0) > MOST_PARAMETERS)
    return `supported_parameters must have at most ${MOST_PARAMETERS} entries`;
  for (const field of [
    'input_schema',
    'output_schema',
    'default_parameters',
    'supported_parameters',
    'capabilities',
  ] as const) {
    const value = given[field];
    if (value !== undefined && Buffer.byteLength(stringifyExactly(value)) > MOST_FREE_JSON)
      return `${field} must have at most ${MOST_FREE_JSON} bytes of JSON`;
  }
  if (given.default_parameters !== undefined && membersOf(given.default_parameters.text).length > MOST_PARAMETERS)
    return `default_parameters must have at most ${MOST_PARAMETERS} entries`;
  const formats = given.capabilities?.response_format ?? [];
  const unknown = formats.find((format) => !['text', 'json_object', 'json_schema'].includes(format));
  return unknown === undefined ? undefined : 'capabilities.response_format must hold text, json_object or json_schema';
}

function checkBackends(
  given: readonly ModelBackend[],
  urlProblem: (url: string) => string | undefined,
): readonly ModelBackend[] | string {
  if (given.length === 0 || given.length > MOST_MODEL_BACKENDS) {
    return `backends must have 1 to ${MOST_MODEL_BACKENDS} entries`;
  }
  const checked: ModelBackend[] = [];
  for (const [index, backend] of given.entries()) {
    const one = checkBackend(backend, urlProblem);
    if (typeof one === 'string') return `backends[${index}].${one}`;
    checked.push(one);
  }
  return checked;
}

function checkBackend(given: ModelBackend, urlProblem: (url: string) => string | undefined): ModelBackend | string {
  if (!BACKEND_KINDS.includes(given.kind)) return `kind must be one of ${BACKEND_KINDS.join(', ')}`;
  if ((given.served_model_name?.length ?? 0) > SERVED_NAME)
    return `served_model_name must have at most ${SERVED_NAME} characters`;
  const common = {
    kind: given.kind,
    ...(given.served_model_name === undefined || given.served_model_name === ''
      ? {}
      : { served_model_name: given.served_model_name }),
    weight: given.weight ?? 1,
    level: given.level ?? 0,
  };
  if (given.kind === 'external') {
    if (given.base_url === undefined || given.base_url === '') return 'base_url must be given for an external server';
    const problem = urlProblem(given.base_url);
    if (problem !== undefined) return `base_url ${problem}`;
    if (given.deployment !== undefined || given.port !== undefined) return 'deployment is not for an external server';
    if (URL.parse(given.base_url)?.search !== '') return 'base_url must have no query';
    return {
      ...common,
      base_url: given.base_url.replace(/\/+$/, ''),
      ...(given.secret === undefined || given.secret === '' ? {} : { secret: given.secret }),
    };
  }
  const { deployment = '', deployment_kind: kind = 'asgi', port } = given;
  if (deployment === '' || deployment.length > DEPLOYMENT_NAME) return 'deployment must name a deployment';
  if (!BACKEND_DEPLOYMENT_KINDS.includes(kind))
    return `deployment_kind must be one of ${BACKEND_DEPLOYMENT_KINDS.join(', ')}`;
  if (port !== undefined && kind !== 'pod') return 'port is for a pod';
  if (given.base_url !== undefined || given.secret !== undefined)
    return 'base_url and secret are for an external server';
  return { ...common, deployment, deployment_kind: kind, ...(port === undefined ? {} : { port }) };
}

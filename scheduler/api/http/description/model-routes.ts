// The surface below /v1, as openapi.json describes it. Fields that are not named here pass to the model.
import { Type } from 'typebox';
import type { TSchema } from 'typebox';
import { Anything } from '#shared/api/fields.ts';
import { MODEL_TYPES } from '#shared/domain/models.ts';
import { json } from './plain-route.ts';
import type { Content, PlainRoute } from './plain-route.ts';

const FRAMES: Content = {
  type: 'text/event-stream',
  schema: Type.String({ description: 'with stream: true. Frames `data: …` of JSON, `data: [DONE]` at the end' }),
};

const Model = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('model'),
    created: Type.Integer({ description: 'seconds since 1970' }),
    owned_by: Type.String(),
    type: Type.Enum([...MODEL_TYPES]),
    endpoints: Type.Array(Type.String()),
  },
  { additionalProperties: true, description: 'docs/models.md has the other fields' },
);
const Models = Type.Object({ object: Type.Literal('list'), data: Type.Array(Model) }, { additionalProperties: true });

const model = () => Type.String({ description: 'id of a model that GET /v1/models lists' });
const open = { additionalProperties: true } as const;
const stream = () => Type.Optional(Type.Boolean());
const Chat = Type.Object({ model: model(), messages: Type.Array(Anything()), stream: stream() }, open);
const Completion = Type.Object({ model: model(), prompt: Anything(), stream: stream() }, open);
const Embeddings = Type.Object({ model: model(), input: Anything() }, open);
const Answer = Type.Object({ id: Type.Optional(Type.String()), object: Type.Optional(Type.String()) }, open);

const READ = {
  401: 'a bad token',
  403: 'a token of a machine, worker or container, of a single app, or without the scope',
  405: 'another method',
  429: 'the workspace calls more often than it may, or too many bad tokens came from this address',
  503: 'the database is away, or the scheduler is stopping',
} as const;
const CALLED = {
  ...READ,
  400: 'a field is missing, wrong, or not for this model: error.param names it',
  401: 'no token, or a bad one',
  402: 'the credits of the workspace do not cover the call',
  404: 'no such model',
  408: 'the body came slower than 8 KiB per second',
  409: 'a call with this Idempotency-Key runs still',
  413: 'the body, or what the model is asked for, is larger than it may be',
  415: 'the body does not say that it is JSON',
  422: 'the Idempotency-Key stands for a call with another body',
  500: 'the model failed',
  502: 'a server of the model gave no answer that can be passed on, or an error',
  503: 'no server of the model is there, the database is away, or the scheduler is stopping',
  504: 'the model did not answer in time',
} as const;
const HEADERS = {
  'Idempotency-Key': 'the same key within 24 hours gives the answer of the first call',
  Prefer: 'respond-async: 202 at once, with the address of the result',
};
const LATER = {
  202: {
    description: 'with Prefer: respond-async. Location has the address of the result',
    content: json(Type.Object({}, open)),
  },
};

const call = (path: string, summary: string, body: TSchema, answer: readonly Content[]): PlainRoute => ({
  http: `POST /v1/${path}`,
  tag: 'models',
  summary,
  headers: HEADERS,
  body: json(body),
  answer,
  refusals: CALLED,
  others: LATER,
  dialect: 'openai',
});

export const MODEL_ROUTES: readonly PlainRoute[] = [
  {
    http: 'GET /v1/models',
    tag: 'models',
    summary: 'Public models; with a token those of its workspace, too',
    open: true,
    query: ['type', 'owned_by', 'q'],
    answer: json(Models),
    refusals: { ...READ, 400: 'a value of the query is wrong' },
    dialect: 'openai',
  },
  {
    http: 'GET /v1/models/{id}',
    tag: 'models',
    summary: 'A model',
    open: true,
    answer: json(Model),
    refusals: { ...READ, 400: 'the id cannot be one of a model', 404: 'no such model' },
    dialect: 'openai',
  },
  call('chat/completions', 'Chat with a model', Chat, [json(Answer), FRAMES]),
  call('completions', 'Complete a text', Completion, [json(Answer), FRAMES]),
  call('embeddings', 'Vectors of texts', Embeddings, [json(Answer)]),
  call('models/{id}/invoke', 'Call a model in its own form', Type.Object({}, open), [json(Anything()), FRAMES]),
];

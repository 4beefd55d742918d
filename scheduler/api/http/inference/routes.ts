// The surface below /v1, which OpenAI clients speak. Every answer, also to an unknown path, has the error body and the
// request id of that dialect. Source: reference of the inference API.
// Invariant: no byte of a body is read before its sender is known.
import { randomBytes } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { stringifyExactly } from '#shared/json-text.ts';
import type { Log } from '#shared/log.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { ModelCatalog } from '../../../workspaces/models/catalog.ts';
import type { Authenticator } from '../auth.ts';
import { admit } from '../bodies.ts';
import { closeUnread } from '../polite-close.ts';
import { splitTarget } from '../streams/head.ts';
import type { ExchangeParts } from './call.ts';
import { checkRequest } from './checked.ts';
import { callerOf } from './credential.ts';
import { InferenceError, badRequest, inferenceError, sendError, unknownModel } from './errors.ts';
import { Exchange } from './exchange.ts';
import { unavailable } from './failures.ts';
import { readModelId } from './fields.ts';
import { readBody } from './json-body.ts';
import { claimKey, keyedCallOf } from './keyed-call.ts';
import { matches, modelPage } from './model-page.ts';
import { ModelStatuses } from './statuses.ts';
import { matchPath } from './paths.ts';
import type { Matched } from './paths.ts';
import type { Route } from './prepared.ts';
import { prefersLater, respondLater } from './respond-later.ts';
import type { RespondLaterParts } from './respond-later.ts';
import { serveStream } from './stream.ts';

export interface InferenceParts extends ExchangeParts, RespondLaterParts {
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'refused'>;
  readonly catalog: Pick<ModelCatalog, 'find' | 'public' | 'visibleTo'>;
  /** Whether containers of the queue run, or will. */
  readonly hasContainers: (queue: QueueName) => boolean;
  /** Stops counting a body's bytes, once a backend has it. */
  readonly release: (request: FastifyRequest) => void;
  readonly log: Log;
  /** Finds the caller by another credential than a token. Absent: by its token. @throws AppError */
  readonly callerOf?: (request: FastifyRequest) => Promise<Caller>;
  /** Path before `/v1`; empty when absent. */
  readonly base?: string;
}

const BODY_LIMIT = 16 * 1024 * 1024;
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;
const JSON_TYPE = /^application\/(?:[a-z0-9!#$&^_.+-]+\+)?json *(?:;|$)/i;

declare module 'fastify' {
  interface FastifyRequest {
    inference: Asking | null;
  }
}

interface Asking {
  readonly requestId: string;
  matched: Matched;
  caller: Caller | null;
}

export function registerInference(scope: FastifyInstance, parts: InferenceParts): void {
  const statuses = new ModelStatuses(parts.backends, parts.hasContainers, parts.nowMs);
  scope.decorateRequest('inference', null);
  scope.setErrorHandler((error, request, reply) => {
    const told = inferenceError(error);
    closeUnread(request, reply);
    if (told.status === 500) parts.log.error({ err: error, requestId: request.id }, 'request failed');
    sendError(reply, told, request.inference?.requestId ?? request.id);
  });
  for (const url of ['/v1', '/v1/*']) {
    scope.route({
      method: [...METHODS],
      url,
      onRequest: async (request, reply) => {
        const requestId = `req_${randomBytes(12).toString('hex')}`;
        request.inference = { requestId, matched: { kind: 'unknown' }, caller: null };
        void reply.header('x-request-id', requestId);
        await accept(request, reply, request.inference, parts);
      },
      handler: (request, reply) => {
        const { inference } = request;
        if (inference === null) return;
        const serving =
          inference.matched.kind === 'list' || inference.matched.kind === 'model'
            ? showModels(inference, request, reply, parts, statuses)
            : post(inference, request, reply, parts);
        serving.catch((error: unknown) => {
          const told = inferenceError(error);
          if (told.status === 500) parts.log.error({ err: error, requestId: inference.requestId }, 'request failed');
          if (!reply.sent) sendError(reply, told, inference.requestId);
        });
      },
    });
  }
}

/** Finds the route and the caller, and lets the body be read. @throws InferenceError */
async function accept(
  request: FastifyRequest,
  reply: FastifyReply,
  asking: Asking,
  parts: InferenceParts,
): Promise<void> {
  const { method } = request;
  const originalUrl = request.originalUrl.slice(parts.base?.length ?? 0);
  const matched = matchPath(method, originalUrl);
  if (matched.kind === 'unknown')
    throw new InferenceError(
      404,
      'unknown_url',
      `there is no ${method} ${splitTarget(originalUrl).path.slice(0, 200)}`,
    );
  if (matched.kind === 'wrong_method')
    throw new InferenceError(405, 'method_not_supported', `${method} is not for this route: use ${matched.allowed}`, {
      headers: { allow: matched.allowed },
    });
  asking.matched = matched;
  const isRead = matched.kind === 'list' || matched.kind === 'model';
  const caller = await callerOf(request, parts, isRead ? 'read' : 'invoke');
  asking.caller = caller;
  if (isRead || caller === null) return;
  const type = request.headers['content-type'];
  if (type !== undefined && !JSON_TYPE.test(type.trim()))
    throw new InferenceError(
      415,
      'unsupported_media_type',
      'the body must be JSON: send Content-Type: application/json',
    );
  admit(request, reply, { sender: 'known', payer: caller.workspaceId, limitBytes: BODY_LIMIT });
}

async function showModels(
  { matched, caller }: Asking,
  request: FastifyRequest,
  reply: FastifyReply,
  { catalog }: InferenceParts,
  statuses: ModelStatuses,
): Promise<void> {
  const models = caller === null ? await catalog.public() : await catalog.visibleTo(caller.workspaceId);
  const page = async (row: ModelRow): Promise<object> => modelPage(row, await statuses.of(row));
  void reply.headers({
    'content-type': 'application/json; charset=utf-8',
    'cache-control': caller === null ? 'public, max-age=60' : 'private, no-store',
  });
  if (matched.kind === 'model') {
    const row = models.get(matched.id);
    if (row === undefined) throw unknownModel(matched.id);
    return void reply.send(stringifyExactly(await page(row)));
  }
  const query = request.query as Readonly<Record<string, string | readonly string[] | undefined>>;
  const filter = Object.fromEntries(
    ['type', 'owned_by', 'q'].flatMap((name) => {
      const value = query[name];
      return typeof value === 'string' && value !== '' ? [[name, value]] : [];
    }),
  );
  const rows = [...models.values()]
    .filter((row) => matches(row, filter))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  reply.send(stringifyExactly({ object: 'list', data: await Promise.all(rows.map(page)) }));
}

async function post(
  { requestId, matched, caller }: Asking,
  request: FastifyRequest,
  reply: FastifyReply,
  parts: InferenceParts,
): Promise<void> {
  if (caller === null) throw new InferenceError(500, 'internal_error', 'internal error');
  const body = readBody(request.body);
  const id = matched.kind === 'invoke' ? matched.id : readModelId(body.value);
  const model = await parts.catalog.find(caller.workspaceId, id);
  if (model === undefined) throw unknownModel(id);
  if (!model.active) throw unavailable(`the model ${model.name} is switched off`);
  const route = routeOf(matched);
  const checked = checkRequest(route, body, model, request.headers.accept === 'text/event-stream');
  const { prepared } = checked;
  const keyed = keyedCallOf(request, `${route} ${model.name}`, caller);
  const release = (): void => parts.release(request);
  // A stream has no answer that could be kept: the preference is not applied.
  if (!prepared.stream && prefersLater(request.headers['prefer'])) {
    await respondLater({ requestId, caller, route, prepared, keyed }, request, reply, parts);
    return release();
  }
  const key = await claimKey(keyed, reply, parts.keptAnswers, parts.log);
  if (key === 'answered') return release();
  const exchange = new Exchange(prepared, { requestId, caller, request, reply, key, release }, parts);
  // Without an await, which would keep the body in this frame for the time of the call.
  return exchange.run(prepared.stream ? serveStream : checked.serveWhole);
}

function routeOf({ kind }: Matched): Route {
  if (kind === 'chat' || kind === 'completion' || kind === 'embedding' || kind === 'invoke') return kind;
  throw badRequest('this route takes no body');
}

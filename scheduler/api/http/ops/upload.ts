// The signed address that CreateObject gives out: the bytes go straight from the
// socket to the object store, with any content type. The signature is the credential.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { ObjectId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { problemOf, sendProblem } from '../error-map.ts';
import { DISCARD_LITTLE, DISCARD_MUCH, closeUnread } from '../polite-close.ts';
import { UPLOAD_PATH } from '../../../stores/objects/service.ts';
import type { Objects } from '../../../stores/objects/service.ts';

export interface UploadParts {
  readonly objects: Pick<Objects, 'verifyUpload' | 'receive'>;
  /** Hash of the bytes that an object has now; null: none yet. */
  readonly sha256Of: (objectId: string) => Promise<string | null>;
  /** Called when an object that stubs may use has other bytes than before. */
  readonly onReplaced: (objectId: ObjectId) => void;
  readonly log: Log;
}

/** Registers the route. `scope`: a plugin of its own, since only its bodies are not read before the handler. */
export function registerUpload(scope: FastifyInstance, parts: UploadParts): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  scope.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error);
    if (problem.status >= 500) parts.log.error({ err: error, requestId: request.id }, 'upload failed');
    // The rest of the body is not stored.
    closeUnread(request, reply, problem.status === 403 ? DISCARD_LITTLE : DISCARD_MUCH);
    reply.header('connection', 'close');
    return sendProblem(reply, request.id, problem);
  });
  scope.put(`${UPLOAD_PATH}:objectId`, async (request, reply) => {
    const { objectId } = request.params as { readonly objectId: string };
    if (!parts.objects.verifyUpload(objectId, request.query as Readonly<Record<string, string>>)) {
      throw new AppError('upload_refused', 'this upload address is not valid or has expired: ask for a new one');
    }
    if (request.headers.expect !== undefined) reply.raw.writeContinue();
    const before = await parts.sha256Of(objectId);
    const stored = await parts.objects.receive(objectId, bodyOf(request), contentLengthOf(request));
    if (before !== null && before !== stored.sha256) parts.onReplaced(objectId as ObjectId);
    return ok(reply, { size: stored.size, sha256: stored.sha256 });
  });
}

const ok = (reply: FastifyReply, body: unknown): FastifyReply =>
  reply.code(200).header('content-type', 'application/json').send(JSON.stringify(body));

/**
 * The request's body as a stream. Without a body nothing was parsed, and the raw request is an empty stream. When the
 * store stops reading, the connection stays open for the answer.
 */
const bodyOf = (request: FastifyRequest): AsyncIterable<Uint8Array> =>
  ((request.body as Readable | undefined) ?? request.raw).iterator({
    destroyOnReturn: false,
  }) as AsyncIterable<Uint8Array>;

function contentLengthOf(request: FastifyRequest): number | undefined {
  const text = request.headers['content-length'];
  return text === undefined ? undefined : Number(text);
}

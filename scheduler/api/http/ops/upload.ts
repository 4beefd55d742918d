// The signed address that CreateObject gives out: the bytes go straight from the socket to the object store, with any
// content type. The signature is the credential. A PUT without Content-Range is a whole upload. A PUT with one adds a
// part to an upload that was cut off; HEAD, and an empty PUT with `bytes */TOTAL`, tell how many bytes have arrived.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { ObjectId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { levelOf, problemOf, sendProblem } from '../error-map.ts';
import { DISCARD_LITTLE, DISCARD_MUCH, closeUnread, isUnread } from '../polite-close.ts';
import { UPLOAD_PATH } from '../../../stores/objects/service.ts';
import type { Objects, UploadState } from '../../../stores/objects/service.ts';
import type { StoredBytes } from '../../../stores/objects/backend.ts';
import { paced } from '../pace.ts';
import { uploadPartOf } from '../ranges.ts';
import type { UploadPart } from '../ranges.ts';

export interface UploadParts {
  readonly objects: Pick<Objects, 'verifyUpload' | 'receive' | 'receivePart' | 'uploadState'>;
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
    if (problem.status >= 500) parts.log[levelOf(problem)]({ err: error, requestId: request.id }, 'upload failed');
    // The rest of the body is not stored.
    closeUnread(request, reply, problem.status === 403 ? DISCARD_LITTLE : DISCARD_MUCH);
    reply.header('connection', 'close');
    // A client that sent from the wrong byte learns the right one.
    if (error instanceof AppError && typeof error.details['received'] === 'number') {
      reply.header('upload-offset', String(error.details['received']));
    }
    return sendProblem(reply, request.id, problem);
  });
  const verified = (request: FastifyRequest): string => {
    const { objectId } = request.params as { readonly objectId: string };
    if (parts.objects.verifyUpload(objectId, request.query as Readonly<Record<string, string>>)) return objectId;
    throw new AppError('upload_refused', 'this upload address is not valid or has expired: ask for a new one');
  };
  scope.put(`${UPLOAD_PATH}:objectId`, async (request, reply) => {
    const objectId = verified(request);
    const part = partOf(request);
    if (part?.kind === 'ask') return told(reply.code(202), await parts.objects.uploadState(objectId)).send();
    if (request.headers.expect !== undefined) reply.raw.writeContinue();
    const before = await parts.sha256Of(objectId);
    const stored = await receive(parts.objects, objectId, request, part);
    if ('received' in stored) {
      return reply.code(202).headers(offset(stored.received, part?.total)).header('cache-control', 'no-store').send();
    }
    if (before !== null && before !== stored.sha256) parts.onReplaced(objectId as ObjectId);
    return ok(reply, { size: stored.size, sha256: stored.sha256 });
  });
  scope.head(`${UPLOAD_PATH}:objectId`, async (request, reply) =>
    told(reply.code(200), await parts.objects.uploadState(verified(request))).send(),
  );
}

function receive(
  objects: UploadParts['objects'],
  objectId: string,
  request: FastifyRequest,
  part: UploadPart | undefined,
): Promise<StoredBytes | { readonly received: number }> {
  const source = paced(bodyOf(request));
  if (part?.kind !== 'bytes') return objects.receive(objectId, source, contentLengthOf(request), true);
  const { first, last, total } = part;
  return objects.receivePart(objectId, { first, end: last + 1, total }, source);
}

/** @throws AppError `invalid_content_range` */
function partOf(request: FastifyRequest): UploadPart | undefined {
  const sent = request.headers['content-range'];
  if (sent === undefined) return undefined;
  const part = uploadPartOf(sent);
  const length = contentLengthOf(request);
  if (part === undefined)
    throw badRange('Content-Range must be bytes FIRST-LAST/TOTAL, or bytes */TOTAL without a body');
  const expected = part.kind === 'ask' ? 0 : part.last - part.first + 1;
  if (part.kind === 'ask' ? isUnread(request) : length !== undefined && length !== expected) {
    throw badRange(`Content-Range names ${expected} bytes, and Content-Length says ${length ?? 'nothing'}`);
  }
  return part;
}

const badRange = (text: string): AppError =>
  new AppError('invalid_content_range', text, { details: { field: 'Content-Range' } });

/** How far the upload is; `ETag`: the bytes that the object has now, of an earlier upload or of this one. */
function told(reply: FastifyReply, { unfinished, sha256 }: UploadState): FastifyReply {
  reply.headers(offset(unfinished?.received ?? 0, unfinished?.total)).header('cache-control', 'no-store');
  if (sha256 !== null) reply.header('etag', `"${sha256}"`);
  return reply;
}

const offset = (received: number, total: number | undefined): Record<string, string> => ({
  'upload-offset': String(received),
  ...(total === undefined ? {} : { 'upload-length': String(total) }),
});

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

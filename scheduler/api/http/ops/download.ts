// The signed address that `GET /object/{ws}/{objectId}/download-url` gives out: an object's bytes, whole or a range of
// them, streamed from the store as fast as the client reads. The signature is the credential.
// Invariant: an answer that ends early breaks its connection, so that no client takes it for complete.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { problemOf, sendProblem } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import { SANDBOX } from '../streams/tenant-answers.ts';
import { cutWhenStalled } from '../pace.ts';
import { decideDownload } from '../ranges.ts';
import { DOWNLOAD_PATH } from '../../../stores/objects/service.ts';
import type { Objects, OpenedDownload } from '../../../stores/objects/service.ts';

/** The bytes are a tenant's, and no page or script of this origin. */
const OF_A_TENANT = {
  'content-type': 'application/octet-stream',
  'content-security-policy': SANDBOX,
  'x-content-type-options': 'nosniff',
};

export interface DownloadParts {
  readonly objects: Pick<Objects, 'verifyDownload' | 'openDownload'>;
  readonly log: Log;
}

/** Registers the route. `scope`: a plugin of its own. */
export function registerDownload(scope: FastifyInstance, parts: DownloadParts): void {
  scope.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error);
    if (problem.status >= 500) parts.log.error({ err: error, requestId: request.id }, 'download failed');
    closeUnread(request, reply);
    if (error instanceof AppError && error.code === 'range_not_satisfiable') {
      reply.header('content-range', `bytes */${String(error.details['size'])}`);
    }
    return sendProblem(reply, request.id, problem);
  });
  scope.route({
    method: ['GET', 'HEAD'],
    url: `${DOWNLOAD_PATH}:objectId`,
    handler: async (request, reply) => {
      const { objectId } = request.params as { readonly objectId: string };
      if (!parts.objects.verifyDownload(objectId, request.query as Readonly<Record<string, string>>)) {
        throw new AppError('download_refused', 'this download address is not valid or has expired: ask for a new one');
      }
      const opened = await parts.objects.openDownload(objectId);
      if (opened === undefined) throw new AppError('object_not_found', 'object not found');
      return answer(request, reply, opened);
    },
  });
}

async function answer(request: FastifyRequest, reply: FastifyReply, opened: OpenedDownload): Promise<FastifyReply> {
  const { size, sha256 } = opened;
  const etag = `"${sha256}"`;
  const method = request.method === 'HEAD' ? 'HEAD' : 'GET';
  const decision = decideDownload(method, headersOf(request), etag, size);
  const isSent = method === 'GET' && (decision.kind === 'whole' || decision.kind === 'part');
  if (!isSent) await opened.close();
  reply.headers({ etag, 'accept-ranges': 'bytes', 'cache-control': 'private, no-transform' });
  switch (decision.kind) {
    case 'not-modified':
      return reply.code(304).send();
    case 'precondition-failed':
      throw new AppError('precondition_failed', 'If-Match names other bytes than the object has now');
    case 'unsatisfiable':
      throw new AppError('range_not_satisfiable', `Range begins behind the ${size} bytes of the object`, {
        details: { size, field: 'Range' },
      });
    case 'whole':
    case 'part': {
      const { first, last } = decision.kind === 'part' ? decision.range : { first: 0, last: size - 1 };
      if (decision.kind === 'part') reply.code(206).header('content-range', `bytes ${first}-${last}/${size}`);
      reply.headers({ ...OF_A_TENANT, 'content-length': String(last - first + 1) });
      if (!isSent) return reply.send();
      cutWhenStalled(reply);
      return reply.send(opened.read(first, last));
    }
  }
}

function headersOf({ headers }: FastifyRequest): Parameters<typeof decideDownload>[1] {
  const { range, 'if-range': ifRange, 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  return {
    range,
    'if-range': Array.isArray(ifRange) ? undefined : ifRange,
    'if-match': ifMatch,
    'if-none-match': ifNoneMatch,
  };
}

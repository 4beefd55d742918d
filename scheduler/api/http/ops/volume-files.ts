// The signed addresses that `GET /volume/{ws}/{volumeName}/file-url` and `pack-url` give out. The request passes over
// the link to the agent of the volume's machine, whose file server answers it; this replica passes bytes as a proxy.
// Invariant: no byte of a body is read before the agent's stream is there. An answer that ends early breaks its
// connection, so that no client takes it for complete.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Part } from '../../../fleet/parted-uploads.ts';
import { VOLUME_FILES_PATH, VOLUME_PACKS_PATH, partIn } from '../../../fleet/volume-files.ts';
import type {
  FilePurpose,
  OpenedFile,
  SignedFileQuery,
  UploadBound,
  VolumeFiles,
} from '../../../fleet/volume-files.ts';
import { levelOf, problemOf, sendProblem } from '../error-map.ts';
import { PACE_RULES } from '../pace.ts';
import type { PaceRules } from '../pace.ts';
import { closeUnread } from '../polite-close.ts';
import { headersOf } from '../streams/common.ts';
import { hasBody, waitsForContinue } from '../streams/head.ts';
import { HttpExchange } from '../streams/http-exchange.ts';
import type { VolumeFileMetrics } from './volume-file-metrics.ts';

export interface VolumeFileParts {
  readonly files: Pick<VolumeFiles, 'verify' | 'open'>;
  readonly metrics: VolumeFileMetrics;
  readonly log: Log;
  readonly pace?: PaceRules;
}

/** Headers that the file server reads. */
const PASSED = [
  'range',
  'if-range',
  'if-match',
  'if-none-match',
  'content-range',
  'content-length',
  'transfer-encoding',
] as const;
/** Time for the file server to answer a request that has come to its end: it writes the file to its disk. */
const ANSWER_WITHIN_MS = 600_000;

/** Registers the routes. `scope`: a plugin of its own, since only its bodies are not read before the handler. */
export function registerVolumeFiles(scope: FastifyInstance, parts: VolumeFileParts): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  scope.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error);
    if (problem.status >= 500)
      parts.log[levelOf(problem)]({ err: error, requestId: request.id }, 'transfer of a file failed');
    closeUnread(request, reply);
    return sendProblem(reply, request.id, problem);
  });
  scope.route({
    method: ['GET', 'HEAD', 'PUT'],
    url: `${VOLUME_FILES_PATH}:volumeId`,
    handler: (request, reply) => {
      const { volumeId } = request.params as { readonly volumeId: string };
      const query = request.query as SignedFileQuery;
      const purpose = purposeOf(request.method, (one) => parts.files.verify(one, volumeId, query));
      if (purpose === undefined) throw refused(request);
      const part = purpose === 'part' ? partIn(query) : undefined;
      const asked = { volumeId, path: query.path ?? '', purpose, ...(part === undefined ? {} : { part }) };
      // The published client forks after this question. Its processes would share the connection, and take each other's
      // answers for their own.
      if (request.method === 'HEAD' && purpose === 'get') void reply.header('connection', 'close');
      transfer(request, reply, asked, parts);
    },
  });
  scope.route({
    method: ['POST', 'PUT'],
    url: `${VOLUME_PACKS_PATH}:volumeId`,
    handler: (request, reply) => {
      const { volumeId } = request.params as { readonly volumeId: string };
      const query = request.query as SignedFileQuery;
      const purpose = request.method === 'PUT' ? 'unpack' : 'pack';
      if (!parts.files.verify(purpose, volumeId, query)) throw refused(request);
      transfer(request, reply, { volumeId, path: query.path ?? '', purpose }, parts);
    },
  });
}

const refused = ({ method }: FastifyRequest): AppError =>
  new AppError(
    method === 'PUT' ? 'upload_refused' : 'download_refused',
    'this address is not valid for that, or has expired: ask for a new one',
  );

/** Direction of the bytes, as metrics count it. */
const directionOf = (purpose: FilePurpose): 'get' | 'put' =>
  purpose === 'put' || purpose === 'part' || purpose === 'unpack' ? 'put' : 'get';

/** HEAD asks by the address: for a file's size, or for how far an upload is. */
function purposeOf(method: string, isValid: (purpose: FilePurpose) => boolean): FilePurpose | undefined {
  const allowed: readonly FilePurpose[] =
    method === 'HEAD' ? ['get', 'put'] : method === 'PUT' ? ['put', 'part'] : ['get'];
  return allowed.find(isValid);
}

interface Asked {
  readonly volumeId: string;
  readonly path: string;
  readonly purpose: FilePurpose;
  readonly part?: Part;
}

function transfer(request: FastifyRequest, reply: FastifyReply, asked: Asked, parts: VolumeFileParts): void {
  const left = new AbortController();
  const { raw } = reply;
  const purpose = directionOf(asked.purpose);
  parts.metrics.active.inc({ purpose });
  raw.once('close', () => {
    parts.metrics.active.dec({ purpose });
    left.abort();
  });
  // A length that is no number counts as none: the file server refuses it.
  const announced =
    purpose === 'put' && request.method !== 'HEAD' ? Number(request.headers['content-length']) || 0 : undefined;
  parts.files
    .open(asked.volumeId, left.signal, announced)
    .then((opened) => {
      if (raw.destroyed) return opened.bytes.destroy();
      return exchange(request, reply, asked, opened, parts);
    })
    .catch((error: unknown) => {
      parts.metrics.ended.inc({ purpose, result: 'failed' });
      if (!raw.destroyed) void reply.send(error);
    });
}

/** Passes the request to the file server, and its answer to the caller. */
function exchange(
  request: FastifyRequest,
  reply: FastifyReply,
  asked: Asked,
  { bytes, done, bound }: OpenedFile,
  { metrics, pace = PACE_RULES }: VolumeFileParts,
): void {
  const { raw } = request;
  let failure = new AppError('volume_failed', 'the machine of the volume broke the transfer off');
  let hasBegun = false;
  let brought = 0;
  const watch = new Watch(pace, () => raw.complete || !hasBody(raw), {
    onSlow: (text) => {
      if (!raw.complete) failure = new AppError('body_too_slow', text);
      passing.cut();
    },
  });
  const passing = new HttpExchange({
    request: raw,
    response: reply.raw,
    bytes,
    // The machine may be the workspace's own, and its answer whatever it likes.
    rootPath: VOLUME_FILES_PATH,
    head: Buffer.from(JSON.stringify(headOf(request, asked, bound)), 'utf8'),
    begin: () => {
      hasBegun = true;
      const added = headersOf(reply);
      reply.hijack();
      return added;
    },
    onBytes: (direction, count) => {
      metrics.bytes.inc({ direction }, count);
      watch.passed(direction, count);
      // The file server refuses single files of a pack that do not fit.
      if (bound === undefined || direction === 'out' || asked.purpose === 'unpack') return;
      brought += count;
      if (brought <= bound.bytes) return;
      failure = bound.exceeded();
      passing.cut();
    },
    onOver: (isWhole) => {
      metrics.ended.inc({
        purpose: directionOf(asked.purpose),
        result: isWhole ? 'whole' : hasBegun ? 'cut' : 'failed',
      });
      watch.end();
      done();
      if (hasBegun || reply.raw.destroyed) return;
      void reply.send(failure);
      raw.resume();
    },
  });
}

/** The head of the request, as the file server reads it. */
function headOf(request: FastifyRequest, { path, purpose, part }: Asked, bound: UploadBound | undefined): object {
  const { raw } = request;
  return {
    type: 'file',
    purpose,
    method: raw.method ?? 'GET',
    path,
    ...part,
    ...(bound === undefined ? {} : { room: bound.bytes }),
    headers: PASSED.flatMap((name) => {
      const value = raw.headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    }),
    requestId: request.id,
    ...(waitsForContinue(raw) ? { expectsContinue: true } : {}),
  };
}

/** Ends a transfer that stands still: an upload by the rule of all uploads, a download that nobody reads. */
class Watch {
  readonly #timer: NodeJS.Timeout;
  #bytes = 0;
  #stillMs = 0;
  #isUpload = false;

  constructor(
    { windowMs, bytesPerWindow }: PaceRules,
    isReceived: () => boolean,
    { onSlow }: { readonly onSlow: (text: string) => void },
  ) {
    this.#timer = setInterval(() => {
      const bytes = this.#bytes;
      this.#bytes = 0;
      const isEnough = isReceived() ? bytes > 0 : bytes >= bytesPerWindow;
      this.#stillMs = isEnough ? 0 : this.#stillMs + windowMs;
      // A file server that has the whole request may take longer to write it.
      if (isEnough || (isReceived() && this.#isUpload && this.#stillMs < ANSWER_WITHIN_MS)) return;
      onSlow(`fewer than ${bytesPerWindow} bytes passed in ${windowMs / 1000} s`);
    }, windowMs);
    this.#timer.unref();
  }

  passed(direction: 'in' | 'out', count: number): void {
    if (direction === 'in') this.#isUpload = true;
    this.#bytes += count;
  }

  end(): void {
    clearInterval(this.#timer);
  }
}

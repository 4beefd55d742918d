// Files of a container as streams of any size: a file, or a directory as a tar.
// Invariant: nothing is held beyond the buffers of the connections. An answer that is not complete is cut.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import { textOf } from '#shared/protocol/frames.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { AnswerOf, RequestType } from '../../../fleet/inside/messages.ts';
import { containerFailed } from '../../../fleet/inside/request.ts';
import type { OpenRequest } from '../../../fleet/inside/request.ts';
import { cutWhenStalled, paced } from '../pace.ts';

/** Time for the container to answer, once it has a request whole. */
const ANSWER_WITHIN_MS = 60_000;
/** Time for it to take bytes: it may write to a slow disk. */
const TAKES_WITHIN_MS = 300_000;
const MOST_TEXT = 2_000;
const FILE_MODE = 0o644;

export interface FileQuery {
  readonly path: string;
  /** A tar of the file or directory, in place of its bytes. */
  readonly isArchive: boolean;
  /** Facts about the path, in place of its bytes. */
  readonly isStat: boolean;
  readonly mode: number;
  readonly isAppend: boolean;
  /** Whether a removal takes a directory with all in it. */
  readonly isRecursive: boolean;
}

/** @throws AppError `invalid_query` naming the parameter */
export function fileQueryOf(query: Readonly<Record<string, unknown>>): FileQuery {
  const { path, archive, stat, mode, append, recursive } = query;
  if (typeof path !== 'string' || path === '' || path.includes('\0') || Buffer.byteLength(path) > 4096)
    throw invalid('path', 'must be a path of a file in the container');
  if (archive !== undefined && archive !== 'tar') throw invalid('archive', 'must be tar, or absent');
  if (mode !== undefined && !(typeof mode === 'string' && /^[0-7]{3,4}$/.test(mode)))
    throw invalid('mode', 'must be permission bits in octal, such as 644');
  return {
    path,
    isArchive: archive === 'tar',
    isStat: flagOf('stat', stat),
    isAppend: flagOf('append', append),
    isRecursive: flagOf('recursive', recursive),
    mode: mode === undefined ? FILE_MODE : Number.parseInt(mode, 8),
  };
}

const invalid = (name: string, rule: string): AppError =>
  new AppError('invalid_query', `query parameter ${name} ${rule}`, { details: { field: name } });

function flagOf(name: string, value: unknown): boolean {
  if (value === undefined || value === 'false') return false;
  if (value === 'true') return true;
  throw invalid(name, 'must be true or false');
}

export interface FileParts {
  readonly inside: Pick<Inside, 'open' | 'ask'>;
  readonly container: ReachedContainer;
  /** The caller has left. */
  readonly left: AbortSignal;
}

/** Sends a file, or a tar. @throws AppError of the container */
export async function sendFile(
  reply: FastifyReply,
  { path, isArchive, isStat }: FileQuery,
  { inside, container, left }: FileParts,
): Promise<void> {
  if (isStat) return void reply.send((await inside.ask(container, 'stat', { path }, { signal: left })).entry);
  const opened = isArchive
    ? await inside.open(container, 'pack', { path }, left)
    : await inside.open(container, 'read', { path, offset: 0, length: -1 }, left);
  left.addEventListener('abort', () => opened.close(), { once: true });
  const answer = await answerWithin<RequestType>(opened);
  if ('size' in answer && 'mode' in answer) {
    void reply.header('x-file-size', String(answer.size)).header('x-file-mode', answer.mode.toString(8));
  }
  void reply.header('content-type', isArchive ? 'application/x-tar' : 'application/octet-stream');
  void reply.header('x-content-type-options', 'nosniff').header('cache-control', 'no-store');
  const { raw } = reply;
  raw.on('drain', () => opened.frames.resume());
  let isWhole = false;
  // A file that cannot be read at all is refused with its reason.
  const first = Promise.withResolvers<void>();
  const begin = (problem: string): boolean => {
    if (raw.headersSent || raw.destroyed) return !raw.destroyed;
    if (problem !== '') first.reject(containerFailed(problem.slice(0, MOST_TEXT)));
    else {
      reply.hijack();
      raw.writeHead(200, reply.getHeaders() as Record<string, string>);
      cutWhenStalled(reply);
      first.resolve();
    }
    return problem === '';
  };
  opened.take({
    onFrame: ({ kind, header, body }) => {
      if (isWhole || !begin(kind === 'end' ? textOf(header, 'error') : '')) return;
      if (kind === 'data' && !raw.write(body)) opened.frames.pause();
      if (kind !== 'end') return;
      isWhole = textOf(header, 'error') === '';
      if (isWhole) raw.end();
      else raw.destroy();
      opened.close();
    },
    onOver: () => {
      if (raw.headersSent && !isWhole) raw.destroy();
      first.reject(containerFailed('the container, or its machine, broke the connection off'));
    },
  });
  await first.promise.finally(() => raw.headersSent || opened.close());
}

/** Writes a file from the body, or unpacks a tar into a directory. @throws AppError of the container */
export async function takeFile(
  request: FastifyRequest,
  reply: FastifyReply,
  { path, isArchive, isAppend, mode }: FileQuery,
  { inside, container, left }: FileParts,
): Promise<object> {
  const opened: OpenRequest<'write' | 'unpack'> = isArchive
    ? await inside.open(container, 'unpack', { path }, left)
    : await inside.open(container, 'write', { path, mode, append: isAppend, parents: true }, left);
  left.addEventListener('abort', () => opened.close(), { once: true });
  try {
    const answer = opened.answer();
    let refused = false;
    answer.catch(() => (refused = true));
    if (request.headers.expect !== undefined) reply.raw.writeContinue();
    // The connection stays behind an early refusal, so that the caller can read it.
    for await (const chunk of paced(request.raw.iterator({ destroyOnReturn: false }))) {
      // A refusal comes before the whole body.
      if (refused) break;
      if (opened.frames.sendPieces('data', chunk)) continue;
      const { promise, resolve } = Promise.withResolvers<void>();
      opened.frames.onceWritable(resolve);
      await withinMs(Promise.race([promise, answer.catch(() => undefined)]), TAKES_WITHIN_MS);
    }
    if (!refused && !request.raw.complete)
      throw new AppError('bad_request', 'the body ended early: nothing was written');
    opened.frames.send('end');
    const size = (await withinMs<object>(answer, ANSWER_WITHIN_MS)) as { readonly size?: number };
    return size.size === undefined ? {} : { size: size.size };
  } finally {
    opened.close();
  }
}

async function answerWithin<T extends RequestType>(opened: OpenRequest<T>): Promise<AnswerOf<T>> {
  try {
    return await withinMs(opened.answer(), ANSWER_WITHIN_MS);
  } catch (error) {
    opened.close();
    throw error;
  }
}

/** @throws AppError `container_failed` */
async function withinMs<T>(awaited: Promise<T>, ms: number): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const late = setTimeout(() => reject(containerFailed('the container did not answer in time')), ms);
  try {
    return await Promise.race([awaited, promise]);
  } finally {
    clearTimeout(late);
  }
}

/**
 * Writes of machines into the managed registry. Must stay true: each byte is taken of the workspace's allowance before
 * the registry gets it, and counts until the registry is known not to have it.
 */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { workspaceOfRepository } from '#shared/domain/built-images.ts';
import { WriteRefused } from './allowance.ts';
import type { Allowance, RegistryWrite } from './allowance.ts';
import { onceThere } from './client.ts';
import type { RegistryClient } from './client.ts';
import type { RegistryMetrics } from './metrics.ts';
import type { Wanted } from './requests.ts';

/** A manifest is a list of layers. */
const MOST_MANIFEST_BYTES = 4 * 1024 * 1024;
const LOCATION = /\/blobs\/uploads\/([A-Za-z0-9_-]{1,128})(?:\?|$)/;

export type Passed = Exclude<Wanted, { kind: 'ping' }>;
/** A request for the registry; absent: method and path are those of the machine's request, and there is no body. */
export interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly body?: Readable;
}
export type Ask = (asked: Asked, until?: AbortSignal) => Promise<Dispatcher.ResponseData>;

type Answer = Dispatcher.ResponseData;

export interface RegistryWritesParts {
  readonly client: Pick<RegistryClient, 'removeUpload'>;
  readonly allowance: Pick<Allowance, 'write'>;
  readonly metrics: RegistryMetrics;
}

export class RegistryWrites {
  readonly #parts: RegistryWritesParts;

  constructor(parts: RegistryWritesParts) {
    this.#parts = parts;
  }

  /**
   * Passes a write on. The answer is waited for also where the engine leaves, because it decides what the registry has.
   * @param gone - the engine has left
   * @throws WriteRefused
   */
  async pass(request: IncomingMessage, wanted: Passed, ask: Ask, gone: AbortSignal): Promise<Answer> {
    const { kind, repository, reference } = wanted;
    const method = request.method ?? '';
    const isUpload = isUploadOf(wanted);
    const digest = isUpload ? digestIn(wanted.path) : null;
    const write = this.#parts.allowance.write(
      workspaceOfRepository(repository) as WorkspaceId,
      isUpload ? reference : undefined,
      digest,
    );
    const length = Number(request.headers['content-length'] ?? 0);
    if (kind === 'manifest' && length > MOST_MANIFEST_BYTES) throw tooLargeManifest();
    await write.claim(length);
    if (!hasBody(request)) return await this.#finish(write, wanted, method, () => onceThere(() => ask({}), gone));
    if (kind === 'manifest') {
      const body = new Body(write.taken(this.#counted(request, MOST_MANIFEST_BYTES)));
      return await this.#finish(write, wanted, method, () => ask({ body: body.whole }), body);
    }
    const patched = await this.#patch(request, write, ask);
    if (method === 'PATCH' || patched.statusCode >= 400) {
      await this.#settle(write, wanted, 'PATCH', patched);
      return patched;
    }
    await patched.body.dump();
    const { pathname, searchParams } = addressIn(patched);
    searchParams.set('digest', digest ?? '');
    const path = `${pathname}?${searchParams.toString()}`;
    return await this.#finish(write, { ...wanted, path }, method, () => onceThere(() => ask({ path }), gone));
  }

  /**
   * Sends the bytes of an upload, of a PUT as well: the registry says the upload's new state behind a PATCH alone, and
   * without that state nobody can delete it. A body that breaks off is ended as if it were whole, for the same reason.
   * @throws WriteRefused; any error of the body
   */
  async #patch(request: IncomingMessage, write: RegistryWrite, ask: Ask): Promise<Answer> {
    const body = new Body(write.taken(this.#counted(request, Infinity)));
    let answer: Answer;
    try {
      answer = await ask({ method: 'PATCH', body: body.asFarAsItCame });
    } catch (error) {
      await write.breakOff();
      throw body.failed?.error ?? error;
    }
    if (body.failed === undefined) return answer;
    await answer.body.dump();
    await (answer.statusCode < 400 ? this.#discard(write, addressIn(answer)) : write.breakOff());
    throw body.failed.error;
  }

  /** Asks for the end of a write, and ends it by the answer. */
  async #finish(
    write: RegistryWrite,
    wanted: Passed,
    method: string,
    ask: () => Promise<Answer>,
    body?: Body,
  ): Promise<Answer> {
    let answer: Answer;
    try {
      answer = await ask();
    } catch (error) {
      await write.breakOff(digestIn(wanted.path));
      throw body?.failed?.error ?? error;
    }
    await this.#settle(write, wanted, method, answer);
    return answer;
  }

  /** Removes an upload, so that its bytes count no more. @param address - with the state of the upload */
  async #discard(write: RegistryWrite, { pathname, search }: URL): Promise<void> {
    const isGone = await this.#parts.client.removeUpload(`${pathname}${search}`).catch(() => false);
    await (isGone ? write.forget() : write.breakOff());
  }

  /** Ends a write by what the registry answered. */
  async #settle(
    write: RegistryWrite,
    { kind, reference, path }: Passed,
    method: string,
    { statusCode, headers }: Answer,
  ): Promise<void> {
    if (method === 'POST') {
      const [, upload] = LOCATION.exec(String(headers['location'])) ?? [];
      if (statusCode >= 400) await write.forget();
      else await write.end(upload === undefined ? undefined : `upload ${upload}`);
    } else if (method === 'DELETE') await (statusCode < 300 ? write.forget() : write.end());
    else if (kind === 'manifest') {
      const digest = String(headers['docker-content-digest'] ?? (reference.includes(':') ? reference : ''));
      if (statusCode >= 400) await write.forget();
      else await write.end(digest === '' ? undefined : `manifest ${digest}`);
    } else if (statusCode < 400) await write.end(digestIn(path) ?? undefined);
    // The bytes have another digest. The registry keeps the upload, whose state has not changed.
    else if (method === 'PUT' && statusCode === 400) await this.#discard(write, new URL(path, 'http://registry'));
    // A PUT that was asked twice may have made a blob at the first time. A 404 may also be about the upload's state.
    else await write.breakOff(statusCode === 404 ? digestIn(path) : null);
  }

  /** The body of a write, counted. The request outlives it, so that it can be answered. */
  async *#counted(request: IncomingMessage, most: number): AsyncGenerator<Buffer> {
    let bytes = 0;
    for await (const part of request.iterator({ destroyOnReturn: false })) {
      const chunk = part as Buffer;
      bytes += chunk.length;
      if (bytes > most) throw tooLargeManifest();
      this.#parts.metrics.bytes.inc({ direction: 'in' }, chunk.length);
      yield chunk;
    }
  }
}

/** A body on its way, and why it broke off. */
class Body {
  readonly #chunks: AsyncIterable<Buffer>;
  failed: { readonly error: unknown } | undefined;

  constructor(chunks: AsyncIterable<Buffer>) {
    this.#chunks = chunks;
  }

  /** Fails where the body breaks off. */
  get whole(): Readable {
    return Readable.from(this.#passed(true), { objectMode: false });
  }

  /** Ends where the body breaks off. */
  get asFarAsItCame(): Readable {
    return Readable.from(this.#passed(false), { objectMode: false });
  }

  async *#passed(mustBeWhole: boolean): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of this.#chunks) yield chunk;
    } catch (error) {
      this.failed = { error };
      if (mustBeWhole) throw error;
    }
  }
}

/** Whether a request is about an upload that was begun. */
export const isUploadOf = ({ kind, reference }: Passed): boolean => kind === 'upload' && reference !== '';

export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;

/** Address of an upload with its state, as the registry said it. */
const addressIn = ({ headers }: Answer): URL => new URL(String(headers['location']), 'http://registry');

/** The digest by which a PUT ends an upload. */
const digestIn = (path: string): string | null => new URLSearchParams(path.split('?', 2)[1]).get('digest');
const tooLargeManifest = (): WriteRefused => new WriteRefused(413, `a manifest may have ${MOST_MANIFEST_BYTES} bytes`);

/**
 * A pull of the engine through the agent's proxy. Must stay true: the engine gets manifests that were read here first
 * and blobs that such a manifest lists, with the bytes that it announces and no more. The engine compares digests.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { finished } from 'node:stream/promises';
import { AppError } from '#shared/errors.ts';
import type { FetchedManifest, RegistryClient } from './client.ts';
import { readManifest } from './manifest.ts';
import type { UsableManifest } from './manifest.ts';
import { refuse } from './refuse.ts';
import { invalid, RegistryError, registryErrorOf } from './registry-error.ts';

/** Manifests of one pull that may be asked for: an index, and the manifests that it lists. */
const MAX_MANIFESTS = 2_000;
const MAX_MANIFESTS_BYTES = 16 * 1024 ** 2;
/** The pull of a blob that comes more slowly ends, because the engine downloads few blobs at once for all its pulls. */
const MIN_BYTES = 64 * 1024;
const MIN_BYTES_EVERY_MS = 60_000;

export interface SessionParts {
  readonly client: Pick<RegistryClient, 'manifest' | 'blob' | 'close'>;
  readonly digest: string;
  readonly first: FetchedManifest;
  /** Bound on the bytes of all layers, as the registry sends them. */
  readonly maxBytes: number;
  /** The error about an image with so many bytes. */
  readonly tooLarge: (bytes: number) => Error;
  /** The image's repository as the engine knows it during the pull. */
  readonly name: string;
  readonly onClose: () => void;
  /** Absent: a minute. */
  readonly minBytesEveryMs?: number;
}

interface Known {
  readonly bytes: Buffer;
  readonly manifest: UsableManifest;
}

export class PullSession {
  readonly #parts: SessionParts;
  readonly #abort = new AbortController();
  /** Manifests that the engine may ask for; undefined: not fetched yet. */
  readonly #manifests = new Map<string, Known | undefined>();
  /** Sizes of the blobs that the engine may ask for. */
  readonly #blobs = new Map<string, number>();
  /** The last error for each digest. A later success removes the entry. */
  readonly #errors = new Map<string, Error>();
  #failure: Error | undefined;
  #wasAsked = false;
  #manifestBytes = 0;

  /** @throws Error when the first manifest cannot be used */
  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#take(parts.digest, parts.first);
  }

  get name(): string {
    return this.#parts.name;
  }

  /** Aborts when the pull cannot succeed any more. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Why the pull cannot succeed, whatever the engine tries. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** The last error that the engine was told of and did not overcome. */
  get lastError(): Error | undefined {
    return this.#failure ?? [...this.#errors.values()].at(-1);
  }

  /** Whether the engine has sent a request. */
  get wasAsked(): boolean {
    return this.#wasAsked;
  }

  close(): void {
    this.#parts.onClose();
    this.#parts.client.close();
    this.#abort.abort();
  }

  /** Answers a request of the engine. */
  async serve(
    kind: 'manifest' | 'blob',
    digest: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    this.#wasAsked = true;
    try {
      if (kind === 'manifest') await this.#manifest(digest, request, response);
      else await this.#blob(digest, request, response);
      this.#errors.delete(digest);
    } catch (error) {
      if (error === ENGINE_LEFT) return;
      const why = registryErrorOf(error, 'the registry');
      this.#errors.delete(digest);
      this.#errors.set(digest, why);
      const status = why instanceof RegistryError ? why.status : 400;
      // The engine tries again after other answers.
      if (why instanceof AppError || status === 400) {
        this.#failure ??= why;
        this.#abort.abort();
      }
      refuse(response, status);
    }
  }

  async #manifest(digest: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.#manifests.has(digest)) return refuse(response, 404);
    const known = this.#manifests.get(digest) ?? this.#take(digest, await this.#parts.client.manifest(digest));
    response.writeHead(200, {
      'content-type': known.manifest.type,
      'content-length': known.bytes.length,
      'docker-content-digest': digest,
    });
    response.end(request.method === 'HEAD' ? undefined : known.bytes);
  }

  /** Reads a manifest, and lets the engine ask for what it lists. */
  #take(digest: string, { bytes, type }: FetchedManifest): Known {
    const { maxBytes, tooLarge } = this.#parts;
    this.#manifestBytes += bytes.length;
    if (this.#manifestBytes > MAX_MANIFESTS_BYTES) throw invalid('its manifests are too large together');
    const read = readManifest(bytes, type);
    if (read.kind === 'problem') throw invalid(read.why);
    if (read.kind === 'index')
      for (const one of read.manifests) {
        if (this.#manifests.size >= MAX_MANIFESTS) throw invalid('it has too many manifests');
        if (!this.#manifests.has(one)) this.#manifests.set(one, undefined);
      }
    else {
      for (const [blob, size] of read.blobs) {
        if ((this.#blobs.get(blob) ?? size) !== size) throw invalid('it gives a layer two sizes');
        this.#blobs.set(blob, size);
      }
      const total = [...this.#blobs.values()].reduce((sum, size) => sum + size, 0);
      if (total > maxBytes) throw tooLarge(total);
    }
    const known = { bytes, manifest: read };
    this.#manifests.set(digest, known);
    return known;
  }

  async #blob(digest: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const size = this.#blobs.get(digest);
    if (size === undefined) return refuse(response, 404);
    const head = { 'content-type': 'application/octet-stream', 'docker-content-digest': digest };
    if (request.method === 'HEAD') return void response.writeHead(200, { ...head, 'content-length': size }).end();
    const from = Number(/^bytes=(\d{1,16})-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    const range = from > 0 && from < size ? `bytes=${from}-` : '';
    const upstream = await this.#parts.client.blob(digest, range);
    const isPart = upstream.statusCode === 206;
    const wanted = isPart ? size - from : size;
    const announced = upstream.headers['content-length'];
    if (announced !== undefined && Number(announced) !== wanted) {
      upstream.destroy();
      throw invalid('a layer has another size than the manifest says');
    }
    response.writeHead(isPart ? 206 : 200, {
      ...head,
      'content-length': wanted,
      ...(isPart ? { 'content-range': `bytes ${from}-${size - 1}/${size}` } : {}),
    });
    await this.#copy(upstream, response, wanted);
  }

  /** @throws ENGINE_LEFT when the engine closed its connection before the end */
  async #copy(upstream: IncomingMessage, response: ServerResponse, wanted: number): Promise<void> {
    if (response.destroyed) {
      upstream.destroy();
      throw ENGINE_LEFT;
    }
    let bytes = 0;
    let since = 0;
    let why: Error | undefined;
    let hasLeft = false;
    const end = (error: Error): void => {
      why ??= error;
      upstream.destroy();
    };
    const slow = setInterval(() => {
      if (since < MIN_BYTES && !response.writableNeedDrain)
        end(new RegistryError('i/o timeout: a layer comes too slowly', 400));
      since = 0;
    }, this.#parts.minBytesEveryMs ?? MIN_BYTES_EVERY_MS);
    upstream.on('data', (part: Buffer) => {
      bytes += part.length;
      since += part.length;
      if (bytes <= wanted) return;
      end(invalid('a layer is larger than the manifest says'));
      response.destroy();
    });
    response.once('close', () => {
      hasLeft = !response.writableFinished;
      upstream.destroy();
    });
    upstream.pipe(response, { end: false });
    try {
      await finished(upstream);
    } catch (error) {
      throw why ?? (hasLeft ? ENGINE_LEFT : error);
    } finally {
      clearInterval(slow);
    }
    if (why !== undefined) throw why;
    if (bytes !== wanted) throw new RegistryError('unexpected EOF');
    response.end();
  }
}

/** The engine ended its request by itself, so that its own words are the cause. */
const ENGINE_LEFT = new Error('the engine has closed its connection');

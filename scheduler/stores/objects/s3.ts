// Objects in a bucket of an S3-compatible store. Uploads go there directly, by a signed address.
// An upload is read once for its checksum, and copied to a key that no signed address reaches.
// Bytes behind a checksum therefore never change. Loaded only where a bucket is configured.
// Invariant: every call has a deadline and few retries. No text contains a credential.
import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import { AppError, StartupError, messageOf } from '#shared/errors.ts';
import type { DirectUploads, Downloads, KeptObject, ObjectBackend, StoredBytes, StoredVersion } from './backend.ts';
import { tooLarge } from './files.ts';

export interface S3Settings {
  readonly bucket: string;
  /** Address of the store; absent: AWS, by the region. */
  readonly endpoint?: string | undefined;
  readonly region: string;
  /** Whether the bucket is in the path instead of the host's name. */
  readonly pathStyle: boolean;
  /** Prefix of every key; `team/` for several installations in one bucket. */
  readonly prefix: string;
  /** Credentials; absent: those of the environment (variables of AWS, a role of the machine). */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string } | undefined;
}

const KEY = /^[A-Za-z0-9_-]{2,128}$/;
const CONNECT_MS = 5_000;
/** Time without a byte after which a request is given up; a body that flows may take longer. */
const SILENT_MS = 120_000;
/** Time for a call with all its tries; a copy of some GiB may take longer. */
const CALL_MS = 60_000;
const COPY_MS = 600_000;
const TRIES = 3;
const MOST_CHANGES = 5;
/** Size limit of a single copy, the same in all S3 stores. */
const MOST_COPIED = 5 * 1024 ** 3;

/** @throws StartupError `object_store_failed` when the bucket cannot be used */
export async function openS3Objects(settings: S3Settings): Promise<ObjectBackend> {
  const { endpoint, region, pathStyle, credentials, bucket } = settings;
  const client = new S3Client({
    region,
    forcePathStyle: pathStyle,
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(credentials === undefined ? {} : { credentials }),
    maxAttempts: TRIES,
    requestHandler: {
      connectionTimeout: CONNECT_MS,
      requestTimeout: SILENT_MS,
      socketTimeout: SILENT_MS,
      throwOnRequestTimeout: true,
    },
    // Other stores than AWS lack checksums of their own, and a signed address must not require one of its user.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  });
  try {
    await client.send(new HeadBucketCommand({ Bucket: bucket }));
  } catch (error) {
    client.destroy();
    throw new StartupError(
      'object_store_failed',
      `cannot use bucket ${bucket} at ${endpoint ?? `AWS, ${region}`} (${reasonOf(error)}): check the settings LONGSHORE_OBJECTS_…, and that the bucket exists`,
      { cause: error },
    );
  }
  return new S3Objects(client, settings);
}

class S3Objects implements ObjectBackend {
  readonly uploads: DirectUploads;
  readonly downloads: Downloads;
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;

  constructor(client: S3Client, { bucket, prefix }: S3Settings) {
    this.#client = client;
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.uploads = {
      sign: (key, lifeS) => {
        const command = new PutObjectCommand({ Bucket: this.#bucket, Key: this.#incoming(key) });
        return this.#signed(command, lifeS);
      },
      take: (key, mostOf) => this.#take(key, mostOf),
      measure: (key) => this.#measure(key),
      versionOf: async (key) => (await this.#look(this.#kept(key)))?.etag,
      drop: (key) => this.#delete(this.#incoming(key)),
      list: () => this.#list(this.#incoming('')),
    };
    this.downloads = {
      kind: 'direct',
      sign: (key, lifeS) => {
        const command = new GetObjectCommand({ Bucket: this.#bucket, Key: this.#kept(key) });
        return this.#signed(command, lifeS);
      },
    };
  }

  async put(key: string, source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<StoredBytes> {
    // Bodies of tasks are bounded, so they fit in memory; archives come by another way.
    const parts: Uint8Array[] = [];
    let size = 0;
    for await (const part of source) {
      size += part.length;
      if (size > maxBytes) throw tooLarge(maxBytes);
      parts.push(part);
    }
    const body = Buffer.concat(parts);
    const command = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: this.#kept(key),
      Body: body,
      ContentLength: body.length,
    });
    await this.#asking('write', CALL_MS, (abortSignal) => this.#client.send(command, { abortSignal }));
    return { size, sha256: createHash('sha256').update(body).digest('hex') };
  }

  async open(key: string): ReturnType<ObjectBackend['open']> {
    return await this.#read(this.#kept(key));
  }

  async exists(key: string): Promise<boolean> {
    return (await this.#look(this.#kept(key))) !== undefined;
  }

  async remove(key: string): Promise<void> {
    await this.#delete(this.#kept(key));
  }

  list(): AsyncIterable<KeptObject> {
    return this.#list(this.#kept(''));
  }

  close(): void {
    this.#client.destroy();
  }

  // ---- uploads ------------------------------------------------------------------------------------------------------

  async #signed(command: PutObjectCommand | GetObjectCommand, lifeS: number): Promise<string> {
    return await this.#asking('sign an address', CALL_MS, () =>
      getSignedUrl(this.#client, command, { expiresIn: lifeS }),
    );
  }

  async #take(key: string, mostOf: (size: number) => Promise<number>): Promise<StoredVersion | undefined> {
    for (let tries = 0; tries < MOST_CHANGES; tries += 1) {
      const from = this.#incoming(key);
      const found = await this.#look(from);
      if (found === undefined) return undefined;
      const most = Math.min(await mostOf(found.size), MOST_COPIED);
      if (found.size > most) {
        await this.#delete(from);
        throw tooLarge(most);
      }
      const read = await this.#read(from, found.etag);
      const stored = read === undefined ? undefined : await this.#digestOf(read.stream);
      const version = stored === undefined ? undefined : await this.#copy(from, this.#kept(key), found.etag);
      // The upload was replaced meanwhile: look again.
      if (stored === undefined || version === undefined) continue;
      await this.#delete(from);
      return { ...stored, version };
    }
    throw new AppError('object_store_failed', 'the upload changes faster than it can be read');
  }

  /** Copies an upload. @returns the copy's version; undefined: the upload was replaced, or is gone */
  async #copy(from: string, to: string, etag: string): Promise<string | undefined> {
    const command = new CopyObjectCommand({
      Bucket: this.#bucket,
      Key: to,
      CopySource: encodeURI(`${this.#bucket}/${from}`),
      CopySourceIfMatch: etag,
    });
    return await this.#asking('copy', COPY_MS, async (abortSignal) => {
      try {
        const copied = await this.#client.send(command, { abortSignal });
        return copied.CopyObjectResult?.ETag ?? '';
      } catch (error) {
        if (statusOf(error) === 412 || statusOf(error) === 404) return undefined;
        throw error;
      }
    });
  }

  async #measure(key: string): Promise<StoredVersion | undefined> {
    const found = await this.#look(this.#kept(key));
    const read = found === undefined ? undefined : await this.#read(this.#kept(key), found.etag);
    if (found === undefined || read === undefined) return undefined;
    return { ...(await this.#digestOf(read.stream)), version: found.etag };
  }

  async #digestOf(stream: Readable): Promise<StoredBytes> {
    try {
      return await digestOf(stream);
    } catch (error) {
      throw new AppError('object_store_failed', `the object store did not send all of an object (${reasonOf(error)})`, {
        cause: error,
      });
    }
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  async #look(key: string): Promise<{ readonly size: number; readonly etag: string } | undefined> {
    const command = new HeadObjectCommand({ Bucket: this.#bucket, Key: key });
    return await this.#asking('look at', CALL_MS, async (abortSignal) => {
      const found = await unlessMissing(this.#client.send(command, { abortSignal }), false);
      return found === undefined ? undefined : { size: found.ContentLength ?? 0, etag: found.ETag ?? '' };
    });
  }

  async #read(key: string, etag?: string): ReturnType<ObjectBackend['open']> {
    const command = new GetObjectCommand({
      Bucket: this.#bucket,
      Key: key,
      ...(etag === undefined ? {} : { IfMatch: etag }),
    });
    // The body streams on after this call, so the connection's own bounds hold.
    return await this.#asking('read', CALL_MS, async () => {
      const found = await unlessMissing(this.#client.send(command), etag !== undefined);
      if (found?.Body === undefined) return undefined;
      // In Node a body is a stream.
      return { size: found.ContentLength ?? 0, stream: found.Body as Readable };
    });
  }

  async #delete(key: string): Promise<void> {
    const command = new DeleteObjectCommand({ Bucket: this.#bucket, Key: key });
    await this.#asking('delete', CALL_MS, (abortSignal) => this.#client.send(command, { abortSignal }));
  }

  async *#list(prefix: string): AsyncGenerator<KeptObject> {
    let token: string | undefined;
    do {
      const command: ListObjectsV2Command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: prefix,
        ...(token === undefined ? {} : { ContinuationToken: token }),
      });
      const page = await this.#asking('list', CALL_MS, (abortSignal) => this.#client.send(command, { abortSignal }));
      for (const { Key: key = '', LastModified: at } of page.Contents ?? []) {
        const name = key.slice(prefix.length);
        if (KEY.test(name)) yield { key: name, writtenAtMs: at?.getTime() ?? Date.now() };
      }
      token = page.NextContinuationToken;
    } while (token !== undefined);
  }

  async #asking<T>(what: string, deadlineMs: number, call: (abortSignal: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await call(AbortSignal.timeout(deadlineMs));
    } catch (error) {
      if (error instanceof AppError) throw error;
      const text = `the object store did not ${what} (${reasonOf(error)})`;
      throw new AppError('object_store_failed', text, { cause: error });
    }
  }

  readonly #kept = (key: string): string => `${this.#prefix}objects/${checked(key)}`;
  readonly #incoming = (key: string): string => `${this.#prefix}incoming/${checked(key)}`;
}

/**
 * The answer, or undefined when the object is missing.
 * @param changedIsMissing - whether an object without the expected version counts as missing
 */
async function unlessMissing<T>(answer: Promise<T>, changedIsMissing: boolean): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    const status = statusOf(error);
    if (status === 404 || (changedIsMissing && status === 412)) return undefined;
    throw error;
  }
}

function checked(key: string): string {
  if (key === '' || KEY.test(key)) return key;
  throw new AppError('object_store_failed', 'an object key has characters it must not have');
}

async function digestOf(stream: Readable): Promise<StoredBytes> {
  const digest = createHash('sha256');
  let size = 0;
  for await (const part of stream) {
    size += (part as Uint8Array).length;
    digest.update(part as Uint8Array);
  }
  return { size, sha256: digest.digest('hex') };
}

function statusOf(error: unknown): number | undefined {
  const meta: unknown = error instanceof Error ? Reflect.get(error, '$metadata') : undefined;
  return (meta as { readonly httpStatusCode?: number } | undefined)?.httpStatusCode;
}

/** The name and status of an S3 store's error; its sentences may contain a key id. */
function reasonOf(error: unknown): string {
  const status = statusOf(error);
  if (status === undefined) return messageOf(error);
  return `${error instanceof Error ? error.name : 'error'}, status ${status}`;
}

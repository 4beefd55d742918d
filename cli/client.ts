// Client for the scheduler's HTTP surfaces. Every call has a deadline; every failure is a sentence for the person.
// Only this file knows the three error shapes: gateway (`ok: false` or an RPC status), REST (`{message, code}`) and
// invoke (`{error}` or `{message}`).
import { readFileSync } from 'node:fs';
import type { Readable } from 'node:stream';
import tls from 'node:tls';
import { request, Agent } from 'undici';
import { FIELDS_HEADER } from '#shared/api/fields.ts';
import { messageOf } from '#shared/errors.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import { BodyFailure, ByteRequests } from './byte-request.ts';
import type { ByteAnswer, ByteRequest, Trust } from './byte-request.ts';
import type { Context } from './context.ts';
import { CliError, TokenKindError, errorCode } from './errors.ts';
import { EXIT } from './exit-codes.ts';
import { taskOf, textField } from './json.ts';
import { linesOf } from './lines.ts';
import type { JsonObject } from './json.ts';
import { startAdvice, thisHost } from './reach.ts';
import type { ThisHost } from './reach.ts';

/** An answer with any status: no status throws. */
export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export interface CallOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly body?: Buffer | string | Readable;
  readonly contentType?: string;
  /** Byte length of a stream body: a stream's length is not known otherwise. */
  readonly contentLength?: number;
  readonly timeoutMs?: number;
  /** Receives the parts of an event stream as they arrive; the answer's body still holds all of them. */
  readonly onEvents?: (part: Uint8Array) => void;
  /** No bearer token: a signed URL carries its own right. */
  readonly anonymous?: boolean;
}

/** Answers are JSON of bounded lists; a larger one is a mistake on the other side. Invocations have their own bound. */
const MAX_ANSWER_BYTES = 256 * 1024 * 1024;
const CALL_TIMEOUT_MS = 30_000;
const ASK_AGAIN_TIMEOUT_MS = 5_000;
/**
 * The gateway's texts for a valid token without the operation's scope; each means
 * that restricted tokens may not call it. Source: interface, gateway 2.3.
 */
const OUT_OF_SCOPE: ReadonlySet<string> = new Set([
  'Unauthorized Access',
  'Unauthorized access',
  'This action is not permitted',
]);

/** The gateway's texts for a thing that does not exist. */
const NOT_FOUND = /\bnot found\b/i;

/** Calls one installation with one token. `close()` ends its connections, so that the program can exit. */
export class Client {
  readonly context: Context;
  readonly #agent: Agent;
  readonly #bytes: ByteRequests;

  /** @throws CliError when the context's CA file cannot be read */
  constructor(context: Context) {
    this.context = context;
    const trust = trustOf(context);
    this.#bytes = new ByteRequests(trust);
    this.#agent = new Agent({
      connect: { timeout: 10_000, ...trust },
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 5_000,
    });
  }

  async close(): Promise<void> {
    this.#bytes.close();
    await this.#agent.destroy();
  }

  /** Calls any path or absolute URL. @throws CliError when no answer arrives in time */
  async call(pathOrUrl: string, options: CallOptions = {}): Promise<RawAnswer> {
    const url = pathOrUrl.startsWith('/') ? `${this.context.url}${pathOrUrl}` : pathOrUrl;
    const timeoutMs = options.timeoutMs ?? CALL_TIMEOUT_MS;
    try {
      const answer = await request(url, {
        method: options.method ?? 'GET',
        dispatcher: this.#agent,
        signal: AbortSignal.timeout(timeoutMs),
        headers: {
          [FIELDS_HEADER]: '1',
          ...(options.anonymous === true ? {} : { authorization: `Bearer ${this.context.token}` }),
          ...(options.body === undefined ? {} : { 'content-type': options.contentType ?? 'application/json' }),
          ...options.headers,
          ...(options.contentLength === undefined ? {} : { 'content-length': String(options.contentLength) }),
        },
        ...(options.body === undefined ? {} : { body: options.body }),
      });
      const headers = plainHeaders(answer.headers);
      const onPart = isEventStream(headers) ? options.onEvents : undefined;
      return { status: answer.statusCode, headers, body: await readBounded(answer.body, onPart) };
    } catch (error) {
      throw unreachable(url, error, timeoutMs, pathOrUrl.startsWith('/') ? this.context.name : undefined);
    }
  }

  /**
   * Sends to a signed address, and gives the answer's head once it is there. The signal ends a transfer of any length;
   * the server ends those that stand still.
   * @throws CliError when the connection fails; the signal's reason; what the request's body throws
   */
  async transfer(url: string, request: ByteRequest, signal: AbortSignal): Promise<ByteAnswer> {
    try {
      return await this.#bytes.send(url, request, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof BodyFailure ? error.cause : unreachable(url, error, CALL_TIMEOUT_MS);
    }
  }

  /**
   * Asks for bytes of any size, or sends them. The server ends transfers that stand still.
   * @throws CliError with the server's own text when it refuses, or when the connection fails
   */
  async open(
    method: 'GET' | 'PUT',
    path: string,
    body?: Readable,
    options: { readonly headers?: Readonly<Record<string, string>>; readonly signal?: AbortSignal } = {},
  ): Promise<{ readonly body: Readable; readonly headers: RawAnswer['headers'] }> {
    const url = `${this.context.url}${path}`;
    try {
      const answer = await request(url, {
        method,
        dispatcher: this.#agent,
        headers: {
          authorization: `Bearer ${this.context.token}`,
          ...(body === undefined ? {} : { 'content-type': 'application/octet-stream' }),
          ...options.headers,
        },
        ...(options.signal === undefined ? {} : { signal: options.signal }),
        ...(body === undefined ? {} : { body }),
      });
      const headers = plainHeaders(answer.headers);
      if (answer.statusCode < 300) {
        if (method === 'PUT') await answer.body.dump();
        return { body: answer.body, headers };
      }
      const raw = { status: answer.statusCode, headers, body: await readBounded(answer.body) };
      throw refusal(raw.status, jsonOf(raw, `${method} ${path.split('?')[0] ?? path}`), this.context.url);
    } catch (error) {
      throw unreachable(url, error, CALL_TIMEOUT_MS, this.context.name);
    }
  }

  /**
   * Calls one gateway operation (path below `/api/v1/gateway`).
   * @throws CliError with the operation's own text when it answered `ok: false` or an RPC status
   */
  async gateway(
    method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
    path: string,
    body?: JsonObject,
    options: { readonly timeoutMs?: number } = {},
  ): Promise<JsonObject> {
    const answer = await this.call(`/api/v1/gateway${path}`, {
      method,
      ...options,
      ...(body === undefined ? {} : { body: stringifyExactly(body) }),
    });
    const value = jsonOf(answer, `${method} ${path}`);
    if (answer.status !== 200) throw refusal(answer.status, value, this.context.url);
    if (value['ok'] === false) {
      const text = textOf(value);
      throw OUT_OF_SCOPE.has(text)
        ? new TokenKindError('workspace', { cause: new CliError(text) })
        : new CliError(text || `the scheduler refused ${method} ${path}`, {
            exitCode: NOT_FOUND.test(text) ? EXIT.notFound : EXIT.failed,
          });
    }
    return value;
  }

  /**
   * Calls a gateway operation that answers with a line of JSON for each message.
   * @returns the last message
   * @throws CliError also when the answer ends without a message
   */
  async gatewayStream(path: string, body: JsonObject, onMessage: (message: JsonObject) => void): Promise<JsonObject> {
    const url = `${this.context.url}/api/v1/gateway${path}`;
    let last: JsonObject | undefined;
    try {
      const answer = await request(url, {
        method: 'POST',
        dispatcher: this.#agent,
        headers: { authorization: `Bearer ${this.context.token}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      if (answer.statusCode !== 200) {
        const raw = { status: answer.statusCode, headers: {}, body: await readBounded(answer.body) };
        throw refusal(raw.status, jsonOf(raw, `POST ${path}`), this.context.url);
      }
      for await (const line of linesOf(answer.body)) {
        const value: unknown = line === '' ? undefined : JSON.parse(line);
        if (!isRecord(value)) continue;
        last = value;
        onMessage(value);
      }
    } catch (error) {
      throw unreachable(url, error, CALL_TIMEOUT_MS, this.context.name);
    }
    if (last === undefined) throw new CliError(`POST ${path} was answered with nothing`);
    return last;
  }

  /** Reads from workspace REST (path below `/api/v1`). */
  rest(path: string, timeoutMs?: number): Promise<JsonObject> {
    return this.restCall('GET', path, undefined, timeoutMs);
  }

  /** A task of this workspace; JSON of its user keeps its characters. */
  async task(id: string): Promise<JsonObject> {
    const path = `/task/${await this.workspaceId()}/${encodeURIComponent(id)}`;
    return await this.restCall('GET', path, undefined, undefined, taskOf);
  }

  /** The input of a task, as it came. */
  async taskInput(id: string): Promise<JsonObject> {
    return await this.rest(`/task/${await this.workspaceId()}/${encodeURIComponent(id)}/input`);
  }

  /** Calls a workspace REST operation. @throws CliError with the status and the operation's own text */
  async restCall(
    method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: JsonObject,
    timeoutMs?: number,
    read: (text: string) => unknown = JSON.parse,
  ): Promise<JsonObject> {
    const answer = await this.call(`/api/v1${path}`, {
      method,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      ...(body === undefined ? {} : { body: stringifyExactly(body) }),
    });
    if (answer.status < 300 && answer.body.length === 0) return {};
    const value = jsonOf(answer, `${method} ${path}`, answer.status < 300 ? read : JSON.parse);
    if (answer.status < 300) return value;
    const refused = refusal(answer.status, value, this.context.url);
    // A limited token is told by the scheduler what it may not.
    const isLimited = textOf(value).startsWith('Unauthorized: ');
    throw answer.status === 401 && !isLimited && (await this.#isTokenGood())
      ? new TokenKindError('workspace', { cause: refused, status: 401 })
      : refused;
  }

  /**
   * This surface answers 401 both to an unknown token and to one without the right.
   * Every valid token may read its own workspace, which tells the two apart.
   */
  async #isTokenGood(): Promise<boolean> {
    const answer = await this.call('/api/v1/workspace/current', { timeoutMs: ASK_AGAIN_TIMEOUT_MS }).catch(
      () => undefined,
    );
    return answer?.status === 200;
  }

  /** The workspace of the token: from the context file, else asked. */
  async workspaceId(): Promise<string> {
    if (this.context.workspaceId !== '') return this.context.workspaceId;
    const workspace = await this.rest('/workspace/current');
    return textField(workspace, 'external_id') || textField(workspace, 'id');
  }
}

/**
 * Trusted certificates: this machine's own, and the context's CA file,
 * which may hold an authority or the server certificate itself.
 */
export function trustOf({ url, caFile }: Context): Trust {
  if (caFile === undefined || !url.startsWith('https:')) return {};
  try {
    return { ca: [...machineAuthorities(), readFileSync(caFile, 'utf8')], allowPartialTrustChain: true };
  } catch (error) {
    throw new CliError(
      `cannot read the CA file ${caFile} (${messageOf(error)}): correct --ca-file or LONGSHORE_CA_BUNDLE`,
      {
        cause: error,
      },
    );
  }
}

/** Authorities that this Node trusts. Before 22.15 only the bundled ones are told. */
function machineAuthorities(): readonly string[] {
  const { getCACertificates } = tls as Partial<Pick<typeof tls, 'getCACertificates'>>;
  return getCACertificates === undefined ? tls.rootCertificates : getCACertificates('default');
}

function refusal(status: number, body: JsonObject, url: string): CliError {
  return new CliError(sentenceOf(status, body, url), {
    status,
    answerCode: textField(body, 'code'),
    answerText: textOf(body),
  });
}

/** The sentence for an answer that is no success, in any of the three error shapes. */
export function sentenceOf(status: number, body: JsonObject, url: string): string {
  const text = textOf(body);
  if (status === 401) {
    return `${url} does not accept the token (${text || 'unauthorized'}): choose another with --token, LONGSHORE_TOKEN, \`longshore context use\` or \`longshore login\``;
  }
  if (status === 404) return `${url} has no such thing${text === '' || text === 'Not Found' ? '' : `: ${text}`}`;
  if (status >= 500)
    return `the scheduler failed (${status}): ${text || 'it said nothing more'}; \`longshore status\` says whether it is ready, and its log has the reason`;
  return text || `the scheduler answered ${status}`;
}

function textOf(body: JsonObject): string {
  for (const name of ['errMsg', 'errorMsg', 'error', 'message']) {
    const text = textField(body, name);
    if (text !== '') return text;
  }
  return '';
}

function jsonOf(answer: RawAnswer, what: string, read: (text: string) => unknown = JSON.parse): JsonObject {
  try {
    const value = read(answer.body.toString('utf8'));
    if (isRecord(value)) return value;
  } catch {
    // The sentence below quotes the text that came instead.
  }
  const start = answer.body.toString('utf8', 0, 80).replaceAll(/\s+/g, ' ');
  throw new CliError(
    `${what} was answered ${answer.status} with something that is not a JSON object: ${start}; is the URL that of a Longshore installation?`,
  );
}

/**
 * @param contextName - name of the context that the URL came from
 * @internal exported for its test
 */
export function unreachable(
  url: string,
  error: unknown,
  timeoutMs: number,
  contextName?: string,
  host: ThisHost = thisHost(),
): CliError {
  if (error instanceof CliError) return error;
  const origin = URL.parse(url)?.origin ?? url;
  const name = error instanceof Error ? error.name : '';
  if (name === 'TimeoutError' || name === 'AbortError') {
    return new CliError(
      `${origin} did not answer within ${Math.round(timeoutMs / 1000)} s: try again; \`longshore status\` says whether it is ready`,
      {
        cause: error,
        exitCode: EXIT.unreachable,
      },
    );
  }
  const code = errorCode(error);
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return new CliError(
      `cannot reach ${origin}: its host name is not known here; correct it in --url, LONGSHORE_URL or \`longshore login URL\``,
      {
        cause: error,
        exitCode: EXIT.unreachable,
      },
    );
  }
  const detail = code === '' ? messageOf(error) : code;
  if (CONNECTION_LOST.has(code)) {
    return new CliError(
      `the connection to ${origin} was lost before it had answered (${detail}): is the scheduler still running? see \`longshore status\`${origin.startsWith('http:') ? '; where it serves HTTPS now, its URL begins with https' : ''}`,
      { cause: error, exitCode: EXIT.unreachable },
    );
  }
  if (NOT_TRUSTED.has(code)) {
    return new CliError(
      `${origin} has a certificate that this machine does not trust (${code}): name the PEM file of what signed it with --ca-file or LONGSHORE_CA_BUNDLE`,
      { cause: error, exitCode: EXIT.unreachable },
    );
  }
  if (code === 'ERR_SSL_WRONG_VERSION_NUMBER' || code === 'ERR_SSL_PACKET_LENGTH_TOO_LONG') {
    return new CliError(`${origin} does not speak HTTPS: its URL begins with http, or its certificate is gone`, {
      cause: error,
      exitCode: EXIT.unreachable,
    });
  }
  if (code === 'CERT_HAS_EXPIRED') {
    return new CliError(`${origin} has a certificate that has expired: its operator renews it`, {
      cause: error,
      exitCode: EXIT.unreachable,
    });
  }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    return new CliError(`${origin} has a certificate for other names: ${messageOf(error)}`, {
      cause: error,
      exitCode: EXIT.unreachable,
    });
  }
  const from = contextName === undefined ? '' : `, context ${contextName}; \`longshore context list\` shows them`;
  return new CliError(`cannot reach ${origin} (${detail}${from}): ${startAdvice(url, host)}`, {
    cause: error,
    exitCode: EXIT.unreachable,
  });
}

const NOT_TRUSTED: ReadonlySet<string> = new Set([
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
]);

/** Error codes of a connection that was established and then lost, as the system and the HTTP client name them. */
const CONNECTION_LOST: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/** A lost connection: the scheduler may have received the call, and may have carried it out. */
export const isConnectionLost = (error: unknown): boolean =>
  error instanceof CliError && CONNECTION_LOST.has(errorCode(error.cause));

export const isEventStream = (headers: RawAnswer['headers']): boolean =>
  headers['content-type']?.startsWith('text/event-stream') === true;

async function readBounded(body: AsyncIterable<Uint8Array>, onPart?: (part: Uint8Array) => void): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of body) {
    size += part.byteLength;
    if (size > MAX_ANSWER_BYTES) throw new CliError(`the answer is larger than ${MAX_ANSWER_BYTES / 1024 ** 2} MiB`);
    parts.push(part);
    onPart?.(part);
  }
  return Buffer.concat(parts, size);
}

function plainHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  const plain: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) plain[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
  }
  return plain;
}

/**
 * Errors between the agent and a registry, in the words that an engine would use, because `classifyPull` reads them.
 * Must stay true: no text of a server is repeated. Pure.
 */
import { AppError } from '#shared/errors.ts';

/** A registry did not give what was asked for. */
export class RegistryError extends Error {
  override readonly name = 'RegistryError';
  /** Status for the engine, which tries again after some of them. */
  readonly status: number;
  constructor(message: string, status = 502, options?: { cause?: unknown }) {
    super(message, options);
    this.status = status;
  }
}

/** The registry's answer is at fault, and another try brings the same. */
export const invalid = (why: string): RegistryError => new RegistryError(`manifest invalid: ${why}`, 400);

/** The error that an answer's status means. */
export function errorOfStatus(status: number, what: 'manifest' | 'blob' | 'token'): RegistryError {
  if (status === 401) return new RegistryError('unauthorized: authentication required', 401);
  if (status === 403) return new RegistryError('denied: requested access to the resource is denied', 403);
  if (status === 404)
    return new RegistryError(
      what === 'blob' ? 'blob unknown: blob unknown' : 'manifest unknown: manifest unknown',
      404,
    );
  if (status === 429) return new RegistryError('toomanyrequests: too many requests', 429);
  return new RegistryError(`received unexpected HTTP status: ${status}`, status >= 500 ? 503 : 400);
}

const WORDS: Readonly<Record<string, string>> = {
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'server misbehaving',
  ECONNREFUSED: 'connection refused',
  EHOSTUNREACH: 'no route to host',
  ENETUNREACH: 'network is unreachable',
  EADDRNOTAVAIL: 'cannot assign requested address',
  ECONNRESET: 'connection reset by peer',
  EPIPE: 'broken pipe',
  ETIMEDOUT: 'i/o timeout',
  ABORT_ERR: 'i/o timeout',
};

/** The registry's error that an error of a connection means. */
export function registryErrorOf(error: unknown, host: string): Error {
  if (error instanceof RegistryError || error instanceof AppError) return error;
  if (!(error instanceof Error)) return new RegistryError('EOF');
  const code = codeOf(error);
  const words = WORDS[code];
  if (words !== undefined) return new RegistryError(`dial tcp: ${host}: ${words}`, 502, { cause: error });
  if (/^(?:ERR_(?:TLS|SSL)_|CERT_|DEPTH_|UNABLE_TO_|SELF_SIGNED|HOSTNAME_MISMATCH|EPROTO)/.test(code))
    return new RegistryError(`x509: the certificate of ${host} is not accepted (${code})`, 502, { cause: error });
  if (code.startsWith('HPE_')) return new RegistryError('error parsing HTTP 502 response body', 502, { cause: error });
  return code === '' && 'code' in error
    ? error
    : new RegistryError(`EOF (${code || error.name})`, 502, { cause: error });
}

/** Several addresses of a name fail together. */
function codeOf(error: Error): string {
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return codeOf(error.errors[0]);
  return 'code' in error && typeof error.code === 'string' ? error.code : '';
}

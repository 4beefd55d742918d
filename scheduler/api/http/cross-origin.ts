// Calls from web pages of other origins (CORS). The operator names the origins; without a name no page may call.
// Applications and pods answer their pages themselves, so their paths are left alone. No answer allows credentials: a
// page sends its token itself, and no cookie means anything here. Source: reference, REST §1; decision 0276.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { StartupError } from '#shared/errors.ts';

/** Paths whose answers are the platform's own. */
const OWN = /^\/(?:(?:api|v1|endpoint|function|taskqueue|schedule)(?:\/|$)|openapi\.json$)/;
const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE';
/** Names of headers, as a preflight lists them. */
const HEADERS = /^[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2048}$/;
/** Seconds for which a browser keeps the answer to a preflight. */
const KEPT_SECONDS = '600';

export class CrossOrigin {
  readonly #origins: ReadonlySet<string>;
  readonly #isAny: boolean;

  /**
   * @param origins - such as `https://dash.example.org`; `*`: any
   * @throws StartupError `bad_config`
   */
  constructor(origins: readonly string[]) {
    for (const origin of origins) {
      if (origin === '*' || isOrigin(origin)) continue;
      throw new StartupError(
        'bad_config',
        `LONGSHORE_HTTP_ORIGINS: ${JSON.stringify(origin)} is no origin such as https://dash.example.org, and not *`,
      );
    }
    this.#origins = new Set(origins);
    this.#isAny = this.#origins.has('*');
  }

  /**
   * Lets the page of a permitted origin read the answer. Called before anything else may answer.
   * @returns whether the request was a preflight, which is answered here
   */
  take({ method, url, headers }: FastifyRequest, reply: FastifyReply): boolean {
    if (this.#origins.size === 0 || !OWN.test(url.split('?', 1)[0] ?? '')) return false;
    if (!this.#isAny) reply.header('vary', 'origin');
    const { origin } = headers;
    if (origin === undefined || !(this.#isAny || this.#origins.has(origin))) return false;
    reply.headers({
      'access-control-allow-origin': this.#isAny ? '*' : origin,
      'access-control-expose-headers': '*',
    });
    if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
    const asked = headers['access-control-request-headers'] ?? '';
    if (HEADERS.test(asked)) reply.header('access-control-allow-headers', asked);
    reply.headers({ 'access-control-allow-methods': METHODS, 'access-control-max-age': KEPT_SECONDS });
    void reply.code(204).send();
    return true;
  }
}

/** Whether a browser would send that text as an origin. */
const isOrigin = (text: string): boolean => /^https?:/.test(text) && URL.parse(text)?.origin === text;

// Where the web console is: the hosts that it answers on, whether a connection to it is sealed, and which pages may
// send requests to it. A page that reaches this address under a name of its own (DNS rebinding) is turned away by the
// name, and a page of another origin by what its browser says of it. Source: decisions 0640, 0641.
import { hostname } from 'node:os';
import { isIP } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { AppError, StartupError } from '#shared/errors.ts';

export interface PlaceSettings {
  /** `LONGSHORE_CONSOLE_URL` */
  readonly consoleUrl: string | null;
  /** `LONGSHORE_EXTERNAL_URL` */
  readonly externalUrl: string | null;
}

export const CONSOLE_BASE = '/console';
const SESSION_COOKIE = 'longshore_console';

/** The part of a request that says where it goes to and where it comes from. */
type Asked = Pick<FastifyRequest, 'host' | 'protocol' | 'headers'>;

export class ConsolePlace {
  /** The console's own address; undefined: it is on every host of the scheduler. */
  readonly #own: URL | undefined;
  readonly #external: URL | undefined;

  /** @throws StartupError `bad_config` */
  constructor({ consoleUrl, externalUrl }: PlaceSettings) {
    this.#own = consoleUrl === null ? undefined : ownAddress(consoleUrl);
    this.#external = externalUrl === null ? undefined : (URL.parse(externalUrl) ?? undefined);
  }

  /** Start of the console's address, for links; undefined: that of the scheduler. */
  get base(): string | undefined {
    return this.#own?.origin;
  }

  /** Whether a host is the console's alone: nothing else is answered there. */
  isItsOwn({ host }: Pick<Asked, 'host'>): boolean {
    return this.#own !== undefined && addressOf(host, this.#own.protocol)?.host === this.#own.host;
  }

  /** @throws AppError `misdirected`: the host is none on which the console answers */
  mustBeHere({ host, protocol }: Asked): void {
    if (this.#own !== undefined) {
      if (this.isItsOwn({ host })) return;
      throw new AppError('misdirected', `the console of this scheduler is at ${this.#own.origin}/console/`);
    }
    const name = addressOf(host, `${protocol}:`)?.hostname.toLowerCase() ?? '';
    if (isAddress(name) || name === 'localhost' || name === hostname().toLowerCase()) return;
    if (name !== '' && name === this.#external?.hostname) return;
    throw new AppError(
      'misdirected',
      'the console does not answer under this name: LONGSHORE_EXTERNAL_URL or LONGSHORE_CONSOLE_URL names the address that people open',
    );
  }

  /** @throws AppError `foreign_page`: the browser says that the page which asks is of another origin */
  mustBeOwnPage(request: Asked): void {
    const { origin, 'sec-fetch-site': site } = request.headers;
    const isForeign =
      (site !== undefined && site !== 'same-origin') ||
      (origin !== undefined && URL.parse(origin)?.origin !== this.#originOf(request));
    if (isForeign) throw new AppError('foreign_page', 'only pages of the console may send this');
  }

  /** Whether the browser came by HTTPS, here or at a proxy that the configured address stands for. */
  isSealed(request: Asked): boolean {
    return this.#originOf(request).startsWith('https:');
  }

  /** Whether what is sent can be read on the way. */
  isClear(request: Asked): boolean {
    const name = addressOf(request.host, 'http:')?.hostname ?? '';
    return !this.isSealed(request) && !/^(?:localhost|127\..*|\[::1\])$/.test(name);
  }

  /** The name of the session's cookie on that connection. */
  cookieName(request: Asked): string {
    return this.isSealed(request) ? `__Host-${SESSION_COOKIE}` : SESSION_COOKIE;
  }

  /** The session's cookie as it is set; undefined: as it is deleted. With HTTPS no other host can set it. */
  cookie(request: Asked, value: string | undefined): string {
    const attributes = this.isSealed(request) ? '; Path=/; Secure' : `; Path=${CONSOLE_BASE}`;
    const gone = value === undefined ? '; Max-Age=0' : '';
    return `${this.cookieName(request)}=${value ?? ''}${attributes}; HttpOnly; SameSite=Strict${gone}`;
  }

  #originOf({ host, protocol }: Asked): string {
    const configured = [this.#own, this.#external].find((url) => url !== undefined && isAt(url, host));
    return configured?.origin ?? addressOf(host, `${protocol}:`)?.origin ?? '';
  }
}

const isAt = (url: URL, host: string): boolean => addressOf(host, url.protocol)?.host === url.host;

const addressOf = (host: string, protocol: string): URL | null =>
  /[/?#@\\]/.test(host) ? null : URL.parse(`${protocol}//${host}`);

/** Whether a name is an address: no page of another name leads there. */
const isAddress = (name: string): boolean => isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;

function ownAddress(text: string): URL {
  const url = URL.parse(text);
  const isOrigin =
    url !== null && /^https?:$/.test(url.protocol) && url.pathname === '/' && url.search === '' && url.hash === '';
  if (isOrigin && url.username === '' && url.password === '') return url;
  throw new StartupError(
    'bad_config',
    `LONGSHORE_CONSOLE_URL: ${JSON.stringify(text)} is no address such as https://console.example.org, without a path`,
    { exitCode: 78 },
  );
}

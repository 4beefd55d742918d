/**
 * Chooses the HTTP proxy for an address by the usual variables. Pure. Must stay true: loopback is never dialled through
 * a proxy; no shown or logged text has the user or the password of a proxy.
 */
import { BlockList, isIP } from 'node:net';
import { StartupError } from '#shared/errors.ts';

/** Variables that name a host's proxies; lower-case spelling wins, as in most programs. */
export const PROXY_SETTINGS = ['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'] as const;
export type ProxySettings = Readonly<Partial<Record<(typeof PROXY_SETTINGS)[number], string | undefined>>>;

export interface Proxy {
  /** The setting that names the proxy. */
  readonly setting: string;
  readonly host: string;
  readonly port: number;
  /** Value of `Proxy-Authorization`. A secret. */
  readonly authorization: string | undefined;
  /** The URL without user and password. */
  readonly shown: string;
}

/** `proxy` is absent for a direct connection; `why` then says why a configured proxy does not count. */
export interface Route {
  readonly proxy?: Proxy;
  readonly why: string;
}

/** Address of the proxy itself as host:port. */
export const addressOf = ({ host, port }: Proxy): string => `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;

/**
 * Chooses HTTPS_PROXY, since the link is TLS; HTTP_PROXY where that is not set, like gRPC's own libraries.
 * @param address - host:port, an IPv6 address in brackets
 * @throws StartupError `bad_config` when the chosen proxy cannot be used; the text omits its value
 */
export function routeTo(address: string, settings: ProxySettings): Route {
  const [setting, value] = (['HTTPS_PROXY', 'HTTP_PROXY'] as const)
    .map((name) => [name, settings[name]] as const)
    .find(([, text]) => text !== undefined && text !== '') ?? ['', undefined];
  if (value === undefined) return { why: 'no proxy is set' };
  const { host, port } = hostAndPort(address);
  if (isLoopback(host)) return { why: 'loopback' };
  const exempt = exemption(host, port, settings.NO_PROXY ?? '');
  if (exempt !== undefined) return { why: `NO_PROXY has ${exempt}` };
  return { why: setting, proxy: parseProxy(setting, value) };
}

/** @throws StartupError `bad_config` */
function parseProxy(setting: string, value: string): Proxy {
  const text = /^[a-z][a-z0-9+.-]*:\/\//i.test(value) ? value : `http://${value}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.hostname === '' || !/^\/?$/.test(url.pathname))
    throw new StartupError('bad_config', `${setting}: must be a URL such as http://proxy.example:3128`, {
      exitCode: 78,
    });
  if (url.protocol !== 'http:')
    throw new StartupError(
      'bad_config',
      `${setting}: a proxy by ${url.protocol.slice(0, -1)} cannot carry the agent's link, only one by http; name one, or have the scheduler's address in NO_PROXY`,
      { exitCode: 78 },
    );
  const credentials = [url.username, url.password].map(plain).join(':');
  return {
    setting,
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: Number(url.port || 80),
    authorization: credentials === ':' ? undefined : `Basic ${Buffer.from(credentials).toString('base64')}`,
    shown: `http://${url.host}`,
  };
}

/** Decodes percent codes; a percent sign that begins none stands for itself. */
function plain(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * The entry of NO_PROXY that covers an address: `*`, a name with everything below it, an address, a range; each may end
 * in a port. Names are compared as written, without lookup.
 */
function exemption(host: string, port: number, noProxy: string): string | undefined {
  const name = host.toLowerCase().replace(/\.$/, '');
  return noProxy.split(/[\s,]+/).find((entry) => entry !== '' && covers(entry.toLowerCase(), name, port));
}

function covers(entry: string, name: string, port: number): boolean {
  if (entry === '*') return true;
  const range = /^\[?([0-9a-f:.]+)\]?\/([0-9]{1,3})$/.exec(entry);
  if (range !== null) return isInRange(name, range[1] ?? '', Number(range[2]));
  if (isIP(entry) !== 0) return sameAddress(name, entry);
  const parts = hostAndPort(entry);
  if (!Number.isNaN(parts.port) && parts.port !== port) return false;
  if (isIP(parts.host) !== 0) return sameAddress(name, parts.host);
  if (isIP(name) !== 0) return false;
  const suffix = parts.host.replace(/^\*?\./, '').replace(/\.$/, '');
  return suffix !== '' && (name === suffix || name.endsWith(`.${suffix}`));
}

function isInRange(address: string, base: string, bits: number): boolean {
  const version = isIP(base);
  if (version === 0 || isIP(address) === 0 || bits > (version === 4 ? 32 : 128)) return false;
  const list = new BlockList();
  list.addSubnet(base, bits, version === 4 ? 'ipv4' : 'ipv6');
  return list.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

/** Compares addresses by value: IPv6 addresses have many spellings. */
const sameAddress = (one: string, other: string): boolean => isInRange(one, other, isIP(other) === 4 ? 32 : 128);

/** Whether a host is loopback. The address of every interface counts: dialled, it leads to this machine too. */
const isLoopback = (host: string): boolean =>
  /^(.+\.)?localhost\.?$/i.test(host) ||
  isInRange(host, '127.0.0.0', 8) ||
  ['::1', '0.0.0.0', '::'].some((here) => sameAddress(host, here));

/** Splits a text; `port` is NaN where there is none. */
function hostAndPort(text: string): { readonly host: string; readonly port: number } {
  const [, inBrackets, name, port] = /^(?:\[([^\]]*)\]|([^:]*))(?::([0-9]+))?$/.exec(text) ?? [];
  return { host: inBrackets ?? name ?? text, port: port === undefined ? Number.NaN : Number(port) };
}

// Names of the platform's own cookies. Applications neither get nor set them.

/** Cookies that hold a caller's token. With HTTPS the prefix keeps other hosts of the domain from setting it. */
export const SEALED_COOKIE = '__Host-longshore_token';
export const PLAIN_COOKIE = 'longshore_token';
/** Cookie of a browser that was told why a page is sandboxed. */
export const TOLD_COOKIE = 'longshore_sandboxed';
/** All of them: with a token, with half of a session of the console, and the one above. */
export const OWN_COOKIES: readonly string[] = [
  SEALED_COOKIE,
  PLAIN_COOKIE,
  '__Host-longshore_console',
  'longshore_console',
  TOLD_COOKIE,
];
const OWN: ReadonlySet<string> = new Set(OWN_COOKIES.map((name) => name.toLowerCase()));
/** Whether a cookie is the platform's: browsers compare prefixes of names without regard to case. */
export const isOwnCookie = (name: string): boolean => OWN.has(name.toLowerCase());

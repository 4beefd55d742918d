// Paths that the router would refuse, although an application may take them. Pure.

/**
 * A URL that can be routed: the router refuses escapes that are no UTF-8, such as `%E9`, which applications may take.
 * @returns the URL, with a path in which such parts are escaped once more
 */
export function routable(url: string): string {
  if (!url.includes('%')) return url;
  const end = url.search(/[#?]/);
  const path = end < 0 ? url : url.slice(0, end);
  if (decoded(path) !== undefined) return url;
  const parts = path.split('/').map((part) => (decoded(part) === undefined ? part.replaceAll('%', '%25') : part));
  return `${parts.join('/')}${end < 0 ? '' : url.slice(end)}`;
}

/** A part of a path without its escapes; undefined: some are no UTF-8, or no escapes. */
export function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

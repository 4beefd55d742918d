// The path form of URLs whose deployments stream: how many of its parts name the deployment. Pure.
// Invariant: a version, `latest` and a port count as they are written alone. An escaped one belongs to the application,
// here and where the version is chosen, so that both read a path alike.
import { versionParam } from './find-target.ts';
import { decoded } from './routable.ts';

/**
 * Counts the parts of a path that name the deployment: `/asgi/name`, `/asgi/name/v3`, `/asgi/id/…`.
 * @param segments - of the path as it was sent, the empty one in front among them
 */
export function namingParts(segments: readonly string[]): number {
  const [, , second = '', third = ''] = segments;
  // The router has read escapes in these words.
  const isNamed = !['id', 'public'].includes(decoded(second) ?? second);
  return isNamed && third !== 'latest' && versionParam({ version: third }) === undefined ? 3 : 4;
}

/** The path behind kind and name, as it was sent. */
export const restOf = (path: string): string => path.split('/').slice(3).join('/');

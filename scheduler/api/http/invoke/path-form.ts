// The path form of URLs whose deployments stream: how many of its parts name the deployment. Pure.
// Invariant: a version, `latest` and a port count as they are written alone. An escaped one belongs to the application,
// here and where the version is chosen, so that both read a path alike.
import { versionParam } from './find-target.ts';
import { decoded } from './routable.ts';

/**
 * Counts the parts of a path that name the deployment: `/asgi/name`, `/asgi/name/v3`, `/asgi/id/…`,
 * `/asgi/public/…` with a stub, or with a workspace and a name.
 * @param segments - of the path as it was sent, the empty one in front among them
 * @param stubId - of the deployment that was found
 */
export function namingParts(segments: readonly string[], stubId: string): number {
  const name = namePart(segments, stubId);
  return name === undefined ? 4 : name + (isVersion(segments[name + 1]) ? 2 : 1);
}

/** Place of the deployment's name in a path; undefined: the path names a stub. */
export function namePart(segments: readonly string[], stubId: string): number | undefined {
  const [, , second = '', third = ''] = segments;
  // The router has read escapes in these words.
  const word = decoded(second) ?? second;
  if (word === 'id') return undefined;
  if (word !== 'public') return 2;
  return (decoded(third) ?? third).toLowerCase() === stubId ? undefined : 4;
}

/** The part of a path that says which version, as it was sent: `latest` or `v3`. */
export const isVersion = (part: string | undefined): boolean =>
  part === 'latest' || versionParam({ version: part ?? '' }) !== undefined;

/** The path behind the route's own parts, as it was sent. @param hasStub - a word and an id stand before it */
export const restOf = (path: string, hasStub: boolean): string =>
  path
    .split('/')
    .slice(hasStub ? 4 : 3)
    .join('/');

// Names of images that the engine pulled through the agent's proxy on loopback. The engine knows such an image by the
// proxy's path during the pull. Docker assigns no name with a digest to an image afterwards, so a tag records the
// pulled digest. Pure.
import { isDigest, repositoryOf } from './image-reference.ts';

/** Repositories of the agent's pull proxy begin so. */
export const PULL_PROXY_PATH = 'longshore-pull/';

const RECORD = /:longshore-sha256-([0-9a-f]{64})$/;

/** Tag that records a pulled digest. */
export const recordTag = (digest: string): string => `longshore-${digest.replace(':', '-')}`;

/** Name by which the engine has an image that was pulled through the agent's proxy. */
export const recordName = (reference: string, digest: string): string =>
  `${repositoryOf(reference)}:${recordTag(digest)}`;

/** The digest that a name records; empty: it records none. */
export function recordedDigest(name: string): string {
  const hex = RECORD.exec(name)?.[1];
  const digest = hex === undefined ? '' : `sha256:${hex}`;
  return isDigest(digest) ? digest : '';
}

/** Whether a reference is one of the agent's pull proxy, on any port. Only the agent itself may use it. */
export const isPullProxyReference = (reference: string): boolean =>
  /^(?:127\.[0-9.]+|localhost|\[::1\]):[0-9]+\//i.test(reference) &&
  reference.slice(reference.indexOf('/') + 1).startsWith(PULL_PROXY_PATH);

/** Whether a tenant may not name an image so: the name is the agent's own. */
export const isAgentsImageName = (reference: string): boolean =>
  isPullProxyReference(reference) || recordedDigest(reference.replace(/@.*$/, '')) !== '';

/** The name with its digest for a name that records one; every other name as it is. */
export function nameWithDigest(name: string): string {
  const digest = recordedDigest(name);
  return digest === '' ? name : `${repositoryOf(name)}@${digest}`;
}

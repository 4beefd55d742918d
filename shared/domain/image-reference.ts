// Image references as Docker reads them: `[registry/]repository[:tag][@digest]`. Pure.

export const DEFAULT_REGISTRY = 'docker.io';

/**
 * The registry in a reference; `docker.io` when there is none. An uppercase first
 * part is a host, because no Docker Hub repository has uppercase letters.
 */
export function registryOf(reference: string): string {
  const slash = reference.indexOf('/');
  const first = slash === -1 ? '' : reference.slice(0, slash);
  const isHost = /[.:]/.test(first) || first === 'localhost' || first !== first.toLowerCase();
  return isHost && first !== 'index.docker.io' ? first : DEFAULT_REGISTRY;
}

/** The repository as its registry names it: without the host, with `library/` where Docker Hub adds it. */
export function pathOf(reference: string): string {
  const repository = repositoryOf(reference);
  const registry = registryOf(reference);
  const slash = repository.indexOf('/');
  const first = slash === -1 ? '' : repository.slice(0, slash);
  const hasHost = first === registry || first === 'index.docker.io';
  const path = hasHost ? repository.slice(slash + 1) : repository;
  return registry === DEFAULT_REGISTRY && !path.includes('/') ? `library/${path}` : path;
}

/** The reference without tag and digest. */
export const repositoryOf = (reference: string): string => reference.replace(/@.*$/, '').replace(/:[^/:]*$/, '');

/** The digest in a reference, `sha256:…`; empty: the reference names a tag. */
export const digestOf = (reference: string): string => /@(.+)$/.exec(reference)?.[1] ?? '';

/** The reference pinned to the digest that was found for it; without a digest, the reference itself. */
export const pinnedTo = (reference: string, digest: string): string =>
  digest === '' || digestOf(reference) !== '' ? reference : `${repositoryOf(reference)}@${digest}`;

/** The reference with the tag that Docker assumes when there is none. */
export const withTag = (reference: string): string =>
  /(@|:[^/]*$)/.test(reference) ? reference : `${reference}:latest`;

/** The tag in a reference, `latest` where there is none; a digest beside it does not count. */
export const tagOf = (reference: string): string => /:([^/:@]+)$/.exec(reference.replace(/@.*$/, ''))?.[1] ?? 'latest';

export const isDigest = (text: string): boolean => /^sha256:[0-9a-f]{64}$/.test(text);

const PART = '[A-Za-z0-9][A-Za-z0-9._-]*';
const REFERENCE = new RegExp(
  `^(?:${PART}|\\[[0-9A-Fa-f:.]{2,45}\\](?=[:/]))(?::[0-9]{1,5}(?=/))?(?:/${PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`,
);
const MOST_REFERENCE = 512;

/**
 * Whether the engine could take a reference for the id of an image, or for the beginning of one. An id finds images of
 * every workspace, and a single digit may be enough for it.
 */
export const isImageId = (reference: string): boolean => /^(?:sha256:)?[0-9a-f]+$/i.test(reference.trim());

/** Why nobody may name an image so, as a text that goes on after a subject; undefined: the reference is good. */
export function imageProblem(reference: string): string | undefined {
  const quoted = JSON.stringify(reference.slice(0, 60));
  if (isImageId(reference))
    return `names the image ${quoted}, which could be the id of one: write its name with a tag, such as name:latest`;
  return reference.length > MOST_REFERENCE || !REFERENCE.test(reference)
    ? `names the image ${quoted}, which is not such as registry.example/team/name:tag`
    : undefined;
}

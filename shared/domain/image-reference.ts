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

export const isDigest = (text: string): boolean => /^sha256:[0-9a-f]{64}$/.test(text);

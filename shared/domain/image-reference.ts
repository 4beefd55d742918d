// Image references as Docker reads them: `[registry/]repository[:tag][@digest]`. Pure.

export const DEFAULT_REGISTRY = 'docker.io';

/** The registry a reference names; `docker.io` when it names none. */
export function registryOf(reference: string): string {
  const slash = reference.indexOf('/');
  const first = slash === -1 ? '' : reference.slice(0, slash);
  return first.includes('.') || first.includes(':') || first === 'localhost' ? first : DEFAULT_REGISTRY;
}

/** Without tag and digest. */
export const repositoryOf = (reference: string): string => reference.replace(/@.*$/, '').replace(/:[^/:]*$/, '');

/** The digest in it, `sha256:…`; empty: it names a tag. */
export const digestOf = (reference: string): string => /@(.+)$/.exec(reference)?.[1] ?? '';

/** The very bytes that the reference meant when the digest was found; the reference itself without one. */
export const pinnedTo = (reference: string, digest: string): string =>
  digest === '' || digestOf(reference) !== '' ? reference : `${repositoryOf(reference)}@${digest}`;

/** With the tag that Docker takes when there is none. */
export const withTag = (reference: string): string =>
  /(@|:[^/]*$)/.test(reference) ? reference : `${reference}:latest`;

export const isDigest = (text: string): boolean => /^sha256:[0-9a-f]{64}$/.test(text);

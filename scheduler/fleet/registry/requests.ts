// Requests for the managed registry: what each wants, and whether a right permits it. Pure.
// Invariant: a path is passed on only in the exact forms here. A layer never comes from another repository.

/** The right that a token gives to one machine. */
export interface RegistryRight {
  readonly action: 'pull' | 'push';
  readonly repository: string;
  /** The digest of a pulled image, the tag of a pushed one. */
  readonly reference: string;
}

export type Wanted =
  | { readonly kind: 'ping' }
  | {
      readonly kind: 'manifest' | 'blob' | 'upload';
      readonly repository: string;
      /** Tag or digest of a manifest, digest of a blob, name of an upload. */
      readonly reference: string;
      readonly isWrite: boolean;
      /** Path and query as the registry gets them. */
      readonly path: string;
    };

const REPOSITORY = '(longshore-built/[a-z0-9][a-z0-9-]{0,63})';
const DIGEST = 'sha256:[0-9a-f]{64}';
const ONE_DIGEST = new RegExp(`^${DIGEST}$`);
const FORMS = [
  { kind: 'manifest', form: new RegExp(`^/v2/${REPOSITORY}/manifests/(${DIGEST}|[0-9a-f]{32})$`) },
  { kind: 'blob', form: new RegExp(`^/v2/${REPOSITORY}/blobs/(${DIGEST})$`) },
  { kind: 'upload', form: new RegExp(`^/v2/${REPOSITORY}/blobs/uploads/([A-Za-z0-9_-]{0,128})$`) },
] as const;
const READS: ReadonlySet<string> = new Set(['GET', 'HEAD']);
const UPLOADS: ReadonlySet<string> = new Set(['POST', 'GET', 'PATCH', 'PUT', 'DELETE']);
/** @returns undefined for a request that no pull and no push makes */
export function readRequest(method: string, url: string): Wanted | undefined {
  const [path = '', query = ''] = url.split('?', 2);
  if (path === '/v2/' || path === '/v2') return READS.has(method) ? { kind: 'ping' } : undefined;
  for (const { kind, form } of FORMS) {
    const [, repository, reference] = form.exec(path) ?? [];
    if (repository === undefined || reference === undefined) continue;
    if (kind === 'upload') {
      const passed = kept(method, query);
      return passed !== undefined && UPLOADS.has(method) && (method === 'POST') === (reference === '')
        ? { kind, repository, reference, isWrite: true, path: `${path}${passed}` }
        : undefined;
    }
    const isWrite = kind === 'manifest' && method === 'PUT';
    return isWrite || READS.has(method) ? { kind, repository, reference, isWrite, path } : undefined;
  }
  return undefined;
}

/**
 * Parameters of uploads that are passed on: the state, and the digest by which a PUT makes a blob of it. `mount` and
 * `from` would take a layer from another repository.
 * @returns undefined: the digest is of a kind by which blobs are not known here
 */
function kept(method: string, query: string): string | undefined {
  const given = new URLSearchParams(query);
  const passed = new URLSearchParams();
  const [state, digest] = [given.get('_state'), method === 'PUT' ? given.get('digest') : null];
  if (state !== null) passed.set('_state', state);
  if (digest !== null) passed.set('digest', digest);
  if (digest !== null && !ONE_DIGEST.test(digest)) return undefined;
  return passed.size === 0 ? '' : `?${passed.toString()}`;
}

/** Whether the right permits the request. */
export function permits(right: RegistryRight, wanted: Exclude<Wanted, { kind: 'ping' }>): boolean {
  const { kind, repository, reference, isWrite } = wanted;
  if (repository !== right.repository) return false;
  if (right.action === 'pull') return !isWrite && (kind === 'blob' || reference === right.reference);
  // A repository with manifests and no tag ends every collection of layers with an error, for all workspaces.
  return kind !== 'manifest' || !isWrite || reference === right.reference;
}

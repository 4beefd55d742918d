// The scheduler's own questions to the registry that holds built images: what is there, and removals.
import { Pool } from 'undici';
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';

const ANSWER_MS = 60_000;
/** Time without a byte after which the registry has failed. It reads a large layer to its end before it answers. */
const SILENCE_MS = 15 * 60_000;
/** A registry that is started anew on a port does not answer meanwhile. */
const AWAY_MS = 30_000;
const AWAY_CODES: ReadonlySet<unknown> = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'UND_ERR_SOCKET']);
const LOOK_MS = 250;
const CONNECTIONS = 64;
const MOST_ANSWER_BYTES = 8 * 1024 * 1024;
const PAGE = 100;
const MOST_REPOSITORIES = 100_000;
const MANIFESTS = [
  'application/vnd.docker.distribution.manifest.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
].join(', ');

/** An image in the registry. */
export interface StoredImage {
  readonly digest: string;
  /** Bytes of each of its blobs, by digest. */
  readonly layers: Readonly<Record<string, number>>;
}

export class RegistryClient {
  /** Connections to the registry, also for requests of machines. */
  readonly pool: Pool;
  /** Credentials of the registry's own; undefined: it asks for none. */
  readonly authorization: string | undefined;

  /** @param address - `unix:///path` or `http(s)://[user:password@]host:port`; the settings have checked its form */
  constructor(address: string) {
    const url = new URL(address);
    const isSocket = url.protocol === 'unix:';
    this.authorization =
      url.username === ''
        ? undefined
        : `Basic ${Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`).toString('base64')}`;
    this.pool = new Pool(isSocket ? 'http://registry' : url.origin, {
      connections: CONNECTIONS,
      headersTimeout: SILENCE_MS,
      bodyTimeout: SILENCE_MS,
      ...(isSocket ? { connect: { socketPath: decodeURIComponent(url.pathname) } } : {}),
    });
  }

  async close(): Promise<void> {
    await this.pool.destroy();
  }

  /**
   * Whether it takes pushes. One that collects its layers answers reads alone; one that says nothing of it takes them.
   * @throws Error: it does not answer
   */
  async takesPushes(repository: string, signal: AbortSignal): Promise<boolean> {
    const answer = await this.pool.request({
      method: 'OPTIONS',
      path: `/v2/${repository}/blobs/uploads/`,
      headers: this.#headers,
      signal,
    });
    await answer.body.dump();
    const allowed = String(answer.headers['allow'] ?? '').split(/,\s*/);
    return answer.statusCode !== 200 || !allowed.includes('GET') || allowed.includes('POST');
  }

  /** An image by its tag or digest; undefined: it is not there. @throws Error: the registry does not answer */
  async image(repository: string, reference: string): Promise<StoredImage | undefined> {
    const answer = await this.#ask('GET', `/v2/${repository}/manifests/${reference}`, { accept: MANIFESTS });
    if (answer === undefined) return undefined;
    const { config, layers } = answer.body;
    const blobs = [config, ...(Array.isArray(layers) ? (layers as readonly unknown[]) : [])].filter(isRecord);
    return {
      digest: answer.digest,
      layers: Object.fromEntries(blobs.map(({ digest, size }) => [String(digest), Number(size) || 0])),
    };
  }

  /** Tags of a repository. @throws Error: the registry does not answer, or not as one */
  async tags(repository: string): Promise<readonly string[]> {
    const { tags } = (await this.#ask('GET', `/v2/${repository}/tags/list`))?.body ?? {};
    return Array.isArray(tags) ? tags.filter((tag) => typeof tag === 'string') : [];
  }

  /** All repositories. @throws Error: the registry does not answer, or not as one */
  async *repositories(): AsyncGenerator<string> {
    let last = '';
    for (let seen = 0; seen < MOST_REPOSITORIES;) {
      const { repositories } =
        (await this.#ask('GET', `/v2/_catalog?n=${PAGE}&last=${encodeURIComponent(last)}`))?.body ?? {};
      const names = Array.isArray(repositories) ? repositories.filter((name) => typeof name === 'string') : [];
      yield* names;
      seen += names.length;
      last = names.at(-1) ?? '';
      if (names.length < PAGE) return;
    }
  }

  /** Whether it has a blob, or a manifest (`manifest sha256:…`). @throws Error: it does not answer, or not as one */
  async has(repository: string, name: string): Promise<boolean> {
    const [kind, digest] = name.startsWith('manifest ') ? ['manifests', name.slice(9)] : ['blobs', name];
    return (await this.#ask('HEAD', `/v2/${repository}/${kind}/${digest}`, { accept: MANIFESTS })) !== undefined;
  }

  get #headers(): Readonly<Record<string, string>> {
    return this.authorization === undefined ? {} : { authorization: this.authorization };
  }

  /** Removes an image with all its tags; its blobs go with the next collection of the registry. */
  async remove(repository: string, digest: string): Promise<void> {
    await this.#ask('DELETE', `/v2/${repository}/manifests/${digest}`);
  }

  /**
   * Removes an upload.
   * @param location - its address with its state, as the registry said last
   * @returns false: the registry has no such upload in that state
   */
  async removeUpload(location: string): Promise<boolean> {
    const { pathname, search } = new URL(location, 'http://registry');
    return (await this.#ask('DELETE', `${pathname}${search}`)) !== undefined;
  }

  /** @returns undefined: there is no such thing */
  async #ask(
    method: 'GET' | 'HEAD' | 'DELETE',
    path: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ readonly digest: string; readonly body: Readonly<Record<string, unknown>> } | undefined> {
    try {
      const answer = await this.pool.request({
        method,
        path,
        headers: { ...headers, ...this.#headers },
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      let text = '';
      for await (const part of answer.body.setEncoding('utf8')) {
        text += String(part);
        if (text.length > MOST_ANSWER_BYTES) throw new Error('its answer is too long');
      }
      if (answer.statusCode === 404) return undefined;
      if (answer.statusCode >= 300) throw new Error(`HTTP ${answer.statusCode}: ${text.slice(0, 300)}`);
      const body: unknown = text === '' ? {} : JSON.parse(text);
      return { digest: String(answer.headers['docker-content-digest'] ?? ''), body: isRecord(body) ? body : {} };
    } catch (error) {
      throw new Error(`the registry of built images failed: ${messageOf(error)}`, { cause: error });
    }
  }
}

/** Asks again while the registry is being started anew. @throws Error: it does not answer in time */
export async function onceThere<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const untilMs = performance.now() + AWAY_MS;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const isAway = AWAY_CODES.has((error as { readonly code?: unknown } | null)?.code);
      if (!isAway || performance.now() >= untilMs || !(await sleep(LOOK_MS, signal))) throw error;
    }
  }
}

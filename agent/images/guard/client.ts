/**
 * Reads one image from its registry, for one pull or question: manifests, layers and tokens. Must stay true:
 * credentials go to the registry and the token server that it names, and to no place that a redirect names; they end
 * with the client.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { digestOf, isDigest, pathOf, registryOf, tagOf } from '#shared/domain/image-reference.ts';
import { isRecord } from '#shared/json.ts';
import type { RegistryAuth } from '../../containers/runtime.ts';
import { challengesIn } from './challenges.ts';
import { MANIFEST_TYPES, MOST_MANIFEST_BYTES } from './manifest.ts';
import { errorOfStatus, invalid, RegistryError } from './registry-error.ts';
import { Requests } from './requests.ts';
import type { Answered, Asked, RequestsParts } from './requests.ts';

const MOST_TOKEN_BYTES = 64 * 1024;

export interface ClientParts extends Omit<RequestsParts, 'registry'> {
  readonly reference: string;
  readonly auth: RegistryAuth | undefined;
}

export interface FetchedManifest {
  readonly bytes: Buffer;
  /** The media type that the registry gave it. */
  readonly type: string;
}

export class RegistryClient {
  readonly #parts: ClientParts;
  readonly #registry: string;
  readonly #requests: Requests;
  #isPlain = false;
  #authorization: string | undefined;

  constructor(parts: ClientParts) {
    this.#parts = parts;
    this.#registry = registryOf(parts.reference);
    this.#requests = new Requests({ ...parts, registry: this.#registry });
  }

  close(): void {
    this.#requests.close();
  }

  /** The digest that the reference means now. @throws RegistryError; AppError for a closed address */
  async digest(): Promise<string> {
    const wanted = this.#wanted;
    try {
      const head = await this.#open(`manifests/${wanted}`, 'HEAD', 'manifest', MANIFEST_TYPES.join(', '));
      head.resume();
      const said = head.headers['docker-content-digest'];
      if (isDigest(wanted)) return wanted;
      if (typeof said === 'string' && isDigest(said)) return said;
    } catch (error) {
      // Some registries know no HEAD.
      if (!(error instanceof RegistryError) || error.status !== 400) throw error;
    }
    return (await this.resolve()).digest;
  }

  /**
   * The manifest of the reference, and its digest.
   * @throws RegistryError; AppError for a closed address
   */
  async resolve(): Promise<FetchedManifest & { readonly digest: string }> {
    const fetched = await this.manifest(this.#wanted);
    return { ...fetched, digest: sha256Of(fetched.bytes) };
  }

  /** @param what - a tag, or a digest, which the bytes are compared with */
  async manifest(what: string): Promise<FetchedManifest> {
    const answer = await this.#open(`manifests/${what}`, 'GET', 'manifest', MANIFEST_TYPES.join(', '));
    const bytes = await this.#requests.read(answer, MOST_MANIFEST_BYTES, 'its manifest is too large');
    if (isDigest(what) && sha256Of(bytes) !== what)
      throw new RegistryError(`digest mismatch: the registry sent another manifest than ${what}`, 400);
    return { bytes, type: (answer.headers['content-type'] ?? '').split(';')[0]?.trim() ?? '' };
  }

  /** @param range - `bytes=N-`, or empty */
  async blob(digest: string, range: string): Promise<IncomingMessage> {
    return await this.#open(`blobs/${digest}`, 'GET', 'blob', '*/*', range);
  }

  /** The digest of the reference, or else its tag. */
  get #wanted(): string {
    return digestOf(this.#parts.reference) || tagOf(this.#parts.reference);
  }

  async #open(
    path: string,
    method: 'GET' | 'HEAD',
    what: 'manifest' | 'blob',
    accept: string,
    range = '',
  ): Promise<IncomingMessage> {
    const headers = { accept, 'accept-encoding': 'identity', ...(range === '' ? {} : { range }) };
    const first = await this.#ask(path, { method, headers });
    // Only the registry may ask for its credentials: another host's question would name its own token server.
    const isAsking = first.answer.statusCode === 401 && first.isOwn;
    const { answer } = isAsking ? await this.#again(first, path, { method, headers }) : first;
    const { statusCode = 0 } = answer;
    if (statusCode === 200 || (statusCode === 206 && range !== '')) return answer;
    answer.destroy();
    throw errorOfStatus(statusCode, what);
  }

  async #ask(path: string, asked: Asked): Promise<Answered> {
    const url = (): URL => {
      const origin = `${this.#isPlain ? 'http' : 'https'}://${this.#registry}`;
      const made = URL.parse(`${origin}/v2/${pathOf(this.#parts.reference)}/${path}`);
      if (made === null) throw new RegistryError('invalid reference format', 400);
      return made;
    };
    const headers = { ...asked.headers, ...this.#authorized };
    try {
      return await this.#requests.send(url(), { ...asked, headers });
    } catch (error) {
      // As the engine does for registries that its settings name.
      if (!this.#parts.isInsecure || this.#isPlain || !(error instanceof RegistryError) || error.cause === undefined)
        throw error;
      this.#isPlain = true;
      return await this.#requests.send(url(), { ...asked, headers });
    }
  }

  get #authorized(): Readonly<Record<string, string>> {
    return this.#authorization === undefined ? {} : { authorization: this.#authorization };
  }

  /** Answers the registry's question for credentials, and asks once more. */
  async #again({ answer, address }: Answered, path: string, asked: Asked): Promise<Answered> {
    const said = String(answer.headers['www-authenticate'] ?? '');
    answer.destroy();
    const challenges = challengesIn(said);
    const bearers = challenges.filter(({ scheme }) => scheme === 'bearer').map(({ params }) => params);
    const bearer = bearers.find((params) => URL.canParse(params.get('realm') ?? ''));
    const basic = this.#basic;
    if (bearer !== undefined) this.#authorization = `Bearer ${await this.#token(bearer, address)}`;
    else if (challenges.some(({ scheme }) => scheme === 'basic') && basic !== undefined) this.#authorization = basic;
    else if (bearers.length > 0) throw invalid('the registry names no token server');
    else throw errorOfStatus(401, 'manifest');
    return await this.#ask(path, asked);
  }

  get #basic(): string | undefined {
    const { auth } = this.#parts;
    if (auth === undefined || auth.username === '') return undefined;
    return `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString('base64')}`;
  }

  /**
   * Asks the token server that the registry names.
   * @param said - parameters of its challenge; the realm is a URL
   * @param ledBy - address of the registry that sent it
   */
  async #token(said: ReadonlyMap<string, string>, ledBy: string): Promise<string> {
    const url = new URL(said.get('realm') ?? '');
    const service = said.get('service') ?? '';
    const fields = {
      scope: `repository:${pathOf(this.#parts.reference)}:pull`,
      ...(service === '' ? {} : { service }),
    };
    const { answer } = await this.#requests.send(url, this.#question(url, fields), {
      who: 'its token server',
      ledBy,
    });
    if (answer.statusCode !== 200) {
      answer.destroy();
      throw errorOfStatus(answer.statusCode === 400 ? 401 : (answer.statusCode ?? 0), 'token');
    }
    const bytes = await this.#requests.read(answer, MOST_TOKEN_BYTES, 'the answer of its token server is too large');
    const token = tokenIn(bytes.toString('utf8'));
    if (token === undefined) throw invalid('its token server gave no token');
    return token;
  }

  /** A question for a token: by an identity token, by name and password, or by nothing. */
  #question(url: URL, fields: Readonly<Record<string, string>>): Asked {
    const { identityToken = '', username = '' } = this.#parts.auth ?? {};
    if (identityToken !== '')
      return {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams({
          ...fields,
          grant_type: 'refresh_token',
          client_id: 'longshore',
          refresh_token: identityToken,
        }).toString(),
      };
    const basic = this.#basic;
    const query = basic === undefined ? fields : { ...fields, account: username };
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return { method: 'GET', headers: basic === undefined ? {} : { authorization: basic } };
  }
}

const sha256Of = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

function tokenIn(text: string): string | undefined {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(read)) return undefined;
  const token = read['token'] ?? read['access_token'];
  return typeof token === 'string' && /^[\x21-\x7e]{1,16384}$/.test(token) ? token : undefined;
}

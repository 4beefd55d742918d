// Calls of OpenAI-compatible servers elsewhere: over kept connections, to addresses that the guard of webhooks has
// checked, without redirects. A name is looked up anew every half a minute, and the key read with it.
// Invariant: no key and no address is in an error that reaches a caller.
import type { LookupAddress } from 'node:dns';
import { Pool, request } from 'undici';
import type { ModelBackend } from '#shared/api/rest/models.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { guardedConnector, permittedAddresses } from '../../../tasks/webhooks/guard.ts';
import type { DialRules } from '../../../tasks/webhooks/open-networks.ts';
import type { Lookups } from '../../../tasks/webhooks/lookups.ts';
import { unlessAborted } from '../../../tasks/webhooks/post.ts';
import type { Secrets } from '../../../workspaces/secrets/service.ts';
import type { BackendAnswer } from '../streams/backend-call.ts';
import { NOT_REACHED } from './failures.ts';

/** Milliseconds for which checked addresses and a key are used. */
const CHECKED_MS = 30_000;
/** Most servers with kept connections; the oldest go. */
const MOST_KEPT = 500;
/** Connections to one server. */
const CONNECTIONS = 256;
/** Longest wait between two parts of an answer's body. */
const PART_MS = 300_000;
const MOST_HEAD_BYTES = 64 * 1024;

interface Kept {
  readonly ready: Promise<{ readonly pool: Pool; readonly key: string | undefined }>;
  readonly untilMs: number;
}

export interface ExternalParts {
  readonly rules: DialRules;
  readonly lookups: Pick<Lookups, 'addressesOf'>;
  readonly secrets: Pick<Secrets, 'valuesOf'>;
  readonly monotonicMs: () => number;
}

/** The server could not be asked. The cause is for the log alone. */
export class ExternalError extends Error {}

/** The secret with the server's key is not there. */
export class KeyMissing extends Error {
  constructor(secret: string) {
    super(`the secret ${secret} of this model is missing: \`longshore secret set ${secret}\` makes it`);
    this.name = 'KeyMissing';
  }
}

export class ExternalServers {
  readonly #parts: ExternalParts;
  readonly #kept = new Map<string, Kept>();

  constructor(parts: ExternalParts) {
    this.#parts = parts;
  }

  /**
   * Calls a server.
   * @param owner - workspace of the model, whose secret has the key
   * @param waitMs - until the head of the answer, at most
   * @throws ExternalError; KeyMissing; the signal's reason
   */
  async call(
    backend: Pick<ModelBackend, 'base_url' | 'secret'>,
    owner: WorkspaceId,
    path: string,
    body: Buffer,
    accept: string,
    signal: AbortSignal,
    waitMs: number,
  ): Promise<BackendAnswer> {
    const { base_url: baseUrl = '', secret = '' } = backend;
    const id = `${owner} ${baseUrl} ${secret}`;
    const kept = this.#keptFor(id, baseUrl, secret, owner);
    try {
      const { pool, key } = await unlessAborted(kept.ready, signal);
      const url = new URL(baseUrl);
      const answer = await request(`${url.origin}${url.pathname.replace(/\/+$/, '')}${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept,
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        },
        body,
        dispatcher: pool,
        signal,
        headersTimeout: waitMs,
        bodyTimeout: PART_MS,
      });
      // The reader sees the error; without a reader nobody does.
      answer.body.on('error', () => undefined);
      return { status: answer.statusCode, headers: answer.headers, body: answer.body };
    } catch (error) {
      signal.throwIfAborted();
      this.#forget(id, kept);
      if (error instanceof KeyMissing) throw error;
      throw new ExternalError(NOT_REACHED, { cause: error });
    }
  }

  #keptFor(id: string, baseUrl: string, secret: string, owner: WorkspaceId): Kept {
    const nowMs = this.#parts.monotonicMs();
    const before = this.#kept.get(id);
    if (before !== undefined && before.untilMs > nowMs) return before;
    if (before !== undefined) this.#forget(id, before);
    const kept: Kept = { ready: this.#open(baseUrl, secret, owner), untilMs: nowMs + CHECKED_MS };
    // The failure reaches those who wait for the connections.
    kept.ready.catch(() => this.#forget(id, kept));
    this.#kept.set(id, kept);
    for (const [oldest, one] of this.#kept) {
      if (this.#kept.size <= MOST_KEPT) break;
      this.#forget(oldest, one);
    }
    return kept;
  }

  async #open(
    baseUrl: string,
    secret: string,
    owner: WorkspaceId,
  ): Promise<{ readonly pool: Pool; readonly key: string | undefined }> {
    const { rules, lookups, secrets } = this.#parts;
    const find = (host: string): Promise<readonly LookupAddress[]> => lookups.addressesOf(host, owner);
    const permitted = await permittedAddresses(baseUrl, rules, find);
    let key: string | undefined;
    if (secret !== '') {
      const found = await secrets.valuesOf(owner, [secret]);
      if (found.kind !== 'values') throw new KeyMissing(secret);
      key = found.values[secret];
    }
    const pool = new Pool(new URL(baseUrl).origin, {
      connect: guardedConnector(permitted, rules),
      connections: CONNECTIONS,
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: MOST_HEAD_BYTES,
    });
    return { pool, key };
  }

  /** Uses the connections no more; requests on them end first. */
  #forget(id: string, kept: Kept): void {
    if (this.#kept.get(id) === kept) this.#kept.delete(id);
    kept.ready
      .then(
        ({ pool }) => pool.close(),
        () => undefined,
      )
      .catch(() => undefined);
  }

  async close(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.allSettled(all.map(async ({ ready }) => (await ready).pool.destroy()));
  }
}

// The callers behind bearer tokens. Owns the tokens (signed texts whose
// sha256 is a row) and the cache in front of them; called by every surface.
// Invariant: a signature alone is never enough. A token switched off stops working
// everywhere at once. A token seen before costs one hash and one map look-up.
import { createHash, hash } from 'node:crypto';
import { newId } from '#shared/domain/ids.ts';
import type { ContainerId, DeploymentId, StubId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { systemClock } from '#shared/clock.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { insertToken, spendToken, tokenByHash } from '../../stores/store/queries/tokens.ts';
import type { TokenChoice, TokenRow, TokenType } from '../../stores/store/queries/tokens.ts';
import type { Caller } from './caller.ts';
import type { Invalidation } from './invalidation.ts';
import { signClaims, signerOf, verifiedClaims } from './jwt.ts';
import type { SigningKeys } from './jwt.ts';
import { TokenCache } from './token-cache.ts';
import type { Known } from './token-cache.ts';

export interface TokenOwner {
  readonly workspaceId: WorkspaceId;
}

export interface IssuedToken {
  /** The token in clear; this once. */
  readonly token: string;
  readonly row: TokenRow;
}

export interface ContainerTokenFor {
  readonly containerId: ContainerId;
  /** Epoch of the container's placement: the token of an earlier placement is invalid in a later one. */
  readonly epoch: number;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly workspaceId: WorkspaceId;
  /** Time of its placement. */
  readonly sinceMs: number;
}

export interface Tokens {
  issue(owner: TokenOwner, type: TokenType, options?: { readonly reusable?: boolean }): Promise<IssuedToken>;
  /**
   * The caller; null when the token is invalid. A known token is answered
   * synchronously (no promise). This call uses a one-use token up.
   */
  authenticate(bearer: string): Caller | null | Promise<Caller | null>;
  /** The caller that `authenticate` would find. This call uses nothing up. */
  look(bearer: string): Caller | null | Promise<Caller | null>;
  /** The caller from the cache alone; undefined: not in the cache. */
  peek(bearer: string): Known;
  /** Announces a committed change of a token; resolves when every replica knows. */
  changed(row: Pick<TokenRow, 'hash'>): Promise<void>;
  /**
   * Issues a signed token without a row: it is valid for as long as `isContainerLive`
   * says so. The same placement gets the same token at every replica.
   */
  issueContainerToken(container: ContainerTokenFor): Promise<string>;
  /**
   * The container whose credential that text is by its signature, valid or not; null: no container's. Uses nothing up.
   */
  containerNamedBy(bearer: string): Promise<NonNullable<Caller['container']> | null>;
  /** Forgets a token; called by the invalidation message. */
  invalidate(hashHex: string): void;
  invalidateAll(): void;
}

export interface TokensOptions {
  readonly db: Queryable;
  readonly installation: SigningKeys;
  /** Invalidation; absent in tools without Redis: only this process then sees changes. */
  readonly invalidation?: Invalidation;
  /**
   * Whether the token of that placement is still valid. Called at every
   * use, so it answers from memory where it can. Absent: none is valid.
   */
  readonly isContainerLive?: (id: ContainerId, epoch: number) => boolean | Promise<boolean>;
  /** Whether the workspace is being deleted: none of its tokens is valid. Absent: none is. */
  readonly isClosed?: (id: WorkspaceId) => boolean;
  /** Told of each use of a token that has a row. Called within calls, so it returns at once. */
  readonly onUsed?: (tokenId: TokenId) => void;
  readonly clock?: Clock;
}

interface Found {
  readonly caller: Caller | null;
  readonly reusable: boolean;
}
const NOTHING: Found = { caller: null, reusable: true };

const MASK_PREFIX = 'eyJ';

export const tokenHash = (bearer: string): string => hash('sha256', bearer, 'hex');

/** A token as ListTokens and ToggleToken show it. */
export const maskedToken = (row: Pick<TokenRow, 'hint'>): string => `${MASK_PREFIX}…${row.hint}`;

/** Makes a token and its row; inside a transaction when `db` is one. */
export async function issueToken(
  db: Queryable,
  keys: SigningKeys,
  owner: TokenOwner,
  type: TokenType,
  options: Partial<TokenChoice> & { readonly reusable?: boolean; readonly nowMs: number },
): Promise<IssuedToken> {
  const { nowMs, reusable = true, ...chosen } = options;
  const id = newId<TokenId>();
  // The id of the signing key at this moment: the row names the same key.
  const keyId = signerOf(keys).id;
  const token = await signClaims(keys, { ws: owner.workspaceId, typ: type }, { id, nowMs });
  const row = await insertToken(db, {
    ...chosen,
    id,
    workspaceId: owner.workspaceId,
    hash: createHash('sha256').update(token).digest(),
    hint: token.slice(-4),
    type,
    reusable,
    keyId,
  });
  return { token, row };
}

export function createTokens(options: TokensOptions): Tokens {
  return new CachedTokens(options);
}

class CachedTokens implements Tokens {
  readonly #options: TokensOptions;
  readonly #clock: Clock;
  readonly #cache = new TokenCache();
  /** Look-ups under way: a burst of calls with one new token asks once. */
  readonly #asking = new Map<string, Promise<Found>>();

  constructor(options: TokensOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    options.invalidation?.on('token', (id) => this.invalidate(id));
    options.invalidation?.on('signing_key', () => this.invalidateAll());
    options.invalidation?.onReset(() => this.invalidateAll());
  }

  issue(owner: TokenOwner, type: TokenType, options: { readonly reusable?: boolean } = {}): Promise<IssuedToken> {
    const { db, installation } = this.#options;
    return issueToken(db, installation, owner, type, { ...options, nowMs: this.#clock.nowMs() });
  }

  peek(bearer: string): Known {
    return this.#known(tokenHash(bearer));
  }

  authenticate(bearer: string): Caller | null | Promise<Caller | null> {
    const key = tokenHash(bearer);
    const known = this.#known(key);
    if (known === null) return null;
    if (known === undefined) return this.#askAndSpend(key, bearer);
    return known.container === undefined ? this.#used(known) : this.#whileContainerLives(known, known.container);
  }

  look(bearer: string): Caller | null | Promise<Caller | null> {
    const key = tokenHash(bearer);
    const known = this.#known(key);
    if (known === null) return null;
    if (known === undefined) return this.#askOnce(key, bearer).then((found) => this.#whileLive(found));
    return known.container === undefined ? known : this.#whileContainerLives(known, known.container);
  }

  async changed(row: Pick<TokenRow, 'hash'>): Promise<void> {
    const hashHex = Buffer.from(row.hash).toString('hex');
    this.invalidate(hashHex);
    await this.#options.invalidation?.publish('token', hashHex);
  }

  issueContainerToken(container: ContainerTokenFor): Promise<string> {
    return signClaims(
      this.#options.installation,
      {
        typ: 'container',
        ws: container.workspaceId,
        stub: container.stubId,
        dep: container.deploymentId,
        epoch: container.epoch,
      },
      // No randomness and no present time in the claims: Ed25519 then signs the same text each time.
      {
        id: `${container.containerId}.${container.epoch}`,
        subject: container.containerId,
        nowMs: container.sinceMs,
      },
    );
  }

  async containerNamedBy(bearer: string): Promise<NonNullable<Caller['container']> | null> {
    const claims = await verifiedClaims(this.#options.installation, bearer, this.#clock.nowMs());
    return claims?.['typ'] === 'container' ? (containerCaller(claims)?.container ?? null) : null;
  }

  invalidate(hashHex: string): void {
    this.#cache.invalidate(hashHex);
    this.#asking.delete(hashHex);
  }

  invalidateAll(): void {
    this.#cache.clear();
    this.#asking.clear();
  }

  #known(key: string): Known {
    const messagesArrive = this.#options.invalidation?.isLive ?? true;
    const known = this.#cache.get(key, this.#clock.monotonicMs(), messagesArrive);
    if (known !== undefined && known !== null && this.#isClosed(known)) return null;
    return known?.expiresAtMs === undefined || this.#clock.nowMs() < known.expiresAtMs ? known : null;
  }

  #isClosed({ workspaceId }: Caller): boolean {
    return this.#options.isClosed?.(workspaceId) ?? false;
  }

  #used(caller: Caller): Caller {
    this.#options.onUsed?.(caller.tokenId);
    return caller;
  }

  #askOnce(key: string, bearer: string): Promise<Found> {
    let asking = this.#asking.get(key);
    if (asking === undefined) {
      const mine = this.#ask(key, bearer).finally(() => {
        if (this.#asking.get(key) === mine) this.#asking.delete(key);
      });
      asking = mine;
      this.#asking.set(key, mine);
    }
    return asking;
  }

  #whileLive({ caller }: Found): Caller | null | Promise<Caller | null> {
    return caller?.container === undefined ? caller : this.#whileContainerLives(caller, caller.container);
  }

  async #askAndSpend(key: string, bearer: string): Promise<Caller | null> {
    const found = await this.#askOnce(key, bearer);
    if (found.caller === null || found.reusable) {
      return found.caller === null || found.caller.container !== undefined
        ? this.#whileLive(found)
        : this.#used(found.caller);
    }
    // The first caller uses the token up, also among callers that shared the look-up; no cache ever holds it.
    const isFirst = await spendToken(this.#options.db, Buffer.from(key, 'hex'));
    return isFirst ? this.#used(found.caller) : null;
  }

  async #ask(key: string, bearer: string): Promise<Found> {
    const { generation } = this.#cache;
    // The signature is checked first, so that invented tokens never reach the database.
    const claims = await verifiedClaims(this.#options.installation, bearer, this.#clock.nowMs());
    const found =
      claims === null
        ? NOTHING
        : claims['typ'] === 'container'
          ? { caller: containerCaller(claims), reusable: true }
          : await this.#readRow(key);
    if (found.reusable) this.#cache.put(key, found.caller, this.#clock.monotonicMs(), generation);
    return found;
  }

  async #readRow(key: string): Promise<Found> {
    const row = await tokenByHash(this.#options.db, Buffer.from(key, 'hex'));
    const caller = row === undefined ? null : callerOfToken(row, this.#clock.nowMs());
    return row === undefined || caller === null ? NOTHING : { caller, reusable: row.reusable };
  }

  #whileContainerLives(
    caller: Caller,
    { containerId, epoch }: NonNullable<Caller['container']>,
  ): Caller | null | Promise<Caller | null> {
    if (this.#isClosed(caller)) return null;
    const live = this.#options.isContainerLive?.(containerId, epoch) ?? false;
    if (typeof live === 'boolean') return live ? caller : null;
    return live.then((isLive) => (isLive ? caller : null));
  }
}

/** The caller behind a row; null: the token is switched off or has expired. */
export function callerOfToken(row: TokenRow, nowMs: number): Caller | null {
  const { name, expiresAtMs, scopes, appId } = row;
  if (!row.active || (expiresAtMs !== null && nowMs >= expiresAtMs)) return null;
  const isConfined = scopes.length > 0 || appId !== null;
  return {
    workspaceId: row.workspaceId,
    workspaceDbId: row.workspaceNumber,
    tokenId: row.id,
    type: row.type,
    isAdmin: row.type === 'admin',
    ...(name === '' ? {} : { name }),
    ...(expiresAtMs === null ? {} : { expiresAtMs }),
    ...(row.reusable ? {} : { isLast: true }),
    ...(isConfined ? { confined: { scopes, ...(appId === null ? {} : { appId }) } } : {}),
  };
}

function containerCaller(claims: Readonly<Record<string, unknown>>): Caller | null {
  const { jti, sub, ws, stub, dep, epoch } = claims;
  if (typeof jti !== 'string' || typeof sub !== 'string' || typeof ws !== 'string') return null;
  if (typeof stub !== 'string' || typeof epoch !== 'number') return null;
  return {
    workspaceId: ws as WorkspaceId,
    // Records of tokens show this number, and a container's token has no record.
    workspaceDbId: 0,
    tokenId: jti as TokenId,
    type: 'container',
    isAdmin: false,
    container: {
      containerId: sub as ContainerId,
      epoch,
      stubId: stub as StubId,
      deploymentId: typeof dep === 'string' ? (dep as DeploymentId) : null,
    },
  };
}

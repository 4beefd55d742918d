// Changes to a workspace's tokens: made, named, limited, switched and deleted. Every change is committed with its event
// in the audit trail, and is in effect on every replica when its caller is answered.
import { isUuid } from '#shared/domain/ids.ts';
import type { AppId, WorkspaceId } from '#shared/domain/ids.ts';
import { TOKEN_SCOPES, isTokenScope } from '#shared/domain/token-scopes.ts';
import type { TokenScope } from '#shared/domain/token-scopes.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import { appById } from '../../stores/store/queries/apps.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import {
  countTokens,
  deleteToken,
  listTokens,
  toggleToken,
  tokenForUpdate,
  updateToken,
} from '../../stores/store/queries/tokens.ts';
import type { TokenChoice, TokenRow, TokenType } from '../../stores/store/queries/tokens.ts';
import { auditEvent } from '../events/audit.ts';
import type { Actor, AuditKind } from '../events/audit.ts';
import type { EventWriter } from '../events/writer.ts';
import type { SigningKeys } from './jwt.ts';
import { issueToken } from './tokens.ts';
import type { IssuedToken, TokenOwner, Tokens } from './tokens.ts';

/** Most tokens of a list. */
const MAX_LISTED = 1_000;
export const MAX_TOKEN_NAME = 100;
/** Ten years. */
const MOST_LIFE_MS = 3_653 * 86_400_000;
/** Types that may be limited to scopes or an app: the others' holders administer. */
const LIMITABLE: ReadonlySet<TokenType> = new Set(['workspace', 'workspace_restricted']);

/** Choices of people, as they send them; absent: unchanged, or the default. */
export interface TokenWish {
  readonly name?: string;
  readonly expiresAtMs?: number | null;
  readonly scopes?: readonly string[];
  readonly appId?: string | null;
  readonly active?: boolean;
}

export interface TokenAdminParts {
  readonly db: Db;
  readonly keys: SigningKeys;
  readonly tokens: Pick<Tokens, 'changed'>;
  readonly events: EventWriter;
  readonly clock: Pick<Clock, 'nowMs'>;
  /** Number of tokens that a workspace may have. */
  readonly mostOf: (workspaceId: WorkspaceId) => Promise<number>;
}

export class TokenAdmin {
  readonly #parts: TokenAdminParts;

  constructor(parts: TokenAdminParts) {
    this.#parts = parts;
  }

  list(owner: TokenOwner, limit: number = MAX_LISTED): Promise<TokenRow[]> {
    return listTokens(this.#parts.db, owner.workspaceId, Math.min(limit, MAX_LISTED));
  }

  /** @throws AppError `invalid_body`, `too_many_tokens` */
  async create(
    owner: TokenOwner,
    type: TokenType,
    options: TokenWish & { readonly reusable?: boolean },
    by: Actor,
  ): Promise<IssuedToken> {
    const { db, keys, events, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const chosen = choose(type, { name: '', expiresAtMs: null, scopes: [], appId: null }, options, nowMs);
    const most = await this.#parts.mostOf(owner.workspaceId);
    return events.transaction(db, async (tx, emit) => {
      await lockCounts(tx, owner.workspaceId);
      if ((await countTokens(tx, owner.workspaceId)) >= most) {
        throw new AppError('too_many_tokens', `a workspace may have ${most} tokens: delete those that nobody uses`);
      }
      await mustHaveApp(tx, owner.workspaceId, chosen.appId);
      const made = await issueToken(tx, keys, owner, type, {
        ...chosen,
        ...(options.reusable === undefined ? {} : { reusable: options.reusable }),
        nowMs,
      });
      emit(this.#told('audit.token.created', made.row, by));
      return made;
    });
  }

  /**
   * Changes what was given. @returns undefined: no such token in the workspace
   * @throws AppError `invalid_body`
   */
  async change(owner: TokenOwner, id: string, wish: TokenWish, by: Actor): Promise<TokenRow | undefined> {
    const { db, events, clock } = this.#parts;
    if (!isUuid(id)) return undefined;
    return this.#changed(
      await events.transaction(db, async (tx, emit) => {
        const row = await tokenForUpdate(tx, owner.workspaceId, id.toLowerCase());
        if (row === undefined) return undefined;
        const chosen = choose(row.type, row, wish, clock.nowMs());
        if (wish.appId !== undefined) await mustHaveApp(tx, owner.workspaceId, chosen.appId);
        const changed = await updateToken(tx, row.id, { ...chosen, active: wish.active ?? row.active });
        if (changed !== undefined) emit(this.#told('audit.token.updated', changed, by));
        return changed;
      }),
    );
  }

  /** Flips `active`, everywhere at once; undefined: no such token in the workspace. */
  async toggle(owner: TokenOwner, id: string, by: Actor): Promise<TokenRow | undefined> {
    return this.#changed(await this.#write(owner, id, toggleToken, 'audit.token.toggled', by));
  }

  /** Removes a token, everywhere at once; false: no such token in the workspace. */
  async remove(owner: TokenOwner, id: string, by: Actor): Promise<boolean> {
    return (await this.#changed(await this.#write(owner, id, deleteToken, 'audit.token.deleted', by))) !== undefined;
  }

  async #write(
    owner: TokenOwner,
    id: string,
    write: (db: Queryable, workspaceId: WorkspaceId, id: string) => Promise<TokenRow | undefined>,
    kind: AuditKind,
    by: Actor,
  ): Promise<TokenRow | undefined> {
    if (!isUuid(id)) return undefined;
    return this.#parts.events.transaction(this.#parts.db, async (tx, emit) => {
      const row = await write(tx, owner.workspaceId, id.toLowerCase());
      if (row !== undefined) emit(this.#told(kind, row, by));
      return row;
    });
  }

  /** Has every replica forget the token, once the change is committed. */
  async #changed(row: TokenRow | undefined): Promise<TokenRow | undefined> {
    if (row !== undefined) await this.#parts.tokens.changed(row);
    return row;
  }

  #told(kind: AuditKind, row: TokenRow, by: Actor) {
    const { workspaceId, id, name, type, active, scopes, appId, expiresAtMs } = row;
    return auditEvent(
      by,
      kind,
      {
        workspaceId,
        ...(appId === null ? {} : { appId }),
        target: { type: 'token', id, name },
        attrs: {
          token_type: type,
          active,
          scopes: scopes.join(','),
          app_id: appId,
          expires_at: expiresAtMs === null ? null : new Date(expiresAtMs).toISOString(),
        },
      },
      this.#parts.clock.nowMs(),
    );
  }
}

/** Applies wishes to what a token has. @throws AppError `invalid_body`, with the field's name */
function choose(type: TokenType, has: TokenChoice, wish: TokenWish, nowMs: number): TokenChoice {
  const name = wish.name ?? has.name;
  if (name.length > MAX_TOKEN_NAME || /\p{Cc}/u.test(name) || name !== name.trim()) {
    throw invalid(
      `name must have at most ${MAX_TOKEN_NAME} characters, without control characters and spaces around it`,
    );
  }
  const expiresAtMs = wish.expiresAtMs === undefined ? has.expiresAtMs : wish.expiresAtMs;
  if (wish.expiresAtMs !== undefined && wish.expiresAtMs !== null) {
    if (wish.expiresAtMs <= nowMs) throw invalid('expires_at must be in the future');
    if (wish.expiresAtMs > nowMs + MOST_LIFE_MS) throw invalid('expires_at must be within ten years; null: never');
  }
  const scopes = wish.scopes === undefined ? has.scopes : readWished(wish.scopes);
  const appId = wish.appId === undefined ? has.appId : (wish.appId?.toLowerCase() ?? null);
  if (!LIMITABLE.has(type) && (scopes.length > 0 || appId !== null)) {
    throw invalid(`${scopes.length > 0 ? 'scopes' : 'app_id'}: a token of type ${type} cannot be limited`);
  }
  return { name, expiresAtMs, scopes, appId: appId as AppId | null };
}

function readWished(scopes: readonly string[]): readonly TokenScope[] {
  const unknown = scopes.find((scope) => !isTokenScope(scope));
  if (unknown !== undefined) {
    throw invalid(`scopes must be among ${TOKEN_SCOPES.join(', ')}, not ${JSON.stringify(unknown.slice(0, 40))}`);
  }
  return TOKEN_SCOPES.filter((scope) => scopes.includes(scope));
}

async function mustHaveApp(db: Queryable, workspaceId: WorkspaceId, appId: AppId | null): Promise<void> {
  if (appId === null) return;
  const app = isUuid(appId) ? await appById(db, workspaceId, appId) : undefined;
  if (app === undefined) throw invalid('app_id is not an app of this workspace');
}

const invalid = (text: string): AppError => new AppError('invalid_body', text);

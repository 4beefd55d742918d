// Sessions of browsers in the web console. A browser gets two secrets, a cookie and a key, and never the token: its
// requests count as the token's. A link with a code that counts once begins a session, or a token that was pasted.
// Invariants: the table has hashes of secrets only. Both secrets are asked for at each request, and the token is read
// with them, so that what is revoked ends at once and everywhere. A token has a bounded number of sessions and links.
import { randomUUID, timingSafeEqual } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import {
  consoleSessionByCookie,
  consoleSessionsOf,
  deleteConsoleSession,
  enterConsoleLink,
  insertConsoleLink,
  lockTokenOfSessions,
  noteConsoleUse,
  trimConsoleSessions,
} from '../../stores/store/queries/console-sessions.ts';
import type {
  ConsoleSessionRow,
  ListedSession,
  SessionHashes,
  SessionTimes,
} from '../../stores/store/queries/console-sessions.ts';
import { actorOf, auditEvent } from '../events/audit.ts';
import type { Actor, RequestFacts } from '../events/audit.ts';
import type { EventWriter } from '../events/writer.ts';
import type { Caller } from './caller.ts';
import { aSecret, hashOf, isSecret } from './random-secret.ts';
import { callerOfToken } from './tokens.ts';

const MINUTE_MS = 60_000;
/** Time for a person to open a link. */
export const LINK_MS = 10 * MINUTE_MS;
/** Time without a request after which a session is over. */
export const IDLE_MS = 12 * 60 * MINUTE_MS;
/** The longest life of a session. */
export const LONGEST_MS = 7 * 24 * 60 * MINUTE_MS;
/** Sessions and links of a token: a further one ends the one that was unused for the longest time. */
export const MOST_OF_TOKEN = 50;
/** Sessions of a workspace that are listed. */
const MOST_LISTED = 500;
/** A use is noted once in this time. */
const NOTED_EVERY_MS = MINUTE_MS;

/** The two secrets of a session. */
export interface Halves {
  readonly cookie: string;
  /** The half that the page sends in a header, and keeps where no other port of the host can read it. */
  readonly key: string;
}

export interface Begun {
  readonly halves: Halves;
  readonly session: ConsoleSessionRow;
  readonly caller: Caller;
}

export type FoundSession = Pick<Begun, 'session' | 'caller'>;

export class ConsoleSessions {
  readonly #db: Db;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #events: Pick<EventWriter, 'transaction'>;
  readonly #onUsed: (tokenId: TokenId) => void;

  /** @param parts.onUsed - told of each use of a token, as `Tokens` tells it */
  constructor(parts: {
    readonly db: Db;
    readonly clock: Pick<Clock, 'nowMs'>;
    readonly events: Pick<EventWriter, 'transaction'>;
    readonly onUsed: (tokenId: TokenId) => void;
  }) {
    this.#db = parts.db;
    this.#clock = parts.clock;
    this.#events = parts.events;
    this.#onUsed = parts.onUsed;
  }

  /** Makes a link for the caller's token. @returns its code, which counts once; undefined: the token is gone */
  async link(caller: Pick<Caller, 'tokenId' | 'workspaceId'>) {
    const code = aSecret();
    const nowMs = this.#clock.nowMs();
    const expiresAtMs = nowMs + LINK_MS;
    const isMade = await this.#add(caller, hashOf(code), { nowMs, expiresAtMs, endsAtMs: expiresAtMs });
    return isMade ? { code, expiresAtMs } : undefined;
  }

  /** Begins the session of a link. @returns undefined: no such code, or it was used or came too late */
  async enter(code: string, from: RequestFacts): Promise<Begun | undefined> {
    if (!isSecret(code)) return undefined;
    const nowMs = this.#clock.nowMs();
    const halves: Halves = { cookie: aSecret(), key: aSecret() };
    const times = { nowMs, expiresAtMs: nowMs + IDLE_MS, endsAtMs: nowMs + LONGEST_MS };
    const found = await this.#events.transaction(this.#db, async (tx, emit) => {
      const address = from.remoteAddress;
      if (!(await enterConsoleLink(tx, hashOf(code), hashesOf(halves), address, times))) return null;
      const entered = await this.#read(tx, halves);
      if (entered !== null) emit(this.#told('audit.session.began', entered.session, entered.caller, from));
      return entered;
    });
    if (found === null) return undefined;
    this.#onUsed(found.caller.tokenId);
    return { ...found, halves };
  }

  /** Begins a session for a token that was pasted. @returns undefined: the token is gone */
  async begin(caller: Pick<Caller, 'tokenId' | 'workspaceId'>, from: RequestFacts): Promise<Begun | undefined> {
    const link = await this.link(caller);
    return link === undefined ? undefined : this.enter(link.code, from);
  }

  /**
   * The session of two secrets and the caller behind it. Uses it, unless it was used within the last minute.
   * @returns null: no such session, or it is over, or its token counts no more
   */
  async find(halves: Halves): Promise<FoundSession | null> {
    const found = await this.look(halves);
    if (found === null) return null;
    const nowMs = this.#clock.nowMs();
    this.#onUsed(found.caller.tokenId);
    if (nowMs - found.session.usedAtMs >= NOTED_EVERY_MS) {
      // A use that cannot be noted shortens the session and refuses nothing: the next one is noted.
      await noteConsoleUse(this.#db, found.session.id, nowMs, nowMs + IDLE_MS).catch(() => undefined);
    }
    return found;
  }

  /** The session, as `find` says, without using it. */
  look(halves: Halves): Promise<FoundSession | null> {
    return this.#read(this.#db, halves);
  }

  /** The session of a cookie if it is the one of that id. A ticket that was asked for with both halves names it. */
  lookById(cookie: string, id: string): Promise<FoundSession | null> {
    return this.#readCookie(this.#db, cookie, ({ session }) => session.id === id);
  }

  async #read(db: Queryable, { cookie, key }: Halves): Promise<FoundSession | null> {
    if (!isSecret(key)) return null;
    return this.#readCookie(db, cookie, ({ keyHash }) => timingSafeEqual(keyHash, hashOf(key)));
  }

  async #readCookie(
    db: Queryable,
    cookie: string,
    isIt: (found: { readonly session: ConsoleSessionRow; readonly keyHash: Uint8Array }) => boolean,
  ): Promise<FoundSession | null> {
    if (!isSecret(cookie)) return null;
    const nowMs = this.#clock.nowMs();
    const found = await consoleSessionByCookie(db, hashOf(cookie), nowMs);
    if (found === undefined || !isIt(found)) return null;
    const caller = callerOfToken(found.token, nowMs);
    if (caller === null) return null;
    const { session } = found;
    return { session, caller: { ...caller, console: { sessionId: session.id } } };
  }

  /** Sessions of the tokens of a workspace that are not over, those used last first. */
  list(workspaceId: WorkspaceId): Promise<readonly ListedSession[]> {
    return consoleSessionsOf(this.#db, workspaceId, this.#clock.nowMs(), MOST_LISTED);
  }

  /** Ends a session of a workspace at once, everywhere. @returns false: there is none of that id */
  async end(workspaceId: WorkspaceId, id: string, by: Actor): Promise<boolean> {
    if (!isUuid(id)) return false;
    return this.#events.transaction(this.#db, async (tx, emit) => {
      const ended = await deleteConsoleSession(tx, workspaceId, id.toLowerCase());
      if (!ended) return false;
      const target = { type: 'session', id: id.toLowerCase() };
      emit(auditEvent(by, 'audit.session.ended', { workspaceId, target }, this.#clock.nowMs()));
      return true;
    });
  }

  #told(kind: 'audit.session.began', { id }: ConsoleSessionRow, caller: Caller, from: RequestFacts) {
    const { workspaceId } = caller;
    return auditEvent(
      actorOf(caller, from),
      kind,
      { workspaceId, target: { type: 'session', id } },
      this.#clock.nowMs(),
    );
  }

  #add(caller: Pick<Caller, 'tokenId' | 'workspaceId'>, hash: Buffer, times: SessionTimes): Promise<boolean> {
    const { tokenId, workspaceId } = caller;
    return this.#db.transaction(async (tx) => {
      if (!(await lockTokenOfSessions(tx, tokenId))) return false;
      await insertConsoleLink(tx, { id: randomUUID(), workspaceId, tokenId, hash }, times);
      await trimConsoleSessions(tx, tokenId, MOST_OF_TOKEN);
      return true;
    });
  }
}

const hashesOf = ({ cookie, key }: Halves): SessionHashes => ({ cookie: hashOf(cookie), key: hashOf(key) });

// The machine's membership once it has joined: what follows from a refused credential or a revocation, and renewals.
// Must stay true: a bare status ends no membership; only a statement that the installation signed does.
import type { Log } from '#shared/log.ts';
import type { Dialler } from './dialler.ts';
import type { Identity, IdentityFile } from './identity.ts';
import type { JoinFacts } from './join.ts';
import { hasNewToken, join, prove, renew } from './join.ts';
import { isOtherHost } from '../grpc-errors.ts';
import { isRevocation } from './revocation.ts';

const REFUSED_WAIT_MS = 60_000;
const OTHER_HOST =
  "this disk was copied or moved from another machine's host, and the scheduler refuses it here: `longshore-agent reset` forgets that machine, and `longshore-agent join` with a token makes this host a machine of its own";

export interface MembershipParts {
  readonly identity: IdentityFile;
  readonly joinFacts: JoinFacts;
  readonly dialler: Dialler;
  readonly log: Log;
  /** Aborted when the link ends. */
  readonly signal: AbortSignal;
}

/** Follows a refusal: the machine was deleted, or the link dials again after that time. */
export type AfterRefusal =
  | { readonly kind: 'deleted' }
  | { readonly kind: 'wait'; readonly waitMs: number }
  /** The link ended meanwhile, or there is no identity any more. */
  | { readonly kind: 'over' };

export class Membership {
  readonly #parts: MembershipParts;
  #refusals = 0;

  constructor(parts: MembershipParts) {
    this.#parts = parts;
  }

  /** The scheduler took the credential. */
  welcomed(): void {
    this.#refusals = 0;
  }

  /**
   * Handles a refused credential: tries a new join token if there is one, else one renewal, else the machine's key, and
   * then waits. A bare status never ends anything here.
   */
  async refused(error: unknown): Promise<AfterRefusal> {
    const { identity: file, joinFacts, log, signal } = this.#parts;
    this.#refusals += 1;
    const identity = file.current;
    if (identity === undefined) return { kind: 'over' };
    if (hasNewToken(joinFacts, identity)) {
      try {
        await join(file, joinFacts, log, signal);
        return { kind: 'wait', waitMs: 0 };
      } catch (joinError) {
        log.error({ err: joinError }, 'the new join token was refused too');
      }
    }
    if (isOtherHost(error)) {
      log.error({ err: error, machineId: identity.machineId }, OTHER_HOST);
      return signal.aborted ? { kind: 'over' } : { kind: 'wait', waitMs: REFUSED_WAIT_MS };
    }
    const credential = await this.#freshCredential(identity);
    if (credential === 'fresh') return { kind: 'wait', waitMs: 0 };
    if (credential === 'deleted') return { kind: 'deleted' };
    if (signal.aborted) return { kind: 'over' };
    log.error({ err: error }, 'the scheduler refuses this machine; if that stays so, give the agent a new join token');
    return { kind: 'wait', waitMs: REFUSED_WAIT_MS };
  }

  /** Renews the credential once in a row of refusals; the machine's key is tried each time. */
  async #freshCredential(identity: Identity): Promise<'fresh' | 'deleted' | 'none'> {
    const { identity: file, dialler, joinFacts, log } = this.#parts;
    const client = dialler.open(identity);
    try {
      if (this.#refusals === 1) {
        try {
          await renew(client, file, joinFacts.host);
          return 'fresh';
        } catch (error) {
          log.info({ err: error }, 'credential could not be renewed');
        }
      }
      if ((await prove(client, file, joinFacts.host)) !== 'proven') return 'deleted';
      log.info('the scheduler gave this machine a new credential for its key');
      return 'fresh';
    } catch (error) {
      log.warn({ err: error }, 'the machine could not prove itself by its key');
    } finally {
      client.close();
    }
    return 'none';
  }

  /**
   * Judges a revocation, which counts only when it names this machine and its installation signed it. With an unused
   * join token the machine joins anew instead.
   */
  async revoked(statement: string): Promise<'deleted' | 'joins_anew' | 'not_obeyed'> {
    const { identity: file, joinFacts, log } = this.#parts;
    const identity = file.current;
    if (identity === undefined) return 'not_obeyed';
    if (!(await isRevocation(statement, identity.machineId, identity.installationKey))) {
      log.error('a revocation that the installation has not signed is not obeyed');
      return 'not_obeyed';
    }
    if (!hasNewToken(joinFacts, identity)) return 'deleted';
    log.warn('this machine was deleted; joining anew with the token that is there');
    return 'joins_anew';
  }

  /** Renews the credential from half of its life on. */
  async renewIfDue(client: Parameters<typeof renew>[0]): Promise<void> {
    const { identity: file, joinFacts, log } = this.#parts;
    const identity = file.current;
    if (identity === undefined || identity.credentialExpiresAtMs <= 0) return;
    const halfLife = (identity.credentialExpiresAtMs + identity.credentialSinceMs) / 2;
    if (Date.now() < halfLife) return;
    try {
      await renew(client, file, joinFacts.host);
    } catch (error) {
      log.warn({ err: error }, 'credential could not be renewed; trying again');
    }
  }
}

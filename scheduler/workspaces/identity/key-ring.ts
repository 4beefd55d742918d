// The keys that tokens are signed with: the newest signs, and every key that is not retired verifies. Owns their rows
// and this replica's copy; asked at each token that no cache knows.
// Invariant: a retired key is valid nowhere from the moment its retirement
// is answered. A key that another replica made is found by its name.
import { createPrivateKey, createPublicKey, generateKeyPairSync, hkdfSync, randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { systemClock } from '#shared/clock.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Sealer } from '../secrets/seal.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { insertSigningKey, retireSigningKey, signingKeys } from '../../stores/store/queries/signing-keys.ts';
import type { SigningKeyRow } from '../../stores/store/queries/signing-keys.ts';
import { SYSTEM } from '../events/audit.ts';
import type { Actor, AuditKind } from '../events/audit.ts';
import type { InstallationTrail } from '../events/installation-trail.ts';
import type { Invalidation } from './invalidation.ts';

/** Public name of the installation's first key; tokens do not name it. */
export const FIRST_KEY = 'first';
/** Context under which keys are sealed, except the first, which is the installation's own. */
export const SIGNING_KEYS_CONTEXT = 'signing_keys.private_key';
/** Least time between reads that unknown names cause, or a Redis that is silent. */
const LOOK_AGAIN_MS = 1_000;

const NAME = /^[0-9a-f]{12}$/;

interface Key {
  readonly id: string | null;
  readonly privateDer: Uint8Array;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

/** A key as operators see it. */
export interface SigningKeyInfo extends Pick<SigningKeyRow, 'createdAtMs' | 'retiredAtMs' | 'activeTokens'> {
  readonly id: string;
  /** Whether new tokens are signed with it. */
  readonly signs: boolean;
}

export class KeyRing {
  readonly #db: Queryable;
  readonly #sealer: Sealer;
  readonly #firstContext: string;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  /** Keys in use, oldest first; never empty. */
  #keys: readonly Key[];
  #readAtMs: number;
  #reading: Promise<void> | undefined;
  #invalidation: Invalidation | undefined;
  #trail: InstallationTrail | undefined;
  /** Grows with every announced change: a read that began before one may be stale. */
  #generation = 0;

  private constructor(
    db: Queryable,
    sealer: Sealer,
    options: { readonly firstContext: string; readonly clock: Pick<Clock, 'monotonicMs'> },
    rows: readonly SigningKeyRow[],
  ) {
    this.#db = db;
    this.#sealer = sealer;
    this.#firstContext = options.firstContext;
    this.#clock = options.clock;
    this.#keys = this.#opened(rows);
    this.#readAtMs = options.clock.monotonicMs();
  }

  /**
   * Opens the ring.
   * @param firstContext - the context under which the installation's first key is sealed;
   * @throws AppError `sealed_value_unreadable`
   */
  static async open(
    db: Queryable,
    sealer: Sealer,
    options: { readonly firstContext: string; readonly clock?: Pick<Clock, 'monotonicMs'> },
  ): Promise<KeyRing> {
    return new KeyRing(db, sealer, { clock: systemClock, ...options }, await signingKeys(db));
  }

  /** Announces changes to other replicas, and listens to theirs, from now on. */
  attach(invalidation: Invalidation): void {
    this.#invalidation = invalidation;
    invalidation.on('signing_key', (id) => this.#dropKey(id));
    invalidation.onReset(() => this.#lookAgain());
  }

  /** Writes who changes keys, from now on. */
  record(trail: InstallationTrail): void {
    this.#trail = trail;
  }

  /** The key that new texts are signed with. */
  get newest(): { readonly id: string | null; readonly key: KeyObject } {
    const { id, privateKey } = this.#newest();
    return { id, key: privateKey };
  }

  /** The public key of that name; undefined: retired, or not ours. @param id - null: a text that names no key */
  publicKeyOf(id: string | null): KeyObject | undefined | Promise<KeyObject | undefined> {
    const known = this.#keys.find((key) => key.id === id)?.publicKey;
    const ageMs = this.#clock.monotonicMs() - this.#readAtMs;
    // While messages arrive, a known key is valid; an unknown name may be another replica's new key.
    const isSure = known !== undefined && ageMs !== Infinity && (this.#invalidation?.isLive ?? true);
    if (isSure || ageMs < LOOK_AGAIN_MS) return known;
    return this.#read().then(() => this.#keys.find((key) => key.id === id)?.publicKey);
  }

  /** Derives 32 bytes for one purpose from every key in use, the signing one first; the same in every replica. */
  derive(purpose: string): readonly [Uint8Array, ...Uint8Array[]] {
    const of = (key: Key): Uint8Array =>
      new Uint8Array(hkdfSync('sha256', key.privateDer, '', `longshore ${purpose}`, 32));
    return [of(this.#newest()), ...this.#keys.slice(0, -1).toReversed().map(of)];
  }

  /** Lists the keys, oldest first. */
  async list(): Promise<readonly SigningKeyInfo[]> {
    const rows = await signingKeys(this.#db);
    return rows.map(({ id, createdAtMs, retiredAtMs, activeTokens }, index) => ({
      id: id ?? FIRST_KEY,
      createdAtMs,
      retiredAtMs,
      activeTokens,
      signs: index === rows.length - 1,
    }));
  }

  /** Makes a new key, which signs from now on; texts signed with others stay valid. */
  async rotate(by: Actor = SYSTEM): Promise<SigningKeyInfo> {
    const { privateKey } = generateKeyPairSync('ed25519');
    const id = randomBytes(6).toString('hex');
    const der = privateKey.export({ format: 'der', type: 'pkcs8' });
    const row = { id, privateKey: this.#sealer.seal(der, SIGNING_KEYS_CONTEXT) };
    await this.#change(by, 'audit.signing_key.created', id, async (db) => {
      await insertSigningKey(db, row);
      return true;
    });
    // The other replicas read the key before this one signs with it.
    await this.#invalidation?.publish('signing_key', `made ${id}`);
    this.#lookAgain();
    await this.#read();
    return this.#info(id);
  }

  /**
   * Retires a key: texts that it signed are invalid from now on, on every replica.
   * @throws AppError `signing_key_not_found`, `signing_key_in_use`: the newest one signs
   */
  async retire(id: string, by: Actor = SYSTEM): Promise<SigningKeyInfo> {
    const isName = id === FIRST_KEY || NAME.test(id);
    const isRetired =
      isName &&
      (await this.#change(by, 'audit.signing_key.retired', id, (db) =>
        retireSigningKey(db, id === FIRST_KEY ? null : id),
      ));
    if (!isRetired) {
      const isKnown = (await this.list()).some((key) => key.id === id);
      if (!isKnown)
        throw new AppError(
          'signing_key_not_found',
          'there is no signing key of that id: `longshore key list` shows them',
        );
      throw new AppError(
        'signing_key_in_use',
        'this key signs new tokens: make a newer one first (`longshore key rotate`)',
      );
    }
    this.#dropKey(id);
    await this.#invalidation?.publish('signing_key', id);
    return this.#info(id);
  }

  /** Runs a change, and writes who made it. @returns whether there was a change */
  async #change(by: Actor, kind: AuditKind, id: string, change: (db: Queryable) => Promise<boolean>): Promise<boolean> {
    if (this.#trail === undefined) return change(this.#db);
    return this.#trail.transaction(async (tx, say) => {
      const isChanged = await change(tx);
      if (isChanged) say(by, kind, { workspaceId: null, target: { type: 'signing_key', id } });
      return isChanged;
    });
  }

  async #info(id: string): Promise<SigningKeyInfo> {
    const found = (await this.list()).find((key) => key.id === id);
    if (found === undefined) throw new Error('a signing key is missing right after it was written');
    return found;
  }

  /** Removes a key that was retired. Any other name announces a change, so the keys are read again in either case. */
  #dropKey(said: string): void {
    const id = said === FIRST_KEY ? null : said;
    const left = this.#keys.filter((key) => key.id !== id);
    if (left.length > 0) this.#keys = left;
    this.#lookAgain();
  }

  #lookAgain(): void {
    this.#generation++;
    this.#readAtMs = -Infinity;
    // Reads the keys for new signatures. After a failure, the next token reads again and reports the cause.
    this.#read().catch(() => undefined);
  }

  #newest(): Key {
    const newest = this.#keys.at(-1);
    if (newest === undefined) throw new Error('an installation without a signing key');
    return newest;
  }

  /** Reads the keys, one read at a time. */
  #read(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    for (let isStale = true; isStale;) {
      const startedMs = this.#clock.monotonicMs();
      const generation = this.#generation;
      this.#keys = this.#opened(await signingKeys(this.#db));
      isStale = generation !== this.#generation;
      if (!isStale) this.#readAtMs = startedMs;
    }
  }

  #opened(rows: readonly SigningKeyRow[]): readonly Key[] {
    return rows
      .filter((row) => row.retiredAtMs === null)
      .map((row) => {
        const context = row.id === null ? this.#firstContext : SIGNING_KEYS_CONTEXT;
        const privateDer = this.#sealer.open(row.privateKey, context);
        const privateKey = createPrivateKey({ key: Buffer.from(privateDer), format: 'der', type: 'pkcs8' });
        return { id: row.id, privateDer, privateKey, publicKey: createPublicKey(privateKey) };
      });
  }
}

// This machine's identity for the scheduler: one file (0600), written as a whole or not at all.
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { readIfThere, syncFolder, writeDurably } from '../durable.ts';

export interface Identity {
  readonly version: 1;
  readonly machineId: string;
  readonly poolName: string;
  readonly address: string;
  readonly caPem: string;
  readonly credential: string;
  readonly credentialExpiresAtMs: number;
  /** When the credential was issued: renewed at half its life. */
  readonly credentialSinceMs: number;
  /** Ed25519, PKCS #8 PEM: proves the machine after a long absence. */
  readonly privateKey: string;
  /** Ed25519, base64 SPKI: verifies a revocation. */
  readonly installationKey: string;
  /** sha256 of the join token that created the identity: another token is a new one. */
  readonly joinTokenHash: string;
  /** Earlier ids of this machine: their containers are still its own. */
  readonly formerMachineIds: readonly string[];
}

const MAX_FORMER = 16;

export class IdentityFile {
  readonly #path: string;
  readonly #noncePath: string;
  #identity: Identity | undefined;

  constructor(stateDir: string) {
    this.#path = join(stateDir, 'machine.json');
    this.#noncePath = join(stateDir, 'join-nonce');
  }

  get current(): Identity | undefined {
    return this.#identity;
  }

  async open(): Promise<Identity | undefined> {
    const text = await readIfThere(this.#path);
    if (text !== undefined) this.#identity = JSON.parse(text) as Identity;
    return this.#identity;
  }

  async save(identity: Identity): Promise<void> {
    const before = this.#identity;
    const former = before === undefined ? [] : before.formerMachineIds;
    const next =
      before !== undefined && before.machineId !== identity.machineId
        ? { ...identity, formerMachineIds: [...former, before.machineId].slice(-MAX_FORMER) }
        : { ...identity, formerMachineIds: former };
    await writeDurably(this.#path, JSON.stringify(next), 0o600);
    this.#identity = next;
    await rm(this.#noncePath, { force: true });
  }

  /** Removes the identity: the machine belongs to no installation any more. */
  async wipe(): Promise<void> {
    this.#identity = undefined;
    await rm(this.#path, { force: true });
    await rm(this.#noncePath, { force: true });
    await syncFolder(dirname(this.#path));
  }

  /**
   * A nonce that stays the same until a join has succeeded: a repeated join gets a lost answer again and does not burn
   * the token.
   */
  async nonce(joinTokenHash: string): Promise<string> {
    const [hash, kept] = ((await readIfThere(this.#noncePath)) ?? '').trim().split(' ', 2);
    if (hash === joinTokenHash && kept !== undefined && /^[0-9a-f]{32}$/.test(kept)) return kept;
    const nonce = randomBytes(16).toString('hex');
    await writeDurably(this.#noncePath, `${joinTokenHash} ${nonce}`);
    return nonce;
  }
}

export const newPrivateKey = (): string =>
  generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;

/** Base64 of the public half's SPKI. */
export const publicKeyOf = (privateKey: string): string =>
  createPublicKey(createPrivateKey(privateKey)).export({ type: 'spki', format: 'der' }).toString('base64');

/** Signs a challenge. */
export const signWith = (privateKey: string, challenge: string): Buffer =>
  sign(null, Buffer.from(challenge), createPrivateKey(privateKey));

/**
 * Who may speak for a machine: joins, machine credentials, the way back after a long absence, and the signed statement
 * that a machine is revoked. The links ask this module at every stream.
 * Invariant: a credential is valid until its successor was used, and for five
 * minutes at most beside it. A deleted machine gets nothing but its revocation.
 */
import { createPublicKey, verify } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { Metadata } from '@grpc/grpc-js';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type {
  ChallengeRequest__Output,
  ChallengeResponse,
  JoinRequest__Output,
  JoinResponse,
  ProveRequest__Output,
  ProveResponse,
  RenewCredentialResponse,
  Revoked,
} from '#shared/protocol/generated/messages.ts';
import type { Db } from '../stores/store/db.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { machineById } from '../stores/store/queries/machines.ts';
import {
  machineKey,
  offerCredential,
  replaceCredentials,
  useCredential,
} from '../stores/store/queries/machine-credentials.ts';
import type { Enrolment } from './enrolment.ts';
import { shownHost } from './host-identities.ts';
import type { HostIdentities } from './host-identities.ts';
import type { Joining } from './joining.ts';
import type { Machines } from './machines.ts';
import type { MachineSigner } from '../workspaces/identity/machine-credentials.ts';

/** Time for which a credential is valid beside its unused successor. */
const OLD_CREDENTIAL_MS = 5 * 60_000;

/** Longest absence after which a machine's old key is accepted; after a longer one it joins anew. */
export const LONGEST_ABSENCE_MS = 30 * 86_400_000;

export interface MachineCredentialsParts {
  readonly machines: Pick<Machines, 'get' | 'learn' | 'wrote'>;
  readonly joining: Pick<Joining, 'join'>;
  readonly enrolment: Pick<Enrolment, 'enrol'>;
  readonly hostIdentities: Pick<HostIdentities, 'check'>;
  readonly db: Db;
  readonly signer: MachineSigner;
  readonly clock: Clock;
  readonly log: Log;
}

export class MachineCredentials {
  readonly #parts: MachineCredentialsParts;

  constructor(parts: MachineCredentialsParts) {
    this.#parts = parts;
  }

  /** @throws AppError `join_token_invalid`, `enrolment_refused`, `enrolment_full` */
  async join(request: JoinRequest__Output, metadata: Metadata): Promise<JoinResponse> {
    const { joining, enrolment, signer, log } = this.#parts;
    const host = {
      secret: request.joinToken,
      nonce: request.nonce,
      fingerprint: request.machineFingerprint,
      publicKey: request.publicKey,
      hostname: request.hostname,
      agentVersion: request.agentVersion,
      hostIdentity: shownHost(metadata)?.identity ?? null,
    };
    const row = request.enrolment ? await enrolment.enrol(host) : await joining.join(host);
    const credential = await signer.issue(row.id, row.credentialVersion);
    log.info({ machineId: row.id, pool: row.poolName, hostname: request.hostname }, 'machine joined');
    return {
      machineId: row.id,
      poolName: row.poolName,
      credential: credential.text,
      credentialExpiresAtMs: credential.expiresAtMs,
      installationKey: signer.publicKey,
    };
  }

  /** The machine of a valid credential. @throws AppError `machine_credential_invalid`, `machine_revoked` */
  async authenticate(metadata: Metadata): Promise<MachineId> {
    const { db, signer } = this.#parts;
    const header = String(metadata.get('authorization')[0] ?? '');
    const identity = await signer.verify(header.replace(/^Bearer /, ''));
    if (identity !== null) {
      if (await this.#isValid(identity.machineId, identity.version)) return identity.machineId;
      if ((await machineKey(db, identity.machineId))?.isDeleted === true)
        throw new AppError('machine_revoked', `machine ${identity.machineId} was deleted`, {
          details: { machineId: identity.machineId },
        });
    }
    throw new AppError('machine_credential_invalid', 'machine credential is invalid, expired or superseded');
  }

  /**
   * The machine of a valid credential, whose agent runs in the machine's host.
   * @throws AppError also `machine_on_other_host`
   */
  async admit(metadata: Metadata): Promise<MachineId> {
    const machineId = await this.authenticate(metadata);
    await this.#parts.hostIdentities.check(machineId, metadata);
    return machineId;
  }

  /** Issues a fresh credential for one that is still valid. @throws AppError as `admit` */
  async renew(metadata: Metadata): Promise<RenewCredentialResponse> {
    const machineId = await this.admit(metadata);
    const { db, clock } = this.#parts;
    const version = await this.#versionAfter(machineId, offerCredential(db, machineId, clock.nowMs()));
    const credential = await this.#parts.signer.issue(machineId, version);
    return { credential: credential.text, credentialExpiresAtMs: credential.expiresAtMs };
  }

  /** Any caller gets a challenge: it does not reveal whether the machine exists. */
  async challenge({ machineId }: ChallengeRequest__Output): Promise<ChallengeResponse> {
    return { challenge: await this.#parts.signer.challenge(machineId.slice(0, 64)) };
  }

  /**
   * Gives a credential to a machine that has no valid one and proves the key it joined with.
   * @throws AppError `machine_proof_invalid`, `machine_absent_too_long`, `machine_on_other_host`
   */
  async prove({ machineId, challenge, signature }: ProveRequest__Output, metadata: Metadata): Promise<ProveResponse> {
    const { db, signer, clock, log } = this.#parts;
    const known = await machineKey(db, machineId);
    const key = known?.publicKey ? publicKeyOf(known.publicKey) : undefined;
    const isProven =
      known !== undefined &&
      key !== undefined &&
      (await signer.isChallenge(challenge, machineId)) &&
      verify(null, Buffer.from(challenge), key, signature);
    if (!isProven)
      throw new AppError('machine_proof_invalid', 'the challenge was not answered with the key of that machine');
    if (known.isDeleted) return { revoked: await this.revocation(machineId as MachineId) };
    if (clock.nowMs() - (known.seenAtMs ?? 0) > LONGEST_ABSENCE_MS)
      throw new AppError(
        'machine_absent_too_long',
        'this machine was away for more than 30 days: delete it, create a new one and join with its token',
      );
    const id = machineId as MachineId;
    await this.#parts.hostIdentities.check(id, metadata);
    const credential = await signer.issue(id, await this.#versionAfter(id, replaceCredentials(db, id)));
    log.warn({ machineId }, 'machine proved itself by its key: credentials of before count no more');
    return { credential: credential.text, credentialExpiresAtMs: credential.expiresAtMs };
  }

  async revocation(machineId: MachineId): Promise<Revoked> {
    return { machineId, statement: await this.#parts.signer.revoke(machineId) };
  }

  /**
   * Whether that version of the machine's credential is valid. Another replica may have made, joined or renewed it a
   * moment ago. The first use of a new credential invalidates the one before.
   */
  async #isValid(id: MachineId, version: number): Promise<boolean> {
    const { machines, db } = this.#parts;
    const known = machines.get(id);
    if (known !== undefined && this.#counts(known.row, version)) return true;
    let row = await machineById(db, id);
    if (row?.credentialNext === version) {
      row = (await useCredential(db, id, version)) ?? (await machineById(db, id));
      machines.wrote(id);
    }
    if (row === undefined || !this.#counts(row, version)) return false;
    machines.learn(row);
    return machines.get(id) !== undefined;
  }

  #counts(row: MachineRow, version: number): boolean {
    const nowMs = this.#parts.clock.nowMs();
    const isOver = row.credentialNextAtMs !== null && nowMs - row.credentialNextAtMs > OLD_CREDENTIAL_MS;
    return row.credentialVersion === version && !isOver;
  }

  /** @returns the version of the credential that was just written @throws AppError `machine_not_found` */
  async #versionAfter(id: MachineId, written: Promise<MachineRow | undefined>): Promise<number> {
    const { machines } = this.#parts;
    const row = await written;
    if (row === undefined) throw new AppError('machine_not_found', `machine ${id} does not exist any more`);
    machines.learn(row);
    machines.wrote(id);
    return row.credentialNext ?? row.credentialVersion;
  }
}

function publicKeyOf(spki: string): KeyObject | undefined {
  try {
    const key = createPublicKey({ key: Buffer.from(spki, 'base64'), format: 'der', type: 'spki' });
    return key.asymmetricKeyType === 'ed25519' ? key : undefined;
  } catch {
    // An agent may have registered bytes that are no key: they prove nothing.
    return undefined;
  }
}

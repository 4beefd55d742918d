// Credentials of agents that have joined: a text signed for an hour, renewed at half
// life. The machine's row says which versions are valid (machines.credentialVersion).
import { randomUUID } from 'node:crypto';
import type { MachineId } from '#shared/domain/ids.ts';
import { signClaims, verifiedClaims } from './jwt.ts';
import type { SigningKeys } from './jwt.ts';

/** The installation's key, as far as machines need it: it signs and checks their credentials. */
export interface MachineSigner {
  verify(credential: string): Promise<{ readonly machineId: MachineId; readonly version: number } | null>;
  issue(machineId: MachineId, version: number): Promise<{ readonly text: string; readonly expiresAtMs: number }>;
  /** Issues a challenge, valid for a minute. */
  challenge(machineId: string): Promise<string>;
  isChallenge(text: string, machineId: string): Promise<boolean>;
  /** Signs the statement that this machine is revoked. */
  revoke(machineId: string): Promise<string>;
  /** Public key by which agents check that statement; base64 SPKI. */
  readonly publicKey: string;
}

export const MACHINE_CREDENTIAL_LIFE_MS = 3_600_000;
const CHALLENGE_LIFE_MS = 60_000;

export interface MachineCredential {
  readonly text: string;
  readonly expiresAtMs: number;
}

export interface MachineIdentity {
  readonly machineId: MachineId;
  /** Version to compare with the machine's row: an older one is valid only until the newer was used. */
  readonly version: number;
  readonly expiresAtMs: number;
}

export async function issueMachineCredential(
  keys: SigningKeys,
  machineId: MachineId,
  version: number,
  nowMs: number = Date.now(),
): Promise<MachineCredential> {
  const text = await signClaims(
    keys,
    { typ: 'machine', ver: version },
    { id: randomUUID(), subject: machineId, nowMs, lifeMs: MACHINE_CREDENTIAL_LIFE_MS },
  );
  return { text, expiresAtMs: Math.floor(nowMs / 1000) * 1000 + MACHINE_CREDENTIAL_LIFE_MS };
}

/** Reads a credential; null: not ours, not a machine's, or expired. */
export async function verifyMachineCredential(
  keys: SigningKeys,
  text: string,
  nowMs: number = Date.now(),
): Promise<MachineIdentity | null> {
  const claims = await verifiedClaims(keys, text, nowMs);
  if (claims === null || claims['typ'] !== 'machine') return null;
  const { sub, ver, exp } = claims;
  if (sub === undefined || typeof ver !== 'number' || exp === undefined) return null;
  return { machineId: sub as MachineId, version: ver, expiresAtMs: exp * 1000 };
}

/** Operations of the installation's key that the links need. */
export function machineSigner(keys: SigningKeys): MachineSigner {
  return {
    verify: (text) => verifyMachineCredential(keys, text),
    issue: (machineId, version) => issueMachineCredential(keys, machineId, version),
    challenge: (machineId) =>
      signClaims(
        keys,
        { typ: 'challenge' },
        { id: randomUUID(), subject: machineId, nowMs: Date.now(), lifeMs: CHALLENGE_LIFE_MS },
      ),
    isChallenge: async (text, machineId) => {
      const claims = await verifiedClaims(keys, text, Date.now());
      return claims?.['typ'] === 'challenge' && claims.sub === machineId;
    },
    revoke: (machineId) =>
      // Signed with the first key, which agents were given when they joined.
      signClaims(
        { signingKey: keys.signingKey, publicKey: keys.publicKey },
        { typ: 'revoked' },
        { id: randomUUID(), subject: machineId, nowMs: Date.now() },
      ),
    publicKey: keys.publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
  };
}

// Tokens for the managed registry: the installation signs a right for one machine and half an hour.
// Invariant: a token is good for one repository and one action, and for the machine that it was made for.
import { randomUUID } from 'node:crypto';
import type { MachineId } from '#shared/domain/ids.ts';
import { signClaims, verifiedClaims } from '../../workspaces/identity/jwt.ts';
import type { SigningKeys } from '../../workspaces/identity/jwt.ts';
import type { RegistryRight } from './requests.ts';

/** As long as the tries of a pull last together. */
export const TOKEN_LIFE_MS = 30 * 60_000;

export interface RegistryToken extends RegistryRight {
  readonly id: string;
  readonly machineId: MachineId;
}

export function issueToken(
  keys: SigningKeys,
  machineId: MachineId,
  { action, repository, reference }: RegistryRight,
  nowMs: number,
): Promise<string> {
  return signClaims(
    keys,
    { typ: 'registry', act: action, repo: repository, ref: reference },
    { id: randomUUID(), subject: machineId, nowMs, lifeMs: TOKEN_LIFE_MS },
  );
}

/** Reads a token; null: not ours, not for the registry, or expired. */
export async function verifyToken(keys: SigningKeys, text: string, nowMs: number): Promise<RegistryToken | null> {
  const claims = await verifiedClaims(keys, text, nowMs);
  if (claims === null || claims['typ'] !== 'registry') return null;
  const { sub, jti, act, repo, ref } = claims;
  if (sub === undefined || jti === undefined || (act !== 'pull' && act !== 'push')) return null;
  if (typeof repo !== 'string' || typeof ref !== 'string') return null;
  return { id: jti, machineId: sub as MachineId, action: act, repository: repo, reference: ref };
}

/** The token in a header as engines send it: `Basic`, with the token as the password. Empty: there is none. */
export function tokenIn(authorization: string | undefined): string {
  const [, encoded = ''] = /^Basic ([A-Za-z0-9+/=]{1,8192})$/i.exec(authorization ?? '') ?? [];
  const text = Buffer.from(encoded, 'base64').toString('latin1');
  return text.slice(text.indexOf(':') + 1);
}

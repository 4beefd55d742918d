// The installation's signed texts: API tokens, container tokens, machine credentials. A signature says only that we wrote it; whether it still counts is asked elsewhere.
import { SignJWT, jwtVerify } from 'jose';
import type { JWTPayload } from 'jose';
import type { Installation } from './installation.ts';

const ALGORITHM = 'EdDSA';
const ISSUER = 'longshore';

export type SigningKeys = Pick<Installation, 'signingKey' | 'publicKey'>;

export function signClaims(
  keys: SigningKeys,
  claims: Readonly<Record<string, unknown>> & { readonly typ: string },
  options: { readonly id: string; readonly subject?: string; readonly nowMs: number; readonly lifeMs?: number },
): Promise<string> {
  const issuedAt = Math.floor(options.nowMs / 1000);
  const jwt = new SignJWT({ ...claims })
    .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT' })
    .setIssuer(ISSUER)
    .setJti(options.id)
    .setIssuedAt(issuedAt);
  if (options.subject !== undefined) jwt.setSubject(options.subject);
  if (options.lifeMs !== undefined) jwt.setExpirationTime(issuedAt + Math.ceil(options.lifeMs / 1000));
  return jwt.sign(keys.signingKey);
}

/** null: not ours, altered, or past its time. */
export async function verifiedClaims(keys: SigningKeys, text: string, nowMs: number): Promise<JWTPayload | null> {
  // Two dots and a sane length before any arithmetic on what strangers send.
  if (text.length > 4_096 || text.split('.').length !== 3) return null;
  try {
    const { payload } = await jwtVerify(text, keys.publicKey, {
      algorithms: [ALGORITHM],
      issuer: ISSUER,
      currentDate: new Date(nowMs),
    });
    return payload;
  } catch {
    // Every failure means the same to a caller: this is no token of ours.
    return null;
  }
}

// The installation's signed texts: API tokens, container tokens, machine credentials. A signature proves only that the
// installation wrote the text; its validity is checked elsewhere.
import type { KeyObject } from 'node:crypto';
import { decodeJwt, decodeProtectedHeader, errors, SignJWT, jwtVerify } from 'jose';
import type { JWTPayload } from 'jose';
import { AppError } from '#shared/errors.ts';
import type { Installation } from './installation.ts';
import type { KeyRing } from './key-ring.ts';

const ALGORITHM = 'EdDSA';
const ISSUER = 'longshore';

/** Tolerance for the clocks of replicas, which differ by less. */
export const CLOCK_TOLERANCE_S = 30;

/** Keys of signed texts; without a ring there is a single key, which texts do not name. */
export type SigningKeys = Pick<Installation, 'signingKey' | 'publicKey'> & {
  readonly ring?: Pick<KeyRing, 'newest' | 'publicKeyOf'>;
};

export function signClaims(
  keys: SigningKeys,
  claims: Readonly<Record<string, unknown>> & { readonly typ: string },
  options: { readonly id: string; readonly subject?: string; readonly nowMs: number; readonly lifeMs?: number },
): Promise<string> {
  const issuedAt = Math.floor(options.nowMs / 1000);
  const signer = signerOf(keys);
  const jwt = new SignJWT({ ...claims })
    .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT', ...(signer.id === null ? {} : { kid: signer.id }) })
    .setIssuer(ISSUER)
    .setJti(options.id)
    .setIssuedAt(issuedAt);
  if (options.subject !== undefined) jwt.setSubject(options.subject);
  if (options.lifeMs !== undefined) jwt.setExpirationTime(issuedAt + Math.ceil(options.lifeMs / 1000));
  return jwt.sign(signer.key);
}

/** The key that new texts are signed with. */
export const signerOf = (keys: SigningKeys): KeyRing['newest'] =>
  keys.ring?.newest ?? { id: null, key: keys.signingKey };

/**
 * The id of the key that a text claims to be signed with: `null` when it names none; undefined: the text is not signed.
 */
export function keyIdOf(text: string): string | null | undefined {
  try {
    return decodeProtectedHeader(text).kid ?? null;
  } catch {
    return undefined;
  }
}

/** Longest text whose signature is looked at. */
const MOST_CHARACTERS = 4_096;

/** Whether a text has the form of a signed one. Checked before any decoding, since strangers send texts, too. */
const hasForm = (text: string): boolean => text.length <= MOST_CHARACTERS && text.split('.').length === 3;

/**
 * Whether a text says that an installation signed it, valid or not: also one that was switched off, revoked, used up or
 * expired, or whose key was retired. Reads neither keys nor rows, and proves nothing.
 */
export function saysItIsOurs(text: string): boolean {
  if (!hasForm(text)) return false;
  try {
    const { iss, typ } = decodeJwt(text);
    return iss === ISSUER && typeof typ === 'string' && decodeProtectedHeader(text).alg === ALGORITHM;
  } catch {
    return false;
  }
}

/** The claims of a valid text; null: not ours, altered, or expired. */
export async function verifiedClaims(keys: SigningKeys, text: string, nowMs: number): Promise<JWTPayload | null> {
  if (!hasForm(text)) return null;
  try {
    const { payload } = await jwtVerify(text, ({ kid }) => publicKeyOf(keys, kid ?? null), {
      algorithms: [ALGORITHM],
      issuer: ISSUER,
      currentDate: new Date(nowMs),
      clockTolerance: CLOCK_TOLERANCE_S,
    });
    return payload;
  } catch (error) {
    // A database that is away proves nothing about a token.
    if (error instanceof AppError) throw error;
    // Every other failure means the same to a caller: the token is not ours.
    return null;
  }
}

async function publicKeyOf(keys: SigningKeys, kid: string | null): Promise<KeyObject> {
  const key = keys.ring === undefined ? (kid === null ? keys.publicKey : undefined) : await keys.ring.publicKeyOf(kid);
  if (key === undefined) throw new errors.JWKSNoMatchingKey();
  return key;
}

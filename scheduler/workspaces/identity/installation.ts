// The installation's identity: the key its tokens are signed with, and its private CA. Both are rows of the database,
// sealed, made once under a unique row, so that every replica has the same. compose/identity.ts opens it right after
// the migration; everything else in identity/ takes it as an argument.
import { createPrivateKey, createPublicKey, generateKeyPairSync, hkdfSync } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import { StartupError } from '#shared/errors.ts';
import type { Sealer } from '../secrets/seal.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { insertInstallation, readInstallation } from '../../stores/store/queries/installation.ts';
import { fingerprintOf, issueServerCertificate, makeCertificateAuthority } from './certificates.ts';
import type { ServerCertificate } from './certificates.ts';
import { KeyRing } from './key-ring.ts';

export interface Installation {
  /**
   * Ed25519, the first key: agents know the installation by it. The key
   * signs revocations for ever, and tokens until there is a newer one.
   */
  readonly signingKey: KeyObject;
  readonly publicKey: KeyObject;
  /** Keys that sign and verify tokens and machine credentials. */
  readonly ring: KeyRing;
  readonly caCertPem: string;
  /** Fingerprint of the CA, the middle part of a join token: sha256 of its DER, hex. */
  readonly caFingerprint: string;
  /** Certificate of the agent port; new at every start. */
  readonly server: ServerCertificate;
  /**
   * Derives 32 bytes for one purpose (`object-upload`) from every key
   * in use, the same in every replica: the first signs, all verify.
   */
  deriveKeys(purpose: string): readonly [Uint8Array, ...Uint8Array[]];
  /** Key of 32 bytes for host labels, from the first key: a change of the signing key changes no label. */
  readonly labelKey: Uint8Array;
}

/** Contexts under which these values are sealed. */
export const SIGNING_KEY = 'installation.signing_key';
export const CA_KEY = 'installation.ca_key';

/** @throws StartupError `secret_key_mismatch` when the key file does not open what the database holds */
export async function openInstallation(
  db: Queryable,
  sealer: Sealer,
  nowMs: number = Date.now(),
  clock?: Pick<Clock, 'monotonicMs'>,
): Promise<Installation> {
  const row = (await readInstallation(db)) ?? (await make(db, sealer, nowMs));
  const signingKeyDer = unseal(sealer, row.signingKey, SIGNING_KEY);
  const caKey = unseal(sealer, row.caKey, CA_KEY);
  const ring = await KeyRing.open(db, sealer, {
    firstContext: SIGNING_KEY,
    ...(clock === undefined ? {} : { clock }),
  });
  const signingKey = createPrivateKey({ key: Buffer.from(signingKeyDer), format: 'der', type: 'pkcs8' });
  return {
    signingKey,
    publicKey: createPublicKey(signingKey),
    caCertPem: row.caCert,
    caFingerprint: fingerprintOf(row.caCert),
    server: await issueServerCertificate({ certPem: row.caCert, privateKey: caKey }, nowMs),
    ring,
    deriveKeys: (purpose) => ring.derive(purpose),
    labelKey: new Uint8Array(hkdfSync('sha256', signingKeyDer, '', 'longshore host-labels', 32)),
  };
}

async function make(db: Queryable, sealer: Sealer, nowMs: number): ReturnType<typeof mustRead> {
  const { privateKey } = generateKeyPairSync('ed25519');
  const ca = await makeCertificateAuthority(nowMs);
  await insertInstallation(db, {
    signingKey: sealer.seal(privateKey.export({ format: 'der', type: 'pkcs8' }), SIGNING_KEY),
    caCert: ca.certPem,
    caKey: sealer.seal(ca.privateKey, CA_KEY),
  });
  return mustRead(db);
}

async function mustRead(db: Queryable) {
  const row = await readInstallation(db);
  if (row === undefined) throw new Error('the installation row is missing right after it was written');
  return row;
}

function unseal(sealer: Sealer, sealed: Uint8Array, context: string): Uint8Array {
  try {
    return sealer.open(sealed, context);
  } catch (error) {
    throw new StartupError(
      'secret_key_mismatch',
      'the secret key does not open what the database holds: LONGSHORE_SECRET_KEY_FILE must name the key file this installation was made with (by default secret.key in the data directory of the first start)',
      { cause: error },
    );
  }
}

// The installation's private CA and the certificate of the agent port. Agents know the CA by its fingerprint (in the
// join token), so nothing here needs a public authority.
import 'reflect-metadata';
import { createHash, randomBytes } from 'node:crypto';
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509';
import { SERVER_NAME } from '#shared/protocol/link.ts';

const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;
const DAY_MS = 86_400_000;
const CA_DAYS = 365 * 20;
const LEAF_DAYS = 365;
/** Time by which certificates begin early, because clocks of machines differ. */
const BACKDATE_MS = 3_600_000;

export interface CertificateAuthority {
  readonly certPem: string;
  /** Private key as PKCS #8. */
  readonly privateKey: Uint8Array;
}

export interface ServerCertificate {
  /** Chain that the TLS server sends: the leaf followed by the CA. */
  readonly chainPem: string;
  readonly keyPem: string;
}

export async function makeCertificateAuthority(nowMs: number): Promise<CertificateAuthority> {
  const keys = await crypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']);
  const cert = await X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    name: 'CN=Longshore CA',
    notBefore: new Date(nowMs - BACKDATE_MS),
    notAfter: new Date(nowMs + CA_DAYS * DAY_MS),
    signingAlgorithm: KEY_ALGORITHM,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return {
    certPem: cert.toString('pem'),
    privateKey: new Uint8Array(await crypto.subtle.exportKey('pkcs8', keys.privateKey)),
  };
}

/** A fresh key and certificate for the agent port, valid for a year; made at each start, and not stored. */
export async function issueServerCertificate(ca: CertificateAuthority, nowMs: number): Promise<ServerCertificate> {
  const caKey = await crypto.subtle.importKey('pkcs8', Buffer.from(ca.privateKey), KEY_ALGORITHM, false, ['sign']);
  const caCert = new X509Certificate(ca.certPem);
  const keys = await crypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']);
  const cert = await X509CertificateGenerator.create({
    serialNumber: serialNumber(),
    subject: `CN=${SERVER_NAME}`,
    issuer: caCert.subject,
    notBefore: new Date(nowMs - BACKDATE_MS),
    notAfter: new Date(nowMs + LEAF_DAYS * DAY_MS),
    signingAlgorithm: KEY_ALGORITHM,
    publicKey: keys.publicKey,
    signingKey: caKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension([
        { type: 'dns', value: SERVER_NAME },
        { type: 'dns', value: 'localhost' },
        { type: 'ip', value: '127.0.0.1' },
      ]),
    ],
  });
  const pkcs8 = await crypto.subtle.exportKey('pkcs8', keys.privateKey);
  return {
    chainPem: `${cert.toString('pem').trimEnd()}\n${ca.certPem.trimEnd()}\n`,
    keyPem: `${PemConverter.encode(pkcs8, 'PRIVATE KEY').trimEnd()}\n`,
  };
}

/** Fingerprint in join tokens: sha256 of the certificate's DER, lower-case hex. */
export function fingerprintOf(certPem: string): string {
  return createHash('sha256')
    .update(Buffer.from(new X509Certificate(certPem).rawData))
    .digest('hex');
}

/** A positive serial number of 128 bits. */
function serialNumber(): string {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0] ?? 0) & 0x7f || 1;
  return bytes.toString('hex');
}

// The certificate of the HTTP surfaces, read from two PEM files. The files are read
// again from time to time and at SIGHUP. New connections use a changed certificate.
// Invariant: unusable files never replace a usable certificate.
// A problem is logged once, and reported until it is gone.
import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import type { Log } from '#shared/log.ts';
import { StartupError, messageOf } from '#shared/errors.ts';

export interface CertificateFiles {
  /** `LONGSHORE_HTTP_TLS_CERT`: PEM, the leaf first, then the certificates of its issuers. */
  readonly certFile: string;
  /** `LONGSHORE_HTTP_TLS_KEY`: PEM. */
  readonly keyFile: string;
}

export interface Certificate {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly validUntilMs: number;
  /** Hash of the leaf certificate, sha256. */
  readonly fingerprint: string;
}

export const MIN_TLS = 'TLSv1.2';
const LOOK_EVERY_MS = 10_000;

/** @throws Error with a sentence that names the setting */
export async function readCertificate({ certFile, keyFile }: CertificateFiles): Promise<Certificate> {
  const [cert, key] = await Promise.all([
    readNamed('LONGSHORE_HTTP_TLS_CERT', certFile),
    readNamed('LONGSHORE_HTTP_TLS_KEY', keyFile),
  ]);
  try {
    const leaf = new X509Certificate(cert);
    // createSecureContext throws when the key is not the certificate's.
    createSecureContext({ cert, key, minVersion: MIN_TLS });
    return { cert, key, validUntilMs: Date.parse(leaf.validTo), fingerprint: leaf.fingerprint256 };
  } catch (error) {
    throw new Error(`LONGSHORE_HTTP_TLS_CERT and LONGSHORE_HTTP_TLS_KEY cannot be used: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

async function readNamed(setting: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw new Error(`${setting}: ${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

export class CertificateWatch {
  readonly #files: CertificateFiles;
  readonly #log: Log;
  readonly #lookEveryMs: number;
  readonly #replaced: ((certificate: Certificate) => void)[] = [];
  #current: Certificate;
  #problem: string | null = null;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;

  private constructor(files: CertificateFiles, first: Certificate, log: Log, lookEveryMs: number) {
    this.#files = files;
    this.#current = first;
    this.#log = log;
    this.#lookEveryMs = lookEveryMs;
  }

  /** @throws StartupError `bad_config` when there is no good certificate to begin with */
  static async open(files: CertificateFiles, log: Log, lookEveryMs: number = LOOK_EVERY_MS): Promise<CertificateWatch> {
    try {
      return new CertificateWatch(files, await readCertificate(files), log, lookEveryMs);
    } catch (error) {
      throw new StartupError('bad_config', messageOf(error), { cause: error, exitCode: 78 });
    }
  }

  get current(): Certificate {
    return this.#current;
  }

  /** Why the present files are not used; null: they are. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Told each new certificate. */
  onReplaced(listener: (certificate: Certificate) => void): void {
    this.#replaced.push(listener);
  }

  /** Starts looking at the files. */
  start(): void {
    this.#timer = setInterval(() => void this.check(), this.#lookEveryMs);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Looks at the files, one look at a time; never rejects. */
  check(): Promise<void> {
    this.#looking ??= this.#check().finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  async #check(): Promise<void> {
    try {
      const found = await readCertificate(this.#files);
      this.#problem = null;
      if (found.cert.equals(this.#current.cert) && found.key.equals(this.#current.key)) return;
      for (const apply of this.#replaced) apply(found);
      this.#current = found;
      const { fingerprint, validUntilMs } = found;
      this.#log.info({ fingerprint, validUntil: new Date(validUntilMs).toISOString() }, 'https certificate replaced');
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== this.#problem)
        this.#log.error({ err: error }, 'https certificate not replaced: the one in use goes on');
      this.#problem = problem;
    }
  }
}

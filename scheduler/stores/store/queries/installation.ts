import type { Queryable } from '../db.ts';
import { maybeOne } from '../rows.ts';

export interface InstallationRow {
  /** Sealed PKCS #8 of the Ed25519 key that signs tokens. */
  readonly signingKey: Uint8Array;
  /** PEM. */
  readonly caCert: string;
  /** Sealed PKCS #8. */
  readonly caKey: Uint8Array;
}

interface Raw {
  signing_key: Uint8Array;
  ca_cert: string;
  ca_key: Uint8Array;
}

export function readInstallation(db: Queryable): Promise<InstallationRow | undefined> {
  return maybeOne(
    db,
    'select signing_key, ca_cert, ca_key from installation where id = 1',
    [],
    (row: Raw): InstallationRow => ({ signingKey: row.signing_key, caCert: row.ca_cert, caKey: row.ca_key }),
  );
}

/** Inserts the installation; does nothing when another process was first, so callers read it afterwards. */
export async function insertInstallation(db: Queryable, installation: InstallationRow): Promise<void> {
  await db.query(
    'insert into installation (id, signing_key, ca_cert, ca_key) values (1, $1, $2, $3) on conflict (id) do nothing',
    [installation.signingKey, installation.caCert, installation.caKey],
  );
}

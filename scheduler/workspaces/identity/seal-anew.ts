import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError, StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Sealer } from '../secrets/seal.ts';
import { contextOf, webhookContextOf } from '../secrets/service.ts';
import type { Db } from '../../stores/store/db.ts';
import { SEALED, lockSealed, replaceSealed } from '../../stores/store/queries/sealed.ts';
import type { SealedKind, SealedRow } from '../../stores/store/queries/sealed.ts';
import { CA_KEY, SIGNING_KEY } from './installation.ts';
import { SIGNING_KEYS_CONTEXT } from './key-ring.ts';
import { SIGNING_KEY as WORKSPACE_KEY } from './workspaces.ts';

const CONTEXT: { readonly [kind in SealedKind]: (row: SealedRow) => string } = {
  'installation.signing_key': () => SIGNING_KEY,
  'installation.ca_key': () => CA_KEY,
  signing_keys: () => SIGNING_KEYS_CONTEXT,
  workspaces: () => WORKSPACE_KEY,
  webhook_secrets: ({ name }) => webhookContextOf(name ?? ''),
  secrets: ({ workspaceId, name }) => contextOf(workspaceId as WorkspaceId, name ?? ''),
};

/**
 * Seals with the present key all values that only the previous
 * one opens, or none of them. A second run changes nothing.
 * @throws StartupError `secret_key_mismatch` when a value opens with neither
 */
export async function sealAnew(db: Db, sealer: Sealer, log: Log): Promise<void> {
  const values = await db.transaction(async (tx) => {
    let count = 0;
    for (const kind of Object.keys(SEALED) as SealedKind[]) {
      for (const row of await lockSealed(tx, kind)) {
        const sealed = renewed(sealer, row, CONTEXT[kind](row));
        if (sealed === undefined) continue;
        await replaceSealed(tx, kind, row.key, sealed);
        count++;
      }
    }
    return count;
  });
  log.info({ values }, 'sealed anew with the present key file');
}

function renewed(sealer: Sealer, row: SealedRow, context: string): Uint8Array | undefined {
  try {
    return sealer.renewed(row.sealed, context);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new StartupError(
      'secret_key_mismatch',
      `neither LONGSHORE_SECRET_KEY_FILE nor LONGSHORE_SECRET_KEY_FILE_PREVIOUS names the key file that sealed ${context}: nothing was changed`,
      { cause: error },
    );
  }
}

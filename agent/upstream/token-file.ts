// The service's file with the join token. An enrolment token would join other hosts, so no joined machine keeps one.
import { truncate } from 'node:fs/promises';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { hasCode, readIfThere } from '../durable.ts';

/**
 * Empties the file if its token is the one by which this machine joined. The unit may write the file alone, so the file
 * itself stays. A failure is logged and stops nothing.
 */
export async function emptyTokenFile(path: string, joinTokenHash: string, log: Log): Promise<void> {
  try {
    const token = ((await readIfThere(path)) ?? '').trim();
    if (token === '' || sha256Hex(token) !== joinTokenHash) return;
    await truncate(path);
  } catch (error) {
    // Another user's service has its file for itself.
    if (hasCode(error, 'EACCES')) return;
    log.warn({ err: error, path }, 'the join token that was used could not be removed: remove the file');
  }
}

/** Signatures of what a build makes: a key of the operator's gpg signs a file into `FILE.asc`. */
import { SetupError } from '../setup/log.mjs';
import { findProgram, run } from '../setup/run.mjs';

/**
 * Fails before the work begins where nothing could be signed.
 * @param {string | undefined} key - of gpg, by id or address; undefined: nothing is signed
 */
export function requireSigner(key) {
  if (key !== undefined && findProgram('gpg') === undefined)
    throw new SetupError('gpg is missing: install the package gnupg (Debian and Ubuntu have it)');
}

/** Writes `FILE.asc`, the key's signature of the file. */
export async function sign(file, key) {
  const args = ['--batch', '--yes', '--armor', '--local-user', key, '--output', `${file}.asc`, '--detach-sign', file];
  await run('gpg', args, { name: 'sign', timeoutMs: 60_000 });
}

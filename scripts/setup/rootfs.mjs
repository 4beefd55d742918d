/** Parts of a root file system from this system's own Debian packages: their dependencies, and their files unpacked. */
import { mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError } from './log.mjs';
import { asRoot, privilege } from './privilege.mjs';
import { run } from './run.mjs';

/** @param {string} name - a package that must be known */
export async function ensurePackageLists(name) {
  const known = async () => (await run('apt-cache', ['policy', name], { allowFailure: true })).stdout;
  if (/Candidate: (?!\(none\))/.test(await known())) return;
  if ((await privilege()) === 'none')
    throw new SetupError('The package lists are missing. Run once, then repeat:\n\n  sudo apt-get update');
  const [command, args] = await asRoot('apt-get', ['update', '-qq', '-o', 'DPkg::Lock::Timeout=300']);
  await run(command, args, { name: 'apt-update', timeoutMs: 300_000 });
  if (!/Candidate: (?!\(none\))/.test(await known())) throw new SetupError(`apt-get knows no package ${name}.`);
}

/**
 * The dependencies of the seeds, limited to wanted names.
 * @param {readonly string[]} seeds
 * @param {RegExp} wanted
 */
export async function dependenciesOf(seeds, wanted) {
  const unwanted = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
    (kind) => `--no-${kind}`,
  );
  const { stdout } = await run('apt-cache', ['depends', '--recurse', ...unwanted, ...seeds]);
  const names = stdout.split('\n').filter((line) => /^[a-z0-9]/.test(line) && !line.includes(':'));
  const real = [];
  for (const name of new Set([...names, ...seeds])) if (wanted.test(name)) real.push(name);
  const { stdout: shown } = await run('apt-cache', ['show', '--no-all-versions', ...real], { allowFailure: true });
  const downloadable = new Set([...shown.matchAll(/^Package: (.+)$/gm)].map((match) => match[1]));
  return real.filter((name) => downloadable.has(name));
}

/** @param {readonly string[]} leftOut - patterns of paths in the archives, such as `./usr/share/doc` */
export async function unpack(debs, root, leftOut) {
  for (const folder of ['bin', 'sbin', 'lib', 'lib64']) {
    mkdirSync(join(root, 'usr', folder), { recursive: true });
    symlinkSync(`usr/${folder}`, join(root, folder));
  }
  const excludes = leftOut.map((pattern) => `--exclude=${pattern}`);
  for (const deb of readdirSync(debs).toSorted()) {
    if (!deb.endsWith('.deb')) continue;
    // Links for bin, sbin and lib exist already: an archive's own directory must go through them, not replace them.
    const script = 'dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -x --keep-directory-symlink --no-same-owner "${@:3}"';
    await run('bash', ['-o', 'pipefail', '-c', script, 'unpack', join(debs, deb), root, ...excludes]);
  }
}

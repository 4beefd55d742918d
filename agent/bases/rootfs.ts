// The file system of an unfinished base image: the packages that dpkg itself needs are unpacked, and all of them wait
// beside the programs that install them. No rights are needed: the archive names root as the owner of everything.
import { copyFile, cp, mkdir, readFile, readdir, rename, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { inheritedEnv, runProgram, startProgram } from '#shared/child-process.ts';
import { AppError } from '#shared/errors.ts';
import type { Apt } from './apt.ts';
import { PARTS, partsOf } from './finish.ts';
import { inheritedOptions, sourceLine } from './suites.ts';
import type { Release } from './suites.ts';

export const UNPACK_MS = 180_000;
const APT_KEYS = '/etc/apt/trusted.gpg.d';

/** Links for bin, sbin and lib exist already: an archive's own folder must go through them, not replace them. */
const UNPACK = `
for deb in "$1"/*.deb; do
  case \${deb##*/} in python* | libpython* | *-whl_* | tzdata_* | ca-certificates_* | openssl* | *.9_*) continue ;; esac
  dpkg-deb --fsys-tarfile "$deb" | tar -C "$2" -x --keep-directory-symlink --no-same-owner \\
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' || exit
done`;

/** The PEM file of authorities that this machine trusts. */
export const authoritiesFile = (): string => process.env['SSL_CERT_FILE'] || '/etc/ssl/certs/ca-certificates.crt';

/**
 * Lays the file system out.
 * @param root - a folder that does not exist yet
 */
export async function layOut(root: string, apt: Apt, release: Release): Promise<void> {
  await mkdir(root);
  for (const folder of ['bin', 'sbin', 'lib', 'lib64']) {
    await mkdir(join(root, 'usr', folder), { recursive: true });
    await symlink(`usr/${folder}`, join(root, folder));
  }
  const end = await runProgram('bash', ['-o', 'pipefail', '-c', UNPACK, 'unpack', apt.archives, root], {
    deadlineMs: UNPACK_MS,
    env: { ...inheritedEnv(), LC_ALL: 'C' },
  });
  if (end.kind !== 'ended' || end.exitCode !== 0)
    throw new AppError(
      'image_error',
      `cannot unpack packages: ${end.kind === 'ended' ? end.stderr.slice(-300) : end.kind}`,
    );
  const parts = join(root, PARTS);
  await mkdir(join(parts, 'debs'), { recursive: true });
  for (const name of await readdir(apt.archives))
    if (name.endsWith('.deb')) await rename(join(apt.archives, name), join(parts, 'debs', name));
  const files = partsOf({
    inherited: inheritedOptions(await apt.dump()),
    sources: release.sources.map((source) => sourceLine(source)),
    authorities: await readFile(authoritiesFile(), 'utf8').catch(() => ''),
  });
  for (const [name, text] of Object.entries(files)) await writeFile(join(parts, name), text);
  await copyKeys(join(parts, 'keys'), release);
}

/** Keys of the mirrors, at the same paths as on this machine. */
async function copyKeys(to: string, { sources }: Release): Promise<void> {
  for (const path of new Set(sources.map(({ signedBy }) => signedBy))) {
    if (path === '')
      await cp(APT_KEYS, join(to, APT_KEYS), { recursive: true, dereference: true }).catch(() => undefined);
    if (!path.startsWith('/')) continue;
    await mkdir(dirname(join(to, path)), { recursive: true });
    await copyFile(path, join(to, path));
  }
}

/** @returns the archive, and its end: a failure of the program that writes it */
export function archiveOf(root: string): { readonly tar: Readable; readonly ended: Promise<void> } {
  const args = ['-C', root, '--owner=0', '--group=0', '--numeric-owner', '-c', '.'];
  const { child, ended } = startProgram('tar', args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const tar = child?.stdout ?? undefined;
  if (tar === undefined) throw new AppError('image_error', 'cannot start tar');
  return {
    tar,
    ended: ended.then((end) => {
      if (!('exitCode' in end) || end.exitCode !== 0)
        throw new AppError('image_error', 'tar did not write the archive');
    }),
  };
}

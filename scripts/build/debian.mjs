/**
 * The Debian packages of the agent and of the scheduler, from a release's folder, with checksums and a list of what
 * they are made of. Two builds of the same sources give the same bytes. A key of the operator signs the checksums.
 */
import { createHash } from 'node:crypto';
import {
  chmod,
  copyFile,
  cp,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { SetupError } from '../setup/log.mjs';
import { repositoryRoot } from '../setup/paths.mjs';
import { findProgram, run } from '../setup/run.mjs';
import { bomOf } from './sbom.mjs';
import { requireSigner, sign } from './sign.mjs';
import { EPOCH_SECONDS } from './tree.mjs';

const ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' };
const BUILD_MS = 600_000;
/** The pinned Node's own needs, and the service manager of the units. */
const DEPENDS = 'libc6 (>= 2.28), libgcc-s1, libstdc++6, systemd, util-linux';

const PACKAGES = [
  {
    name: 'longshore-agent',
    scripts: 'agent',
    units: [
      'longshore-agent.service',
      'longshore-agent-drain.service',
      'longshore-mounts.service',
      'longshore-gpu-reset.path',
      'longshore-gpu-reset.service',
    ],
    command: 'longshore-agent.sh',
    recommends: 'docker-ce | docker.io | moby-engine',
    suggests: 's3fs',
    summary: 'Longshore agent: runs the containers of this machine for a scheduler',
  },
  {
    name: 'longshore-scheduler',
    scripts: 'scheduler',
    units: ['longshore-scheduler.service', 'longshore-registry.service'],
    recommends: 'redis-server',
    suggests: 'postgresql, docker-registry',
    summary: 'Longshore scheduler: the control plane of an installation',
  },
];

/**
 * Writes both packages, their SBOM, SHA256SUMS and, with a key, SHA256SUMS.asc, in place of those of an earlier build.
 * @param {string} release - a folder as writeRelease made it
 * @param {string} into
 * @param {{ key?: string, revision?: string, level?: number }} [options] `key`: of gpg, by id or address; `revision`:
 *   of the package, for a second build of one version; `level`: of gzip
 * @returns {Promise<string[]>} the files' names
 */
export async function writeDebianPackages(release, into, { key, revision, level = 6 } = {}) {
  if (findProgram('dpkg-deb') === undefined)
    throw new SetupError('dpkg-deb is missing: install the package dpkg (Debian and Ubuntu have it)');
  requireSigner(key);
  const { version } = JSON.parse(await readFile(join(release, 'package.json'), 'utf8'));
  const debian = versionOf(version, revision);
  const architecture = ARCHITECTURES[process.arch];
  await mkdir(into, { recursive: true });
  const work = await mkdtemp(join(into, '.new-'));
  try {
    const debs = [];
    for (const one of PACKAGES) {
      const file = `${one.name}_${debian}_${architecture}.deb`;
      const root = join(work, one.name);
      await writeTree(one, release, root, controlOf(one, debian, architecture));
      await build(root, join(work, file), level);
      debs.push(file);
    }
    const bom = `longshore_${debian}_${architecture}.cdx.json`;
    await writeFile(join(work, bom), `${JSON.stringify(await bomOf(version, process.arch), null, 2)}\n`);
    const made = [...debs, bom];
    const sums = await Promise.all(made.map(async (file) => `${await sha256Of(join(work, file))}  ${file}\n`));
    await writeFile(join(work, 'SHA256SUMS'), sums.join(''));
    made.push('SHA256SUMS');
    if (key !== undefined) {
      await sign(join(work, 'SHA256SUMS'), key);
      made.push('SHA256SUMS.asc');
    }
    const old = (await readdir(into)).filter((file) => !file.startsWith('.'));
    for (const file of made) await rename(join(work, file), join(into, file));
    await Promise.all(old.filter((file) => !made.includes(file)).map((file) => rm(join(into, file), { force: true })));
    return made;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * A version as Debian compares it: a pre-release sorts before its release.
 * @throws SetupError for a revision that dpkg does not take
 */
export function versionOf(version, revision) {
  if (revision !== undefined && !/^[A-Za-z0-9.+~]+$/.test(revision))
    throw new SetupError(`--revision takes letters, digits and . + ~, not ${revision}`);
  return version.replace('-', '~') + (revision === undefined ? '' : `-${revision}`);
}

/** The control file of a package. */
export function controlOf({ name, recommends, suggests, summary }, version, architecture) {
  return [
    `Package: ${name}`,
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    'Maintainer: who built this package <root@localhost>',
    'Section: admin',
    'Priority: optional',
    `Depends: ${DEPENDS}`,
    `Recommends: ${recommends}`,
    `Suggests: ${suggests}`,
    `Description: ${summary}`,
    ' Holds a whole release with its own Node. docs/packages.md of Longshore describes',
    ' what it installs, upgrades and leaves.',
    '',
  ].join('\n');
}

/** The package's files below `root`, as they will lie on a machine. */
async function writeTree({ name, scripts, units, command }, release, root, control) {
  const home = `/usr/lib/${name}`;
  await mkdir(join(root, 'usr', 'lib', 'systemd', 'system'), { recursive: true });
  await cp(release, join(root, home), { recursive: true });
  for (const unit of units) {
    const text = await readFile(join(release, 'systemd', unit), 'utf8');
    await writeFile(join(root, 'usr/lib/systemd/system', unit), text.replaceAll('/opt/longshore/current', home));
  }
  const from = join(repositoryRoot, 'deploy', 'debian', scripts);
  if (command !== undefined) {
    await copyFile(join(from, command), join(root, home, 'bin', name));
    await mkdir(join(root, 'usr', 'sbin'));
    await symlink(`../lib/${name}/bin/${name}`, join(root, 'usr', 'sbin', name));
  }
  // Before the scripts: they keep rights of their own.
  await run('chmod', ['-R', 'u=rwX,go=rX', root]);
  if (command !== undefined) await chmod(join(root, home, 'bin', name), 0o755);
  await mkdir(join(root, 'DEBIAN'), { mode: 0o755 });
  await writeFile(join(root, 'DEBIAN', 'control'), control);
  for (const script of ['preinst', 'postinst', 'prerm', 'postrm']) {
    await copyFile(join(from, script), join(root, 'DEBIAN', script));
    await chmod(join(root, 'DEBIAN', script), 0o755);
  }
}

/** Times later than the epoch become the epoch. The tool sorts names itself. */
async function build(root, file, level) {
  const env = { ...process.env, SOURCE_DATE_EPOCH: process.env.SOURCE_DATE_EPOCH ?? String(EPOCH_SECONDS) };
  const args = ['--root-owner-group', '-Zgzip', `-z${level}`, '--build', root, file];
  await run('dpkg-deb', args, { name: 'debian-package', timeoutMs: BUILD_MS, env });
}

const sha256Of = async (file) =>
  createHash('sha256')
    .update(await readFile(file))
    .digest('hex');

/**
 * Builds a Python root file system from this system's own Debian packages: unpacked, without maintainer
 * scripts, with busybox as its shell. No root is needed: the archive names root as the owner of everything.
 */
import { spawn } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SetupError } from './log.mjs';
import { isDebianLike, operatingSystem } from './packages.mjs';
import { asRoot, privilege } from './privilege.mjs';
import { run } from './run.mjs';

/**
 * Packages on Debian 12, chosen by hand: the needs of
 * `import ssl, sqlite3, ctypes, bz2, lzma, readline, curses` and of venv.
 */
const BOOKWORM =
  `libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1
  libnsl2 libtirpc3 libk5crypto3 libgssapi-krb5-2 libkrb5-3 libkrb5support0 libcom-err2 libkeyutils1 libreadline8 libtinfo6
  libncursesw6 libdb5.3 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib python3.11 python3.11-venv python3-pip-whl
  python3-setuptools-whl python3-distutils python3-lib2to3 busybox-static ca-certificates netbase media-types base-files base-passwd
  tzdata`.split(/\s+/);

/** Elsewhere dependencies are followed, and only packages with these names go into an image that runs Python. */
const WANTED =
  /^(lib(?!pam|debconf|perl|apt|systemd|semanage|sepol|audit)|python3|zlib1g|busybox-static|ca-certificates$|netbase|media-types|base-files|base-passwd|tzdata$|gcc-\d+-base)/;

const LEFT_OUT = ['doc', 'man', 'locale', 'lintian'].map((folder) => `./usr/share/${folder}`);

/** The PEM file that this machine trusts. */
export function caBundle(env = process.env) {
  return env.SSL_CERT_FILE || '/etc/ssl/certs/ca-certificates.crt';
}

/** The version of Python that this system packages, such as `3.11`. */
export async function packagedPython() {
  if (!isDebianLike()) {
    throw new SetupError(
      `No registry gives the base image, and on ${operatingSystem().name} there are no Debian packages to build it from.\n` +
        'Load an image by hand (`docker load`) and tag it python:3.11-slim.',
    );
  }
  if (operatingSystem().codename === 'bookworm') return '3.11';
  await ensurePackageLists('python3-minimal');
  const { stdout } = await run('apt-cache', ['depends', 'python3-minimal']);
  const found = /Depends: python(3\.\d+)-minimal/.exec(stdout);
  if (found === null) throw new SetupError('apt-cache does not say which Python this system packages.');
  return found[1];
}

/**
 * @param {string} version - as `packagedPython()` returns it
 * @returns {Promise<{ tar(): { stream: NodeJS.ReadableStream, ended: Promise<void> }, remove(): void }>}
 */
export async function buildRootfs(version) {
  await ensurePackageLists(`python${version}-minimal`);
  const work = mkdtempSync(join(tmpdir(), 'longshore-base-'));
  const remove = () => rmSync(work, { recursive: true, force: true });
  try {
    // apt's own user writes the downloads when root requests them.
    chmodSync(work, 0o755);
    const debs = join(work, 'debs');
    const root = join(work, 'root');
    mkdirSync(debs);
    const packages = await packageList(version);
    await run('apt-get', ['download', '-qq', '-o', 'APT::Sandbox::User=root', ...packages], {
      cwd: debs,
      timeoutMs: 300_000,
      name: 'base-image',
    });
    await unpack(debs, root);
    await finish(root, version);
    return { tar: () => tarOf(root), remove };
  } catch (error) {
    remove();
    throw error;
  }
}

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

async function packageList(version) {
  if (operatingSystem().codename === 'bookworm') return BOOKWORM;
  const seeds = [
    `python${version}`,
    `python${version}-venv`,
    'busybox-static',
    'ca-certificates',
    'netbase',
    'base-files',
    'base-passwd',
    'tzdata',
    'libgcc-s1',
    'libstdc++6',
  ];
  return dependenciesOf(seeds, WANTED);
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
export async function unpack(debs, root, leftOut = LEFT_OUT) {
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

async function finish(root, version) {
  const busybox = existsSync(join(root, 'usr/bin/busybox')) ? 'usr/bin/busybox' : 'bin/busybox';
  const { stdout } = await run(join(root, busybox), ['--list']);
  for (const applet of stdout.split('\n').filter((name) => /^[\w[-]+$/.test(name)))
    link('busybox', join(root, 'usr/bin', applet));
  replaceLink(`python${version}`, join(root, 'usr/bin/python3'));
  replaceLink('python3', join(root, 'usr/bin/python'));
  rmSync(join(root, 'usr/lib', `python${version}`, 'EXTERNALLY-MANAGED'), { force: true });
  for (const folder of ['tmp', 'proc', 'sys', 'dev', 'root', 'app', 'etc/ssl/certs', 'usr/lib/ssl'])
    mkdirSync(join(root, folder), { recursive: true });
  chmodSync(join(root, 'tmp'), 0o1777);
  chmodSync(join(root, 'root'), 0o700);
  for (const name of ['passwd', 'group'])
    copyFileSync(join(root, `usr/share/base-passwd/${name}.master`), join(root, 'etc', name));
  // The CA bundle of this machine, and the link where Python's
  // OpenSSL looks for it (Debian's openssl package would make it).
  if (existsSync(caBundle())) copyFileSync(caBundle(), join(root, 'etc/ssl/certs/ca-certificates.crt'));
  else writeFileSync(join(root, 'etc/ssl/certs/ca-certificates.crt'), '');
  chmodSync(join(root, 'etc/ssl/certs/ca-certificates.crt'), 0o644);
  replaceLink('/etc/ssl/certs/ca-certificates.crt', join(root, 'usr/lib/ssl/cert.pem'));
}

/** Links unless a package brought a file there. */
function link(target, path) {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) symlinkSync(target, path);
}

function replaceLink(target, path) {
  rmSync(path, { force: true });
  symlinkSync(target, path);
}

function tarOf(root) {
  const child = spawn('tar', ['-C', root, '--owner=0', '--group=0', '--numeric-owner', '-c', '.'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  child.stderr.on('data', (chunk) => (errors = (errors + chunk).slice(-2000)));
  const ended = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new SetupError(`tar exited with ${code}: ${errors.trim()}`)),
    );
  });
  ended.catch(() => child.stdout.destroy());
  return { stream: child.stdout, ended };
}

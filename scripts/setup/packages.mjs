/** Programs from Debian packages: looked for first, installed only when missing and only with the right to. */
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SetupError } from './log.mjs';
import { asRoot, hasSystemd, privilege } from './privilege.mjs';
import { findProgram, run } from './run.mjs';

const INSTALL_TIMEOUT_MS = 600_000;

/** The directory of a Postgres server's programs, newest version first, or undefined. */
export function postgresBin() {
  const home = '/usr/lib/postgresql';
  const versions = existsSync(home) ? readdirSync(home).toSorted((a, b) => Number(b) - Number(a)) : [];
  for (const version of versions) {
    const bin = `${home}/${version}/bin`;
    if (existsSync(`${bin}/postgres`) && existsSync(`${bin}/initdb`)) return bin;
  }
  const onPath = findProgram('postgres');
  return onPath === undefined || findProgram('initdb') === undefined ? undefined : onPath.replace(/\/postgres$/, '');
}

/**
 * A Python with pytest that can make environments, for the Python module's tests; the packaged one when the first on
 * the PATH lacks either.
 */
export async function pythonWithPytest() {
  for (const python of ['python3', '/usr/bin/python3']) {
    const probe = await run(python, ['-c', 'import pytest, ensurepip'], { allowFailure: true, timeoutMs: 20_000 });
    if (probe.code === 0) return python;
  }
  return undefined;
}

/**
 * Programs that each profile needs beside Docker. `service`: the service that the
 * package would start and Longshore does not use. `unpacked`: programs taken out of
 * a package that is not installed, because it would start an unwanted service.
 */
const PROGRAMS = {
  redis: {
    packages: ['redis-server'],
    found: () => findProgram('redis-server'),
    service: 'redis-server',
    what: 'Redis',
  },
  postgres: { packages: ['postgresql'], found: postgresBin, service: 'postgresql', what: 'Postgres' },
  dockerd: { packages: ['docker.io', 'ca-certificates'], found: () => findProgram('dockerd'), what: 'Docker Engine' },
  python: { packages: ['python3'], found: () => findProgram('python3'), what: 'Python' },
  pytest: {
    packages: ['python3', 'python3-pytest', 'python3-venv'],
    found: pythonWithPytest,
    what: 'Python with pytest and venv',
  },
  zsh: { packages: ['zsh'], found: () => findProgram('zsh'), what: 'zsh' },
  fish: { packages: ['fish'], found: () => findProgram('fish'), what: 'fish' },
  jq: { packages: ['jq'], found: () => findProgram('jq'), what: 'jq' },
  curl: { packages: ['curl'], found: () => findProgram('curl'), what: 'curl' },
  ip: { packages: ['iproute2'], found: () => findProgram('ip'), what: 'iproute2' },
  s3fs: { packages: ['s3fs'], found: () => findProgram('s3fs'), what: 's3fs' },
  faketime: { packages: ['faketime'], found: () => findProgram('faketime'), what: 'faketime' },
  mmdebstrap: { packages: ['mmdebstrap'], found: () => findProgram('mmdebstrap'), what: 'mmdebstrap' },
  mount: { packages: ['mount'], found: () => findProgram('mount'), what: 'mount' },
  promtool: {
    packages: [],
    unpacked: { from: 'prometheus', programs: ['promtool', 'prometheus'] },
    found: () => findProgram('promtool') !== undefined && findProgram('prometheus') !== undefined,
    what: 'promtool and prometheus',
  },
  registry: {
    packages: [],
    unpacked: { from: 'docker-registry', programs: ['docker-registry'] },
    found: () => findProgram('docker-registry'),
    what: 'docker-registry',
  },
  chromium: {
    packages: ['chromium', 'fonts-dejavu-core'],
    found: () => findProgram('chromium') ?? findProgram('google-chrome'),
    what: 'Chromium',
  },
  firefox: {
    packages: ['firefox-esr'],
    found: () => findProgram('firefox-esr') ?? findProgram('firefox'),
    what: 'Firefox',
  },
  downloads: {
    packages: ['ca-certificates'],
    found: () => existsSync(process.env.SSL_CERT_FILE ?? '/etc/ssl/certs/ca-certificates.crt'),
    what: 'CA certificates',
  },
};

/**
 * Which of the named programs are missing.
 * @param {readonly (keyof typeof PROGRAMS)[]} names
 */
export async function missingPrograms(names) {
  const missing = [];
  for (const name of names) if (!(await PROGRAMS[name].found())) missing.push(name);
  return missing;
}

/** The names for the person, and the packages, of the named programs. */
export function describePrograms(names) {
  return {
    what: names.map((name) => PROGRAMS[name].what).join(', '),
    packages: [...new Set(names.flatMap((name) => PROGRAMS[name].packages))],
  };
}

/** The command that installs every missing program, for a user with the right to. */
export function installCommand(names, more = []) {
  const { packages } = describePrograms(names);
  const unpacked = unpackedOf(names);
  const parts = [
    ...(packages.length + unpacked.length > 0 ? ['apt-get update'] : []),
    ...(packages.length > 0 ? [`apt-get install -y --no-install-recommends ${packages.join(' ')}`] : []),
    ...unpacked.flatMap(({ from, programs }) => [
      'cd "$(mktemp -d)"',
      `apt-get download ${from}`,
      `dpkg-deb -x ${from}_*.deb .`,
      `install ${programs.map((name) => `usr/bin/${name}`).join(' ')} ${UNPACK_TO}`,
    ]),
    ...more,
  ];
  return `sudo sh -c '${parts.join(' && ')}'`;
}

/** Destination of unpacked programs: no installed package owns files there. */
const UNPACK_TO = '/usr/local/bin';

const unpackedOf = (names) => names.map((name) => PROGRAMS[name].unpacked).filter((unpacked) => unpacked !== undefined);

/** Takes the programs out of the package: nothing is configured, nothing started. */
async function unpackPrograms({ from, programs }) {
  const work = mkdtempSync(join(tmpdir(), 'longshore-unpack-'));
  try {
    // apt's own user writes the download when root requests it.
    chmodSync(work, 0o755);
    const download = ['download', '-qq', '-o', 'APT::Sandbox::User=root', from];
    await run('apt-get', download, { cwd: work, name: 'apt-download', timeoutMs: INSTALL_TIMEOUT_MS });
    const deb = readdirSync(work).find((name) => name.endsWith('.deb'));
    if (deb === undefined) throw new SetupError(`apt-get downloaded no package ${from}.`);
    await run('dpkg-deb', ['-x', join(work, deb), join(work, 'root')], { timeoutMs: INSTALL_TIMEOUT_MS });
    const files = programs.map((name) => join(work, 'root', 'usr', 'bin', name));
    await run(...(await asRoot('install', ['-m', '755', ...files, UNPACK_TO])));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Whether apt-get exists (Debian, Ubuntu and derivatives); set-up installs nothing elsewhere. */
export function isDebianLike() {
  return findProgram('apt-get') !== undefined && findProgram('dpkg-deb') !== undefined;
}

/** `{ id, codename }` of the operating system, for messages and for the choice of base packages. */
export function operatingSystem() {
  const text = existsSync('/etc/os-release') ? readFileSync('/etc/os-release', 'utf8') : '';
  const value = (key) => new RegExp(`^${key}="?([^"\\n]*)"?$`, 'm').exec(text)?.[1] ?? '';
  return {
    id: value('ID') || process.platform,
    name: value('PRETTY_NAME') || process.platform,
    codename: value('VERSION_CODENAME'),
  };
}

/**
 * Whether an installation was interrupted: Ctrl-C leaves packages half
 * done, and apt-get refuses everything until they are repaired.
 */
async function wasInterrupted() {
  const journal = '/var/lib/dpkg/updates';
  if (existsSync(journal) && readdirSync(journal).some((name) => /^\d+$/.test(name))) return true;
  const { stdout } = await run('dpkg', ['--audit'], { allowFailure: true });
  return stdout.trim() !== '';
}

/**
 * Installs the packages of the named programs, with progress. Redis and Postgres services that this very
 * installation brought are disabled again: Longshore runs its own, and the default ports must stay free.
 * @param {{ say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 */
export async function installPrograms(names, log) {
  const { what, packages } = describePrograms(names);
  if (!isDebianLike()) {
    throw new SetupError(
      `Missing on this machine: ${what}. Set-up installs it on Debian, Ubuntu and their kin only; this is ${operatingSystem().name}.\n` +
        `Install ${what} in this system's way and run the same command again.`,
    );
  }
  if ((await privilege()) === 'none')
    throw new SetupError(`Missing on this machine: ${what}. Run once, then repeat:\n\n  ${installCommand(names)}`);
  const quiet = { DEBIAN_FRONTEND: 'noninteractive' };
  const lock = ['-o', 'DPkg::Lock::Timeout=300'];
  if (await wasInterrupted()) {
    const configure = await asRoot('dpkg', ['--configure', '-a', '--force-confdef', '--force-confold'], quiet);
    await log.step('finishing an installation that was interrupted (dpkg --configure -a)', () =>
      // Packages without their dependencies fail here; --fix-broken below repairs them.
      run(...configure, { name: 'dpkg-configure', timeoutMs: INSTALL_TIMEOUT_MS, allowFailure: true }),
    );
  }
  const update = await asRoot('apt-get', ['update', '-qq', ...lock], quiet);
  await log.step('refreshing the package lists (apt-get update)', () =>
    run(...update, { name: 'apt-update', timeoutMs: INSTALL_TIMEOUT_MS }),
  );
  if (packages.length > 0) {
    const install = await asRoot(
      'apt-get',
      ['install', '-y', '-qq', '--no-install-recommends', '--fix-broken', ...lock, ...packages],
      quiet,
    );
    await log.step(`installing ${what} (apt-get install ${packages.join(' ')})`, () =>
      run(...install, { name: 'apt-install', timeoutMs: INSTALL_TIMEOUT_MS }),
    );
  }
  for (const unpacked of unpackedOf(names)) {
    const { from, programs } = unpacked;
    await log.step(
      `putting ${programs.join(' and ')} of the package ${from} into ${UNPACK_TO} (its service stays away)`,
      () => unpackPrograms(unpacked),
    );
  }
  const services = names.map((name) => PROGRAMS[name].service).filter((service) => service !== undefined);
  if (services.length > 0 && hasSystemd()) {
    const off = await asRoot('systemctl', ['disable', '--now', ...services]);
    await log.step(`switching off the packaged ${services.join(', ')} (Longshore runs its own)`, () =>
      run(...off, { name: 'systemctl' }),
    );
  }
  const still = await missingPrograms(names);
  if (still.length > 0)
    throw new SetupError(
      `apt-get brought ${[...packages, ...unpackedOf(names).map(({ from }) => from)].join(' ')}, yet ${describePrograms(still).what} is not found.`,
    );
}

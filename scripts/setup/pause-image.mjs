/**
 * The image of the pause containers: containers that own the network of one workload each and set its
 * filter (agent/containers/pause-containers.ts). The image has `nft`, a busybox, the GPU probe
 * (agent/probe/gpu-probe.c) with its C library, and nothing else. Set-up builds the image from this
 * system's Debian packages as one file. Agents whose engine lacks it import it, and releases carry it.
 */
import {
  copyFileSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { chmodSync, symlinkSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { engineRequest } from './engine-api.mjs';
import { SetupError } from './log.mjs';
import { isDebianLike, operatingSystem } from './packages.mjs';
import { repositoryRoot } from './paths.mjs';
import { dependenciesOf, ensurePackageLists, unpack } from './rootfs.mjs';
import { findProgram, run } from './run.mjs';

/** The tag, equal to the one in agent/containers/pause-image.ts; raised when the image's contents change. */
export const PAUSE_IMAGE = 'longshore-holder:2';

const BOOKWORM =
  `busybox-static nftables libnftables1 libnftnl11 libmnl0 libjansson4 libgmp10 libxtables12 libedit2 libbsd0 libmd0
  libtinfo6 libc6 libgcc-s1`.split(/\s+/);
const WANTED =
  /^(busybox-static$|nftables$|lib(?:nftables|nftnl|mnl|jansson|gmp|xtables|edit|bsd|md0|tinfo|c6$|gcc-s1))/;
/**
 * Files that no pause container runs: translations, conversions, and programs of packages that are there for their
 * libraries.
 */
const LEFT_OUT = [
  './usr/share/man',
  './usr/share/locale',
  './usr/share/lintian',
  './usr/share/nftables',
  './etc',
  '*gconv*',
  '*changelog*',
  '*NEWS*',
];

/** The path of the image file. */
export function pauseImageFile(env = process.env) {
  const cache = env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return join(cache, 'longshore', `${PAUSE_IMAGE.replace(':', '-')}.tar`);
}

/** A mark beside the file: the image was built without a C compiler, so without the probe. */
const withoutProbe = (file) => `${file}.without-probe`;

/**
 * Makes sure that the engine holds the image, and that its file exists.
 * @param {{ log: { say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> } }} options
 */
export async function ensurePauseImage({ log }) {
  const { file, built } = await ensureFile(log);
  const { status } = await engineRequest('GET', `/images/${encodeURIComponent(PAUSE_IMAGE)}/json`);
  if (status === 200 && !built) return;
  const [repository, tag] = PAUSE_IMAGE.split(':');
  const answer = await engineRequest('POST', `/images/create?fromSrc=-&repo=${repository}&tag=${tag}`, {
    body: createReadStream(file),
    timeoutMs: 120_000,
  });
  if (answer.status !== 200 || /"error"/.test(answer.text))
    throw new SetupError(`Docker could not import ${file}: ${answer.text.slice(0, 300)}`);
}

/**
 * The image file for a release, which includes the probe.
 * @returns {Promise<string>} the file's path
 * @throws SetupError where there is no C compiler
 */
export async function releasedPauseImageFile({ log }) {
  const { file } = await ensureFile(log);
  if (existsSync(withoutProbe(file))) throw new SetupError(`A release carries the GPU probe. ${NO_COMPILER}`);
  return file;
}

const NO_COMPILER =
  'The probe cannot be compiled here: install a C compiler (sudo apt-get install -y --no-install-recommends gcc libc6-dev) and set up again.';

/** @returns {Promise<{ file: string, built: boolean }>} */
async function ensureFile(log) {
  const file = pauseImageFile();
  const isThere = existsSync(file);
  if (isThere && !existsSync(withoutProbe(file))) return { file, built: false };
  const work = mkdtempSync(join(tmpdir(), 'longshore-probe-'));
  try {
    const probe = await compileProbe(join(work, 'longshore-gpu-probe'));
    if (probe === undefined)
      log.say(`  WITHOUT THE GPU PROBE: agents with this image offer GPUs that no program has tried. ${NO_COMPILER}`);
    if (isThere && probe === undefined) return { file, built: false };
    if (!isDebianLike())
      throw new SetupError(
        `The image of pause containers can be built from Debian packages only, and this is ${operatingSystem().name}.\n` +
          `Copy agent/assets/holder-image.tar of a release to ${file}.`,
      );
    await log.step(`building the image of pause containers, ${PAUSE_IMAGE}, from Debian packages`, () =>
      build(file, probe),
    );
    return { file, built: true };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * @returns {Promise<string | undefined>} the program, which needs no
 *   library but the C library; undefined: no compiler, or no headers
 */
async function compileProbe(to) {
  const compiler = findProgram('cc') ?? findProgram('gcc');
  if (compiler === undefined) return undefined;
  const source = join(repositoryRoot, 'agent/probe/gpu-probe.c');
  const flags = ['-O1', '-s', '-Wall', '-Wextra', '-o', to, source, '-ldl'];
  const { code } = await run(compiler, flags, { name: 'gpu-probe', allowFailure: true });
  return code === 0 ? to : undefined;
}

async function build(file, probe) {
  await ensurePackageLists('nftables');
  const work = mkdtempSync(join(tmpdir(), 'longshore-holder-'));
  try {
    chmodSync(work, 0o755);
    const debs = join(work, 'debs');
    const root = join(work, 'root');
    mkdirSync(debs);
    const seeds = ['nftables', 'busybox-static', 'libgcc-s1'];
    const packages = operatingSystem().codename === 'bookworm' ? BOOKWORM : await dependenciesOf(seeds, WANTED);
    await run('apt-get', ['download', '-qq', '-o', 'APT::Sandbox::User=root', ...packages], {
      cwd: debs,
      timeoutMs: 300_000,
      name: 'holder-image',
    });
    await unpack(debs, root, LEFT_OUT);
    const busybox = existsSync(join(root, 'usr/bin/busybox')) ? 'usr/bin/busybox' : 'bin/busybox';
    for (const applet of ['sh', 'su', 'sleep'])
      if (!existsSync(join(root, 'usr/bin', applet))) symlinkSync(`/${busybox}`, join(root, 'usr/bin', applet));
    for (const folder of ['etc', 'proc', 'sys', 'dev', 'tmp']) mkdirSync(join(root, folder), { recursive: true });
    if (probe !== undefined) copyFileSync(probe, join(root, 'usr/bin/longshore-gpu-probe'));
    // NVIDIA's tools write below it on hosts with the driver's libraries.
    mkdirSync(join(root, 'etc/ld.so.conf.d'), { recursive: true });
    writeFileSync(join(root, 'etc/ld.so.conf'), 'include /etc/ld.so.conf.d/*.conf\n');
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/:/bin/sh\nholder:x:65534:65534:holder:/:/bin/sh\n');
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nholder:x:65534:\n');
    const tar = join(work, 'holder.tar');
    const fixed = ['--sort=name', '--format=gnu', '--mtime=@315532800', '--owner=0', '--group=0', '--numeric-owner'];
    await run('tar', [...fixed, '--mode=u+rwX,go+rX,go-w', '-C', root, '-cf', tar, '.'], { name: 'holder-image' });
    mkdirSync(join(file, '..'), { recursive: true });
    // Concurrent builders write the same bytes, so the last rename may win.
    const mine = `${file}.${process.pid}`;
    copyFileSync(tar, mine);
    renameSync(mine, file);
    if (probe === undefined) writeFileSync(withoutProbe(file), '');
    else rmSync(withoutProbe(file), { force: true });
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

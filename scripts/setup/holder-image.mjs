/**
 * The image of the holders: containers of our own that own the network of one workload each and set its filter (agent/containers/holders.ts). It has `nft`, a
 * busybox, and nothing else; built from this system's Debian packages, kept as one file, imported by agents whose engine lacks it, and carried by releases.
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
import { dependenciesOf, ensurePackageLists, unpack } from './rootfs.mjs';
import { run } from './run.mjs';

/** As agent/containers/holder-image.ts says it; raised when what is in the image changes. */
export const HOLDER_IMAGE = 'longshore-holder:1';

const BOOKWORM =
  `busybox-static nftables libnftables1 libnftnl11 libmnl0 libjansson4 libgmp10 libxtables12 libedit2 libbsd0 libmd0
  libtinfo6 libc6 libgcc-s1`.split(/\s+/);
const WANTED =
  /^(busybox-static$|nftables$|lib(?:nftables|nftnl|mnl|jansson|gmp|xtables|edit|bsd|md0|tinfo|c6$|gcc-s1))/;
/** What nothing of ours runs: translations, conversions, programs of packages that are there for their libraries. */
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

/** Where it is kept. */
export function holderImageFile(env = process.env) {
  const cache = env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return join(cache, 'longshore', `${HOLDER_IMAGE.replace(':', '-')}.tar`);
}

/**
 * Makes sure that the engine holds it, and that it is there as a file.
 * @param {{ log: { step<T>(title: string, work: () => Promise<T>): Promise<T> } }} options
 */
export async function ensureHolderImage({ log }) {
  const file = await ensureHolderImageFile({ log });
  const { status } = await engineRequest('GET', `/images/${encodeURIComponent(HOLDER_IMAGE)}/json`);
  if (status === 200) return;
  const [repository, tag] = HOLDER_IMAGE.split(':');
  const answer = await engineRequest('POST', `/images/create?fromSrc=-&repo=${repository}&tag=${tag}`, {
    body: createReadStream(file),
    timeoutMs: 120_000,
  });
  if (answer.status !== 200 || /"error"/.test(answer.text))
    throw new SetupError(`Docker could not import ${file}: ${answer.text.slice(0, 300)}`);
}

/** @returns {Promise<string>} the file's path */
export async function ensureHolderImageFile({ log }) {
  const file = holderImageFile();
  if (existsSync(file)) return file;
  if (!isDebianLike())
    throw new SetupError(
      `The holders' image can be built from Debian packages only, and this is ${operatingSystem().name}.\n` +
        `Copy agent/assets/holder-image.tar of a release to ${file}.`,
    );
  await log.step(`building the holders' image ${HOLDER_IMAGE} from Debian packages`, () => build(file));
  return file;
}

async function build(file) {
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
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/:/bin/sh\nholder:x:65534:65534:holder:/:/bin/sh\n');
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nholder:x:65534:\n');
    const tar = join(work, 'holder.tar');
    const fixed = ['--sort=name', '--format=gnu', '--mtime=@315532800', '--owner=0', '--group=0', '--numeric-owner'];
    await run('tar', [...fixed, '--mode=u+rwX,go+rX,go-w', '-C', root, '-cf', tar, '.'], { name: 'holder-image' });
    mkdirSync(join(file, '..'), { recursive: true });
    // Whoever else builds it at this moment writes the same bytes; the last name stands.
    const mine = `${file}.${process.pid}`;
    copyFileSync(tar, mine);
    renameSync(mine, file);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

// Releases of Debian and Ubuntu, the Python of each, and where this machine gets packages of them. Pure.
// Invariant: packages come from the mirrors of the machine's own sources, checked by the keys that those name.
// Set-up reads base-images.json, too, on any Node, so that the facts in it are not here.
import facts from './base-images.json' with { type: 'json' };

/** Raised when the content of base images changes: set-up makes its image anew then. */
export const BASE_REVISION = facts.revision;

/** Python of each release, oldest first. A release whose mirror does not have it any more is found out by asking. */
export const RELEASES: Readonly<Record<string, Readonly<Record<string, string>>>> = facts.releases;

const DEBIAN_MIRRORS = ['http://deb.debian.org/debian', 'http://deb.debian.org/debian-security'] as const;
const UBUNTU_MIRRORS = ['http://archive.ubuntu.com/ubuntu', 'http://security.ubuntu.com/ubuntu'] as const;
/** The mirror of every processor that is not x86. */
const UBUNTU_PORTS = 'http://ports.ubuntu.com/ubuntu-ports';
const UBUNTU_KEYS = '/usr/share/keyrings/ubuntu-archive-keyring.gpg';
const DEBIAN_KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';

/** A source of packages, as apt's files name it. */
export interface PackageSource {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  /** Path of the keys, or a fingerprint; empty: any key that apt trusts. */
  readonly signedBy: string;
}

/** A release from which base images can be made. */
export interface Release {
  readonly python: string;
  /** The distribution's own name of it, such as `bookworm`. */
  readonly codename: string;
  readonly distribution: string;
  /** The release itself first; then its updates. */
  readonly sources: readonly PackageSource[];
}

/**
 * The releases that this machine's sources lead to, by their Python.
 * @param osRelease - text of /etc/os-release
 * @param files - texts of apt's lists of sources, in either of their two forms
 * @param arch - as Node names it
 * @returns none where the machine is no Debian or Ubuntu, or a derivative that names its release
 */
export function releasesOf(
  osRelease: string,
  files: readonly string[],
  arch: string = process.arch,
): ReadonlyMap<string, Release> {
  const { distribution, codename } = systemOf(osRelease);
  const own = files.flatMap(readSources);
  const found = new Map<string, Release>();
  for (const [name, python] of Object.entries(RELEASES[distribution] ?? {})) {
    const mirrored = own.flatMap((source) => sourceFor(source, codename, name));
    const isWhole = mirrored.some(({ suite, components }) => suite === name && components.includes('main'));
    const sources = isWhole ? mirrored : officialSources(distribution, name, arch);
    found.set(python, { python, codename: name, distribution, sources: sources.toSorted(bySuite) });
  }
  return found;
}

function systemOf(osRelease: string): { readonly distribution: string; readonly codename: string } {
  const value = (key: string): string => new RegExp(`^${key}="?([^"\\n]*)"?$`, 'm').exec(osRelease)?.[1] ?? '';
  const id = value('ID');
  if (RELEASES[id] !== undefined) return { distribution: id, codename: value('VERSION_CODENAME') };
  // Derivatives say from which release they come.
  const ubuntu = value('UBUNTU_CODENAME');
  if (ubuntu !== '') return { distribution: 'ubuntu', codename: ubuntu };
  const debian = value('DEBIAN_CODENAME');
  return { distribution: debian === '' ? '' : 'debian', codename: debian };
}

const bySuite = (a: PackageSource, b: PackageSource): number => a.suite.length - b.suite.length;

/** Parts of Ubuntu's Pythons are in universe, which may have a line of its own. */
const COMPONENTS: ReadonlySet<string> = new Set(['main', 'universe']);

/** The same mirror's source of another release; none where it is no source of the machine's own release. */
function sourceFor(source: PackageSource, from: string, to: string): readonly PackageSource[] {
  const kind = source.suite.startsWith(from) ? source.suite.slice(from.length) : undefined;
  if (kind === undefined || !['', '-updates', '-security'].includes(kind)) return [];
  const components = source.components.filter((name) => COMPONENTS.has(name));
  return components.length > 0 ? [{ ...source, suite: `${to}${kind}`, components }] : [];
}

/** The public mirrors, for a machine whose sources name its release in no way that is understood. */
function officialSources(distribution: string, codename: string, arch: string): readonly PackageSource[] {
  const isDebian = distribution === 'debian';
  const [uri, security] = isDebian ? DEBIAN_MIRRORS : arch === 'x64' ? UBUNTU_MIRRORS : [UBUNTU_PORTS, UBUNTU_PORTS];
  const common = {
    components: isDebian ? ['main'] : [...COMPONENTS],
    signedBy: isDebian ? DEBIAN_KEYS : UBUNTU_KEYS,
  };
  return [
    { ...common, uri, suite: codename },
    { ...common, uri, suite: `${codename}-updates` },
    { ...common, uri: security, suite: `${codename}-security` },
  ];
}

/** Sources of a file of apt: lines (`deb …`), or stanzas (`Types: deb`). */
export function readSources(text: string): readonly PackageSource[] {
  const bare = text.replaceAll(/^[ \t]*#.*\n?/gm, '');
  return /^Types:/im.test(bare) ? bare.split(/\n\s*\n/).flatMap(readStanza) : bare.split('\n').flatMap(readLine);
}

const words = (text: string): readonly string[] => text.split(/\s+/).filter((word) => word !== '');
/** A password of a source stays out: every container of a base image can read the image's sources. */
const isRemote = (uri: string): boolean => /^https?:\/\/[^\s@]+$/.test(uri);
const bareUri = (uri: string): string => uri.replace(/^(https?:\/\/)[^/]*@/, '$1');

/** A text of apt without the user's names and passwords in its addresses. */
export const withoutUserinfo = (text: string): string => text.replaceAll(/:\/\/\S*@/g, '://');

/** Whether apt reads the keys from a file, or finds them by their fingerprint; keys inside a stanza are passed over. */
const isUsableKey = (signedBy: string): boolean => /^(?:|\/[\w./-]+|[0-9A-Fa-f]{40})$/.test(signedBy);

/** Words that apt takes for no. */
const OFF: ReadonlySet<string> = new Set(['no', 'false', 'without', 'off', 'disable', '0']);

function readStanza(stanza: string): readonly PackageSource[] {
  const fields = new Map<string, string>();
  for (const [, name = '', value = ''] of stanza.matchAll(/^([A-Za-z-]+):((?:.*)(?:\n[ \t].*)*)/gm))
    fields.set(name.toLowerCase(), value.trim());
  const field = (name: string): string => fields.get(name) ?? '';
  const signedBy = field('signed-by');
  if (!words(field('types')).includes('deb') || OFF.has(field('enabled').toLowerCase()) || !isUsableKey(signedBy))
    return [];
  const components = words(field('components'));
  return words(field('uris'))
    .map(bareUri)
    .filter(isRemote)
    .flatMap((uri) => words(field('suites')).map((suite) => ({ uri, suite, components, signedBy })));
}

function readLine(line: string): readonly PackageSource[] {
  const [, options = '', written = '', suite = '', rest = ''] =
    /^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)/.exec(line) ?? [];
  const uri = bareUri(written);
  const signedBy = /(?:^|\s)signed-by=(\S+)/.exec(options)?.[1] ?? '';
  return isRemote(uri) && isUsableKey(signedBy) ? [{ uri, suite, components: words(rest), signedBy }] : [];
}

/**
 * A line of apt's list of sources.
 * @param target - the kind of index that is asked for; absent: apt's usual ones
 */
export function sourceLine({ uri, suite, components, signedBy }: PackageSource, target = ''): string {
  const options = [
    ...(signedBy === '' ? [] : [`signed-by=${signedBy}`]),
    ...(target === '' ? [] : [`target=${target}`]),
  ];
  return ['deb', ...(options.length === 0 ? [] : [`[${options.join(' ')}]`]), uri, suite, ...components].join(' ');
}

/** Packages of a base image beside the essential ones of the release. */
export const packagesOf = ({ python, codename, distribution }: Release): readonly string[] => [
  'apt',
  ...(distribution === 'debian' ? ['debian-archive-keyring'] : ['ubuntu-keyring']),
  // Without this package some releases convert their folders at first, by a program that needs all of Perl.
  ...(codename === 'bookworm' || distribution === 'ubuntu' ? ['usr-is-merged'] : []),
  `python${python}`,
  `python${python}-venv`,
  'busybox-static',
  'ca-certificates',
  'netbase',
  'media-types',
  'tzdata',
  'libstdc++6',
];

/**
 * Options of the machine's apt that the apt of an image needs as well: proxies, and checks that the operator switched
 * off. A proxy on the machine's own loopback is left out, because no container reaches it; a proxy's password, because
 * every container could read it.
 * @param dump - the output of `apt-config dump`
 */
export const inheritedOptions = (dump: string): readonly string[] =>
  dump
    .split('\n')
    .filter((line) => /^Acquire::(?:https?::(?:[\w.-]+::)?Proxy|Check-Valid-Until|Check-Date) "/i.test(line))
    .map((line) => line.replace(/"([\w+.-]+:\/\/)?[^"]*@/, '"$1'))
    .filter((line) => !/"(?:[\w+.-]+:\/\/)?(?:localhost|127\.|\[::1\])/i.test(line));

// Programs that run in a container of an unfinished base image, and complete it: they install what is unpacked so
// far, as Debian's own installer does, and write the configuration of the image's apt.

/** Folder of the files below in the unfinished image; it leaves with them. */
export const PARTS = 'longshore-base';

/**
 * `apt-get install` without `apt-get update`: the image has no lists of packages, because they age and have 20 MB.
 * `apt-get update` of Debian succeeds when no mirror answers, and an upgrade without lists does nothing.
 */
const APT = `#!/bin/sh
name=/usr/bin/\${0##*/}
fetched=
[ -t 0 ] || export DEBIAN_FRONTEND="\${DEBIAN_FRONTEND:-noninteractive}"
has_lists() { ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; }
fail() { echo "E: $*" >&2; exit 100; }
needs_lists=
for word; do
  case $word in install | build-dep | satisfy | download | upgrade | dist-upgrade | full-upgrade) needs_lists=yes ;; esac
done
if [ -n "$needs_lists" ] && ! has_lists; then
  [ "$(id -u)" = 0 ] || fail "\${0##*/} needs root for this: write USER root before this step"
  echo 'fetching the lists of packages first (apt-get update)'
  /usr/bin/apt-get -qq update || exit
  has_lists || fail 'no mirror gave its list of packages: see the lines above'
  fetched=yes
fi
"$name" "$@"
code=$?
[ -z "$fetched" ] || rm -rf /var/lib/apt/lists/*
exit $code
`;

const DPKG_CONFIGURATION = `force-unsafe-io
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
path-exclude=/usr/lib/python3*/EXTERNALLY-MANAGED
path-exclude=/usr/share/lintian/*
`;

/** @param inherited - options of the machine's apt, as apt prints them */
const aptConfiguration = (inherited: readonly string[]): string =>
  [
    // Steps and containers may be without the right to become apt's own user.
    'APT::Sandbox::User "root";',
    'APT::AutoRemove::SuggestsImportant "false";',
    'Acquire::Languages "none";',
    // The default of newer releases alone.
    'Acquire::Retries "3";',
    'Acquire::GzipIndexes "true";',
    // Caches of the lists, which would have 80 MB in a layer.
    'Dir::Cache::pkgcache "";',
    'Dir::Cache::srcpkgcache "";',
    'Dpkg::Use-Pty "0";',
    'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };',
    ...inherited,
    '',
  ].join('\n');

/** No service starts while packages are installed. */
const POLICY = '#!/bin/sh\nexit 101\n';

/**
 * The image trusts exactly the authorities that the machine trusts: some are added to Debian's, others switched off.
 * `update-ca-certificates` of a later package keeps both.
 */
const AUTHORITIES = `
import pathlib, re, subprocess
PEM = re.compile('-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----', re.S)
def certificates(path):
    return {''.join(body.split()) for body in PEM.findall(path.read_text(errors='replace'))}
host = certificates(pathlib.Path('/${PARTS}/authorities.pem'))
if host:
    share, known, lines = pathlib.Path('/usr/share/ca-certificates'), set(), []
    for path in sorted(share.glob('*/*.crt')):
        own = certificates(path)
        known |= own
        lines.append(('' if own <= host else '!') + str(path.relative_to(share)))
    pathlib.Path('/etc/ca-certificates.conf').write_text('\\n'.join(lines) + '\\n')
    local = pathlib.Path('/usr/local/share/ca-certificates')
    local.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(sorted(host - known)):
        text = '\\n'.join(body[at:at + 64] for at in range(0, len(body), 64))
        (local / ('host-%d.crt' % number)).write_text('-----BEGIN CERTIFICATE-----\\n%s\\n-----END CERTIFICATE-----\\n' % text)
    subprocess.run(['update-ca-certificates', '--fresh'], check=True, stdout=subprocess.DEVNULL)
`;

const FINISH = `set -e
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8
cd /${PARTS}
[ -e /bin/sh ] || ln -s dash /bin/sh
mkdir -p /etc/dpkg/dpkg.cfg.d /etc/apt/apt.conf.d
cp dpkg.conf /etc/dpkg/dpkg.cfg.d/longshore
cp policy-rc.d /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
[ -e /etc/passwd ] || cp /usr/share/base-passwd/passwd.master /etc/passwd
[ -e /etc/group ] || cp /usr/share/base-passwd/group.master /etc/group
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates
[ -e /var/lib/dpkg/status ] || : >/var/lib/dpkg/status
rm -f /usr/bin/awk
ln -s busybox /usr/bin/awk
dpkg --force-depends --force-confnew --install debs/*.deb >log 2>&1 || { tail -n 20 log; exit 1; }
[ -L /etc/alternatives/awk ] && ln -sf /etc/alternatives/awk /usr/bin/awk
cp apt.conf /etc/apt/apt.conf.d/90longshore
rm -rf /etc/apt/sources.list.d/*
cp sources.list /etc/apt/sources.list
if [ -d keys ]; then cp -r keys/. /; fi
mkdir -p /usr/local/bin /app
cp apt-get /usr/local/bin/apt-get
chmod 755 /usr/local/bin/apt-get
ln -sf apt-get /usr/local/bin/apt
ln -sf "$PYTHON" /usr/bin/python3
ln -sf python3 /usr/bin/python
# Scripts of some packages link manual pages, which are left out, into these folders.
for section in 1 2 3 4 5 6 7 8 9; do mkdir -p /usr/share/man/man$section; done
for applet in $(/usr/bin/busybox --list); do
  command -v "$applet" >/dev/null 2>&1 || ln -s busybox "/usr/bin/$applet" 2>/dev/null || true
done
python3 authorities.py >log 2>&1 || { tail -n 20 log; exit 1; }
dpkg --audit
cd /
rm -rf /${PARTS} /var/log/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /tmp/* /var/tmp/*
`;

/** Files of `PARTS`, by their names. */
export const partsOf = (options: {
  readonly inherited: readonly string[];
  readonly sources: readonly string[];
  readonly authorities: string;
}): Readonly<Record<string, string>> => ({
  'finish.sh': FINISH,
  'authorities.py': AUTHORITIES,
  'authorities.pem': options.authorities,
  'apt-get': APT,
  'apt.conf': aptConfiguration(options.inherited),
  'dpkg.conf': DPKG_CONFIGURATION,
  'policy-rc.d': POLICY,
  'sources.list': `${options.sources.join('\n')}\n`,
});

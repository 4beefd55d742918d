// The releases from which base images are made, as the sources of the machine lead to them.
import { describe, expect, test } from 'vitest';
import { APT_DEADLINES_MS } from '#agent/bases/apt.ts';
import { FINISH_MS } from '#agent/bases/base-images.ts';
import { UNPACK_MS } from '#agent/bases/rootfs.ts';
import { IMPORT_DEADLINE_MS } from '#agent/containers/engine/images.ts';
import {
  inheritedOptions,
  packagesOf,
  readSources,
  releasesOf,
  sourceLine,
  withoutUserinfo,
} from '#agent/bases/suites.ts';

// Set-up is plain JavaScript, so that its types are said here.
const setUp = (await import(`../../../scripts/setup/${'base-image'}.mjs`)) as {
  readonly MAKE_TIMEOUT_MS: number;
};

const DEBIAN_12 = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n';
const KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';

const STANZAS = `# the mirror of the company
Types: deb deb-src
URIs: http://mirror.example.com/debian
Suites: bookworm bookworm-updates
Components: main contrib non-free-firmware
Signed-By: ${KEYS}

Types: deb
URIs: https://mirror.example.com/debian-security
Suites: bookworm-security
Components: main
Signed-By: ${KEYS}
`;

const linesOf = (osRelease: string, files: readonly string[], python: string): readonly string[] =>
  (releasesOf(osRelease, files).get(python)?.sources ?? []).map((source) => sourceLine(source));

describe('the sources of a release', () => {
  test('are those of the machine, with the name of the release exchanged', () => {
    expect(linesOf(DEBIAN_12, [STANZAS], '3.13')).toEqual([
      `deb [signed-by=${KEYS}] http://mirror.example.com/debian trixie main`,
      `deb [signed-by=${KEYS}] http://mirror.example.com/debian trixie-updates main`,
      `deb [signed-by=${KEYS}] https://mirror.example.com/debian-security trixie-security main`,
    ]);
  });

  test('are the same in the form of lines', () => {
    const lines = [
      `deb [arch=amd64 signed-by=${KEYS}] http://mirror.example.com/debian bookworm main contrib # ours`,
      'deb-src http://mirror.example.com/debian bookworm main',
      'deb http://mirror.example.com/debian bookworm-updates main',
      '# deb http://elsewhere.example.com/debian bookworm main',
    ];
    expect(linesOf(DEBIAN_12, [lines.join('\n')], '3.9')).toEqual([
      `deb [signed-by=${KEYS}] http://mirror.example.com/debian bullseye main`,
      'deb http://mirror.example.com/debian bullseye-updates main',
    ]);
  });

  test('are no sources of other archives, of other releases, of disks, or those that are switched off', () => {
    const others = [
      'deb https://packages.cloud.example/apt cloud-sdk-bookworm main',
      'deb https://nodes.example/node_20.x nodistro main',
      'deb http://mirror.example.com/debian bookworm-backports main',
      'deb cdrom:[Debian] bookworm main',
      'deb file:/srv/mirror bookworm main',
      'deb http://extras.example.com/debian bookworm contrib',
    ];
    const off = 'Types: deb\nURIs: http://off.example.com/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n';
    const official = linesOf(DEBIAN_12, [], '3.13');
    expect(linesOf(DEBIAN_12, [others.join('\n'), off], '3.13')).toEqual(official);
    expect(official[0]).toBe(`deb [signed-by=${KEYS}] http://deb.debian.org/debian trixie main`);
  });

  test('whose keys stand in the file itself are passed over, because apt of an image could not have them', () => {
    const embedded = STANZAS.replaceAll(
      `Signed-By: ${KEYS}`,
      'Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEY',
    );
    expect(linesOf(DEBIAN_12, [embedded], '3.13')).toEqual(linesOf(DEBIAN_12, [], '3.13'));
  });
});

test.for([
  ['https://user:t0ken@mirror.example.com/debian', 'https://mirror.example.com/debian'],
  ['https://t0ken@mirror.example.com:8443/debian', 'https://mirror.example.com:8443/debian'],
  ['http://user:t0k@en@[2001:db8::1]/debian', 'http://[2001:db8::1]/debian'],
  // A slash that is not escaped ends the host for apt as well, so that this is no mirror.
  ['https://user:t0/ken@mirror.example.com/debian', 'http://deb.debian.org/debian'],
] as const)('a source has no password: %s', ([uri, used]) => {
  const files = [`deb ${uri} bookworm main`, `Types: deb\nURIs: ${uri}\nSuites: bookworm\nComponents: main\n`];
  for (const file of files) {
    const { sources = [] } = releasesOf(DEBIAN_12, [file]).get('3.11') ?? {};
    expect(sources[0]?.uri).toBe(used);
    expect(JSON.stringify(sources)).not.toMatch(/user|t0/);
  }
});

test('what apt says is told without names and passwords of addresses', () => {
  const said = "E: Failed to fetch https://user:p@ss@mirror.example.com/x  407, 'http://me:pa/ss@proxy:3128/' at a@b";
  expect(withoutUserinfo(said)).toBe(
    "E: Failed to fetch https://mirror.example.com/x  407, 'http://proxy:3128/' at a@b",
  );
});

test.for([
  ['Debian', DEBIAN_12, ['3.9', '3.11', '3.13']],
  ['a derivative that says from which release it comes', 'ID=mine\nDEBIAN_CODENAME=trixie\n', ['3.9', '3.11', '3.13']],
  ['another system', 'ID=rocky\nVERSION_ID=9\n', []],
  ['no system that is known', '', []],
] as const)('the Pythons of %s', ([, osRelease, pythons]) => {
  const known = [...releasesOf(osRelease, [STANZAS]).keys()];
  expect(known).toEqual(pythons);
});

const UBUNTU_KEYS = '/usr/share/keyrings/ubuntu-archive-keyring.gpg';
const UBUNTU_22 =
  'NAME="Ubuntu"\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=jammy\n';
const UBUNTU_24 =
  'NAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=noble\n';

/** As the installer of 22.04 writes it: each component has a line of its own. */
const LIST_OF_22 = `# See http://help.ubuntu.com/community/UpgradeNotes for how to upgrade to
# newer versions of the distribution.
deb http://archive.ubuntu.com/ubuntu/ jammy main restricted
# deb-src http://archive.ubuntu.com/ubuntu/ jammy main restricted

## Major bug fix updates produced after the final release of the
## distribution.
deb http://archive.ubuntu.com/ubuntu/ jammy-updates main restricted

## N.B. software from this repository is ENTIRELY UNSUPPORTED by the Ubuntu
## team.
deb http://archive.ubuntu.com/ubuntu/ jammy universe
deb http://archive.ubuntu.com/ubuntu/ jammy-updates universe
deb http://archive.ubuntu.com/ubuntu/ jammy multiverse
deb http://archive.ubuntu.com/ubuntu/ jammy-backports main restricted universe multiverse
deb http://security.ubuntu.com/ubuntu/ jammy-security main restricted
deb http://security.ubuntu.com/ubuntu/ jammy-security universe
`;

/** As 24.04 has it in sources.list.d/ubuntu.sources; its sources.list has comments alone. */
const SOURCES_OF_24 = `Types: deb
URIs: http://archive.ubuntu.com/ubuntu/
Suites: noble noble-updates noble-backports
Components: main restricted universe multiverse
Signed-By: ${UBUNTU_KEYS}

## Ubuntu security updates. Aside from URIs and Suites,
## this should mirror your choices in the previous section.
Types: deb
URIs: http://security.ubuntu.com/ubuntu/
Suites: noble-security
Components: main restricted universe multiverse
Signed-By: ${UBUNTU_KEYS}
`;
const MOVED =
  '# Ubuntu sources have moved to the /etc/apt/sources.list.d/ubuntu.sources\n# file, which uses the deb822 format.\n';

describe('the Pythons of Ubuntu', () => {
  test('come with every component that has a line of its own, because parts of Python are in universe', () => {
    expect([...releasesOf(UBUNTU_22, [LIST_OF_22]).keys()]).toEqual(['3.10', '3.12']);
    expect(linesOf(UBUNTU_22, [LIST_OF_22], '3.10').toSorted()).toEqual([
      'deb http://archive.ubuntu.com/ubuntu/ jammy main',
      'deb http://archive.ubuntu.com/ubuntu/ jammy universe',
      'deb http://archive.ubuntu.com/ubuntu/ jammy-updates main',
      'deb http://archive.ubuntu.com/ubuntu/ jammy-updates universe',
      'deb http://security.ubuntu.com/ubuntu/ jammy-security main',
      'deb http://security.ubuntu.com/ubuntu/ jammy-security universe',
    ]);
  });

  test('come from stanzas, and from the mirror that they name', () => {
    const mirrored = SOURCES_OF_24.replaceAll('archive.ubuntu.com', 'de.archive.ubuntu.com');
    expect(linesOf(UBUNTU_24, [MOVED, mirrored], '3.10')).toEqual([
      `deb [signed-by=${UBUNTU_KEYS}] http://de.archive.ubuntu.com/ubuntu/ jammy main universe`,
      `deb [signed-by=${UBUNTU_KEYS}] http://de.archive.ubuntu.com/ubuntu/ jammy-updates main universe`,
      `deb [signed-by=${UBUNTU_KEYS}] http://security.ubuntu.com/ubuntu/ jammy-security main universe`,
    ]);
    expect(linesOf('ID=linuxmint\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n', [mirrored], '3.12')[0]).toBe(
      `deb [signed-by=${UBUNTU_KEYS}] http://de.archive.ubuntu.com/ubuntu/ noble main universe`,
    );
  });

  test.for([
    ['x64', 'http://archive.ubuntu.com/ubuntu', 'http://security.ubuntu.com/ubuntu'],
    ['arm64', 'http://ports.ubuntu.com/ubuntu-ports', 'http://ports.ubuntu.com/ubuntu-ports'],
  ] as const)(
    'come from its own mirrors where the sources name none that is understood: %s',
    ([arch, uri, security]) => {
      const cloud = SOURCES_OF_24.replaceAll(/^URIs: .*$/gm, 'URIs: mirror+file:/etc/apt/apt-mirrors.txt');
      for (const files of [[], [MOVED], [cloud]]) {
        const { sources = [] } = releasesOf(UBUNTU_24, files, arch).get('3.12') ?? {};
        expect(sources.map((source) => sourceLine(source))).toEqual([
          `deb [signed-by=${UBUNTU_KEYS}] ${uri} noble main universe`,
          `deb [signed-by=${UBUNTU_KEYS}] ${uri} noble-updates main universe`,
          `deb [signed-by=${UBUNTU_KEYS}] ${security} noble-security main universe`,
        ]);
      }
    },
  );
});

test('a stanza is switched off by each word that apt takes for no', () => {
  for (const word of ['no', 'No', 'false', 'off', 'without', 'disable', '0'])
    expect(readSources(SOURCES_OF_24.replaceAll('Types:', `Enabled: ${word}\nTypes:`)), word).toEqual([]);
  for (const word of ['yes', 'true', '1'])
    expect(readSources(SOURCES_OF_24.replaceAll('Types:', `Enabled: ${word}\nTypes:`)), word).toHaveLength(4);
});

test('a base image has the Python of its release, with what makes virtual environments', () => {
  const release = releasesOf(DEBIAN_12, [STANZAS]).get('3.13');
  expect(release).toBeDefined();
  expect(release && packagesOf(release)).toEqual(expect.arrayContaining(['apt', 'python3.13', 'python3.13-venv']));
});

test('proxies of the machine reach the image unless they are on its own loopback, and nothing else does', () => {
  const dump = [
    'APT::Architecture "amd64";',
    'Acquire::http::Proxy "http://proxy.example.com:3128";',
    'Acquire::https::mirror.example.com::Proxy "DIRECT";',
    'Acquire::https::Proxy "http://127.0.0.1:3142";',
    'Acquire::http::other.example.com::Proxy "http://user:p@ss@localhost:3142";',
    'Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";',
    'Acquire::Check-Valid-Until "false";',
    'DPkg::Post-Invoke:: "rm -rf /";',
  ];
  expect(inheritedOptions(dump.join('\n'))).toEqual([dump[1], dump[2], dump[6]]);
});

test.for([
  ['http://user:t0ken@proxy.example.com:3128', 'http://proxy.example.com:3128'],
  ['http://t0ken@proxy.example.com:3128/', 'http://proxy.example.com:3128/'],
  ['socks5h://user:t0/k@en@proxy.example.com:1080', 'socks5h://proxy.example.com:1080'],
  ['user:t0ken@proxy.example.com:3128', 'proxy.example.com:3128'],
])('a proxy reaches the image without its password: %s', ([proxy, copied]) => {
  expect(inheritedOptions(`Acquire::https::Proxy "${proxy}";`)).toEqual([`Acquire::https::Proxy "${copied}";`]);
});

test('words of a file that is no list are no sources', () => {
  for (const text of ['', 'deb', 'deb http://x', 'Types: deb\n', 'Types:\n\n\nURIs: x'])
    expect(readSources(text)).toEqual([]);
});

test('set-up waits longer for an image than all of the program’s own deadlines together', () => {
  const whole = APT_DEADLINES_MS + UNPACK_MS + FINISH_MS + 2 * IMPORT_DEADLINE_MS;
  expect(setUp.MAKE_TIMEOUT_MS).toBeGreaterThan(whole);
});

// Steps that install packages: of Debian, of pip, of conda channels. Pure.
// Packages that were downloaded before are in $LONGSHORE_PACKAGES where a machine keeps them; nothing is kept else.
import { PACKAGES_VARIABLE } from '#shared/domain/built-images.ts';
import { shellQuoted } from '#shared/shell-word.ts';

export interface Step {
  /** An instruction of a Dockerfile, on one line. */
  readonly text: string;
  /** For people; empty: the instruction itself. */
  readonly title: string;
  /** A RUN that may use the workspace's downloaded packages, and the build's GPU. */
  readonly apart?: true;
}

/** Where packages go if the base image's own Python takes none. */
export const VENV = '/opt/longshore/venv';
/** Python and packages of conda channels, as micromamba installs them. */
const CONDA = '/opt/longshore/conda';
const MICROMAMBA = '/usr/local/bin/micromamba';
/** Address of micromamba's program, and of the channels where a definition names none; an operator may set others. */
const MICROMAMBA_URL =
  'https://github.com/mamba-org/micromamba-releases/releases/download/2.3.2-0/micromamba-linux-$machine';
const CHANNELS = 'conda-forge';

/** In the form of a list, nothing in the command can mean something to the builder. */
export const shellStep = (command: string, title: string): Step => ({
  text: `RUN ${JSON.stringify(['/bin/sh', '-c', command])}`,
  title: `RUN ${title.replaceAll(/\s+/g, ' ').trim()}`,
});

const packageStep = (command: string, title: string): Step => ({ ...shellStep(command, title), apart: true });
const kept = `"$${PACKAGES_VARIABLE}"`;

/** apt refuses a folder that another apt has, so builds of a workspace wait for each other here. */
export const aptStep = (packages: readonly string[]): Step =>
  packageStep(
    [
      'set -e',
      'apt-get update',
      `if [ -n ${kept} ] && command -v flock >/dev/null; then mkdir -p ${kept}/apt/partial; exec 9>${kept}/apt.lock; flock 9; set -- -o Dir::Cache::archives=${kept}/apt -o APT::Keep-Downloaded-Packages=true; fi`,
      `DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ${packages.join(' ')}`,
      'rm -rf /var/lib/apt/lists/*',
    ].join('\n'),
    `apt-get install ${packages.join(' ')}`,
  );

/**
 * A Python that takes packages: the image's own where it has pip and lets pip write; else a virtual environment that
 * sees the packages of the image.
 */
export const pythonSteps = (): readonly Step[] => [
  shellStep(
    `if python3 -m pip --version >/dev/null 2>&1 && [ ! -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/EXTERNALLY-MANAGED" ]; then :; else python3 -m venv --system-site-packages ${VENV}; fi`,
    'prepare Python for packages',
  ),
  { text: `ENV PATH="${VENV}/bin:$PATH"`, title: '' },
];

/** Variables and not options: an older pip refuses an option that it does not know. */
const PIP = 'PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install';
/** uv takes the first index that has a package unless it is told otherwise. */
const UV = 'uv pip install --index-strategy unsafe-best-match --python "$(command -v python3)"';
const SYSTEM_CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';
/** uv reads none of pip's variables, and trusts certificates of its own unless it is given others. */
const UV_VARIABLES = [
  'export UV_LINK_MODE=copy UV_NO_PROGRESS=1',
  `[ -n "$SSL_CERT_FILE" ] || [ ! -e ${SYSTEM_CERTIFICATES} ] || export SSL_CERT_FILE=${SYSTEM_CERTIFICATES}`,
  ...Object.entries({
    PIP_INDEX_URL: 'UV_DEFAULT_INDEX',
    PIP_EXTRA_INDEX_URL: 'UV_INDEX',
    PIP_TRUSTED_HOST: 'UV_INSECURE_HOST',
  }).map(([pip, uv]) => `[ -z "$${pip}" ] || export ${uv}="$${pip}"`),
];
const CACHES = `if [ -n ${kept} ]; then export PIP_CACHE_DIR=${kept}/pip UV_CACHE_DIR=${kept}/uv; else export PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1; fi`;
/** Settings of pip that uv would leave out: arguments, a configuration, or a variable beside those above. */
const IS_PLAIN = [
  '[ -z "$LONGSHORE_PIP_ARGUMENTS" ]',
  '[ -z "$(python3 -m pip config list 2>/dev/null | grep -v -E "^(:env:[.](index-url|extra-index-url|trusted-host|no-cache-dir|cache-dir)|[^.]*[.](cert|(default-)?timeout|disable-pip-version-check|root-user-action|no-input|progress-bar))=")" ]',
].join(' && ');
const INSTALL = `install() { if command -v uv >/dev/null && ${IS_PLAIN}; then ${UV} "$@"; else ${PIP} $LONGSHORE_PIP_ARGUMENTS "$@"; fi; }`;
/** Begins an item that is a line of a file of constraints; no line of pip's own files begins so. */
const CONSTRAINT = 'constraint: ';

/** Lines of a requirements file; options of pip stand on lines of their own there. */
export function pipStep(items: readonly string[]): Step {
  const constraints = items.flatMap((item) => (item.startsWith(CONSTRAINT) ? [item.slice(CONSTRAINT.length)] : []));
  const packages = items.filter((item) => !item.startsWith(CONSTRAINT));
  const lines = packages.flatMap((item) =>
    item
      .trim()
      .split(
        /\s+(?=--?(?:index-url|extra-index-url|find-links|trusted-host|no-index|pre|prefer-binary|only-binary|no-binary|[ifr])\b)/,
      )
      .filter((part) => part !== ''),
  );
  const bound = `c=$(mktemp) && printf '%s\\n' ${constraints.map(shellQuoted).join(' ')} >"$c" || exit; set -- -c "$c"`;
  return packageStep(
    [
      CACHES,
      ...UV_VARIABLES,
      INSTALL,
      ...(constraints.length === 0 ? [] : [bound]),
      `printf '%s\\n' ${lines.map(shellQuoted).join(' ')} | install "$@" -r /dev/stdin || exit`,
      ...(constraints.length === 0 ? [] : ['rm -f "$c"']),
    ].join('\n'),
    `pip install ${packages.join(' ')}${constraints.length === 0 ? '' : ` (constraints: ${constraints.length})`}`,
  );
}

/**
 * micromamba's program, and a Python of that version by it, which comes first on the PATH.
 * @param version - `micromamba3.11`; without a number the newest of the channel
 */
export function condaSteps(version: string): readonly Step[] {
  const number = version.replace(/^micromamba/, '');
  const python = number === '3' ? 'python>=3.8' : `python=${number}`;
  // The base image's Python is there in any case; curl need not be.
  const fetch = [
    'import os, shutil, sys, urllib.request',
    `url = os.environ.get("LONGSHORE_MICROMAMBA_URL") or "${MICROMAMBA_URL}"`,
    'machine = {"x86_64": "64", "arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)',
    'url = url.replace("$machine", machine)',
    'try:',
    `  shutil.copyfileobj(urllib.request.urlopen(url, timeout=120), open("${MICROMAMBA}", "wb"))`,
    'except (OSError, ValueError) as error:',
    '  sys.exit("cannot fetch micromamba from %s: %s. LONGSHORE_MICROMAMBA_URL of the agent names another place" % (url, getattr(error, "reason", error)))',
    `os.chmod("${MICROMAMBA}", 0o755)`,
  ].join('\n');
  return [
    packageStep(
      `command -v micromamba >/dev/null || { mkdir -p /usr/local/bin && python3 -c '${fetch}'; }`,
      'get micromamba',
    ),
    packageStep(conda('create', [shellQuoted(python), 'pip'], []), `micromamba create ${python} pip`),
    { text: `ENV MAMBA_ROOT_PREFIX="${CONDA}" PATH="${CONDA}/bin:$PATH"`, title: '' },
  ];
}

/** Packages and channels (`-c NAME`) as a definition has them. */
export function condaStep(items: readonly string[]): Step {
  const channelOf = (item: string): string | undefined => /^-(?:c|-channel)[ =](.+)$/.exec(item.trim())?.[1]?.trim();
  const channels = items.flatMap((item) => channelOf(item) ?? []);
  const packages = items.filter((item) => channelOf(item) === undefined).map((item) => item.trim());
  return packageStep(conda('install', packages.map(shellQuoted), channels), `micromamba install ${items.join(' ')}`);
}

/** Packages that were downloaded stay outside the environment, so a layer has them once. */
function conda(verb: string, packages: readonly string[], channels: readonly string[]): string {
  const named = channels.map((channel) => `-c ${shellQuoted(channel)}`).join(' ');
  const usual = `$(for one in \${LONGSHORE_CONDA_CHANNELS:-${CHANNELS}}; do printf -- '-c %s ' "$one"; done)`;
  return [
    `export MAMBA_ROOT_PREFIX=${CONDA} CONDA_PKGS_DIRS=\${${PACKAGES_VARIABLE}:-/tmp/longshore-packages}/conda`,
    `micromamba ${verb} -y -p ${CONDA} ${named} ${usual} ${packages.join(' ')} || exit $?`,
    'rm -rf /tmp/longshore-packages',
  ].join('\n');
}

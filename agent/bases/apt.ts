// The machine's apt with folders of its own: it asks for releases that the machine does not run, changes nothing of
// the machine, and needs no rights. Configuration of the operator (proxies, passwords, keys) counts as usual.
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inheritedEnv, runProgram } from '#shared/child-process.ts';
import { AppError } from '#shared/errors.ts';
import { packagesOf, releasesOf, sourceLine, withoutUserinfo } from './suites.ts';
import type { Release } from './suites.ts';

const ASK_MS = 60_000;
const UPDATE_MS = 180_000;
const DOWNLOAD_MS = 600_000;
/** How long apt may take for one image: `readReleases`, `download` with the list of essential packages, and `dump`. */
export const APT_DEADLINES_MS = ASK_MS + UPDATE_MS + ASK_MS + DOWNLOAD_MS + ASK_MS;
const SOURCES = '/etc/apt';

/** Releases that this machine's sources lead to; none where it has no apt. */
export async function readReleases(): Promise<ReadonlyMap<string, Release>> {
  const osRelease = await readFile('/etc/os-release', 'utf8').catch(() => '');
  const parts = await readdir(join(SOURCES, 'sources.list.d')).catch(() => []);
  const paths = [
    join(SOURCES, 'sources.list'),
    ...parts.filter((name) => /\.(?:list|sources)$/.test(name)).map((name) => join(SOURCES, 'sources.list.d', name)),
  ];
  const texts = await Promise.all(paths.map((path) => readFile(path, 'utf8').catch(() => '')));
  const end = await runProgram('apt-get', ['--version'], { deadlineMs: ASK_MS });
  return end.kind === 'ended' && end.exitCode === 0 ? releasesOf(osRelease, texts) : new Map();
}

export class Apt {
  readonly #directory: string;
  readonly #release: Release;

  private constructor(directory: string, release: Release) {
    this.#directory = directory;
    this.#release = release;
  }

  /** @param directory - empty, and removed by the caller */
  static async open(directory: string, release: Release): Promise<Apt> {
    const apt = new Apt(directory, release);
    for (const name of ['state', 'cache', 'lists/partial', 'archives/partial'])
      await mkdir(join(directory, name), { recursive: true });
    await writeFile(apt.#path('status'), '');
    await writeFile(apt.#path('apt.conf'), apt.#configuration());
    return apt;
  }

  get archives(): string {
    return this.#path('archives');
  }

  /** @throws AppError `registry_unreachable` when the mirror does not have the release now, signed by its keys */
  async ask(): Promise<void> {
    const [first] = this.#release.sources;
    await this.#list(first === undefined ? [] : [sourceLine(first, 'Translations')]);
    await this.#run(['update'], ASK_MS);
  }

  /** Downloads the packages of a base image. @throws AppError as `ask` */
  async download(): Promise<void> {
    await this.#list(this.#release.sources.map((source) => sourceLine(source, 'Packages')));
    await this.#run(['update'], UPDATE_MS);
    const packages = [...(await this.#essential()), ...packagesOf(this.#release)];
    await this.#run(['install', '-y', '--download-only', ...packages], DOWNLOAD_MS);
  }

  /** The machine's own options, as apt prints them. */
  async dump(): Promise<string> {
    const end = await runProgram('apt-config', ['dump'], { deadlineMs: ASK_MS, maxOutput: 1 << 20 });
    return end.kind === 'ended' ? end.stdout : '';
  }

  /** The lists have 50 MB, so another program reads them. */
  async #essential(): Promise<readonly string[]> {
    const program = 'BEGIN { RS = "" } /\\nEssential: yes(\\n|$)/ { print $2 }';
    const lists = (await readdir(this.#path('lists'))).filter((name) => name.endsWith('_Packages'));
    const args = [program, ...lists.map((name) => this.#path('lists', name))];
    const end = await runProgram('awk', args, { deadlineMs: ASK_MS });
    return end.kind === 'ended' ? [...new Set(end.stdout.split('\n').filter((name) => name !== ''))] : [];
  }

  async #list(lines: readonly string[]): Promise<void> {
    await writeFile(this.#path('sources.list'), `${lines.join('\n')}\n`);
  }

  async #run(args: readonly string[], deadlineMs: number): Promise<void> {
    const all = ['-c', this.#path('apt.conf'), '-qq', '-o', 'APT::Update::Error-Mode=any', ...args];
    const env = { ...inheritedEnv(), LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive' };
    const end = await runProgram('apt-get', all, { deadlineMs, env });
    if (end.kind === 'ended' && end.exitCode === 0) return;
    const said =
      end.kind === 'ended' ? withoutUserinfo(end.stderr.match(/^[EW]: .*$/gm)?.join('; ') ?? '').slice(0, 500) : '';
    const why = end.kind === 'timeout' ? `no end within ${deadlineMs / 1000} s` : said || 'apt-get failed';
    const cure = /\b401\b/.test(why)
      ? '; a password of the mirror belongs into /etc/apt/auth.conf, where the agent can read it'
      : '';
    const { codename, sources } = this.#release;
    throw new AppError(
      'registry_unreachable',
      `cannot get packages of ${codename} from ${sources[0]?.uri ?? 'a mirror'}: ${why}${cure}`,
    );
  }

  /** Read behind the machine's own files, so that it can take hooks out. */
  #configuration(): string {
    const set = {
      'Dir::State': this.#path('state'),
      'Dir::State::lists': this.#path('lists'),
      'Dir::State::status': this.#path('status'),
      'Dir::Cache': this.#path('cache'),
      'Dir::Cache::archives': this.archives,
      'Dir::Etc::sourcelist': this.#path('sources.list'),
      'Dir::Etc::sourceparts': '/dev/null',
      'Dir::Etc::preferences': '/dev/null',
      'Dir::Etc::preferencesparts': '/dev/null',
      // Root gives up its rights for downloads otherwise, and the user that it becomes cannot write here.
      'APT::Sandbox::User': 'root',
      'APT::Install-Recommends': 'false',
      'APT::Keep-Downloaded-Packages': 'true',
      'Acquire::GzipIndexes': 'false',
      'Acquire::Languages': 'none',
      'Acquire::Retries': '3',
    };
    const hooks = ['APT::Update', 'DPkg'].flatMap((of) =>
      ['Pre-Invoke', 'Post-Invoke', 'Post-Invoke-Success', 'Pre-Install-Pkgs'].map((hook) => `#clear ${of}::${hook};`),
    );
    return [...hooks, ...Object.entries(set).map(([name, value]) => `${name} "${value}";`), ''].join('\n');
  }

  readonly #path = (...names: readonly string[]): string => join(this.#directory, ...names);
}

// Published app files, written for `beam` or `beta9`, unchanged: each is read as a deploy reads it. Those that need no
// GPU, no host outside and few packages are deployed, or run as programs, and called. Their checkouts are no part of
// this repository: LS_PUBLISHED_EXAMPLES names them.
import { writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { describe, expect } from 'vitest';
import { MAIN, ROOT, test as base } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import type { Ended } from '../helpers/programs.ts';
import { endOf, runProgram } from '../helpers/programs.ts';
import {
  CHECKOUTS,
  TABLE,
  checkouts,
  errorIn,
  missingSecrets,
  publishedFiles,
  rowOf,
  tableOf,
} from '../helpers/published-examples.ts';
import type { PublishedFile, Row } from '../helpers/published-examples.ts';
import { waitFor } from '../helpers/services.ts';

const LONG_MS = 300_000;
/** Packages that app files import where they are read; their authors have them on their machines. */
const LIBRARIES = ['huggingface_hub', 'pydantic', 'requests', 'slack-sdk'];

/** Handlers that are deployed and called: the input, and the answer. */
const CALLS: Readonly<Record<string, { readonly target: string; readonly input: object; readonly answer: unknown }>> = {
  'examples/endpoints/app.py': { target: 'multiply', input: { x: 21 }, answer: { result: 42 } },
  'examples/keep_warm/app.py': { target: 'handler', input: {}, answer: 'warm' },
  'examples/quickstart/app.py': { target: 'predict', input: { x: 3 }, answer: { result: 9 } },
  'examples/experimental/signals/app-training.py': { target: 'train', input: {}, answer: null },
};

/** Files that are run as programs: what they print, besides steps of their preparation. */
const PROGRAMS: Readonly<Record<string, RegExp>> = {
  'examples/functions/app.py':
    /\{'sum': 285\}\n\{'sum': 285\}\n\{'sum': 0\}\n\{'sum': 0\}\n\{'sum': 1\}\n\{'sum': 5\}\n\{'sum': 14\}\n$/,
  'examples/outputs/app.py': /^$/,
  'examples/scaling_out/app.py': /result \[0, 1, 4, 9, 16, 25, 36, 49, 64, 81\]\n$/,
  'examples/sharing_state/app.py': /eli\nluke\njohn\nnick\ndaniel\n$/,
  'examples/volumes/app.py': /On the volume!\n$/,
};

/** Files whose deployment is tried, and refused in the words of the right side. */
const REFUSED: Readonly<Record<string, RegExp>> = {
  'examples/custom_images/app.py': /cannot pull image docker\.io\/nvidia\/cuda/,
  'examples/vscode_server/app.py': /3\.12/,
  'examples/web_scraping/headless_chrome/app.py': /playwright install chromium/,
};

/** Files that are deployed, with their images, and whose calls would need a host outside. */
const DEPLOYED: Readonly<Record<string, string>> = {
  'examples/bioinformatics/dnabert/download-dna.py': 'eutils.ncbi.nlm.nih.gov',
  'examples/bioinformatics/rna-seq/app.py': 'raw.githubusercontent.com',
  'examples/callbacks/app.py': 'www.beam.cloud',
  'examples/web_scraping/batch_crawl.py': 'en.wikipedia.org',
  'examples/web_scraping/continuous_crawl.py': 'en.wikipedia.org',
};

class Published {
  readonly files: readonly PublishedFile[];
  readonly rows = new Map<string, Row>();
  readonly #platform: Platform;
  readonly #env: NodeJS.ProcessEnv;

  constructor(platform: Platform) {
    this.#platform = platform;
    this.files = publishedFiles(checkouts(), join(platform.directory, 'published'));
    this.#env = {
      PATH: process.env['PATH'],
      HOME: platform.directory,
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
      PYTHONPATH: [join(ROOT, 'python'), join(platform.directory, 'libraries')].join(':'),
      PYTHONDONTWRITEBYTECODE: '1',
    };
  }

  async installLibraries(): Promise<void> {
    const target = join(this.#platform.directory, 'libraries');
    const arguments_ = ['install', '--quiet', '--disable-pip-version-check', '--target', target, ...LIBRARIES];
    await runProgram('python3', ['-m', 'pip', ...arguments_], {}, LONG_MS);
  }

  file(path: string): PublishedFile | undefined {
    return this.files.find((file) => file.path === path);
  }

  /** Runs the command line beside a file. */
  longshore(file: PublishedFile, ...args: readonly string[]): Promise<Ended> {
    return endOf(process.execPath, [MAIN, ...args], { cwd: dirname(file.full), env: this.#env, timeout: LONG_MS });
  }

  dryRun(file: PublishedFile): Promise<Ended> {
    return this.longshore(file, 'deploy', basename(file.full), '--dry-run', '--json');
  }

  async setSecret(name: string, value: string): Promise<void> {
    const path = `/api/v1/secret/${this.#platform.workspaceId}`;
    const made = await this.#platform.call(path, { body: { name, value } });
    expect([made.status, made.text]).toEqual([201, made.text]);
  }

  /** Deploys a handler. @throws Error with what the command said */
  async deploy(file: PublishedFile, target: string): Promise<Deployment> {
    const ended = await this.longshore(file, 'deploy', `${basename(file.full)}:${target}`, '--json');
    if (ended.code !== 0) throw new Error(`${file.path}: ${ended.stderr}`);
    return JSON.parse(ended.stdout.slice(ended.stdout.indexOf('{\n'))) as Deployment;
  }

  /** Runs a file as its author does. @throws Error with what it said */
  async run(file: PublishedFile): Promise<string> {
    const options = { cwd: dirname(file.full), env: this.#env, timeout: LONG_MS };
    const ended = await endOf('python3', [basename(file.full)], options);
    if (ended.code !== 0) throw new Error(`${file.path} ended with ${ended.code ?? 'a signal'}: ${ended.stderr}`);
    return ended.stdout;
  }

  note(path: string, became: Row['became'], why: string): void {
    this.rows.set(path, { path, names: this.file(path)?.names ?? [], became, why });
  }
}

const test = base.extend('published', { scope: 'file' }, ({ platform }): Published => new Published(platform));

const isThere = checkouts().length > 0;
if (!isThere)
  process.stderr.write(
    `\n*** PUBLISHED APP FILES ARE NOT TESTED: ${CHECKOUTS} names no checkout (CONTRIBUTING.md, "Published app files") ***\n\n`,
  );

describe.skipIf(!isThere)(`published app files (${CHECKOUTS})`, () => {
  test('each is read, and what keeps it from running is said', { timeout: 900_000 }, async ({ published }) => {
    expect(published.files.length, 'files that import beam or beta9').toBeGreaterThan(0);
    await published.installLibraries();
    for (const file of published.files) {
      let ended = await published.dryRun(file);
      const secrets = missingSecrets(ended);
      expect(secrets.length === 0 || ended.stdout.includes('`longshore secret set '), file.path).toBe(true);
      for (const name of secrets) await published.setSecret(name, 'bar');
      if (secrets.length > 0) ended = await published.dryRun(file);
      const row = rowOf(file, ended, secrets);
      expect(row.why, file.path).not.toMatch(/Traceback|^\s*$|undefined/);
      published.rows.set(file.path, row);
      for (const name of secrets) await published.longshore(file, 'secret', 'delete', name);
    }
  });

  test('some are deployed and called', { timeout: 900_000 }, async ({ platform, published }) => {
    for (const [path, { target, input, answer }] of Object.entries(CALLS)) {
      const file = published.file(path);
      if (file === undefined) continue;
      const { url } = await published.deploy(file, target);
      const answered = await platform.call(url, { body: input });
      expect([path, answered.status, JSON.parse(answered.text)]).toEqual([path, 200, answer]);
      published.note(path, 'runs', 'deployed and called');
    }
  });

  test('some are run as programs', { timeout: 900_000 }, async ({ published }) => {
    for (const [path, said] of Object.entries(PROGRAMS)) {
      const file = published.file(path);
      if (file === undefined) continue;
      expect(await published.run(file), path).toMatch(said);
      published.note(path, 'runs', 'run as a program, its functions in containers');
    }
  });

  test('a picture outlives its task', { timeout: LONG_MS }, async ({ platform, published }) => {
    const file = published.file('examples/outputs/app.py');
    if (file === undefined) return;
    const { url } = await published.deploy(file, 'save_image');
    const put = JSON.parse((await platform.call(url, { body: {} })).text) as { readonly task_id: string };
    const { result } = await platform.taskIs(put.task_id, 'COMPLETE', 60_000);
    const picture = await fetch(String((result as { readonly image: unknown }).image));
    expect([
      picture.status,
      Buffer.from(await picture.arrayBuffer())
        .subarray(1, 4)
        .toString(),
    ]).toEqual([200, 'PNG']);
  });

  test('a secret comes first', { timeout: LONG_MS }, async ({ platform, published }) => {
    const file = published.file('examples/secrets/app.py');
    if (file === undefined) return;
    await expect(published.deploy(file, 'handler')).rejects.toThrow(/secret.*FOO/);
    await published.setSecret('FOO', 'bar');
    const { url } = await published.deploy(file, 'handler');
    const put = JSON.parse((await platform.call(url, { body: {} })).text) as { readonly task_id: string };
    expect((await platform.taskIs(put.task_id, 'COMPLETE', 60_000)).result).toBe('secret bar');
    published.note(file.path, 'runs', 'deployed and called, once the secret FOO is set');
  });

  test('a web server runs in a pod that its program made', { timeout: LONG_MS }, async ({ platform, published }) => {
    const file = published.file('examples/web_servers/streamlit_server/start_server.py');
    if (file === undefined) return;
    const said = await published.run(file);
    const url = /http:\/\/\S+/.exec(said)?.[0];
    if (url === undefined) throw new Error(`it said no address: ${said}`);
    const page = await waitFor(
      async () => {
        const answer = await fetch(url).catch(() => undefined);
        return answer?.status === 200 ? answer.text() : undefined;
      },
      'the server answers',
      60_000,
    );
    expect(page).toContain('Streamlit');
    const { containers } = await platform.gateway<{ containers: readonly { readonly containerId: string }[] }>(
      '/containers',
    );
    for (const { containerId } of containers) await platform.gateway(`/containers/${containerId}/stop`, {});
    published.note(file.path, 'runs', 'run as a program; its pod answers');
  });

  test('a GPU that no machine has is said to the caller', { timeout: LONG_MS }, async ({ platform, published }) => {
    const file = published.file('examples/gpu_acceleration/app.py');
    if (file === undefined) return;
    const { url } = await published.deploy(file, 'handler');
    const answered = await platform.call(url, { body: {} });
    expect([answered.status, answered.text]).toEqual([503, expect.stringContaining('T4') as string]);
  });

  test('some are deployed whose calls need other hosts', { timeout: 900_000 }, async ({ published }) => {
    for (const [path, host] of Object.entries(DEPLOYED)) {
      const file = published.file(path);
      if (file === undefined) continue;
      const ended = await published.longshore(file, 'deploy', basename(file.full));
      expect([path, ended.code, ended.stderr]).toEqual([path, 0, ended.stderr]);
      published.note(path, 'deploys', `deployed, with its image; a call needs ${host}`);
    }
  });

  test('some are refused, with the reason', { timeout: 900_000 }, async ({ published }) => {
    for (const [path, reason] of Object.entries(REFUSED)) {
      const file = published.file(path);
      if (file === undefined) continue;
      const ended = await published.longshore(file, 'deploy', basename(file.full));
      const why = errorIn(ended);
      expect([path, ended.code, why]).toEqual([path, 1, expect.stringMatching(reason) as string]);
      expect(why).not.toContain('Traceback');
      published.note(path, 'refused', why);
    }
  });

  test('the table has every file', ({ published }) => {
    const rows = published.files.flatMap(({ path }) => published.rows.get(path) ?? []);
    expect(rows).toHaveLength(published.files.length);
    const table = tableOf(rows);
    process.stdout.write(`\n${table}\n`);
    const counts = Map.groupBy(rows, ({ became }) => became);
    process.stdout.write(`${[...counts].map(([became, { length }]) => `${became}: ${length}`).join(', ')}\n`);
    const place = process.env[TABLE];
    if (place !== undefined && place !== '') writeFileSync(place, table);
  });
});

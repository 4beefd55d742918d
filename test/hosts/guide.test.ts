// docs/guide.md as a newcomer follows it: files are written and commands run, in order, in a shell of one folder.
// A line of a `text` block must be in the output of the commands before it; `…` stands for anything.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { MAIN, ROOT, test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';

interface Block {
  readonly language: string;
  /** The word behind the language: a file's name, or how the commands are run. */
  readonly word: string;
  readonly text: string;
}

const blocksOf = (page: string): readonly Block[] =>
  [...page.matchAll(/^```(\w+) ?(\S*)\n(.*?)^```$/gms)].map(([, language = '', word = '', text = '']) => ({
    language,
    word,
    text,
  }));

const pattern = (line: string): RegExp =>
  new RegExp(
    line
      .split('…')
      .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
      .join('.+'),
  );

/** A shell that keeps its folder, with `longshore` on its path. */
class Shell {
  readonly #env: NodeJS.ProcessEnv;
  #folder: string;
  #server: ChildProcess | undefined;
  #served = '';

  constructor(platform: Platform) {
    this.#folder = platform.directory;
    const bin = join(platform.directory, 'bin');
    mkdirSync(bin);
    writeFileSync(join(bin, 'longshore'), `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`);
    chmodSync(join(bin, 'longshore'), 0o755);
    this.#env = {
      ...platform.env(),
      PATH: `${bin}:${process.env['PATH'] ?? ''}`,
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
    };
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.#folder, name), text);
  }

  /** Runs commands, each of which must succeed. @returns what they print */
  async run(text: string): Promise<string> {
    const mark = 'the folder is now: ';
    const child = this.#spawn(`set -euo pipefail\n${text}\necho "${mark}$PWD"`);
    let out = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (part: string) => (out += part));
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect(code, `${text}\n${out}`).toBe(0);
    this.#folder = out.trimEnd().split(mark).at(-1)?.split('\n')[0] ?? this.#folder;
    return out;
  }

  async serve(text: string): Promise<void> {
    this.#server = this.#spawn(`exec ${text}`);
    for (const stream of [this.#server.stdout, this.#server.stderr])
      stream?.setEncoding('utf8').on('data', (part: string) => (this.#served += part));
    await waitFor(() => this.#served.includes('curl -X POST'), 'the line to paste', 90_000);
  }

  /** Runs the printed line with the input that the page gives, until the answer is the expected one. */
  async pasted(text: string, expected: RegExp): Promise<void> {
    const [line = ''] = /curl -X POST .* -d /.exec(this.#served) ?? [];
    const input = text.slice(text.indexOf(' -d ') + 4);
    await waitFor(async () => expected.test(await this.run(`${line}${input}`)), `an answer like ${expected}`, 60_000);
  }

  async endServing(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    server.kill('SIGINT');
    expect(await new Promise((resolve) => server.once('close', resolve))).toBe(0);
  }

  #spawn(script: string): ChildProcess {
    return spawn('bash', ['-c', script], { cwd: this.#folder, env: this.#env, stdio: ['ignore', 'pipe', 'pipe'] });
  }
}

test('the guide can be followed from its first line to its last', { timeout: 600_000 }, async ({ platform }) => {
  const blocks = blocksOf(readFileSync(join(ROOT, 'docs', 'guide.md'), 'utf8'));
  const shell = new Shell(platform);
  for (const [index, { language, word, text }] of blocks.entries()) {
    const next = blocks[index + 1];
    const expected = next?.language === 'text' ? next.text.trimEnd().split('\n').map(pattern) : [];
    if (language === 'python') shell.write(word, text);
    else if (language === 'text' || word === 'start' || word === 'setup') continue;
    else if (word === 'serve') await shell.serve(text.trim());
    else if (word === 'served') await shell.pasted(text.trim(), expected[0] ?? /never/);
    else {
      await shell.endServing();
      const out = await shell.run(text);
      for (const line of expected) expect(out, text).toMatch(line);
    }
  }
  expect(blocks.length).toBeGreaterThan(20);
});

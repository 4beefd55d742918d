// An installation with the examples that serve models, each deployed when a test first asks for it.
import { join } from 'node:path';
import { expect } from 'vitest';
import { MAIN, Platform, ROOT, jsonOf } from './platform.ts';
import type { Deployment } from './platform.ts';
import { runProgram } from './services.ts';
import type { TestDocker } from './services.ts';

const LONG_MS = 170_000;

export class ModelExamples {
  readonly platform: Platform;
  readonly #addresses = new Map<string, Promise<string>>();

  constructor(engine: TestDocker, settings: NodeJS.ProcessEnv = {}) {
    this.platform = new Platform(engine, settings);
  }

  start(): Promise<void> {
    return this.platform.start();
  }

  stop(): Promise<void> {
    return this.platform.stop();
  }

  /** Address of the text generator, which is trained first. */
  textGenerator(): Promise<string> {
    return this.#once('examples/text_generator/app.py', async () => {
      const trained = await runProgram('python3', ['examples/text_generator/train.py'], this.#options(), LONG_MS);
      expect(trained).toMatch(/\{'paragraphs': \d{3,}, 'perplexity': \d{2,3}\}\n$/);
    });
  }

  embeddingModel(): Promise<string> {
    return this.#once('examples/embedding_model/app.py', () => Promise.resolve());
  }

  longshore(args: readonly string[]): Promise<string> {
    return runProgram(process.execPath, [MAIN, ...args], this.#options(), LONG_MS);
  }

  /** JSON of a command; steps that it prints first are left out. */
  async json<T = unknown>(args: readonly string[]): Promise<T> {
    const said = await this.longshore([...args, '--json']);
    return JSON.parse(said.slice(said.indexOf('{\n'))) as T;
  }

  /** JSON of a call that succeeds. */
  async answered<T>(url: string, body?: unknown): Promise<T> {
    const answer = await this.platform.call(url, { body });
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    return jsonOf<T>(answer);
  }

  /** Data of the events of a call. */
  async frames(url: string, body: unknown): Promise<readonly string[]> {
    const answer = await this.platform.call(url, { body });
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    const events = answer.text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'));
    return events.map((event) => event.replace(/^data: /, ''));
  }

  #options() {
    const { platform } = this;
    const env = {
      PATH: process.env['PATH'],
      HOME: platform.directory,
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
      PYTHONPATH: join(ROOT, 'python'),
      PYTHONDONTWRITEBYTECODE: '1',
    };
    return { cwd: ROOT, env };
  }

  #once(file: string, before: () => Promise<void>): Promise<string> {
    const known = this.#addresses.get(file);
    if (known !== undefined) return known;
    const address = before()
      .then(() => this.json<Deployment>(['deploy', file]))
      .then(({ url }) => url);
    this.#addresses.set(file, address);
    return address;
  }
}

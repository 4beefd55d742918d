// `longshore serve --json` as a process, and what it told.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { MAIN } from './platform.ts';
import type { Platform } from './platform.ts';
import { waitFor } from './programs.ts';

export interface Told {
  readonly kind: 'log' | 'note' | 'reloaded' | 'sent' | 'serving';
  readonly text?: string;
  readonly message?: string;
  readonly task_id?: string;
  readonly containerId?: string;
  readonly stubId?: string;
  readonly url?: string;
  readonly state?: string;
  readonly error?: string;
  readonly files?: number;
  readonly removed?: number;
  readonly paths?: readonly string[];
  readonly tookMs?: number;
}

export class ServeCommand {
  readonly directory: string;
  readonly told: Told[] = [];
  stderr = '';
  readonly process: ChildProcess;
  readonly code: Promise<number | null>;
  readonly #platform: Platform;

  constructor(
    platform: Platform,
    name: string,
    files: Readonly<Record<string, string>>,
    {
      target = 'app.py',
      args = [],
      output,
    }: {
      readonly target?: string;
      readonly args?: readonly string[];
      /** A file of the app's folder that takes the output, as `> FILE` does. */
      readonly output?: string;
    } = {},
  ) {
    this.#platform = platform;
    this.directory = join(platform.directory, name);
    for (const [path, text] of Object.entries(files)) this.save(path, text);
    const env = { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
    const command = [MAIN, 'serve', join(this.directory, target), '--json', ...args];
    const file = output === undefined ? undefined : join(this.directory, output);
    const descriptor = file === undefined ? undefined : openSync(file, 'w');
    this.process = spawn(process.execPath, command, { env, stdio: ['ignore', descriptor ?? 'pipe', 'pipe'] });
    let rest = '';
    const take = (text: string): void => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) this.told.push(JSON.parse(line) as Told);
    };
    this.process.stdout?.setEncoding('utf8').on('data', take);
    if (file !== undefined && descriptor !== undefined) {
      closeSync(descriptor);
      let taken = 0;
      const read = (): void => {
        const text = readFileSync(file, 'utf8');
        take(text.slice(taken));
        taken = text.length;
      };
      const looks = setInterval(read, 50);
      this.process.once('exit', () => clearInterval(looks));
    }
    this.process.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    this.code = once(this.process, 'close').then(([code]) => code as number | null);
  }

  save(path: string, text: string): void {
    mkdirSync(dirname(join(this.directory, path)), { recursive: true });
    writeFileSync(join(this.directory, path), text);
  }

  of(kind: Told['kind']): readonly Told[] {
    return this.told.filter((one) => one.kind === kind);
  }

  /** Waits for something told behind the first `after` of them. */
  async until(what: string, is: (told: Told) => boolean, after = 0, withinMs = 60_000): Promise<Told> {
    try {
      return await waitFor(() => this.told.slice(after).find(is), what, withinMs);
    } catch (error) {
      throw new Error(`${what} never came: ${JSON.stringify(this.told)} ${this.stderr}`, { cause: error });
    }
  }

  serving(): Promise<Told> {
    return this.until('serving', ({ kind }) => kind === 'serving');
  }

  /** Saves, and waits for the reload. */
  async reloaded(path: string, text: string): Promise<Told> {
    const after = this.told.length;
    this.save(path, text);
    return this.until(`a reload after ${path}`, ({ kind }) => kind === 'reloaded', after);
  }

  async call(input: object = {}, url = ''): Promise<{ readonly status: number; readonly body: string }> {
    const answer = await fetch(url === '' ? ((await this.serving()).url ?? '') : url, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.#platform.token}` },
      body: JSON.stringify(input),
    });
    return { status: answer.status, body: await answer.text() };
  }

  /** Ends it by a signal. */
  async end(signal: NodeJS.Signals = 'SIGINT'): Promise<number | null> {
    this.process.kill(signal);
    return this.code;
  }
}

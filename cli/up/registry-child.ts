// A run of the distribution project's registry: it serves, or collects layers.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { startTicks } from '#shared/process-facts.ts';

const MOST_TAIL = 4000;

export class RegistryChild {
  /** Resolves at its end with the exit code; null: a signal ended it, or it never ran. */
  readonly exited: Promise<number | null>;
  readonly #child: ChildProcess;
  readonly #program: string;
  #tail = '';

  constructor(program: string, args: readonly string[], log: Log) {
    this.#program = program;
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: registryEnv(process.env) });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#tail = (this.#tail + text).slice(-MOST_TAIL);
        for (const line of text.split('\n')) if (/level=(?:error|fatal)/.test(line)) log.warn({ line }, 'registry');
      });
    this.exited = new Promise((resolve) => {
      child.once('exit', (code) => resolve(code));
      child.once('error', () => resolve(null));
    });
  }

  get isOver(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null || this.#child.pid === undefined;
  }

  /** Process number and start, by which the next owner knows it. */
  get facts(): string {
    const { pid } = this.#child;
    return pid === undefined ? '' : `${pid} ${startTicks(pid) ?? ''}`;
  }

  /** @throws StartupError `registry_missing` */
  async begun(): Promise<void> {
    if (this.#child.pid !== undefined) return;
    try {
      await once(this.#child, 'spawn');
    } catch (error) {
      throw new StartupError(
        'registry_missing',
        `cannot run ${this.#program} (${messageOf(error)}): install it (apt-get install docker-registry), or name it with LONGSHORE_REGISTRY_PROGRAM`,
        { cause: error },
      );
    }
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  /** Asks for its end, and kills it after that time. */
  async end(withinMs: number): Promise<void> {
    if (!this.isOver) {
      this.#child.kill('SIGTERM');
      const late = setTimeout(() => this.kill(), withinMs);
      await this.exited;
      clearTimeout(late);
    }
  }

  /** The error of a failure, with its last words. */
  failed(what: string): StartupError {
    const lines = this.#tail.trim().split('\n');
    // A program that panics says why first, and then where.
    const at = lines.findIndex((line) => line.startsWith('panic:'));
    const said = (at === -1 ? lines.slice(-3) : lines.slice(at, at + 2)).join('\n');
    return new StartupError('registry_failed', `the registry ${what}${said === '' ? '' : `:\n${said}`}`);
  }
}

/**
 * The registry's client for S3 refuses AWS_CA_BUNDLE with its own connections ("unsupported transport"). The library
 * below it reads SSL_CERT_FILE.
 */
function registryEnv({ AWS_CA_BUNDLE: bundle, ...env }: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return bundle === undefined || env['SSL_CERT_FILE'] ? env : { ...env, SSL_CERT_FILE: bundle };
}

// A provider that is an operator's program: `PROGRAM … create|list|terminate`, JSON on its standard input, JSON on its
// standard output, exit code 0. The program runs without a shell, in a process group of its own and within a deadline.
import { mkdir } from 'node:fs/promises';
import { execa } from 'execa';
import { AppError, messageOf } from '#shared/errors.ts';
import type { ConfiguredProvider, Instance, InstanceRequest } from '../../domain/provisioning.ts';
import { createdOf, listedOf } from './provider-answers.ts';
import type { ProviderSettings } from './providers-file.ts';

const MOST_OUTPUT = 8 * 1024 * 1024;
const ERROR_TAIL = 300;
/** Variables that a program gets from the scheduler's environment, which holds secrets beside them. */
const PASSED_ON = ['PATH', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'CREDENTIALS_DIRECTORY', 'SSL_CERT_FILE', 'SSL_CERT_DIR'];
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy'];

export type ProviderVerb = 'create' | 'list' | 'terminate';

export interface CommandProviderParts {
  readonly name: string;
  readonly settings: ProviderSettings;
  /** Working directory and HOME of the program; made when missing. */
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Told when a call ended. `instances`: of a complete listing. */
  readonly onCalled?: (verb: ProviderVerb, failure: string | null, instances?: number) => void;
}

export class CommandProvider implements ConfiguredProvider {
  readonly name: string;
  readonly timeoutMs: number;
  readonly #parts: CommandProviderParts;

  constructor(parts: CommandProviderParts) {
    this.#parts = parts;
    this.name = parts.name;
    this.timeoutMs = parts.settings.timeoutSeconds * 1000;
  }

  create(request: InstanceRequest): Promise<Instance> {
    return this.#told('create', async () => createdOf(await this.#run('create', request), request.requestId));
  }

  list(installationId: string): Promise<readonly Instance[]> {
    return this.#told('list', async () => listedOf(await this.#run('list', { installationId }), installationId));
  }

  terminate({ instanceId, requestId }: Pick<Instance, 'instanceId' | 'requestId'>): Promise<void> {
    return this.#told('terminate', async () => void (await this.#run('terminate', { instanceId, requestId })));
  }

  async #told<T>(verb: ProviderVerb, call: () => Promise<T>): Promise<T> {
    try {
      const result = await call();
      this.#parts.onCalled?.(verb, null, Array.isArray(result) ? result.length : undefined);
      return result;
    } catch (error) {
      this.#parts.onCalled?.(verb, messageOf(error));
      throw error;
    }
  }

  /** Runs the program once. @returns its standard output @throws AppError `provider_failed` */
  async #run(verb: ProviderVerb, input: object): Promise<string> {
    const { settings, home, env } = this.#parts;
    const [program = '', ...args] = settings.command;
    await mkdir(home, { recursive: true, mode: 0o700 });
    const passed = Object.fromEntries(
      [...PASSED_ON, ...PROXIES].flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])),
    );
    const child = execa(program, [...args, verb], {
      input: JSON.stringify(input),
      env: { HOME: home, ...passed, ...settings.env },
      extendEnv: false,
      cwd: home,
      // A group of its own, so that the deadline ends what the program started, too.
      detached: true,
      cleanup: false,
      reject: false,
      buffer: { stdout: true, stderr: false },
      maxBuffer: { stdout: MOST_OUTPUT },
      stripFinalNewline: false,
    });
    let tail = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (tail = (tail + text).slice(-4 * ERROR_TAIL)));
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      endGroup(child.pid);
      child.stdout.destroy();
    }, this.timeoutMs);
    const result = await child;
    clearTimeout(timer);
    if (!isLate && !result.failed) return result.stdout;
    endGroup(child.pid);
    throw new AppError('provider_failed', `${verb}: ${this.#why(result, isLate)}${tailOf(tail)}`);
  }

  #why(
    result: {
      readonly code?: string | undefined;
      readonly isMaxBuffer?: boolean | undefined;
      readonly exitCode?: number | undefined;
      readonly signal?: string | undefined;
    },
    isLate: boolean,
  ): string {
    const { settings } = this.#parts;
    if (isLate) return `did not end within ${settings.timeoutSeconds} s, and was killed`;
    if (result.isMaxBuffer === true) return `wrote more than ${MOST_OUTPUT} bytes`;
    if (result.exitCode !== undefined) return `ended with exit code ${result.exitCode}`;
    if (result.signal !== undefined) return `was ended by ${result.signal}`;
    return `${settings.command[0]} cannot be started: ${UNSTARTED[result.code ?? ''] ?? result.code ?? 'unknown cause'}`;
  }
}

const UNSTARTED: Readonly<Record<string, string>> = {
  ENOENT: 'it is not there',
  EACCES: 'this user may not execute it',
};

/** The end of what the program wrote to its standard error, on one line. */
function tailOf(text: string): string {
  const line = text.replaceAll(/\p{Cc}+/gu, ' ').trim();
  return line === '' ? '' : `: ${line.slice(-ERROR_TAIL)}`;
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The group has ended.
  }
}

// A provider that is an operator's program: `PROGRAM … create|list|terminate`, JSON on its standard input, JSON on its
// standard output, exit code 0. The program runs without a shell, in a process group of its own and within a deadline.
import { mkdir } from 'node:fs/promises';
import { messageOf } from '#shared/errors.ts';
import type { ConfiguredProvider, Instance, InstanceRequest } from '../../domain/provisioning.ts';
import { runProgram } from './program-call.ts';
import type { ProgramEnd } from './program-call.ts';
import { createdOf, listedOf } from './provider-answers.ts';
import { ProviderFailure, inSentence, keptOutput } from './provider-failure.ts';
import type { ProviderSettings } from './providers-file.ts';

const MOST_OUTPUT = 8 * 1024 * 1024;
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
    return this.#told('create', () => this.#run('create', request, (answer) => createdOf(answer, request.requestId)));
  }

  list(installationId: string): Promise<readonly Instance[]> {
    return this.#told('list', () =>
      this.#run('list', { installationId }, (answer) => listedOf(answer, installationId)),
    );
  }

  terminate({ instanceId, requestId }: Pick<Instance, 'instanceId' | 'requestId'>): Promise<void> {
    return this.#told('terminate', () => this.#run('terminate', { instanceId, requestId }, () => undefined));
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

  /** Runs the program once. @param read - reads its standard output @throws ProviderFailure */
  async #run<T>(verb: ProviderVerb, input: object, read: (answer: string) => T): Promise<T> {
    const { settings, home, env } = this.#parts;
    await mkdir(home, { recursive: true, mode: 0o700 });
    const passed = Object.fromEntries(
      [...PASSED_ON, ...PROXIES].flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])),
    );
    const end = await runProgram({
      words: [...settings.command, verb],
      input: JSON.stringify(input),
      env: { HOME: home, ...passed, ...settings.env },
      cwd: home,
      timeoutMs: this.timeoutMs,
      mostOutput: MOST_OUTPUT,
    });
    const said = keptOutput(end.errors);
    if (end.kind !== 'exited' || end.code !== 0)
      throw new ProviderFailure(`${verb}: ${this.#why(end)}${inSentence(said)}`, said);
    try {
      return read(end.output);
    } catch (error) {
      throw new ProviderFailure(messageOf(error), said, { cause: error });
    }
  }

  #why(end: ProgramEnd): string {
    const { settings } = this.#parts;
    switch (end.kind) {
      case 'late':
        return `did not end within ${settings.timeoutSeconds} s, and was killed`;
      case 'too_much':
        return `wrote more than ${MOST_OUTPUT} bytes`;
      case 'exited':
        return `ended with exit code ${end.code}`;
      case 'signalled':
        return `was ended by ${end.signal}`;
      case 'unstarted':
        return `${settings.command[0]} cannot be started: ${UNSTARTED[end.code] ?? end.code}`;
    }
  }
}

const UNSTARTED: Readonly<Record<string, string>> = {
  ENOENT: 'it is not there',
  EACCES: 'this user may not execute it',
};

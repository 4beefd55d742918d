// A program of ours as a child process: a Node file with an IPC channel, its output in a file. The child sends `{ kind:
// 'ready', … }` when it can be used, or `failed`. The caller that started it owns it. Invariant: after `stop` neither
// the child nor anything that it started is there.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { resolve as resolvePath } from 'node:path';
import { fileURLToPath } from 'node:url';
import { withDeadline } from '#shared/backoff.ts';

export type Message = Readonly<Record<string, unknown>> & { readonly kind: string };

export interface ChildOptions {
  readonly name: string;
  /** Program file, absolute or relative to the repository. */
  readonly file: string;
  readonly args?: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Node to use instead of the one that runs the benchmark. */
  readonly node?: string;
  readonly nodeOptions?: readonly string[];
  /** Command that becomes the program, such as the entry into another host. */
  readonly enter?: readonly string[];
  readonly logPath: string;
}

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const READY_MS = 60_000;
const REQUEST_MS = 20_000;
const STOP_GRACE_MS = 15_000;
const TAIL_LINES = 12;

export class BenchChild {
  readonly name: string;
  readonly pid: number;
  readonly #process: ChildProcess;
  readonly #logPath: string;
  readonly #exited: Promise<void>;
  readonly #waiting = new Map<string, (message: Message) => void>();
  readonly #ready: Promise<Message>;
  #nextId = 1;

  /** Spawns it; `ready` waits for it. */
  constructor(options: ChildOptions) {
    this.name = options.name;
    this.#logPath = options.logPath;
    const output = openSync(options.logPath, 'a', 0o600);
    try {
      // A group of its own, so that a Ctrl-C reaches us alone and everything is ended in order.
      const [program = '', ...args] = [
        ...(options.enter ?? []),
        options.node ?? process.execPath,
        ...(options.nodeOptions ?? []),
        resolvePath(ROOT, options.file),
        ...(options.args ?? []),
      ];
      this.#process = spawn(program, args, {
        env: options.env,
        detached: true,
        stdio: ['ignore', output, output, 'ipc'],
      });
    } finally {
      closeSync(output);
    }
    this.pid = this.#process.pid ?? 0;
    this.#exited = new Promise((resolve) => {
      this.#process.once('exit', () => resolve());
      this.#process.once('error', () => resolve());
    });
    this.#ready = new Promise((resolve, reject) => {
      this.#process.on('message', (message: unknown) => {
        if (!isMessage(message)) return;
        if (message.kind === 'ready') resolve(message);
        else if (message.kind === 'failed') reject(new Error(`the ${this.name}: ${String(message['message'])}`));
        else this.#waiting.get(String(message['id']))?.(message);
      });
      void this.#exited.then(() => reject(this.#failure('ended before it was ready')));
    });
    // A rejection reaches the waiting callers; without any, it is no fault.
    this.#ready.catch(() => undefined);
  }

  /** @throws Error with the last lines of its output */
  ready(): Promise<Message> {
    return withDeadline(this.#ready, READY_MS, () => this.#failure(`was not ready after ${READY_MS / 1000} s`));
  }

  /** Asks over IPC; the answer has the same id. */
  async request(message: Message): Promise<Message> {
    const id = String(this.#nextId++);
    const answer = new Promise<Message>((resolve) => this.#waiting.set(id, resolve));
    try {
      this.send({ ...message, id });
      const late = (): Error => this.#failure(`did not answer ${message.kind} within ${REQUEST_MS / 1000} s`);
      const answered = await withDeadline(answer, REQUEST_MS, late);
      if (answered.kind !== 'requestFailed') return answered;
      throw new Error(`the ${this.name} could not do ${message.kind}: ${String(answered['message'])}`);
    } finally {
      this.#waiting.delete(id);
    }
  }

  /** Lines of output so far. */
  lines(): readonly string[] {
    return readFileSync(this.#logPath, 'utf8').split('\n');
  }

  send(message: Message): void {
    if (!this.#process.connected) throw this.#failure('is not running');
    this.#process.send(message);
  }

  /** Waits until it has ended by itself; false when it has not. */
  async ended(withinMs: number): Promise<boolean> {
    const late = new Error('late');
    try {
      await withDeadline(this.#exited, withinMs, () => late);
      return true;
    } catch (error) {
      if (error !== late) throw error;
      return false;
    }
  }

  /** Sends kill -9 to the child alone; processes that it started go on. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exited;
  }

  /** TERM alone, as a service manager ends it. @throws Error when it has not ended within that time */
  async terminate(withinMs: number): Promise<void> {
    this.#process.kill('SIGTERM');
    if (!(await this.ended(withinMs))) throw this.#failure(`had not ended ${withinMs / 1000} s after its signal`);
  }

  /** TERM, then KILL for its whole group. */
  async stop(): Promise<void> {
    if (this.pid === 0) return;
    this.#process.kill('SIGTERM');
    await this.ended(STOP_GRACE_MS);
    try {
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // The usual case: the child's group is empty.
    }
    await this.#exited;
  }

  #failure(what: string): Error {
    let tail = '';
    try {
      tail = readFileSync(this.#logPath, 'utf8').trimEnd().split('\n').slice(-TAIL_LINES).join('\n');
    } catch {
      // The error then lacks the output.
    }
    return new Error(`the ${this.name} ${what}${tail === '' ? '' : `; its last lines:\n${tail}`}`);
  }
}

function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'kind' in value && typeof value.kind === 'string';
}

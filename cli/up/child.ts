// A supervised process: spawned with an IPC channel, output kept in a bounded file, restarted with back-off when it
// dies. The child has its own process group: Ctrl-C on a terminal reaches the supervisor alone, which stops its
// children in order. The caller decides the order; this file guarantees that a stopped child leaves no process behind.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { sleep, withDeadline } from '#shared/backoff.ts';
import { CliError } from '../errors.ts';
import { textField } from '../json.ts';
import type { ChildList } from './data-dir.ts';
import { BoundedLogFile, LineCutter, screenLine } from './log-file.ts';
import { signalGroup } from '#shared/child-process.ts';
import { decideRestart } from '#shared/restart.ts';

/**
 * A message between a child and its supervisor over IPC. Every
 * one has a `kind`; an answer repeats the `id` of its request.
 */
export type IpcMessage = Readonly<Record<string, unknown>> & { readonly kind: string };

export interface ChildOptions {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Evaluated at every start, so that ports settled by the first start stay. */
  readonly env: () => Readonly<Record<string, string | undefined>>;
  readonly logPath: string;
  readonly readyTimeoutMs: number;
  readonly children: ChildList;
  /** Receives lines for the screen. */
  readonly onNote: (line: string) => void;
  /** The child died too often, and nothing will start it again. */
  readonly onGaveUp: (sentence: string) => void;
  /** Called at every `ready` but the first. */
  readonly onBack?: (ready: IpcMessage) => void;
}

const LAST_LINES = 15;
/** A child that warns endlessly must not flood the screen: this many lines per window, then a hint at the file. */
const SCREEN_LINES = 10;
const SCREEN_WINDOW_MS = 10_000;

export class SupervisedChild {
  readonly name: string;
  readonly #options: ChildOptions;
  readonly #log: BoundedLogFile;
  readonly #deathsMs: number[] = [];
  readonly #stopping = new AbortController();
  readonly #waiting = new Map<string, (message: IpcMessage) => void>();
  #process: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #lastLines: string[] = [];
  #failed: string | undefined;
  #wasReady = false;
  #nextId = 1;
  #screen = { sinceMs: 0, lines: 0 };

  constructor(options: ChildOptions) {
    this.name = options.name;
    this.#options = options;
    this.#log = new BoundedLogFile(options.logPath);
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /**
   * Starts the child and waits for its `ready`. A failed first start is not repeated: the person must see its cause.
   * @throws CliError with the sentence the child gave, or its last lines
   */
  async start(): Promise<IpcMessage> {
    const { name, readyTimeoutMs } = this.#options;
    const ready = this.#spawn();
    try {
      return await withDeadline(
        ready,
        readyTimeoutMs,
        () =>
          new CliError(
            `the ${name} was not ready after ${readyTimeoutMs / 1000} s: its log is ${this.#log.path}${this.#tail()}`,
          ),
      );
    } catch (error) {
      await this.stop(2_000);
      throw error;
    }
  }

  /** Sends a request over IPC and waits for the answer with the same id. */
  async request(message: IpcMessage, timeoutMs: number): Promise<IpcMessage> {
    const child = this.#process;
    const id = String(this.#nextId++);
    if (child?.connected !== true) throw new CliError(`the ${this.name} is not running: its log is ${this.#log.path}`);
    const answer = new Promise<IpcMessage>((resolve) => {
      this.#waiting.set(id, resolve);
    });
    try {
      child.send({ ...message, id });
      const answered = await withDeadline(
        answer,
        timeoutMs,
        () => new CliError(`the ${this.name} did not answer ${message.kind} within ${timeoutMs / 1000} s`),
      );
      if (answered.kind !== 'requestFailed') return answered;
      throw new CliError(`the ${this.name} could not do ${message.kind}: ${textField(answered, 'message')}`);
    } finally {
      this.#waiting.delete(id);
    }
  }

  /**
   * Asks the child to end, by TERM or by a message of its own, and kills its whole
   * group after `graceMs`. Safe at any time, also while it waits for a restart.
   */
  async stop(graceMs: number, message?: IpcMessage): Promise<void> {
    this.#stopping.abort();
    const child = this.#process;
    const pid = child?.pid;
    if (pid !== undefined) {
      if (message !== undefined && child?.connected === true) child.send(message);
      else child?.kill('SIGTERM');
      const timer = setTimeout(() => signalGroup(pid, 'SIGKILL'), graceMs);
      await this.#exited;
      clearTimeout(timer);
      // The group still holds processes that the child started itself.
      signalGroup(pid, 'SIGKILL');
    }
    this.#log.close();
  }

  /** Kills at once, for a second, impatient Ctrl-C. */
  kill(): void {
    this.#stopping.abort();
    const pid = this.#process?.pid;
    if (pid !== undefined) signalGroup(pid, 'SIGKILL');
  }

  #spawn(): Promise<IpcMessage> {
    const { command, args, env, children, name } = this.#options;
    this.#failed = undefined;
    this.#lastLines = [];
    const child = spawn(command, args, {
      env: env(),
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#process = child;
    if (child.pid !== undefined) children.add(name, child.pid);
    const cutter = new LineCutter((line) => this.#onLine(line));
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8');
      stream?.on('data', (text: string) => cutter.push(text));
    }
    let markExited: () => void = () => {};
    this.#exited = new Promise((resolve) => {
      markExited = resolve;
    });
    return new Promise((resolve, reject) => {
      let settled = false;
      child.on('message', (message) => {
        if (!isIpcMessage(message)) return;
        if (message.kind === 'failed') this.#failed = textField(message, 'message');
        else if (message.kind === 'ready') {
          if (!settled && this.#wasReady) this.#options.onBack?.(message);
          settled = true;
          this.#wasReady = true;
          resolve(message);
        } else if (typeof message['id'] === 'string') this.#waiting.get(message['id'])?.(message);
      });
      const gone = (how: string) => (): void => {
        if (this.#process !== child) return;
        this.#process = undefined;
        cutter.end();
        children.remove(name);
        markExited();
        if (this.#wasReady) this.#afterDeath(how);
        if (!settled)
          reject(
            new CliError(
              this.#failed ?? `the ${name} ${how} before it was ready: its log is ${this.#log.path}${this.#tail()}`,
            ),
          );
      };
      child.once('error', (error) => gone(`could not be run (${error.message})`)());
      child.once('close', (code, signal) =>
        gone(signal === null ? `exited with code ${code}` : `was ended by ${signal}`)(),
      );
    });
  }

  #afterDeath(how: string): void {
    if (this.#stopping.signal.aborted) return;
    const nowMs = performance.now();
    this.#deathsMs.push(nowMs);
    if (this.#deathsMs.length > 20) this.#deathsMs.shift();
    const decision = decideRestart(this.#deathsMs, nowMs);
    const why = this.#failed ?? how;
    if (decision.kind === 'give_up') {
      const times = `${decision.deaths} times within ${decision.withinMs / 1000} s`;
      this.#options.onGaveUp(
        `the ${this.name} ended ${times}, last: ${why}. Its log is ${this.#log.path}${this.#tail()}`,
      );
      return;
    }
    this.#options.onNote(`the ${this.name} ${this.#failed === undefined ? how : `ended: ${why}`}; starting it again`);
    void this.#restart(decision.delayMs);
  }

  async #restart(delayMs: number): Promise<void> {
    if (!(await sleep(delayMs, this.#stopping.signal))) return;
    // A failed start is a death, which `gone` has counted already.
    await this.#spawn().catch(() => undefined);
  }

  #onLine(line: string): void {
    this.#log.write(`${line}\n`);
    this.#lastLines.push(line);
    if (this.#lastLines.length > LAST_LINES) this.#lastLines.shift();
    const short = screenLine(this.name, line);
    if (short === undefined) return;
    const nowMs = performance.now();
    if (nowMs - this.#screen.sinceMs > SCREEN_WINDOW_MS) this.#screen = { sinceMs: nowMs, lines: 0 };
    this.#screen.lines += 1;
    if (this.#screen.lines <= SCREEN_LINES) this.#options.onNote(short);
    else if (this.#screen.lines === SCREEN_LINES + 1) this.#options.onNote(`${this.name}: more in ${this.#log.path}`);
  }

  #tail(): string {
    const lines = this.#lastLines.filter((line) => line !== '' && !line.startsWith('{"level":30'));
    return lines.length === 0 ? '' : `\n${lines.map((line) => `  ${line}`).join('\n')}`;
  }
}

function isIpcMessage(value: unknown): value is IpcMessage {
  return typeof value === 'object' && value !== null && 'kind' in value && typeof value.kind === 'string';
}

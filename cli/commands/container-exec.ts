// `longshore container exec`, `shell` and `attach`: a program of a container at this terminal.
// Invariant: the terminal is as it was when the command ends, however it ends. A lost connection is made again, and
// nothing of the output is shown twice. Input that is no terminal's reaches the program once.
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RawData, WebSocket } from 'ws';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import { note } from '../print.ts';
import { placeOf } from './container.ts';
import { COME_BACK, LinkLost, jsonOf, openLink } from './container-link.ts';
import { KeptInput } from './kept-input.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

export interface ExecFlags {
  /** False: no terminal, also where this one is one. */
  readonly terminal: boolean;
  readonly cwd?: string;
  readonly env?: readonly string[];
  /** A second Ctrl-C leaves the program, which the container then ends with. */
  readonly leavesAtSecond?: boolean;
}

/** Time for which a lost connection is tried again: a terminal is hung up after it. */
const TRY_FOR_MS = 300_000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5_000;
/** Input that waits for the connection above which no more is read. */
const MOST_BEHIND_BYTES = 1024 * 1024;
/** Input whose arrival is not known above which no more is read. */
const MOST_KEPT_BYTES = 16 * 1024 * 1024;
const INTERRUPT = 0x03;
const STTY_MS = 5_000;

/** Runs a program. @returns its exit code */
export async function runContainerExec(
  reference: string,
  command: readonly string[],
  flags: ExecFlags,
  invocation: Invocation,
): Promise<number> {
  return withClient(invocation, async (client) => {
    const { id } = await placeOf(client, reference);
    return executeIn(client, id, command, flags);
  });
}

/** Runs a program in a container that runs. @returns its exit code */
export async function executeIn(
  client: Client,
  id: string,
  command: readonly string[],
  flags: ExecFlags,
): Promise<number> {
  const isTerminal = flags.terminal && process.stdin.isTTY && process.stdout.isTTY;
  const term = isTerminal && process.env['TERM'] !== undefined ? { TERM: process.env['TERM'] } : {};
  const path = `/api/v1/gateway/containers/${encodeURIComponent(id)}/exec`;
  const first = {
    command,
    cwd: flags.cwd ?? '',
    env: { ...term, ...variablesOf(flags.env ?? []) },
    terminal: isTerminal ? sizeOf() : null,
    input: !isTerminal,
  };
  const program = new RemoteProgram(client, isTerminal, {
    begin: async () => ({ webSocket: await openLink(client, path), first }),
    comeBack: async (pid, seen) => ({
      webSocket: await openLink(client, path),
      first: { pid, ...seen, input: !isTerminal },
    }),
    hasStreamByte: true,
    leavesAtSecond: flags.leavesAtSecond === true,
  });
  return program.run();
}

/** Opens a shell. */
export async function runContainerShell(reference: string, invocation: Invocation): Promise<number> {
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw usageError('a shell needs a terminal: `longshore container exec ID -- COMMAND` runs programs without one');
  return withClient(invocation, async (client) => {
    const { id, stubId } = await placeOf(client, reference);
    const path = `/shell/id/${encodeURIComponent(stubId)}/${encodeURIComponent(id)}`;
    const { rows, columns } = sizeOf();
    const program = new RemoteProgram(client, true, {
      begin: async () => ({ webSocket: await openLink(client, `${path}?rows=${rows}&columns=${columns}`) }),
      comeBack: async (pid, { stdout }) => ({ webSocket: await openLink(client, `${path}?pid=${pid}&from=${stdout}`) }),
      hasStreamByte: false,
    });
    return program.run();
  });
}

/** Prints the output of a container's own program, to its end. */
export async function runContainerAttach(reference: string, invocation: Invocation): Promise<number> {
  return withClient(invocation, async (client) => {
    const { id } = await placeOf(client, reference);
    const webSocket = await openLink(client, `/api/v1/gateway/containers/${encodeURIComponent(id)}/attach`);
    const code = await new Promise<number>((resolve, reject) => {
      webSocket.on('message', (data: RawData) => {
        const { output, done, exitCode, error } = jsonOf(textOf(data));
        const isTaken = typeof output !== 'string' || output === '' || process.stdout.write(output);
        if (!isTaken && !webSocket.isPaused) {
          webSocket.pause();
          process.stdout.once('drain', () => webSocket.resume());
        }
        if (error !== undefined) reject(refusalOf(error, false));
        if (done === true) resolve(typeof exitCode === 'number' ? exitCode : 1);
      });
      webSocket.once('close', () => {
        reject(new CliError('the connection was lost: attach again; `longshore logs` shows what was printed'));
      });
      process.once('SIGINT', () => resolve(130));
      webSocket.resume();
    });
    webSocket.close();
    return code;
  });
}

interface Seen {
  stdout: number;
  stderr: number;
}

interface Begun {
  readonly webSocket: WebSocket;
  /** The first message; absent: none is needed. */
  readonly first?: object;
}

interface Ways {
  begin(): Promise<Begun>;
  comeBack(pid: number, seen: Readonly<Seen>): Promise<Begun>;
  readonly hasStreamByte: boolean;
  readonly leavesAtSecond?: boolean;
}

type End = { readonly code: number } | 'lost';

interface Followed {
  readonly end: End;
  /** Whether the program was there. */
  readonly wasAnswered: boolean;
}

class RemoteProgram {
  readonly #client: Client;
  readonly #isTerminal: boolean;
  readonly #ways: Ways;
  readonly #seen: Seen = { stdout: 0, stderr: 0 };
  #pid: number | undefined;
  #webSocket: WebSocket | undefined;
  /** Outputs that take no more for now. */
  readonly #behind = new Set<NodeJS.WritableStream>();
  /** Undefined: a terminal's. What is typed without a connection is dropped. */
  readonly #kept: KeptInput | undefined;
  /** Whether input may go out: after a loss, once the place is known from which it goes on. */
  #mayGive = true;
  #hasInputEnded = false;
  /** Exit code of a command whose person left; undefined: nobody did. */
  #leftWith: number | undefined;
  /** Ends the command while there is no connection. */
  #giveUp = new AbortController();

  constructor(client: Client, isTerminal: boolean, ways: Ways) {
    this.#client = client;
    this.#isTerminal = isTerminal;
    this.#ways = ways;
    this.#kept = isTerminal ? undefined : new KeptInput();
  }

  /** @returns the exit code of the program */
  async run(): Promise<number> {
    const begun = await this.#ways.begin();
    const restore = this.#takeTerminal();
    try {
      let { end } = await this.#follow(begun, 'first');
      while (end === 'lost') end = await this.#again();
      return end.code;
    } finally {
      restore();
    }
  }

  /** Connects again to the program, while that may help, and follows it. */
  async #again(): Promise<End> {
    const pid = this.#pid;
    if (pid === undefined) throw new CliError('the connection was lost before the program began: try again');
    this.#say(`the connection to ${this.#client.context.url} was lost: trying again; Ctrl-C gives up`);
    const untilMs = performance.now() + TRY_FOR_MS;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      try {
        const { end, wasAnswered } = await this.#follow(await this.#ways.comeBack(pid, this.#seen), 'again');
        if (wasAnswered) return end;
        if (performance.now() > untilMs)
          throw new CliError(
            'the machine of the container does not answer: `longshore explain ID` says what is known of the container',
          );
      } catch (error) {
        if (!(error instanceof LinkLost) || performance.now() > untilMs) throw error;
      }
      await sleep(waitMs, undefined, { signal: this.#giveUp.signal }).catch(() => undefined);
      if (this.#giveUp.signal.aborted)
        throw new CliError(`gave up: the program with pid ${pid} goes on in the container`, {
          exitCode: EXIT.interrupted,
        });
    }
  }

  #follow({ webSocket, first }: Begun, time: 'first' | 'again'): Promise<Followed> {
    return new Promise((resolve, reject) => {
      this.#webSocket = webSocket;
      let end: End = 'lost';
      let wasAnswered = false;
      let refusal: CliError | undefined;
      this.#mayGive = time === 'first' || this.#kept === undefined;
      webSocket.on('message', (data: RawData, isBinary: boolean) => {
        if (isBinary) return this.#show(webSocket, data as Buffer);
        const { pid, exitCode, lost, error, input } = jsonOf(textOf(data));
        if (typeof pid === 'number') {
          this.#pid = pid;
          wasAnswered = true;
          if (time === 'again') this.#say('connected again');
        }
        if (typeof input === 'number' && !this.#taken(input)) {
          refusal = new CliError(
            'input of this command and of another one is mixed: what the program has is not known',
          );
          webSocket.close();
        }
        if (lost !== undefined) this.#lost(lost);
        if (typeof exitCode === 'number') end = { code: exitCode };
        if (error !== undefined) refusal = refusalOf(error, this.#pid === undefined && this.#ways.hasStreamByte);
      });
      webSocket.once('close', (code, reason) => {
        this.#webSocket = undefined;
        // Bytes of a pipe wait for the next connection.
        if (!this.#isTerminal) process.stdin.pause();
        if (this.#leftWith !== undefined) resolve({ end: { code: this.#leftWith }, wasAnswered });
        else if (refusal !== undefined && code !== COME_BACK) reject(refusal);
        else if (code === 1008) reject(new CliError(`the scheduler ended the connection: ${reason.toString('utf8')}`));
        else if (typeof end !== 'string' || code === 1006 || code === COME_BACK || code === 1001)
          resolve({ end, wasAnswered });
        else reject(new CliError(`the scheduler ended the connection (${code})`));
      });
      if (first !== undefined) webSocket.send(JSON.stringify(first));
      if (this.#hasInputEnded && this.#mayGive) webSocket.send('{"end":true}');
      if (this.#behind.size === 0) webSocket.resume();
      this.#readOn();
    });
  }

  /** The container has the input before this place. What it lacks is sent again. @returns false: it cannot be right */
  #taken(place: number): boolean {
    if (this.#kept?.taken(place) === false) return false;
    if (!this.#mayGive) {
      this.#mayGive = true;
      for (const piece of this.#kept?.pieces ?? []) this.#send(piece);
      if (this.#hasInputEnded) this.#webSocket?.send('{"end":true}');
    }
    this.#readOn();
    return true;
  }

  /** Shows output, no faster than it is taken. */
  #show(webSocket: WebSocket, data: Buffer): void {
    const isErr = this.#ways.hasStreamByte && data[0] === 2;
    const bytes = this.#ways.hasStreamByte ? data.subarray(1) : data;
    this.#seen[isErr ? 'stderr' : 'stdout'] += bytes.length;
    const to = isErr ? process.stderr : process.stdout;
    if (to.write(bytes) || this.#behind.has(to)) return;
    // Messages that have come already are still told while the WebSocket is paused.
    this.#behind.add(to);
    webSocket.pause();
    to.once('drain', () => {
      this.#behind.delete(to);
      if (this.#behind.size === 0) this.#webSocket?.resume();
    });
  }

  #lost(lost: unknown): void {
    const { stream, bytes } = jsonOf(JSON.stringify(lost));
    if (typeof bytes !== 'number' || (stream !== 'stdout' && stream !== 'stderr')) return;
    this.#seen[stream] += bytes;
    this.#say(`${bytes} bytes of ${stream} were dropped while nobody was connected`);
  }

  #say(text: string): void {
    // In raw mode a line end alone does not go back to the margin.
    note(this.#isTerminal ? `\r\nlongshore: ${text}\r` : `longshore: ${text}`);
  }

  /** Passes on input, sizes and signals. @returns restores the terminal */
  #takeTerminal(): () => void {
    const { stdin, stdout } = process;
    const rawBefore = stdin.isTTY && stdin.isRaw;
    const toCooked = (): void => void (this.#isTerminal && stdin.setRawMode(rawBefore));
    if (this.#isTerminal) {
      stdin.setRawMode(true);
      // Node leaves line feeds translated, which full-screen programs do not expect. It restores all modes itself.
      spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'], timeout: STTY_MS });
      process.once('exit', toCooked);
    }
    const onInput = (data: Buffer): void => this.#give(data);
    const onInputEnd = (): void => {
      this.#hasInputEnded = true;
      if (this.#mayGive) this.#webSocket?.send('{"end":true}');
    };
    const onSize = (): void => this.#webSocket?.send(JSON.stringify({ resize: sizeOf() }));
    let signalled = 0;
    const signals = (['SIGINT', 'SIGTERM', 'SIGQUIT'] as const).map((name) => {
      const onSignal = (): void => {
        signalled += 1;
        if (this.#ways.leavesAtSecond === true && signalled > 1) this.#hangUp(EXIT.interrupted);
        else if (this.#webSocket === undefined) this.#giveUp.abort();
        else this.#webSocket.send(JSON.stringify({ signal: name.slice(3) }));
      };
      process.on(name, onSignal);
      return () => process.off(name, onSignal);
    });
    const onHangUp = (): void => this.#hangUp();
    stdin.on('data', onInput);
    stdin.once('end', onInputEnd);
    if (this.#isTerminal) {
      stdout.on('resize', onSize);
      process.on('SIGHUP', onHangUp);
      // A terminal that is gone gives errors, also while its modes are restored.
      for (const stream of [stdin, stdout]) stream.on('error', onHangUp);
    }
    return () => {
      for (const off of signals) off();
      stdin.off('data', onInput);
      stdin.off('end', onInputEnd);
      stdout.off('resize', onSize);
      process.off('SIGHUP', onHangUp);
      process.off('exit', toCooked);
      toCooked();
      stdin.pause();
      // A file has no such method, and holds no process.
      if ('unref' in stdin) stdin.unref();
      this.#webSocket?.close();
      this.#webSocket = undefined;
    };
  }

  /** This terminal is gone: a close hangs the program's up, too. */
  #hangUp(code: ExitCode = EXIT.hungUp): void {
    this.#leftWith = code;
    this.#giveUp.abort();
    this.#webSocket?.close(1000);
  }

  #give(data: Buffer): void {
    this.#kept?.add(data);
    if (this.#webSocket !== undefined && this.#mayGive) this.#send(data);
    // Nothing is connected: what is typed now would reach the program out of its context.
    else if (this.#isTerminal && data.includes(INTERRUPT)) this.#giveUp.abort();
    this.#readOn();
  }

  #send(data: Buffer): void {
    this.#webSocket?.send(data, () => this.#readOn());
  }

  /** Reads input while there is room for it. */
  #readOn(): void {
    const hasRoom =
      this.#webSocket !== undefined &&
      this.#mayGive &&
      this.#webSocket.bufferedAmount < MOST_BEHIND_BYTES &&
      (this.#kept?.bytes ?? 0) < MOST_KEPT_BYTES;
    if (hasRoom) process.stdin.resume();
    else if (!this.#isTerminal || this.#webSocket !== undefined) process.stdin.pause();
  }
}

/** Exit codes of shells for programs that are not there, or cannot be run. */
const START_CODES: Readonly<Record<string, ExitCode>> = {
  not_found: EXIT.noProgram,
  path_denied: EXIT.cannotRun,
  path_conflict: EXIT.cannotRun,
};

/** @param isStart - the program was to be started */
function refusalOf(error: unknown, isStart: boolean): CliError {
  const { message, code } = jsonOf(JSON.stringify(error));
  const exitCode = isStart && typeof code === 'string' ? START_CODES[code] : undefined;
  const text = typeof message === 'string' ? message : 'the scheduler refused it';
  return new CliError(text, exitCode === undefined ? {} : { exitCode });
}

const textOf = (data: RawData): string => (data as Buffer).toString('utf8');

const sizeOf = (): { readonly rows: number; readonly columns: number } => ({
  rows: process.stdout.rows || 24,
  columns: process.stdout.columns || 80,
});

function variablesOf(lines: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf('=');
      if (at < 1) throw usageError(`--env takes NAME=VALUE, not ${JSON.stringify(line)}`);
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}

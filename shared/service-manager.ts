/**
 * Messages of a daemon to systemd: ready, a status line, a sign of life, stopping. Node has no unix
 * datagram sockets, so each message is a short `systemd-notify`. Without systemd no message is sent
 * and no process runs. Invariant: a blocked daemon sends no sign of life, whatever its timers do.
 */
import { runProgram } from './child-process.ts';
import type { ProgramEnd } from './child-process.ts';
import type { Log } from './log.ts';
import { watchLoopLag } from './loop-lag.ts';

/** The longest time between signs of life: three fit within the unit's limit. */
const LONGEST_PING_MS = 20_000;
/** An event loop that was blocked this long since the last sign of life sends none. */
const LAG_LIMIT_MS = 5_000;
const LAG_LOOK_MS = 500;
const NOTIFY_DEADLINE_MS = 10_000;
/** A longer status belongs in the log. */
const STATUS_CHARACTERS = 200;

export interface ServiceManager {
  /** Reports the end of start-up, once; later calls change the status only. */
  ready(status: string): void;
  status(text: string): void;
  /** Sends signs of life from now on, as long as the event loop turns and `progresses` returns true. */
  watch(progresses: () => boolean): void;
  /** Resolves when systemd knows; the signs of life end. @param withinSeconds - new stop limit of the unit */
  stopping(withinSeconds?: number): Promise<void>;
}

/**
 * Takes systemd's variables out of the environment, so that no child of ours speaks for us.
 * @param env - the process's own, changed
 */
export function takeServiceManager(env: Record<string, string | undefined>, log: () => Log): ServiceManager {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: limit, WATCHDOG_PID: pid } = env;
  for (const name of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) delete env[name];
  if (socket === undefined || socket === '') return NO_SERVICE_MANAGER;
  const isOurs = pid === undefined || Number(pid) === process.pid;
  return new Systemd(socket, isOurs ? Number(limit ?? 0) / 1000 : 0, log);
}

/** The service manager where no systemd listens: it does nothing. */
export const NO_SERVICE_MANAGER: ServiceManager = {
  ready: () => undefined,
  status: () => undefined,
  watch: () => undefined,
  stopping: () => Promise.resolve(),
};

class Systemd implements ServiceManager {
  readonly #socket: string;
  readonly #limitMs: number;
  readonly #log: () => Log;
  #isReady = false;
  #last: Promise<void> = Promise.resolve();
  #endWatch: (() => void) | undefined;
  #status = '';
  #complained = false;

  constructor(socket: string, limitMs: number, log: () => Log) {
    this.#socket = socket;
    this.#limitMs = limitMs;
    this.#log = log;
  }

  ready(status: string): void {
    if (this.#isReady) return this.status(status);
    this.#isReady = true;
    this.#status = status;
    void this.#say('READY=1', statusLine(status));
  }

  status(text: string): void {
    if (text === this.#status) return;
    this.#status = text;
    void this.#say(statusLine(text));
  }

  watch(progresses: () => boolean): void {
    if (this.#limitMs <= 0 || this.#endWatch !== undefined) return;
    const lag = watchLoopLag(LAG_LOOK_MS);
    const ping = setInterval(
      () => {
        const lagMs = lag.takeWorstMs();
        if (lagMs >= LAG_LIMIT_MS) this.#log().warn({ lagMs }, 'no sign of life: the event loop stood still');
        else if (!progresses()) this.#log().warn('no sign of life: the main loop does not get on');
        else void this.#say('WATCHDOG=1');
      },
      Math.min(LONGEST_PING_MS, this.#limitMs / 3),
    );
    ping.unref();
    this.#endWatch = () => {
      lag.end();
      clearInterval(ping);
    };
  }

  stopping(withinSeconds?: number): Promise<void> {
    this.#endWatch?.();
    const extend = withinSeconds === undefined ? [] : [`EXTEND_TIMEOUT_USEC=${withinSeconds * 1_000_000}`];
    return this.#say('STOPPING=1', ...extend, statusLine('stopping'));
  }

  /** Messages go one after another, so that the last one wins. */
  #say(...states: readonly string[]): Promise<void> {
    this.#last = this.#last.then(async () => {
      const end = await runProgram('systemd-notify', states, {
        env: { ...process.env, NOTIFY_SOCKET: this.#socket },
        deadlineMs: NOTIFY_DEADLINE_MS,
      });
      const why = failureOf(end);
      if (why === '' || this.#complained) return;
      this.#complained = true;
      this.#log().warn({ why }, 'systemd-notify failed: systemd hears nothing of this service');
    });
    return this.#last;
  }
}

/** Empty: the message was sent. */
function failureOf(end: ProgramEnd): string {
  if (end.kind === 'not_started') return end.error.message;
  if (end.kind === 'timeout') return `no end within ${NOTIFY_DEADLINE_MS / 1000} s`;
  return end.exitCode === 0 ? '' : end.stderr.trim() || `exit code ${end.exitCode}`;
}

const statusLine = (text: string): string => `STATUS=${text.replaceAll(/\s+/g, ' ').slice(0, STATUS_CHARACTERS)}`;

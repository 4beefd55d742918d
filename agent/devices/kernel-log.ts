/**
 * Lines of the kernel's log in this boot, for as long as the agent runs. Source: `/dev/kmsg` where it is readable (no
 * CAP_SYSLOG, no `dmesg_restrict`), else the journal from a cursor on, whose files root may read by ownership. Must
 * stay true: a log that cannot be read is told. A journal may fail without a word: its program exits, prints nothing,
 * or stands still. So the newest line is asked for by another call now and then, and compared with the last one read.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setImmediate } from 'node:timers/promises';
import { backoffMs, sleep } from '#shared/backoff.ts';
import { inheritedEnv, runProgram, startProgram } from '#shared/child-process.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { hasCode } from '../durable.ts';

const POLL_MS = 1000;
/** Buffer for one read of /dev/kmsg, which returns one record of at most 8 KiB. */
const READ_BYTES = 16 * 1024;
const MAX_READS = 20_000;
/** Records read before other work gets a turn. */
const READS_IN_A_TURN = 50;

/** Time for the lines of a boot after the start of the journal's program. */
const FIRST_LOOK_MS = 30_000;
/** Interval of comparisons with the journal's newest line. */
const LOOK_EVERY_MS = 5 * 60_000;
const ASK_MS = 10_000;
/** A program that ended without a line is started again; so many ends in a row mean that the journal is not read. */
const ENDS_TO_UNREAD = 2;
/** Kept end of the program's error output. */
const MOST_WORDS = 500;
/** A line that is newer than the last one read by this much was missed: reading takes a moment. */
const MISSED_MS = 5_000;

export const KMSG = '/dev/kmsg';

/** Whether the kernel's log is read. */
export interface KernelLogState {
  readonly source: 'kmsg' | 'journal' | 'none';
  /** Why the log is not read; empty: it is. */
  readonly problem: string;
}

export interface KernelLine {
  /** Sequence number of the line in /dev/kmsg; grows from boot on. */
  readonly sequence?: number;
  /** Journal cursor after this line. */
  readonly cursor?: string;
  /** Milliseconds since boot. */
  readonly atMs: number;
  readonly text: string;
}

export interface Reader {
  /** Journal cursor of the last line that was taken in. */
  readonly cursor: string | undefined;
  /**
   * Milliseconds since boot: earlier lines are skipped where the journal does not know the cursor, or none is stored.
   */
  readonly sinceMs: number;
  readonly onLine: (line: KernelLine) => void;
  /** Told whether the log is read, at the beginning and at each change. */
  readonly onState: (state: KernelLogState) => void;
  /** Times of the looks at the journal, for tests. */
  readonly looks?: { readonly firstMs: number; readonly everyMs: number };
}

/** @param path - a file read like /dev/kmsg: a record a line, `level,sequence,time,flags;text` */
export async function followKernelLog(path: string, reader: Reader, signal: AbortSignal, log: Log): Promise<void> {
  const { onLine } = reader;
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    log.info({ err: error, path }, 'the kernel log is read from the journal');
    await followJournal(reader, signal, log);
    return;
  }
  try {
    const buffer = Buffer.alloc(READ_BYTES);
    let rest = '';
    let told = false;
    do {
      for (let reads = 0; reads < MAX_READS && !signal.aborted; reads += 1) {
        if (reads % READS_IN_A_TURN === READS_IN_A_TURN - 1) await setImmediate();
        const text = readSome(file, buffer);
        if (!told) reader.onState({ source: 'kmsg', problem: '' });
        told = true;
        if (text === '') break;
        const lines = (rest + text).split('\n');
        rest = (lines.pop() ?? '').slice(-READ_BYTES);
        for (const line of lines) {
          const record = recordOf(line);
          if (record !== undefined) onLine(record);
        }
      }
    } while (await sleep(POLL_MS, signal));
  } catch (error) {
    // The file opened but cannot be read: some kernels check dmesg_restrict only at the first read.
    log.info({ err: error, path }, 'the kernel log is read from the journal');
    await followJournal(reader, signal, log);
  } finally {
    closeSync(file);
  }
}

/** Reads in this thread: the kernel answers at once, and waking another thread costs more than the read. */
function readSome(file: number, buffer: Buffer): string {
  try {
    return buffer.toString('utf8', 0, readSync(file, buffer, 0, READ_BYTES, null));
  } catch (error) {
    // EAGAIN: nothing new. EPIPE: records were overwritten unread, and the next read continues after them.
    if (hasCode(error, 'EAGAIN')) return '';
    if (hasCode(error, 'EPIPE')) return '\n';
    throw error;
  }
}

/** Parses a record. Continuation lines (` KEY=value`) have no head and are ignored. */
function recordOf(line: string): KernelLine | undefined {
  const match = /^\d+,(\d+),(\d+),[^;]*;(.*)$/.exec(line);
  if (match === null) return undefined;
  return { sequence: Number(match[1]), atMs: Number(match[2]) / 1000, text: match[3] ?? '' };
}

/**
 * Follows the journal. A child that ends is restarted after its last line, and one that stands still is ended. Memory
 * is bounded: the journal cuts fields to 4 KiB in this output, and a backlog is taken line by line.
 */
async function followJournal(reader: Reader, signal: AbortSignal, log: Log): Promise<void> {
  let { cursor: after, sinceMs } = reader;
  let seenMs = 0;
  let emptyEnds = 0;
  let told: string | undefined;
  const tell = (problem: string): void => {
    if (problem === told) return;
    if (problem !== '') log.warn({ problem }, 'the kernel log is not read: errors of GPUs there are not seen');
    else if (told !== undefined && told !== '') log.info('the kernel log is read again');
    told = problem;
    reader.onState({ source: problem === '' ? 'journal' : 'none', problem });
  };
  for (let tries = 0; !signal.aborted; tries += 1) {
    const from = performance.now();
    const place = after === undefined ? [] : [`--after-cursor=${after}`];
    const args = ['--dmesg', '--follow', '--no-tail', '--output=json', '--output-fields=MESSAGE', ...place];
    const child = followChild(args, signal);
    let taken = 0;
    child.onLine((text) => {
      const line = journalLine(text);
      if (line === undefined) return;
      taken += 1;
      emptyEnds = 0;
      after = line.cursor;
      seenMs = Math.max(seenMs, line.atMs);
      if (told === undefined) tell('');
      if (place.length === 0 && line.atMs < sinceMs) return;
      sinceMs = Math.max(sinceMs, line.atMs);
      reader.onLine(line);
    });
    const compare = async (): Promise<void> => {
      const problem = await missedBy(() => seenMs, sinceMs, child.words());
      if (child.isOver()) return;
      tell(problem);
      if (problem !== '') child.end();
    };
    const looks = repeatedly(compare, reader.looks ?? { firstMs: FIRST_LOOK_MS, everyMs: LOOK_EVERY_MS });
    const end = await child.ended;
    clearInterval(looks.timer);
    if (signal.aborted) return;
    const [error, exitCode] = 'error' in end ? [end.error, null] : [undefined, end.exitCode];
    if (taken === 0) emptyEnds += 1;
    // The journal rejects the cursor: this boot is read again, and lines taken in earlier are recognised by their time.
    if (exitCode !== null && exitCode !== 0 && taken === 0 && after !== undefined) {
      log.warn({ cursor: after }, 'the journal does not know where it was read to: this boot is read again');
      after = undefined;
    } else if (error !== undefined || emptyEnds >= ENDS_TO_UNREAD) tell(endText(error, exitCode, child.words()));
    if (performance.now() - from > 60_000) tries = 0;
    if (!(await sleep(backoffMs(tries, { baseMs: 1000, capMs: 300_000, floorMs: 1000 }), signal))) return;
  }
}

const endText = (error: Error | undefined, exitCode: number | null, words: string): string =>
  error === undefined
    ? `journalctl ends with ${exitCode ?? 'a signal'} and prints no line${words === '' ? '' : `: ${words}`}`
    : `neither ${KMSG} nor the journal can be read: ${messageOf(error)}`;

/** The journal's program, line by line, with the end of its error output. */
function followChild(args: readonly string[], signal: AbortSignal) {
  const { child, ended } = startProgram('journalctl', args, {
    env: { ...inheritedEnv(), LC_ALL: 'C' },
    signal,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const lines = child?.stdout ? createInterface({ input: child.stdout }) : undefined;
  let words = '';
  let over = false;
  child?.stderr?.setEncoding('utf8').on('data', (text: string) => (words = (words + text).slice(-MOST_WORDS)));
  return {
    ended: ended.finally(() => {
      over = true;
      lines?.close();
    }),
    onLine: (listener: (text: string) => void) => void lines?.on('line', listener),
    words: () => words.trim(),
    isOver: () => over,
    end: () => void child?.kill('SIGKILL'),
  };
}

/** Runs work once after a first time, and then again and again; never twice at a time. */
function repeatedly(work: () => Promise<void>, { firstMs, everyMs }: { firstMs: number; everyMs: number }) {
  const looks: { timer: NodeJS.Timeout | undefined } = { timer: undefined };
  let running = false;
  const run = (): void => {
    if (running) return;
    running = true;
    void work().finally(() => (running = false));
  };
  looks.timer = setTimeout(() => {
    looks.timer = setInterval(run, everyMs).unref();
    run();
  }, firstMs).unref();
  return looks;
}

/**
 * Compares the journal's newest line of the kernel with the last one read.
 * @param sinceMs - lines before this time need not have been read
 * @returns why the log is not read; empty: it is
 */
async function missedBy(seenMs: () => number, sinceMs: number, words: string): Promise<string> {
  const args = ['--dmesg', '--lines=1', '--output=json', '--output-fields=MESSAGE'];
  const asked = await runProgram('journalctl', args, {
    deadlineMs: ASK_MS,
    env: { ...inheritedEnv(), LC_ALL: 'C' },
  });
  if (asked.kind === 'timeout') return 'journalctl does not answer';
  if (asked.kind === 'not_started') return endText(asked.error, null, '');
  const newest = asked.stdout
    .split('\n')
    .flatMap((text) => journalLine(text) ?? [])
    .at(-1);
  const said = asked.stderr.trim().slice(-MOST_WORDS) || words;
  // Every boot has lines of the kernel: a journal without one does not keep them, or does not show them.
  if (newest === undefined) return `the journal shows no line of the kernel${said === '' ? '' : `: ${said}`}`;
  if (newest.atMs <= Math.max(seenMs(), sinceMs) + MISSED_MS) return '';
  return 'journalctl stands still: the journal has newer lines of the kernel than it printed';
}

/** Parses an entry of `--output=json`; only a text that may concern a device is decoded. */
function journalLine(text: string): (KernelLine & { readonly cursor: string }) | undefined {
  const cursor = /"__CURSOR"\s*:\s*"([^"]{1,1000})"/.exec(text)?.[1];
  const at = /"__MONOTONIC_TIMESTAMP"\s*:\s*"(\d+)"/.exec(text)?.[1];
  if (cursor === undefined || at === undefined) return undefined;
  // A text that is not UTF-8 (a program may name itself so) comes as an array of bytes.
  const mayTell = text.includes('Xid') || /"MESSAGE"\s*:\s*\[/.test(text);
  return { cursor, atMs: Number(at) / 1000, text: mayTell ? messageIn(text) : '' };
}

function messageIn(text: string): string {
  try {
    const entry: unknown = JSON.parse(text);
    const message: unknown = typeof entry === 'object' && entry !== null ? Reflect.get(entry, 'MESSAGE') : undefined;
    if (typeof message === 'string') return message;
    return Array.isArray(message) ? Buffer.from(message.filter((byte) => typeof byte === 'number')).toString() : '';
  } catch {
    return '';
  }
}

/**
 * Lines of the kernel's log in this boot, for as long as the agent runs: `/dev/kmsg` where it may be read (no CAP_SYSLOG, no `dmesg_restrict`), else the journal from a cursor on, whose files root may read
 * by ownership. Where neither can be had, that is said once, and the GPU tool alone tells how devices are.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setImmediate } from 'node:timers/promises';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { hasCode } from '../durable.ts';

const POLL_MS = 1000;
/** One read of /dev/kmsg is one record, of at most 8 KiB. */
const READ_BYTES = 16 * 1024;
const MAX_READS = 20_000;
/** Records that are read before others have a turn. */
const READS_IN_A_TURN = 50;

export const KMSG = '/dev/kmsg';

export interface KernelLine {
  /** Number of the line in /dev/kmsg since boot; grows. */
  readonly sequence?: number;
  /** Place in the journal where to read on after this line. */
  readonly cursor?: string;
  /** Since boot. */
  readonly atMs: number;
  readonly text: string;
}

export interface Reader {
  /** Place in the journal of the last line that was taken in. */
  readonly cursor: string | undefined;
  /** Since boot: where the journal does not know the cursor, or there is none, lines of before are left out. */
  readonly sinceMs: number;
  readonly onLine: (line: KernelLine) => void;
}

/** @param path - read as /dev/kmsg is: a record a line, `level,sequence,time,flags;text` */
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
    do {
      for (let reads = 0; reads < MAX_READS && !signal.aborted; reads += 1) {
        if (reads % READS_IN_A_TURN === READS_IN_A_TURN - 1) await setImmediate();
        const text = readSome(file, buffer);
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
    // Opened, and not to be read: dmesg_restrict is asked for at the first read by some kernels.
    log.info({ err: error, path }, 'the kernel log is read from the journal');
    await followJournal(reader, signal, log);
  } finally {
    closeSync(file);
  }
}

/** In this thread: the kernel answers at once, and to wake another thread for it costs more than the read. */
function readSome(file: number, buffer: Buffer): string {
  try {
    return buffer.toString('utf8', 0, readSync(file, buffer, 0, READ_BYTES, null));
  } catch (error) {
    // EAGAIN: nothing new. EPIPE: records were overwritten before they were read, and the next read goes on after them.
    if (hasCode(error, 'EAGAIN')) return '';
    if (hasCode(error, 'EPIPE')) return '\n';
    throw error;
  }
}

/** Continuation lines of a record (` KEY=value`) have no head, and are nothing to us. */
function recordOf(line: string): KernelLine | undefined {
  const match = /^\d+,(\d+),(\d+),[^;]*;(.*)$/.exec(line);
  if (match === null) return undefined;
  return { sequence: Number(match[1]), atMs: Number(match[2]) / 1000, text: match[3] ?? '' };
}

/**
 * A child that ends is started again, after the last line it gave. Memory is bounded by the journal: it cuts fields to 4 KiB in this output; lines of a backlog are taken one by one.
 */
async function followJournal(reader: Reader, signal: AbortSignal, log: Log): Promise<void> {
  const { execa } = await import('execa');
  const { NOTIFY_SOCKET: _hidden, ...env } = process.env;
  let { cursor: after, sinceMs } = reader;
  for (let tries = 0; !signal.aborted; tries += 1) {
    const from = performance.now();
    const place = after === undefined ? [] : [`--after-cursor=${after}`];
    const child = execa(
      'journalctl',
      ['--dmesg', '--follow', '--no-tail', '--output=json', '--output-fields=MESSAGE', ...place],
      { extendEnv: false, env, stdin: 'ignore', stderr: 'ignore', buffer: false, reject: false, cancelSignal: signal },
    );
    const ended = child.then((result) => result);
    const lines = createInterface({ input: child.stdout });
    let taken = 0;
    lines.on('line', (text) => {
      const line = journalLine(text);
      if (line === undefined) return;
      taken += 1;
      after = line.cursor;
      if (place.length === 0 && line.atMs < sinceMs) return;
      sinceMs = Math.max(sinceMs, line.atMs);
      reader.onLine(line);
    });
    const { code, exitCode } = await ended;
    lines.close();
    if (signal.aborted) return;
    if (code === 'ENOENT') {
      log.warn('neither /dev/kmsg nor the journal can be read: errors that the GPU driver reports there are not seen');
      return;
    }
    // A cursor that this journal does not take: the boot is read again, and lines are told apart by their time.
    if (exitCode !== undefined && exitCode !== 0 && taken === 0 && after !== undefined) {
      log.warn({ cursor: after }, 'the journal does not know where it was read to: this boot is read again');
      after = undefined;
    }
    if (performance.now() - from > 60_000) tries = 0;
    if (!(await sleep(backoffMs(tries, { baseMs: 1000, capMs: 300_000, floorMs: 1000 }), signal))) return;
  }
}

/** An entry of `--output=json`; only what may tell of a device is read whole. */
function journalLine(text: string): (KernelLine & { readonly cursor: string }) | undefined {
  const cursor = /"__CURSOR"\s*:\s*"([^"]{1,1000})"/.exec(text)?.[1];
  const at = /"__MONOTONIC_TIMESTAMP"\s*:\s*"(\d+)"/.exec(text)?.[1];
  if (cursor === undefined || at === undefined) return undefined;
  // A text that is not UTF-8 (a program may call itself so) comes as its bytes.
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

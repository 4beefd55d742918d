/**
 * Lines of the kernel's log in this boot, for as long as the agent runs. Source: `/dev/kmsg` where it is readable (no
 * CAP_SYSLOG, no `dmesg_restrict`), else the journal from a cursor on, whose files root may read by ownership. Without
 * either, one log line says so, and only the GPU tool reports the devices' health.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setImmediate } from 'node:timers/promises';
import { backoffMs, sleep } from '#shared/backoff.ts';
import { inheritedEnv, startProgram } from '#shared/child-process.ts';
import type { Log } from '#shared/log.ts';
import { hasCode } from '../durable.ts';

const POLL_MS = 1000;
/** Buffer for one read of /dev/kmsg, which returns one record of at most 8 KiB. */
const READ_BYTES = 16 * 1024;
const MAX_READS = 20_000;
/** Records read before other work gets a turn. */
const READS_IN_A_TURN = 50;

export const KMSG = '/dev/kmsg';

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
 * Follows the journal. A child that ends is restarted after its last line. Memory is bounded: the journal cuts fields
 * to 4 KiB in this output, and a backlog is taken line by line.
 */
async function followJournal(reader: Reader, signal: AbortSignal, log: Log): Promise<void> {
  let { cursor: after, sinceMs } = reader;
  for (let tries = 0; !signal.aborted; tries += 1) {
    const from = performance.now();
    const place = after === undefined ? [] : [`--after-cursor=${after}`];
    const args = ['--dmesg', '--follow', '--no-tail', '--output=json', '--output-fields=MESSAGE', ...place];
    const options = { env: inheritedEnv(), signal };
    const { child, ended } = startProgram('journalctl', args, { ...options, stdio: ['ignore', 'pipe', 'ignore'] });
    const lines = child?.stdout ? createInterface({ input: child.stdout }) : undefined;
    let taken = 0;
    lines?.on('line', (text) => {
      const line = journalLine(text);
      if (line === undefined) return;
      taken += 1;
      after = line.cursor;
      if (place.length === 0 && line.atMs < sinceMs) return;
      sinceMs = Math.max(sinceMs, line.atMs);
      reader.onLine(line);
    });
    const end = await ended;
    lines?.close();
    if (signal.aborted) return;
    const [error, exitCode] = 'error' in end ? [end.error, null] : [undefined, end.exitCode];
    if (hasCode(error, 'ENOENT')) {
      log.warn('neither /dev/kmsg nor the journal can be read: errors that the GPU driver reports there are not seen');
      return;
    }
    // The journal rejects the cursor: this boot is read again, and lines taken in earlier are recognised by their time.
    if (exitCode !== null && exitCode !== 0 && taken === 0 && after !== undefined) {
      log.warn({ cursor: after }, 'the journal does not know where it was read to: this boot is read again');
      after = undefined;
    }
    if (performance.now() - from > 60_000) tries = 0;
    if (!(await sleep(backoffMs(tries, { baseMs: 1000, capMs: 300_000, floorMs: 1000 }), signal))) return;
  }
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

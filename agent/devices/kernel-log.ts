/**
 * New lines of the kernel's log, for as long as the agent runs: `/dev/kmsg` where it may be read (no CAP_SYSLOG, no `dmesg_restrict`), else the journal, whose files root may read by ownership. Where
 * neither can be had, that is said once, and the GPU tool alone tells how devices are.
 */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { hasCode } from '../durable.ts';

const POLL_MS = 1000;
/** One read of /dev/kmsg is one record, of at most 8 KiB. */
const READ_BYTES = 16 * 1024;
const MAX_READS = 20_000;

export const KMSG = '/dev/kmsg';

export interface KernelLine {
  /** Grows; since boot. Undefined where the source has none. */
  readonly sequence: number | undefined;
  /** Since boot; undefined: it was written just now. */
  readonly atMs: number | undefined;
  readonly text: string;
}

/** @param path - read as /dev/kmsg is: a record a line, `level,sequence,time,flags;text` */
export async function followKernelLog(
  path: string,
  onLine: (line: KernelLine) => void,
  signal: AbortSignal,
  log: Log,
): Promise<void> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    log.info({ err: error, path }, 'the kernel log is read from the journal');
    await followJournal(onLine, signal, log);
    return;
  }
  try {
    let rest = '';
    do {
      for (let reads = 0; reads < MAX_READS && !signal.aborted; reads += 1) {
        const text = await readSome(file);
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
    await followJournal(onLine, signal, log);
  } finally {
    await file.close().catch(() => undefined);
  }
}

async function readSome(file: FileHandle): Promise<string> {
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(READ_BYTES), 0, READ_BYTES, null);
    return buffer.toString('utf8', 0, bytesRead);
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

async function followJournal(onLine: (line: KernelLine) => void, signal: AbortSignal, log: Log): Promise<void> {
  const { execa } = await import('execa');
  const { NOTIFY_SOCKET: _hidden, ...env } = process.env;
  for (let tries = 0; !signal.aborted; tries += 1) {
    const from = performance.now();
    const child = execa('journalctl', ['--dmesg', '--follow', '--lines=0', '--output=cat'], {
      extendEnv: false,
      env,
      stdin: 'ignore',
      stderr: 'ignore',
      buffer: false,
      reject: false,
      cancelSignal: signal,
    });
    const ended = child.then((result) => result);
    const lines = createInterface({ input: child.stdout });
    lines.on('line', (text) => onLine({ sequence: undefined, atMs: undefined, text }));
    const { code } = await ended;
    lines.close();
    if (signal.aborted) return;
    if (code === 'ENOENT') {
      log.warn('neither /dev/kmsg nor the journal can be read: errors that the GPU driver reports there are not seen');
      return;
    }
    if (performance.now() - from > 60_000) tries = 0;
    if (!(await sleep(backoffMs(tries, { baseMs: 1000, capMs: 300_000, floorMs: 1000 }), signal))) return;
  }
}

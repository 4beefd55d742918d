// Recordings of what the planner is told and decides, in a folder of the data directory of the replica that leads.
import { mkdir, open, readdir, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Placer } from './placer.ts';
import { RecordingFile } from './recording-file.ts';
import type { RecordingEnd } from './recording-file.ts';

export interface RecordingsParts {
  /** `<dataDir>/recordings`; made with the first recording. */
  readonly directory: string;
  readonly placer: Pick<Placer, 'record' | 'recordNoMore'>;
  readonly isLeader: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
  /** Most bytes of a recording. */
  readonly maxBytes?: number;
}

export interface Recording {
  readonly name: string;
  /** Where the file is on that host. */
  readonly path: string;
  readonly host: string;
  readonly startedAtMs: number;
  readonly bytes: number;
  /** Why it ended; `cut`: the scheduler ended without a stop. undefined: it goes on. */
  readonly ended: RecordingEnd | 'cut' | undefined;
}

/** A request about recordings, which only the leader can answer. */
export type RecordingRequest =
  | { readonly kind: 'begin'; readonly seconds: number }
  | { readonly kind: 'end' }
  | { readonly kind: 'list' };

/** Recordings that are kept: a new one removes the oldest. */
export const MOST_RECORDINGS = 8;
const MAX_BYTES = 256 * 1024 ** 2;
const NAME = /^recording-(\d{13})\.jsonl$/;
/** Bytes at the end of a file that hold its last line. */
const LAST_BYTES = 1024;

export class Recordings {
  readonly name = 'recordings of placement';
  readonly #parts: RecordingsParts;
  #isBeginning = false;
  #current: { readonly name: string; readonly file: RecordingFile } | undefined;

  constructor(parts: RecordingsParts) {
    this.#parts = parts;
  }

  async stop(): Promise<void> {
    await this.#end('leadership');
  }

  /** This replica leads no more, so another one decides. */
  async leads(isLeading: boolean): Promise<void> {
    if (!isLeading) await this.#end('leadership');
  }

  /** @throws AppError `recording_under_way`, `recording_not_found`, `recording_failed`, `not_leading` */
  async answer(request: RecordingRequest): Promise<readonly Recording[]> {
    switch (request.kind) {
      case 'begin':
        return [await this.begin(request.seconds)];
      case 'end':
        return [await this.end()];
      case 'list':
        return await this.list();
    }
  }

  /** @throws AppError `recording_under_way`, `recording_failed`, `not_leading` */
  async begin(seconds: number): Promise<Recording> {
    const { directory, clock, placer, isLeader, log } = this.#parts;
    if (!isLeader()) throw notLeading();
    if (this.#current !== undefined || this.#isBeginning)
      throw new AppError('recording_under_way', 'placement is being recorded: stop that recording before, or wait');
    this.#isBeginning = true;
    const name = `recording-${clock.nowMs()}.jsonl`;
    const path = join(directory, name);
    const bounds = { forMs: seconds * 1000, bytes: this.#parts.maxBytes ?? MAX_BYTES };
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await this.#makeRoom();
      const file = new RecordingFile(path, bounds, clock, (why) => {
        placer.recordNoMore();
        if (this.#current?.file === file) this.#current = undefined;
        log.info({ recording: path, why, bytes: file.bytes }, 'a recording of placement ended');
      });
      await file.opened();
      this.#current = { name, file };
      placer.record(file);
      log.info({ recording: path, seconds }, 'placement is recorded');
    } catch (error) {
      throw new AppError('recording_failed', `the recording cannot be written below ${directory}`, { cause: error });
    } finally {
      this.#isBeginning = false;
    }
    return await this.#read(name);
  }

  /** Ends the recording that goes on. @throws AppError `recording_not_found` */
  async end(): Promise<Recording> {
    const name = this.#current?.name;
    if (name === undefined) throw new AppError('recording_not_found', 'nothing is being recorded');
    await this.#end('stopped');
    return await this.#read(name);
  }

  /** Recordings of this replica, the newest first. */
  async list(): Promise<readonly Recording[]> {
    return await Promise.all((await this.#names()).map((name) => this.#read(name)));
  }

  async #end(why: RecordingEnd): Promise<void> {
    const file = this.#current?.file;
    file?.end(why);
    await file?.closed();
  }

  async #makeRoom(): Promise<void> {
    for (const name of (await this.#names()).slice(MOST_RECORDINGS - 1))
      await rm(join(this.#parts.directory, name), { force: true });
  }

  async #names(): Promise<string[]> {
    try {
      const names = await readdir(this.#parts.directory);
      return names.filter((name) => NAME.test(name)).toSorted((a, b) => (a < b ? 1 : -1));
    } catch {
      return [];
    }
  }

  async #read(name: string): Promise<Recording> {
    const path = join(this.#parts.directory, name);
    const facts = { name, path, host: hostname(), startedAtMs: Number(NAME.exec(name)?.[1] ?? 0) };
    if (this.#current?.name === name) return { ...facts, bytes: this.#current.file.bytes, ended: undefined };
    const { size } = await stat(path);
    return { ...facts, bytes: size, ended: await endOf(path, size) };
  }
}

export const notLeading = (): AppError =>
  new AppError('not_leading', 'no scheduler that leads answered in time: try again in a moment');

/** Reason in the last line of a file. */
async function endOf(path: string, size: number): Promise<RecordingEnd | 'cut'> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read({
      buffer: Buffer.alloc(LAST_BYTES),
      position: Math.max(0, size - LAST_BYTES),
    });
    const last = buffer.toString('utf8', 0, bytesRead).trimEnd().split('\n').at(-1) ?? '';
    if (!last.startsWith('{"do":"end",')) return 'cut';
    return (JSON.parse(last) as { readonly why: RecordingEnd }).why;
  } finally {
    await file.close();
  }
}

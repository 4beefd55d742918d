// Replays a recording from its file, and compares every answer of the planner.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { messageOf } from '#shared/errors.ts';
import type { Mark, RecordingEnd } from '../placement/recording-file.ts';
import { RECORDING_VERSION } from '../plan/recording.ts';
import type { Line } from '../plan/recording.ts';
import { Replay } from '../plan/replay.ts';

export interface Checked {
  /** Lines that were read. */
  readonly lines: number;
  /** Answers that were compared. */
  readonly compared: number;
  /** Why the recording ended; `cut`: its last line is missing, or is not complete. */
  readonly ended: RecordingEnd | 'cut';
  /** The first answer that is another one; absent: there is none. */
  readonly different?: { readonly line: number; readonly recorded: string; readonly replayed: string };
}

/** A file that is no recording, or that was changed. */
export class RecordingError extends Error {}

/** @throws RecordingError with the line; Error: the file cannot be read */
export async function checkRecording(path: string): Promise<Checked> {
  const replay = new Replay();
  const hash = createHash('sha256');
  let at = 0;
  let ended: Checked['ended'] = 'cut';
  // A line that does not parse is an error, unless it is the last one: a scheduler that was killed wrote a part of it.
  let broken: string | undefined;
  for await (const text of createInterface({ input: createReadStream(path), crlfDelay: Infinity })) {
    at += 1;
    if (broken !== undefined) throw new RecordingError(broken);
    if (ended !== 'cut') throw new RecordingError(`line ${at} stands behind the end`);
    const line = parsed(text);
    if (line === undefined) {
      broken = `line ${at} is no JSON object with a "do"`;
      continue;
    }
    if (at === 1) checkBegin(line);
    else if (line.do === 'end') {
      ended = line.why;
      if (line.sha256 !== hash.digest('hex'))
        throw new RecordingError('the lines are other ones than were recorded: their sha256 is not that of the end');
      continue;
    } else if (line.do !== 'at' && line.do !== 'begin') {
      const difference = play(replay, line, at);
      if (difference !== undefined) {
        const different = { line: at, recorded: text, replayed: JSON.stringify(difference.replayed) };
        return { lines: at, compared: replay.compared, ended, different };
      }
    }
    hash.update(`${text}\n`);
  }
  if (at === 0 || (at === 1 && broken !== undefined)) throw new RecordingError('the file is no recording');
  return { lines: at, compared: replay.compared, ended };
}

function parsed(text: string): Line | Mark | undefined {
  try {
    const line: unknown = JSON.parse(text);
    const isLine = typeof line === 'object' && line !== null && 'do' in line && typeof line.do === 'string';
    return isLine ? (line as Line | Mark) : undefined;
  } catch {
    return undefined;
  }
}

function checkBegin(line: Line | Mark): void {
  if (line.do !== 'begin') throw new RecordingError('line 1 is not the begin of a recording');
  if (line.version !== RECORDING_VERSION)
    throw new RecordingError(
      `the recording has format ${line.version}, and this program replays ${RECORDING_VERSION}: use the version of Longshore that recorded it (${line.longshore})`,
    );
}

function play(replay: Replay, line: Line, at: number): ReturnType<Replay['play']> {
  try {
    return replay.play(line);
  } catch (error) {
    throw new RecordingError(`line ${at} cannot be replayed: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Log lines that follow each other, as one text: agents send them so, and a row of the database holds them so. A line
 * that has line ends of its own stays alone, because it could not be told from several lines.
 */

/** Most lines that are joined. */
export const MOST_JOINED_LINES = 64;
/** Most bytes of joined lines, as UTF-8: two rows of the database with so many fill a page of it. */
export const MOST_JOINED_BYTES = 3_500;
/** Joined lines are printed within this time of the first one. */
export const JOINED_SPAN_MS = 60_000;

/** A line, or several that are joined by line ends. */
export interface LogLines {
  readonly line: string;
  /** Time of the first line. */
  readonly atMs: number;
  /** Milliseconds of each line behind the first; undefined: there is one line. */
  readonly afterMs?: readonly number[] | undefined;
}

export const countOfLines = ({ afterMs }: LogLines): number => afterMs?.length ?? 1;

/**
 * Joins lines within the bounds, in their order. Lines that are joined already stay as they are.
 * @param isOfOne - whether a line has the container, task and so on of the first one
 */
export function joinLines<L extends LogLines>(lines: readonly L[], isOfOne: (line: L, first: L) => boolean): L[] {
  const joined: L[] = [];
  let first: L | undefined;
  let texts: string[] = [];
  let afterMs: number[] = [];
  let bytes = 0;
  const finish = (): void => {
    if (first !== undefined) joined.push(texts.length === 1 ? first : { ...first, line: texts.join('\n'), afterMs });
    first = undefined;
  };
  for (const line of lines) {
    const isAlone = line.afterMs !== undefined || line.line.includes('\n');
    const textBytes = Buffer.byteLength(line.line);
    const goesOn =
      first !== undefined &&
      !isAlone &&
      texts.length < MOST_JOINED_LINES &&
      bytes + 1 + textBytes <= MOST_JOINED_BYTES &&
      Math.abs(line.atMs - first.atMs) < JOINED_SPAN_MS &&
      isOfOne(line, first);
    if (goesOn && first !== undefined) {
      texts.push(line.line);
      afterMs.push(line.atMs - first.atMs);
      bytes += 1 + textBytes;
      continue;
    }
    finish();
    if (isAlone) {
      joined.push(line);
      continue;
    }
    first = line;
    texts = [line.line];
    afterMs = [0];
    bytes = textBytes;
  }
  finish();
  return joined;
}

/** The lines of which these were joined. */
export function separateLines<L extends LogLines>(lines: L): L[] {
  const { afterMs, atMs } = lines;
  if (afterMs === undefined) return [lines];
  return lines.line
    .split('\n')
    .map((line, place) => ({ ...lines, line, atMs: atMs + (afterMs[place] ?? 0), afterMs: undefined }));
}

/** Whether the text has as many lines as times, within the bounds. */
export function areJoined(line: string, afterMs: readonly number[]): boolean {
  if (afterMs.length < 2 || afterMs.length > MOST_JOINED_LINES || Buffer.byteLength(line) > MOST_JOINED_BYTES)
    return false;
  let ends = 0;
  for (let at = line.indexOf('\n'); at >= 0; at = line.indexOf('\n', at + 1)) ends += 1;
  return ends === afterMs.length - 1 && afterMs.every((ms) => Math.abs(ms) < JOINED_SPAN_MS);
}

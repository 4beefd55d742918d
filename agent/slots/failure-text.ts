// Texts of failures: of a start, from its traceback; and every text cut to the bound that the protocol allows.
const LAST_LINES = 20;

/**
 * Text of a failed start: the end of its traceback, which closes with the error. Without a traceback the error alone;
 * where the error differs from the traceback's last line, it comes first.
 */
export function failureText(error: string, traceback: string): string {
  const lines = traceback.trimEnd().split('\n').slice(-LAST_LINES);
  const trace = lines.join('\n');
  if (trace === '') return error;
  // A syntax error names its place in one of the two texts only.
  const repeats = trace.endsWith(error) || error.startsWith(lines.at(-1) ?? '');
  return repeats ? trace : `${error}\n${trace}`;
}

/** Exit codes of a process that a reload ended: its own deadline, and SIGKILL. */
const ENDED_BY_RELOAD: ReadonlySet<number> = new Set([143, 137]);

/**
 * Why an attempt ended whose process exited.
 * @param retiredMs - time since a reload retired the process; undefined: none did
 */
export function exitText(code: number, retiredMs: number | undefined): string {
  if (retiredMs === undefined || !ENDED_BY_RELOAD.has(code)) return `process exited (code ${code})`;
  return `ended by a reload: the call still ran ${Math.round(retiredMs / 1000)} s after files were saved`;
}

/** Bound on texts about containers, in bytes of UTF-8: in the journal, in reports, in the scheduler's rows. */
export const MAX_TEXT_BYTES = 16 * 1024;
const CUT_MARK = '\n[...]\n';

/** Cuts a text to a number of bytes. Beginning and end stay, because an error names itself in one of them. */
export function cutText(text: string, mostBytes = MAX_TEXT_BYTES): string {
  // A character has at most three bytes for each unit of the string: most texts are short and need no count.
  if (text.length * 3 <= mostBytes || Buffer.byteLength(text) <= mostBytes) return text;
  const half = Math.floor((mostBytes - CUT_MARK.length) / 2);
  if (half <= 0) return '';
  const bytes = Buffer.from(text, 'utf8');
  let headEnd = half;
  while (headEnd > 0 && isInside(bytes[headEnd])) headEnd -= 1;
  let tailStart = bytes.length - half;
  while (tailStart < bytes.length && isInside(bytes[tailStart])) tailStart += 1;
  return `${bytes.toString('utf8', 0, headEnd)}${CUT_MARK}${bytes.toString('utf8', tailStart)}`;
}

/** Whether a byte is inside a character. */
const isInside = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

// The whole terminal for what changes: drawn again and again on its alternate screen, until q or Ctrl-C. The other file
// beside print.ts that writes to the terminal. Invariant: the terminal is as it was when the command ends.
import { withoutControls } from './print.ts';

const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const TOP = '\u001b[H';
const REST_OF_LINE = '\u001b[K';
const REST_OF_SCREEN = '\u001b[J';
/** The letter q, and Ctrl-C and Ctrl-D, which raw mode gives as bytes. */
const QUITS: ReadonlySet<number> = new Set([0x71, 0x51, 0x03, 0x04]);

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

export interface Screen {
  readonly size: () => Size;
  /** Shows lines from the top; what does not fit is cut off. */
  readonly draw: (lines: readonly string[]) => void;
  /** Aborted when the person leaves. */
  readonly signal: AbortSignal;
  readonly close: () => void;
}

/** Takes the terminal. @param onResize - draws again */
export function openScreen(onResize: () => void): Screen {
  const { stdin, stdout } = process;
  const left = new AbortController();
  const quit = (): void => left.abort();
  const size = (): Size => ({ columns: stdout.columns || 80, rows: stdout.rows || 24 });
  const hasKeys = stdin.isTTY;
  const wasRaw = hasKeys && stdin.isRaw;
  const onKey = (data: Buffer): void => {
    if (data.some((key) => QUITS.has(key))) quit();
  };
  const restore = (): void => {
    stdout.write(LEAVE);
    if (hasKeys) stdin.setRawMode(wasRaw);
  };
  stdout.write(ENTER);
  if (hasKeys) {
    stdin.setRawMode(true);
    stdin.on('data', onKey);
  }
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const name of signals) process.on(name, quit);
  stdout.on('resize', onResize);
  process.once('exit', restore);
  return {
    size,
    signal: left.signal,
    draw: (lines) => {
      const { columns, rows } = size();
      const shown = lines.slice(0, rows).map((line) => fitted(line, columns) + REST_OF_LINE);
      stdout.write(`${TOP}${shown.join('\r\n')}${REST_OF_SCREEN}`);
    },
    close: () => {
      process.off('exit', restore);
      stdout.off('resize', onResize);
      for (const name of signals) process.off(name, quit);
      stdin.off('data', onKey);
      restore();
      if (hasKeys) {
        stdin.pause();
        stdin.unref();
      }
    },
  };
}

/** A colour, or the end of one. */
// oxlint-disable-next-line no-control-regex
const COLOUR = /(\u001b\[\d{1,2}m)/;

/**
 * The line without orders to the terminal, but for colours, and no wider than it. A line that is cut has no colours.
 * @internal exported for its test
 */
export function fitted(line: string, columns: number): string {
  const parts = line.split(COLOUR);
  const text = withoutControls(parts.filter((_, index) => index % 2 === 0).join(''));
  if (text.length > columns) return text.slice(0, columns);
  return parts.map((part, index) => (index % 2 === 0 ? withoutControls(part) : part)).join('');
}

// The only place that writes to the terminal. What a command was asked for goes to stdout; progress, hints and errors go to stderr, so that
// a pipe sees the result alone.
import { errorCode } from './errors.ts';

/**
 * Whoever reads us may stop reading (`longshore … | head`): that ends the program, quietly and well, since the reader has what it wanted.
 * @returns a call by which a command goes on without its reader (`up` has children to stop)
 */
export function endWithReader(): () => void {
  let keep = false;
  process.stdout.on('error', (error) => {
    if (errorCode(error) !== 'EPIPE') note(`longshore: cannot write the output (${error.message})`);
    if (!keep) process.exit(errorCode(error) === 'EPIPE' ? 0 : 1);
  });
  // There is nobody left to tell.
  process.stderr.on('error', () => {});
  return () => {
    keep = true;
  };
}

/** A result line. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Result bytes exactly as they came; a line end is added on a terminal only, where the prompt would otherwise follow the text. */
export function printBytes(bytes: Uint8Array): void {
  process.stdout.write(bytes);
  if (process.stdout.isTTY && bytes.at(-1) !== 0x0a) process.stdout.write('\n');
}

/** One JSON document. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** Progress, hints and errors. */
export function note(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** `longshore: <sentence>` on stderr. */
export function printError(sentence: string): void {
  note(`longshore: ${sentence}`);
}

/** Columns padded to their widest cell; the last one is left ragged. An empty list is `(none)`, without headings. */
export function formatTable(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return '(none)';
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...rows.map((row) => (row[column] ?? '').length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => (column === cells.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd();
  return [line(headings), ...rows.map((row) => line(row))].join('\n');
}

export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  print(formatTable(headings, rows));
}

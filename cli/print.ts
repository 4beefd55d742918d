// The only file that writes to the terminal. Results go to stdout; progress,
// hints and errors go to stderr, so that a pipe sees the result alone.
import { stringifyExactly } from '#shared/json-text.ts';
import { painted, styleOfState } from './colours.ts';
import { errorCode } from './errors.ts';

/**
 * Exits quietly, with success, when the reader of stdout closes it (`longshore … | head`): the reader has its answer.
 * @returns a function that lets a command continue without its reader (`up` has children to stop)
 */
export function endWithReader(): () => void {
  let keep = false;
  process.stdout.on('error', (error) => {
    if (errorCode(error) !== 'EPIPE') note(`longshore: cannot write the output (${error.message})`);
    if (!keep) process.exit(errorCode(error) === 'EPIPE' ? 0 : 1);
  });
  // Nobody is left to tell.
  process.stderr.on('error', () => {});
  return () => {
    keep = true;
  };
}

/** A result line. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/**
 * Prints result bytes unchanged. A text gets a line end where it has none, so that the next output begins a line; on a
 * terminal, everything does.
 */
export function printBytes(bytes: Uint8Array, isText = false): void {
  process.stdout.write(bytes);
  if ((isText || process.stdout.isTTY) && bytes.length > 0 && bytes.at(-1) !== 0x0a) process.stdout.write('\n');
}

/** Prints a value as a JSON document; JSON of users in it keeps its tokens. */
export function printJson(value: unknown): void {
  process.stdout.write(`${stringifyExactly(value, 2)}\n`);
}

/** Progress, hints and errors. */
export function note(line: string): void {
  process.stderr.write(`${withPaintedStart(line)}\n`);
}

/** A step of work that goes on. */
export function step(line: string): void {
  if (line.startsWith('warning:')) note(line);
  else process.stderr.write(`${painted('dim', line, process.stderr)}\n`);
}

/** The word before a failure or a warning has its colour. */
function withPaintedStart(line: string): string {
  const [start] = /^(longshore|error|warning):/.exec(line) ?? [''];
  return painted(start === 'warning:' ? 'yellow' : 'red', start, process.stderr) + line.slice(start.length);
}

/** Shows a line that the next one replaces, on a terminal. */
export function progress(line: string): void {
  const width = process.stderr.columns;
  process.stderr.write(`\r\u001b[2K${line.slice(0, Math.max(10, width - 1))}`);
}

/** Takes the line of `progress` away. */
export function endProgress(): void {
  process.stderr.write('\r\u001b[2K');
}

/** Whether a person reads the results, and no program. */
export const isTerminal = (): boolean => process.stdout.isTTY;

/** Whether a line of `progress` can be seen. */
export const canShowProgress = (): boolean => process.stderr.isTTY;

/** `longshore: <sentence>` on stderr. A part of it may come from a container. */
export function printError(sentence: string): void {
  note(`longshore: ${withoutControls(sentence)}`);
}

/** A text without characters that a terminal takes for orders. */
export const withoutControls = (text: string): string =>
  // oxlint-disable-next-line no-control-regex
  text.replaceAll(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, '\u{fffd}');

/** A cell of a table: a name in it may come from anybody, and breaks no line. */
const cellText = (text: string): string => withoutControls(text.replaceAll(/[\t\n]/g, ' '));

/** Columns whose cells are states. */
const STATE_HEADINGS: ReadonlySet<string> = new Set(['STATUS', 'STATE', 'SERVES', 'OUTCOME']);

/** Last columns that a narrow terminal does without. */
const LEFT_OUT: ReadonlySet<string> = new Set(['ID', 'CONTAINER']);

/**
 * Pads columns to their widest cell, except the last one. An empty list is `(none)`, without headings. A table wider
 * than the terminal would wrap, and no row could be read: each row is a block of lines then, a line for each cell. Ids
 * and containers in the last column are left out first, because rows of such tables have other names.
 * @param paint - gives a cell its colour, which takes no place; absent: none has
 */
export function formatTable(
  headings: readonly string[],
  given: readonly (readonly string[])[],
  columns = Number.POSITIVE_INFINITY,
  paint: (heading: string, cell: string) => string = (_, cell) => cell,
): string {
  if (given.length === 0) return '(none)';
  const rows = given.map((row) => row.map(cellText));
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...rows.map((row) => (row[column] ?? '').length)),
  );
  const plain = (_: string, cell: string): string => cell;
  const line = (cells: readonly string[], painter: typeof paint): string =>
    cells
      .map((cell, column) => {
        const gap = column === cells.length - 1 ? '' : ' '.repeat((widths[column] ?? 0) - cell.length);
        return `${painter(headings[column] ?? '', cell)}${gap}`;
      })
      .join('  ')
      .trimEnd();
  const lines = [headings, ...rows];
  if (lines.every((cells) => line(cells, plain).length <= columns))
    return [line(headings, plain), ...rows.map((row) => line(row, paint))].join('\n');
  if (headings.length > 1 && LEFT_OUT.has(headings.at(-1) ?? ''))
    return formatTable(
      headings.slice(0, -1),
      rows.map((row) => row.slice(0, -1)),
      columns,
      paint,
    );
  const widest = Math.max(...headings.map(({ length }) => length));
  return rows
    .map((row) =>
      row
        .map((cell, column) => {
          const heading = headings[column] ?? '';
          return `${heading.padEnd(widest)}  ${paint(heading, cell)}`.trimEnd();
        })
        .filter((line) => line !== '')
        .join('\n'),
    )
    .join('\n\n');
}

/** Prints a table; on a terminal, as wide as that is. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  const { stdout } = process;
  print(formatTable(headings, rows, stdout.isTTY ? stdout.columns : undefined, paintCell));
}

/** Gives a cell the colour of its state, in columns of states. */
export const paintCell = (heading: string, cell: string): string =>
  painted(STATE_HEADINGS.has(heading) ? styleOfState(cell) : undefined, cell, process.stdout);

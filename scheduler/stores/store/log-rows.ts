// Log lines as rows: lines that follow each other share a row, since an entry in each index costs more than a line.
// Invariant: a row has at most as many lines as ids lie between two rows (migration 0044).
import type { NewLogLine } from './queries/logs.ts';
import { storableText } from './rows.ts';

/** Most lines of a row: the step of its ids. */
export const MOST_LINES_OF_ROW = 64;
/** Most bytes of a row with several lines. The database compresses values above 2 KB, which costs time. */
const MOST_BYTES = 1_500;
/** Lines of a row are printed within this time. Readers of a span of time look so much further. */
export const SPAN_OF_ROW_MS = 60_000;

/** A row as the statement that inserts it takes it. */
export interface LogRow {
  readonly n: number;
  readonly workspace_id: string;
  readonly stub_id: string;
  readonly deployment_id: string | null;
  readonly container_id: string;
  readonly task_id: string | null;
  readonly stream: string;
  /** The lines, joined by line ends. */
  line: string;
  /** Time of the first line in seconds. */
  readonly at_s: number;
  line_count: number;
  /** Milliseconds of each line behind the first; null: there is one line. */
  after_ms: number[] | null;
}

/** Rows of these lines, in the same order. */
export function rowsOfLines(lines: readonly NewLogLine[]): LogRow[] {
  const rows: LogRow[] = [];
  let first: NewLogLine | undefined;
  let row: LogRow | undefined;
  let bytes = 0;
  for (const line of lines) {
    const text = storableText(line.line);
    bytes += Buffer.byteLength(text) + 1;
    if (bytes <= MOST_BYTES && row !== undefined && first !== undefined && goesOn(row, first, line, text)) {
      row.line += `\n${text}`;
      row.line_count += 1;
      (row.after_ms ??= [0]).push(line.atMs - first.atMs);
      continue;
    }
    first = line;
    bytes = Buffer.byteLength(text);
    row = {
      n: rows.length,
      workspace_id: line.workspaceId,
      stub_id: line.stubId,
      deployment_id: line.deploymentId,
      container_id: line.containerId,
      task_id: line.taskId,
      stream: line.stream,
      line: text,
      at_s: line.atMs / 1000,
      line_count: 1,
      after_ms: null,
    };
    rows.push(row);
    // A text with line ends of its own stays alone: it could not be told from several lines.
    if (text.includes('\n')) row = undefined;
  }
  return rows;
}

const goesOn = (row: LogRow, first: NewLogLine, line: NewLogLine, text: string): boolean =>
  row.line_count < MOST_LINES_OF_ROW &&
  first.containerId === line.containerId &&
  first.taskId === line.taskId &&
  first.stream === line.stream &&
  Math.abs(line.atMs - first.atMs) < SPAN_OF_ROW_MS &&
  !text.includes('\n') &&
  first.workspaceId === line.workspaceId &&
  first.stubId === line.stubId &&
  first.deploymentId === line.deploymentId;

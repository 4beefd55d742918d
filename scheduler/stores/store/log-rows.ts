// Log lines as rows: lines that follow each other share a row, since an entry in each index costs more than a line.
// Invariant: a row has at most as many lines as ids lie between two rows (migrations/0004_tasks.sql).
import { countOfLines, JOINED_SPAN_MS, joinLines, MOST_JOINED_LINES } from '#shared/domain/log-lines.ts';
import type { NewLogLine } from './queries/logs.ts';
import { storableText } from './rows.ts';

/** Most lines of a row: the step of its ids. */
export const MOST_LINES_OF_ROW = MOST_JOINED_LINES;
/** Lines of a row are printed within this time. Readers of a span of time look so much further. */
export const SPAN_OF_ROW_MS = JOINED_SPAN_MS;

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
  readonly line: string;
  /** Time of the first line in seconds. */
  readonly at_s: number;
  readonly line_count: number;
  /** Milliseconds of each line behind the first; null: there is one line. */
  readonly after_ms: readonly number[] | null;
}

/** Rows of these lines, in the same order. */
export const rowsOfLines = (lines: readonly NewLogLine[]): LogRow[] =>
  joinLines(lines.map(storable), isOfOne).map((line, n) => ({
    n,
    workspace_id: line.workspaceId,
    stub_id: line.stubId,
    deployment_id: line.deploymentId,
    container_id: line.containerId,
    task_id: line.taskId,
    stream: line.stream,
    line: line.line,
    at_s: line.atMs / 1000,
    line_count: countOfLines(line),
    after_ms: line.afterMs ?? null,
  }));

function storable(line: NewLogLine): NewLogLine {
  const text = storableText(line.line);
  return text === line.line ? line : { ...line, line: text };
}

const isOfOne = (line: NewLogLine, first: NewLogLine): boolean =>
  first.containerId === line.containerId &&
  first.taskId === line.taskId &&
  first.stream === line.stream &&
  first.workspaceId === line.workspaceId &&
  first.stubId === line.stubId &&
  first.deploymentId === line.deploymentId;

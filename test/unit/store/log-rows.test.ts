// Log lines as rows: what may share a row.
import { describe, expect, test } from 'vitest';
import type { ContainerId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { MOST_LINES_OF_ROW, rowsOfLines } from '#scheduler/stores/store/log-rows.ts';
import type { NewLogLine } from '#scheduler/stores/store/queries/logs.ts';

const aLine = (line: string, more: Partial<NewLogLine> = {}): NewLogLine => ({
  workspaceId: 'w' as WorkspaceId,
  stubId: 's' as StubId,
  deploymentId: null,
  containerId: 'c' as ContainerId,
  taskId: null,
  stream: 'stdout',
  line,
  atMs: 1_000,
  ...more,
});
const shapes = (lines: readonly NewLogLine[]) => rowsOfLines(lines).map(({ line, line_count: count }) => [line, count]);

describe('rows of log lines', () => {
  test('lines that follow each other share a row, with their times', () => {
    expect(rowsOfLines([aLine('a'), aLine('', { atMs: 1_003 }), aLine('c', { atMs: 998 })])).toMatchObject([
      { n: 0, line: 'a\n\nc', line_count: 3, at_s: 1, after_ms: [0, 3, -2] },
    ]);
    expect(rowsOfLines([aLine('a')])).toMatchObject([{ line: 'a', line_count: 1, after_ms: null }]);
  });

  test('another container, task or stream begins a row, and the order stays', () => {
    const lines = [
      aLine('a'),
      aLine('b', { stream: 'stderr' }),
      aLine('c'),
      aLine('d', { taskId: 't' as TaskId }),
      aLine('e', { containerId: 'other' as ContainerId, taskId: 't' as TaskId }),
    ];
    expect(shapes(lines)).toEqual(['a', 'b', 'c', 'd', 'e'].map((text) => [text, 1]));
    expect(rowsOfLines(lines).map(({ n }) => n)).toEqual([0, 1, 2, 3, 4]);
  });

  test('a text with line ends stays alone', () => {
    expect(shapes([aLine('a'), aLine('b\nc'), aLine('d'), aLine('e')])).toEqual([
      ['a', 1],
      ['b\nc', 1],
      ['d\ne', 2],
    ]);
  });

  test('a row has bounds: lines, bytes, time', () => {
    const counts = (lines: readonly NewLogLine[]) => rowsOfLines(lines).map(({ line_count: count }) => count);
    expect(counts(Array.from({ length: MOST_LINES_OF_ROW + 1 }, () => aLine('x')))).toEqual([MOST_LINES_OF_ROW, 1]);
    expect(counts(['x', 'y'.repeat(3_400), 'z'.repeat(200)].map((text) => aLine(text)))).toEqual([2, 1]);
    expect(counts(['x', '漢'.repeat(800), '字'.repeat(400)].map((text) => aLine(text)))).toEqual([2, 1]);
    expect(counts([aLine('x'), aLine('y', { atMs: 61_000 })])).toEqual([1, 1]);
  });

  test('text that a database refuses is replaced', () => {
    expect(shapes([aLine('a\0'), aLine('b\ud800')])).toEqual([['a\ufffd\nb\ufffd', 2]]);
  });

  test('joined lines stay as they came, between others', () => {
    const rows = rowsOfLines([aLine('a'), aLine('b\nc', { afterMs: [0, 7] }), aLine('d'), aLine('e')]);
    expect(rows).toMatchObject([
      { line: 'a', line_count: 1, after_ms: null },
      { line: 'b\nc', line_count: 2, after_ms: [0, 7] },
      { line: 'd\ne', line_count: 2, after_ms: [0, 0] },
    ]);
  });
});

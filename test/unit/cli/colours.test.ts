// Colours of the command line: which a state and a name have, and that they take no place in tables.
import { afterEach, expect, test } from 'vitest';
import { allowColours, painted, styleOfName, styleOfState } from '#cli/colours.ts';
import { LogText } from '#cli/commands/log-text.ts';
import { formatTable } from '#cli/print.ts';

const terminal = (isTTY: boolean, colours = true) =>
  ({ isTTY, hasColors: () => colours }) as unknown as NodeJS.WriteStream;
const RED = '\u001b[31mno\u001b[39m';

afterEach(() => {
  allowColours([]);
});

test.for([
  ['ERROR', 'red'],
  ['FAILED', 'red'],
  ['failed', 'red'],
  ['disconnected', 'red'],
  ['COMPLETE', 'green'],
  ['HEALTHY', 'green'],
  ['available', 'green'],
  ['available (cordoned, DiskPressure)', 'yellow'],
  ['PENDING', 'yellow'],
  ['BUSY', 'yellow'],
  ['waiting', 'yellow'],
  ['STOPPED', undefined],
  ['-', undefined],
  ['', undefined],
] as const)('the state %j is %s', ([state, style]) => {
  expect(styleOfState(state)).toBe(style);
});

test('colours are for terminals, and neither for --json nor for --no-color', () => {
  expect(painted('red', 'no', terminal(true))).toBe(RED);
  expect(painted('red', 'no', terminal(false))).toBe('no');
  // As Node sees NO_COLOR and TERM=dumb.
  expect(painted('red', 'no', terminal(true, false))).toBe('no');
  expect(painted(undefined, 'no', terminal(true))).toBe('no');
  for (const argv of [
    ['--json', 'task', 'list'],
    ['task', 'list', '--no-color'],
  ]) {
    allowColours(argv);
    expect(painted('red', 'no', terminal(true))).toBe('no');
  }
  // These words are those of a program in a container.
  allowColours(['container', 'exec', 'c', '--', 'ls', '--no-color']);
  expect(painted('red', 'no', terminal(true))).toBe(RED);
});

test('a table is as wide with colours as without, and a name in it gives the terminal no orders', () => {
  const rows = [
    ['a', 'ERROR', 'x'],
    ['evil\u001b[2J\nb', 'RUNNING', 'y'],
  ];
  const paint = (heading: string, cell: string) => (heading === 'STATUS' ? painted('red', cell, terminal(true)) : cell);
  const plain = formatTable(['NAME', 'STATUS', 'ID'], rows);
  expect(plain).toBe(['NAME        STATUS   ID', 'a           ERROR    x', 'evil\u{fffd}[2J b  RUNNING  y'].join('\n'));
  // oxlint-disable-next-line no-control-regex
  const without = (text: string) => text.replaceAll(/\u001b\[\d+m/g, '');
  for (const columns of [80, 24, 22, 10]) {
    const coloured = formatTable(['NAME', 'STATUS', 'ID'], rows, columns, paint);
    expect(coloured).not.toBe(without(coloured));
    expect(without(coloured)).toBe(formatTable(['NAME', 'STATUS', 'ID'], rows, columns));
  }
});

test('lines of a log have the colour of their name, the same in every run, and stderr has its own', () => {
  expect(styleOfName('hello')).toBe(styleOfName('hello'));
  expect(new Set(['hello', 'shop', 'notes', 'tidy', 'greet'].map((name) => styleOfName(name))).size).toBeGreaterThan(2);
  const text = new LogText(
    Date.parse('2026-01-01T00:00:00Z'),
    () => 'hello\u001b[2J',
    (style, shown) => `<${style}>${shown}</>`,
  );
  const line = { timestamp: '2026-01-01T10:00:00.000Z', container_id: 'endpoint-1-c69a6597', deployment_id: 'd' };
  const name = 'hello\u{fffd}[2J';
  expect(text.of({ ...line, stream: 'stderr', message: 'oh' })).toBe(
    `<dim>10:00:00.000 c69a6597</> <${styleOfName(name)}>${name}</> <red>oh</>`,
  );
  expect(text.of({ ...line, stream: 'stdout', message: 'ok' })).toContain('</> ok');
});

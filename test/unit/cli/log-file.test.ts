import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BoundedLogFile, LineCutter, screenLine } from '#cli/up/log-file.ts';

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'ls-log-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe('the log file of a child', () => {
  test('is private, grows to its bound, and keeps one older file', () => {
    const path = join(directory, 'logs', 'x.log');
    const file = new BoundedLogFile(path, 100);
    for (let n = 0; n < 40; n++) file.write(`line ${String(n).padStart(4, '0')}\n`);
    file.close();
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(path).size).toBeLessThanOrEqual(100);
    expect(statSync(`${path}.1`).size).toBeLessThanOrEqual(100);
    expect(readFileSync(path, 'utf8').endsWith('line 0039\n')).toBe(true);
  });

  test('goes on where an earlier one ended', () => {
    const path = join(directory, 'x.log');
    for (const text of ['a\n', 'b\n']) {
      const file = new BoundedLogFile(path, 100);
      file.write(text);
      file.close();
    }
    expect(readFileSync(path, 'utf8')).toBe('a\nb\n');
  });
});

describe('the screen', () => {
  test('shows warnings and errors in short, and nothing else', () => {
    const warn = JSON.stringify({ level: 40, msg: 'redis lost', err: { message: 'ECONNRESET', stack: 'long' } });
    expect(screenLine('scheduler', warn)).toBe('scheduler: warning: redis lost (ECONNRESET)');
    expect(screenLine('agent', '{"level":50,"msg":"no docker"}')).toBe('agent: error: no docker');
    expect(screenLine('scheduler', '{"level":40,"msg":"machine suspect","machineId":"1a2b","reason":"closed"}')).toBe(
      'scheduler: warning: machine suspect (machine 1a2b, reason closed)',
    );
    expect(screenLine('scheduler', '{"level":40,"msg":"declared no more","pools":["gpu","build"]}')).toBe(
      'scheduler: warning: declared no more (pools gpu build)',
    );
    // A deployment is meant by its name; its queue has an id that nobody knows.
    const starts = { level: 40, msg: 'starts fail in a row, waiting', queue: '0f6b2a1e', reason: 'user_error' };
    expect(screenLine('scheduler', JSON.stringify({ ...starts, deployment: 'hello' }))).toBe(
      'scheduler: warning: starts fail in a row, waiting (deployment hello, reason user_error)',
    );
    expect(screenLine('scheduler', JSON.stringify(starts))).toContain('(queue 0f6b2a1e, reason user_error)');
    // The answer to an operator's signal is no warning.
    expect(screenLine('scheduler', '{"level":30,"msg":"read again","pools":["gpu"],"onScreen":true}')).toBe(
      'scheduler: read again (pools gpu)',
    );
    expect(screenLine('scheduler', '{"level":30,"msg":"read again","pools":[],"onScreen":true}')).toBe(
      'scheduler: read again',
    );
    expect(screenLine('agent', '{"level":30,"msg":"placed"}')).toBeUndefined();
    expect(screenLine('agent', 'plain text')).toBeUndefined();
    expect(screenLine('agent', `{"level":50,"msg":"${'x'.repeat(1000)}"}`)?.length).toBeLessThan(320);
  });
});

describe('output', () => {
  test('cut at any byte gives the same lines', () => {
    const text = 'one\ntwo\n\nthree';
    for (let at = 0; at <= text.length; at++) {
      const lines: string[] = [];
      const cutter = new LineCutter((line) => lines.push(line));
      cutter.push(text.slice(0, at));
      cutter.push(text.slice(at));
      cutter.end();
      expect(lines).toEqual(['one', 'two', '', 'three']);
    }
  });

  test('without a line end does not pile up', () => {
    const lines: string[] = [];
    const cutter = new LineCutter((line) => lines.push(line), 10);
    cutter.push('x'.repeat(25));
    expect(lines).toEqual(['x'.repeat(25)]);
  });
});

// Ends of containers that came from outside: what an engine remembers of them, and whose fault they count as.
import { expect, test } from 'vitest';
import type { PastEvent } from '../../../agent/containers/engine/past-events.ts';
import { memoryOfEnd, pastEvent } from '../../../agent/containers/engine/past-events.ts';
import type { OutsideFacts } from '../../../agent/reconcile/exits.ts';
import { attemptsEnd, exitMessage, exitReason, outsideEnd } from '../../../agent/reconcile/exits.ts';

const ID = 'c1';
const event = (action: string, atMs: number, more: Partial<PastEvent> = {}): PastEvent => ({
  type: 'container',
  action,
  id: ID,
  signal: '',
  atMs,
  ...more,
});
const kill = (atMs: number, signal = '15'): PastEvent => event('kill', atMs, { signal });
const others = (count: number): PastEvent[] =>
  Array.from({ length: count }, (_, at) => event('exec_start', at, { id: 'other' }));

test('an engine that saw the whole life of a container says whether it had signalled it', () => {
  expect(memoryOfEnd([event('start', 1), event('die', 9)], ID)).toBe('own');
  expect(memoryOfEnd([event('start', 1), kill(5), event('die', 9)], ID)).toBe('signalled');
  expect(memoryOfEnd([event('start', 1), kill(5, '9'), event('die', 9)], ID)).toBe('signalled');
  // The engine notes a signal after it has sent it.
  expect(memoryOfEnd([event('start', 1), event('die', 9), kill(10, '9')], ID)).toBe('signalled');
  // A signal of another container, a harmless one, one long ago, and one that came too late.
  expect(memoryOfEnd([event('start', 1), { ...kill(5), id: 'c2' }, event('die', 9)], ID)).toBe('own');
  expect(memoryOfEnd([event('start', 1), kill(5, '28'), event('die', 9)], ID)).toBe('own');
  expect(memoryOfEnd([event('start', 1), kill(5), event('die', 3_600_000)], ID)).toBe('own');
  expect(memoryOfEnd([event('start', 1), event('die', 9), kill(9000)], ID)).toBe('own');
  // A volume may have the same name as a container.
  expect(memoryOfEnd([event('start', 1), { ...kill(5), type: 'volume' }, event('die', 9)], ID)).toBe('own');
});

test('an engine that does not know the container is a new one: it ended the container at its start, or came after its end', () => {
  expect(memoryOfEnd([], ID)).toBe('new_engine');
  expect(memoryOfEnd(others(20), ID)).toBe('new_engine');
  expect(memoryOfEnd([kill(5), event('die', 9)], ID)).toBe('new_engine');
});

test('an engine that may have forgotten the start accuses nobody', () => {
  expect(memoryOfEnd(others(256), ID)).toBe('own');
  expect(memoryOfEnd([...others(255), event('die', 900)], ID)).toBe('own');
  expect(memoryOfEnd([...others(254), kill(899), event('die', 900)], ID)).toBe('signalled');
});

test('a line that cannot be read still counts as an event that the engine keeps', () => {
  expect(pastEvent('')).toEqual([]);
  for (const line of ['{', 'null', '[]', '3', '{"Actor":null}', '{"Actor":{"Attributes":{"signal":{}}}}'])
    expect(pastEvent(line), line).toHaveLength(1);
  expect(
    pastEvent(
      '{"Type":"container","Action":"kill","Actor":{"ID":"c1","Attributes":{"signal":"9"}},"timeNano":5000000}',
    ),
  ).toEqual([kill(5, '9')]);
});

const facts: OutsideFacts = { memory: 'own', signalled: false, liveRestore: false, exitCode: 143 };

test('a container that ends with its engine ends by the engine, with any exit code', () => {
  for (const exitCode of [0, 1, 137, 143]) {
    expect(outsideEnd({ ...facts, exitCode })).toBeUndefined();
    expect(outsideEnd({ ...facts, exitCode, memory: 'new_engine' })).toBe('engine_restarted');
    expect(outsideEnd({ ...facts, exitCode, memory: 'signalled' })).toBe('killed');
    expect(outsideEnd({ ...facts, exitCode, memory: undefined, signalled: true })).toBe('engine_restarted');
    // The engine is only slow.
    expect(outsideEnd({ ...facts, exitCode, memory: undefined })).toBeUndefined();
  }
});

test('a container that lives on without its engine may still fail by itself', () => {
  const away = { ...facts, memory: 'new_engine', liveRestore: true } as const;
  expect(outsideEnd({ ...away, exitCode: 1 })).toBeUndefined();
  expect(outsideEnd({ ...away, exitCode: 0 })).toBeUndefined();
  expect(outsideEnd({ ...away, exitCode: 143 })).toBe('engine_restarted');
});

test('an end from outside has its reason and a sentence, and gives its attempts back', () => {
  const exit = {
    seen: { exitCode: 143, oomKilled: false, error: '' },
    ready: false,
    note: undefined,
    ending: undefined,
    rebooted: false,
  };
  for (const outside of ['engine_restarted', 'killed'] as const) {
    expect(exitReason({ ...exit, outside })).toBe(outside);
    expect(exitMessage({ ...exit, outside })).toContain('engine');
    expect(attemptsEnd(outside, '', { ...exit, outside })).toEqual({ kind: 'stopped' });
    // An earlier cause stays: memory that ran out, a failure that the runner reported.
    expect(exitReason({ ...exit, outside, seen: { ...exit.seen, oomKilled: true } })).toBe('oom');
    const note = { reason: 'user_error', message: 'boom' };
    expect(exitReason({ ...exit, outside, note })).toBe('user_error');
    expect(attemptsEnd('user_error', 'boom', { ...exit, outside })).toEqual({ kind: 'exited' });
  }
  // The engine had ended its network first.
  expect(exitReason({ ...exit, ending: 'lost', outside: 'engine_restarted' })).toBe('engine_restarted');
  expect(exitReason({ ...exit, ending: 'lost', outside: 'killed' })).toBe('lost');
  expect(exitReason({ ...exit, ending: 'drained', outside: 'engine_restarted' })).toBe('drained');
  // A kill of which the engine knows nothing may be the program's own.
  expect(exitReason({ ...exit, seen: { ...exit.seen, exitCode: 137 } })).toBe('killed');
  expect(attemptsEnd('killed', '', exit)).toEqual({ kind: 'exited' });
});

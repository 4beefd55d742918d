// Parts of a build: the engine's builder and containers of our own.
import { expect, test } from 'vitest';
import { readSteps } from '#shared/domain/dockerfile/read.ts';
import { segmentsOf } from '#agent/builds/segments.ts';
import { chooseFolders } from '#agent/builds/packages-choice.ts';

function split(texts: readonly string[]) {
  const read = readSteps(texts);
  if (read.kind === 'problem') throw new Error(read.problem);
  return segmentsOf(read.instructions);
}

test('programs run apart from the instructions of the engine', () => {
  expect(split(['FROM one', 'ENV A=1', 'RUN x', 'RUN y', 'COPY b c', 'USER d', 'RUN z'])).toEqual([
    { kind: 'engine', from: 0, to: 2 },
    { kind: 'run', at: 2 },
    { kind: 'run', at: 3 },
    { kind: 'engine', from: 4, to: 6 },
    { kind: 'run', at: 6 },
  ]);
});

test('a stage begins a run of the engine, and variables stand alone', () => {
  expect(split(['ARG A', 'FROM one', 'FROM other', 'ARG B=1', 'ARG C', 'ENV D=$B'])).toEqual([
    { kind: 'args', from: 0, to: 1 },
    { kind: 'engine', from: 1, to: 2 },
    { kind: 'engine', from: 2, to: 3 },
    { kind: 'args', from: 3, to: 5 },
    { kind: 'engine', from: 5, to: 6 },
  ]);
});

test('folders of packages leave by size, then by age, and never in use', () => {
  const folder = (name: string, bytes: number, usedAtMs: number, inUse = false) => ({ name, bytes, usedAtMs, inUse });
  expect(chooseFolders([folder('a', 60, 9)], 100)).toEqual(['a']);
  expect(chooseFolders([folder('a', 60, 9, true)], 100)).toEqual([]);
  expect(chooseFolders([folder('a', 40, 3), folder('b', 40, 1), folder('c', 40, 2)], 100)).toEqual(['b']);
  expect(chooseFolders([folder('a', 50, 3), folder('b', 50, 1)], 100)).toEqual([]);
});

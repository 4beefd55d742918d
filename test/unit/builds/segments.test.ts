// Parts of a build: the engine's builder and containers of our own.
import { expect, test } from 'vitest';
import { segmentsOf } from '#agent/builds/segments.ts';
import { instructionsOf } from '#agent/builds/assemble.ts';
import { chooseFolders } from '#agent/builds/packages-choice.ts';

const run = (script: string): string => `RUN ${JSON.stringify(['/bin/sh', '-c', script])}`;
function split(texts: readonly string[], apart: readonly number[]) {
  const instructions = instructionsOf(texts.map((text) => ({ text, title: '' }))) ?? [];
  return segmentsOf(instructions, (at) => apart.includes(at));
}

test('steps apart divide the instructions of the engine', () => {
  expect(split(['FROM a', 'ENV A=1', run('pip'), run('x'), run('y')], [2])).toEqual([
    { kind: 'engine', from: 0, to: 2 },
    { kind: 'apart', at: 2, script: 'pip' },
    { kind: 'engine', from: 3, to: 5 },
  ]);
  expect(split(['FROM a', run('x')], [])).toEqual([{ kind: 'engine', from: 0, to: 2 }]);
});

test("a step before files or a stage, and one in another form, is the engine's", () => {
  expect(split(['FROM a', run('x'), 'COPY b c', 'RUN plain', run('y')], [1, 3, 4])).toEqual([
    { kind: 'engine', from: 0, to: 4 },
    { kind: 'apart', at: 4, script: 'y' },
  ]);
  expect(split(['FROM a', run('x'), 'FROM b'], [1])).toEqual([{ kind: 'engine', from: 0, to: 3 }]);
  expect(split(['FROM a', 'RUN ["/bin/bash","-c","x"]'], [1])).toEqual([{ kind: 'engine', from: 0, to: 2 }]);
});

test('folders of packages leave by size, then by age, and never in use', () => {
  const folder = (name: string, bytes: number, usedAtMs: number, inUse = false) => ({ name, bytes, usedAtMs, inUse });
  expect(chooseFolders([folder('a', 60, 9)], 100)).toEqual(['a']);
  expect(chooseFolders([folder('a', 60, 9, true)], 100)).toEqual([]);
  expect(chooseFolders([folder('a', 40, 3), folder('b', 40, 1), folder('c', 40, 2)], 100)).toEqual(['b']);
  expect(chooseFolders([folder('a', 50, 3), folder('b', 50, 1)], 100)).toEqual([]);
});

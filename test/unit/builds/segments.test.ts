// Parts of a build: the engine's builder and containers of our own.
import { expect, test } from 'vitest';
import { commandOf, declaredBy, segmentsOf } from '#agent/builds/segments.ts';
import { StageNames } from '#agent/builds/stage-names.ts';
import { instructionsOf } from '#agent/builds/assemble.ts';
import { chooseFolders } from '#agent/builds/packages-choice.ts';

const read = (texts: readonly string[]) => instructionsOf(texts.map((text) => ({ text, title: '' }))) ?? [];
const split = (texts: readonly string[]) => segmentsOf(read(texts));

test('programs run apart from the instructions of the engine', () => {
  expect(split(['FROM a', 'ENV A=1', 'RUN x', 'RUN y', 'COPY b c', 'USER d', 'RUN z'])).toEqual([
    { kind: 'engine', from: 0, to: 2 },
    { kind: 'run', at: 2 },
    { kind: 'run', at: 3 },
    { kind: 'engine', from: 4, to: 6 },
    { kind: 'run', at: 6 },
  ]);
});

test('a stage begins a run of the engine, and variables stand alone', () => {
  expect(split(['ARG A', 'FROM a', 'FROM b', 'ARG B=1', 'ARG C', 'ENV D=$B'])).toEqual([
    { kind: 'args', from: 0, to: 1 },
    { kind: 'engine', from: 1, to: 2 },
    { kind: 'engine', from: 2, to: 3 },
    { kind: 'args', from: 3, to: 5 },
    { kind: 'engine', from: 5, to: 6 },
  ]);
  expect(declaredBy(read(['ARG A', 'ARG _b=1', 'ARG c-d=1']))).toEqual(['A', '_b']);
});

test('a list is a program, and everything else a script of the shell', () => {
  expect(commandOf({ rest: '["a", "b"]' }, ['/bin/bash', '-c'])).toEqual(['a', 'b']);
  expect(commandOf({ rest: 'a "b"' }, ['/bin/bash', '-c'])).toEqual(['/bin/bash', '-c', 'a "b"']);
  for (const rest of ["['a']", '[ -e b ]', '[]', '["a", 1]', '["a"] b'])
    expect(commandOf({ rest }, [])).toEqual(['/bin/sh', '-c', rest]);
});

test('a stage is known by its name in any case, and by its number', () => {
  const names = new StageNames();
  const [from, copy] = read(['FROM a AS Build', 'COPY --from=build x y']);
  if (from === undefined || copy === undefined) throw new Error('they are instructions');
  names.began(from);
  names.is('sha256:1');
  names.is('sha256:2');
  expect(names.resolved(copy).rest).toBe('--from=sha256:2 x y');
  expect(
    read(['FROM BUILD AS c', 'FROM 0', 'COPY --from=0 x y', 'COPY --from=1 x y']).map(
      (one) => names.resolved(one).rest,
    ),
  ).toEqual(['sha256:2 AS c', '0', '--from=sha256:2 x y', '--from=1 x y']);
});

test('folders of packages leave by size, then by age, and never in use', () => {
  const folder = (name: string, bytes: number, usedAtMs: number, inUse = false) => ({ name, bytes, usedAtMs, inUse });
  expect(chooseFolders([folder('a', 60, 9)], 100)).toEqual(['a']);
  expect(chooseFolders([folder('a', 60, 9, true)], 100)).toEqual([]);
  expect(chooseFolders([folder('a', 40, 3), folder('b', 40, 1), folder('c', 40, 2)], 100)).toEqual(['b']);
  expect(chooseFolders([folder('a', 50, 3), folder('b', 50, 1)], 100)).toEqual([]);
});

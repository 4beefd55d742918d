// Dockerfiles as builds get them: one line for each instruction, and every image that they name is known.
import { expect, test } from 'vitest';
import { imagesOf, readDockerfile, readStep, textOf, withImage } from '#shared/domain/dockerfile.ts';

function linesOf(text: string): readonly string[] {
  const read = readDockerfile(text);
  if (read.kind === 'problem') throw new Error(read.problem);
  return read.instructions.map(textOf);
}
const problemOf = (text: string): string | undefined => {
  const read = readDockerfile(text);
  return read.kind === 'problem' ? read.problem : undefined;
};
const imagesIn = (text: string): readonly string[] => {
  const read = readDockerfile(text);
  return read.kind === 'problem' ? [] : imagesOf(read.instructions);
};

test('instructions over several lines become one line, without comments and empty lines', () => {
  expect(
    linesOf(
      '\uFEFF# a comment\r\nfrom  python:3.11 \r\n\r\nRUN apt-get update \\\r\n  # why\r\n\r\n  && true\r\ncopy a b',
    ),
  ).toEqual(['FROM python:3.11', 'RUN apt-get update   && true', 'COPY a b']);
});

test('the images of all stages are found, and stages are none', () => {
  expect(
    imagesIn(
      'ARG X=1\nFROM --platform=linux/amd64 a:1 AS Build\nFROM build AS second\nFROM scratch\n' +
        'COPY --from=build x y\nCOPY --chown=1:1 --from=other/image:2 x y\nCOPY --from=0 x y\nCOPY --from=7 x y\n',
    ),
  ).toEqual(['a:1', 'other/image:2', '7']);
});

test.for<[string, string]>([
  ['FROM $BASE', 'FROM has a variable'],
  ['FROM "a"', 'quotes'],
  ['FROM a\nONBUILD RUN x', 'ONBUILD'],
  ['# escape=`\nFROM a', 'directive'],
  ['#syntax=docker/dockerfile:1\nFROM a', 'directive'],
  ['RUN x', 'must begin with FROM'],
  ['FROM a\nRUN --mount=type=cache,target=/x y', 'flags'],
  ['FROM a\nCOPY --fr"om"=secret x y', 'flag with quotes'],
  ['FROM a\nCOPY --from=$X x y', 'variable'],
  ['FROM a\nRUN <<EOF\necho\nEOF', 'here-document'],
  ['FROM a\nRUN cat <<-EOF', 'here-document'],
  ['FROM a\nLABEL io.longshore.machine=m', "Longshore's own"],
  ['FROM a\nARG A=io.long\nLABEL ${A}shore.managed=1', 'LABEL has a quoted or variable name'],
  ['FROM a\nLABEL "x y"=1', 'LABEL has a quoted or variable name'],
  ['FROM a\nRUN', 'RUN has nothing behind it'],
  ['FROM a\nRUN x \\\\', 'ends with a backslash'],
  ['FROM a\nFOO x', '"FOO" is not an instruction'],
  ['', 'must begin with FROM'],
])('%j is refused', ([text, why]) => {
  expect(problemOf(text)).toContain(why);
});

test('labels, here-strings and shell forms that are harmless pass', () => {
  const text = 'FROM a\nLABEL version="1 $V" other=2\nRUN cat <<< x\nRUN ["sh", "-c", "cat <<EOF"]\nENV A="b c"';
  expect(problemOf(text)).toBeUndefined();
});

test('an agent takes only lines that stand by themselves', () => {
  expect(readStep('RUN true')).toMatchObject({ name: 'RUN', rest: 'true' });
  for (const bad of ['run true', 'RUN', 'ONBUILD RUN x', 'RUN a\nFROM b', 'RUN a\\', '# x', 'FROM $X'])
    expect(readStep(bad)).toBeUndefined();
});

test('a FROM gets another image and keeps its flags and its stage', () => {
  expect(withImage('--platform=x python:3 AS y', 'sha256:1')).toBe('--platform=x sha256:1 AS y');
});

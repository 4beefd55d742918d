// Dockerfiles as builds get them: one line for each instruction, written anew from parsed values, and every image that
// they name is known.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { readDockerfile, readStep, readSteps } from '#shared/domain/dockerfile/read.ts';
import { imagesIn } from '#shared/domain/dockerfile/stages.ts';
import { textOf } from '#shared/domain/dockerfile/write.ts';
import { imageProblem, isImageId } from '#shared/domain/image-reference.ts';

function linesOf(text: string): readonly string[] {
  const read = readDockerfile(text);
  if (read.kind === 'problem') throw new Error(read.problem);
  return read.instructions.map(({ instruction }) => textOf(instruction));
}
/** The last instruction of a file as it is written. */
const written = (text: string): string => linesOf(`FROM base\n${text}`).slice(1).join('\n');
const problemOf = (text: string): string | undefined => {
  const read = readDockerfile(text);
  return read.kind === 'problem' ? read.problem : undefined;
};
function imagesOf(text: string): readonly string[] {
  const read = readSteps(linesOf(text));
  if (read.kind === 'problem') throw new Error(read.problem);
  return imagesIn(read.sources);
}

test('instructions over several lines become one line, without comments and empty lines', () => {
  expect(
    linesOf(
      '\uFEFF# a comment\r\nfrom  python:3.11 \r\n\r\nRUN apt-get update \\\r\n  # why \\\r\n\r\n  && true\r\ncopy a b',
    ),
  ).toEqual(['FROM python:3.11', 'RUN apt-get update   && true', String.raw`COPY ["\"a\"","\"b\""]`]);
});

test('a backslash that is escaped ends its line, as it does for the engine', () => {
  expect(linesOf('FROM base\nRUN echo a\\\\\nRUN b \\\\\\\n\\\nRUN c\\\n d')).toEqual([
    'FROM base',
    'RUN echo a\\\\',
    'RUN b \\\\\\',
    'RUN c d',
  ]);
});

test('the images of all stages are found, and stages are none', () => {
  expect(
    imagesOf(
      'ARG X=1\nFROM --platform=linux/amd64 img:1 AS Build\nFROM build AS fed\nFROM FED\nFROM scratch\n' +
        'COPY --from=BUILD x y\nCOPY --chown=1:1 --from=other/image:2 x y\nCOPY --from=0 x y\nCOPY --from=later x y\n' +
        'FROM img:2 AS later\nCOPY --from=fed x y\nCOPY --from=2 x y\n',
    ),
  ).toEqual(['img:1', 'other/image:2', 'later', 'img:2']);
});

test.for<[string, string]>([
  ['COPY --chown=app:app a b/* "c" /x/', String.raw`COPY --chown=app:app ["\"a\"","\"b/*\"","\"c\"","\"/x/\""]`],
  ['COPY --chown=$UID:${GID} ["a b", "/x"]', String.raw`COPY --chown=${'${UID}:${GID}'} ["\"a b\"","\"/x\""]`],
  ['COPY --from=base /a$V /b', String.raw`COPY --from=base ["\"/a${'${V}'}\"","\"/b\""]`],
  ['ADD ./rootfs.d /', String.raw`ADD ["\"./rootfs.d\"","\"/\""]`],
  ['ADD [".//a", "/b"]', String.raw`ADD ["\"./a\"","\"/b\""]`],
  ['LABEL "com.example.vendor"="ACME Inc" a=b\\ c', 'LABEL com.example.vendor="ACME Inc" a="b c"'],
  ['LABEL version 1.0 of it', 'LABEL version="1.0 of it"'],
  ['LABEL d="$V and \\$V"', 'LABEL d="${V} and \\$V"'],
  ['ENV A b  c', 'ENV A="b  c"'],
  ['ENV A=1 B="x y" C=\'$D\' PATH=/x:$PATH', 'ENV A="1" B="x y" C="\\$D" PATH="/x:${PATH}"'],
  ['ENV A=${B:-"x}y"}', 'ENV A="${B:-x\\}y}"'],
  ['ARG A B=c', 'ARG A B="c"'],
  ['USER $U:0', 'USER ${U}:0'],
  ['WORKDIR /a b', 'WORKDIR "/a b"'],
  ['EXPOSE 80 $P/tcp 90-95/udp', 'EXPOSE 80 ${P}/tcp 90-95/udp'],
  ['VOLUME /a "/b"', String.raw`VOLUME ["\"/a\"","\"/b\""]`],
  ['STOPSIGNAL SIGINT', 'STOPSIGNAL SIGINT'],
  ['SHELL ["/bin/bash", "-c"]', 'SHELL ["/bin/bash","-c"]'],
  ['RUN [ "a" , "<<b" ]', 'RUN ["a","\\u003c\\u003cb"]'],
  ['RUN [ "$A" ] && echo é', 'RUN [ "$A" ] && echo é'],
  ['CMD []', 'CMD []'],
  ['ENTRYPOINT exec "$@"', 'ENTRYPOINT exec "$@"'],
  [
    'HEALTHCHECK --interval=5m --timeout=3s cmd curl -f x || exit 1',
    'HEALTHCHECK --interval=5m --timeout=3s CMD curl -f x || exit 1',
  ],
  ['HEALTHCHECK none', 'HEALTHCHECK NONE'],
  ['MAINTAINER Jörg <j@x>', 'MAINTAINER Jörg <j@x>'],
])('%j is written as %j', ([text, expected]) => {
  const line = written(text);
  expect(line).toBe(expected);
  // An agent reads the same value, and writes the same text.
  const read = readStep(line);
  expect(read.kind === 'instruction' ? textOf(read.instruction) : read.problem).toBe(line);
});

test.for<[string, string]>([
  ['FROM $BASE', 'FROM has a variable'],
  ['FROM --platform=$BUILDPLATFORM base', 'FROM has a variable'],
  ['FROM "base"', 'quotes'],
  ['FROM base x', 'an image alone'],
  ['FROM base AS 0', 'the name of a stage'],
  ['FROM base AS x\nFROM base AS X', 'the name of another stage'],
  ['FROM bàse', 'not such as registry.example'],
  ['FROM 68c', 'could be the id'],
  ['FROM sha256:68c', 'could be the id'],
  [`FROM ${'ab'.repeat(32)}`, 'could be the id'],
  ['FROM base\nCOPY --from=68cd7c11f0de /a /b', 'could be the id'],
  ['FROM base\nCOPY --from=1 /a /b', 'no stage before has that number'],
  ['FROM base AS x\nCOPY --from=0 /a /b', 'no stage before has that number'],
  ['FROM base\nCOPY --from=scratch /a /b', 'scratch'],
  ['FROM base\nONBUILD RUN x', 'ONBUILD'],
  ['# escape=`\nFROM base', 'directive'],
  ['#syntax=docker/dockerfile:1\nFROM base', 'directive'],
  ['RUN x', 'must begin with FROM'],
  ['FROM base\nRUN --mount=type=cache,target=/x y', 'flags'],
  ['FROM base\nRUN <<EOF\necho\nEOF', 'here-document'],
  ['FROM base\nRUN cat << EOF', 'here-document'],
  ['FROM base\nCOPY <<-"EOF" /x', 'here-document'],
  ['FROM base\nRUN', 'RUN has nothing behind it'],
  ['FROM base\nRUN []', 'empty list'],
  ['FROM base\nRUN ["a", 1]', 'something else than texts'],
  ['FROM base\nSHELL bash -c', 'a list of JSON'],
  ['FROM base\nFOO x', '"FOO" is not an instruction'],
  ['FROM base\nHEALTHCHECK --start-interval=1s CMD x', '--start-interval, which the builder does not know'],
  ['FROM base\nENV A', 'without a value'],
  ['FROM base\nENV A=${B/x/y}', 'none of ${NAME}'],
  ["FROM base\nENV A=${B:-it's} C=d", 'a quote without its end'],
  ['FROM base\nENV A=$1', 'write \\$'],
  ['FROM base\nUSER a b', 'letters, digits'],
  ['', 'must begin with FROM'],
])('%j is refused', ([text, why]) => {
  expect(problemOf(text)).toContain(why);
});

/** Each of these meant an image or an address to an engine that was not seen here, or could have come to mean one. */
test.for<[string, string]>([
  ['COPY --chown=0:gà--from=X /a /b', '--name=value in plain characters'],
  ['COPY --chown=0:g\u0085--from=X /a /b', 'U+0085'],
  ['COPY --chown=0:g\u00A0--from=X /a /b', '--name=value in plain characters'],
  ['COPY --chown=0:g\t--from=$X /a /b', 'a variable in --from'],
  ['COPY --chown=0:g\v--from=X /a /b', 'U+000B'],
  ['COPY\u00A0--from=X /a /b', 'is not an instruction'],
  ['COPY \u00A0--from=X /a /b', 'U+00A0'],
  ['COPY \u2028--from=X /a /b', 'U+2028'],
  ['COPY --FROM=X /a /b', '--name=value in plain characters'],
  ['COPY --fr"om"=X /a /b', '--name=value in plain characters'],
  ['COPY --fr\\om=X /a /b', '--name=value in plain characters'],
  ['COPY --from="X" /a /b', '--name=value in plain characters'],
  ['COPY --from X /a /b', '--name=value in plain characters'],
  ['COPY --from= /a /b', '--name=value in plain characters'],
  ['COPY -- --from=X /b', '--name=value in plain characters'],
  ['COPY --from=base --from=X /a /b', 'twice'],
  ['COPY --chown=a --chmod=755 /a /b', '--chmod, which the builder does not know'],
  ['COPY --link /a /b', '--name=value'],
  ['COPY --link=true /a /b', '--link, which the builder does not know'],
  ['ADD --from=X /a /b', '--from, which the builder does not know'],
  ['FROM --platform=à base', '--name=value in plain characters'],
  ['ENV --from=X A=1', '--from, which the builder does not know'],
  ['ADD http://127.0.0.1:1994/metrics /m.txt', 'the address of a file'],
  ['ADD HTTPS://x/y /z', 'the address of a file'],
  ['ADD ["http://x/y", "/z"]', 'the address of a file'],
  ['ADD ["\\u0068ttp://x/y", "/z"]', 'the address of a file'],
  ['ADD h"ttp"://x/y /z', 'the address of a file'],
  ['ADD h\\ttp://x/y /z', 'the address of a file'],
  ['ADD "http:"//x/y /z', 'the address of a file'],
  ['ADD git@github.com:a/b.git /z', 'the address of a file'],
  ['ADD a http:/x/y /z', 'the address of a file'],
  ['ADD ./rootfs.tar.gz /', 'which no build unpacks'],
  ['ADD a bomb.TAR /x/', 'which no build unpacks'],
  ['ADD ["bomb.tgz", "/x/"]', 'which no build unpacks'],
  ['ADD $U /x', 'a source with a variable'],
  ['ADD ["${U}", "/x"]', 'a source with a variable'],
  ['ADD a${U:-http}b /x', 'a source with a variable'],
  ['COPY http://x/y /z', 'the address of a file'],
  ['LABEL io.longshore.machine=m', "Longshore's own"],
  ['LABEL "IO.longshore.machine"=m', "Longshore's own"],
  ['LABEL i"o.long"shore.machine=m', "Longshore's own"],
  ['LABEL io.long\\shore.machine=m', "Longshore's own"],
  ['LABEL a=b\u0085io.longshor${E}.gpus=x', 'U+0085'],
  ['LABEL a=b\u00A0io.longshor${E}.gpus=x', 'U+00A0'],
  ['LABEL a=b ${A}shore.managed=1', 'a name with a variable'],
  ['LABEL "x y"=1', 'is not the name of a label'],
  ['LABEL a=b\r', ''],
  ['LABEL a=b\rio.longshore.x=y', 'carriage return'],
  ['ENV A="b\u0000"', 'U+0000'],
  ['ENV A="b\uD800"', 'U+D800'],
  ['COPY ["a", "b"] c', 'a list that is not JSON'],
  ['EXPOSE 80\u00A090', 'U+00A0'],
  ['EXPOSE 8${Q:+}', 'first in a port'],
])('%j is refused on a line of its own', ([text, why]) => {
  const file = `FROM base AS base\nFROM base\n${text}\n`;
  if (why === '') expect(problemOf(file)).toBeUndefined();
  else expect(problemOf(file)).toMatch(new RegExp(`^line 3: .*${why.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}`));
});

test('text of a command may be of any script, and hold what would be a flag elsewhere', () => {
  expect(written('RUN echo à --from=X\u00A0$Y 日本')).toBe('RUN echo à --from=X\u00A0$Y 日本');
});

test('an agent takes only lines that stand by themselves', () => {
  expect(readStep('RUN true')).toMatchObject({
    instruction: { name: 'RUN', command: { form: 'shell', text: 'true' } },
  });
  for (const bad of ['RUN', 'ONBUILD RUN x', 'RUN a\nFROM b', '# x', 'FROM $X', '', 'COPY --from=a:b:c x y'])
    expect(readStep(bad).kind).toBe('problem');
  for (const bad of ['FROM 68c', 'COPY --from=68c x y'])
    expect(readSteps(['FROM base', bad])).toMatchObject({ kind: 'problem', at: 1 });
});

test('the Dockerfile of the examples is read', () => {
  expect(problemOf(readFileSync('examples/dockerfile/Dockerfile', 'utf8'))).toBeUndefined();
});

test('a stage may be called like an id, and takes the place of an image of that name', () => {
  const file = 'FROM base AS abc\nFROM python AS python\nFROM python\nCOPY --from=abc a b\nCOPY --from=ABC a b';
  expect(imagesOf(file)).toEqual(['base', 'python']);
  expect(problemOf('FROM base\nCOPY --from=abc a b\nFROM base AS abc')).toMatch(/^line 2: COPY names the image "abc"/);
});

test('an instruction that is longer than a line of the engine is refused with its line', () => {
  expect(problemOf(`FROM base\n\nRUN ${'x'.repeat(70_000)}`)).toMatch(/^line 3: RUN is longer than 60000 bytes/);
  expect(problemOf(`FROM base\nRUN ${'x'.repeat(50_000)}`)).toBeUndefined();
});

test('names of images are told from ids, whole and in part', () => {
  for (const id of ['a', 'ABC', '68c', '68cd7c11f0de', 'sha256:6', `sha256:${'0'.repeat(64)}`, 'f'.repeat(64)])
    expect([id, isImageId(id)]).toEqual([id, true]);
  for (const name of ['abc:latest', 'library/abc', 'cafe.example/abc', 'python', `a@sha256:${'0'.repeat(64)}`])
    expect([name, imageProblem(name)]).toEqual([name, undefined]);
  for (const odd of ['a b', 'x:', '/x', 'x//y', 'x@sha256:12', 'x:y:z', 'ä', '-x', 'x\n'])
    expect([odd, typeof imageProblem(odd)]).toEqual([odd, 'string']);
  expect(imageProblem('[::1]:5000/x:1')).toBeUndefined();
});

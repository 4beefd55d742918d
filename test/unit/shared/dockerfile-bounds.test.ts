// Bounds on what an image's configuration becomes by a Dockerfile, with every variable at its longest.
import { expect, test } from 'vitest';
import { expansionProblem } from '#shared/domain/dockerfile/expansion.ts';
import { readDockerfile, readSteps } from '#shared/domain/dockerfile/read.ts';

const problemOf = (lines: readonly string[]): string => {
  const read = readDockerfile(lines.join('\n'));
  return read.kind === 'problem' ? read.problem : '';
};
const tenTimes = (name: string): string => `\${${name}}`.repeat(10);

test('variables that grow tenfold with each line are refused at the line that passes the bound', () => {
  const lines = ['FROM base', 'ENV A=0123456789'];
  for (const [name, before] of ['BA', 'CB', 'DC', 'ED', 'FE'].map((two) => [two[0] ?? '', two[1] ?? ''] as const))
    lines.push(`ENV ${name}=${tenTimes(before)}`);
  expect(problemOf([...lines, `LABEL x="${'${F}'.repeat(40)}"`])).toMatch(/^line 6: ENV E .*100000 bytes.*32768/);
});

const GROWN = ['ARG A=0123456789', `ARG B=${tenTimes('A')}`, `ARG C=${tenTimes('B')}`, `ARG D=${tenTimes('C')}`];

test.for<[string, readonly string[]]>([
  ['LABEL', ['FROM base', ...GROWN, `LABEL x=${tenTimes('D')}`]],
  ['ENV', ['FROM base', ...GROWN, `ENV X=${tenTimes('D')}`]],
  ['WORKDIR', ['FROM base', ...GROWN, `WORKDIR /${tenTimes('D')}`]],
  ['VOLUME', ['FROM base', ...GROWN, `VOLUME ["/${tenTimes('D')}"]`]],
  ['USER', ['FROM base', ...GROWN, `USER ${tenTimes('D')}`]],
  ['EXPOSE', ['FROM base', ...GROWN, `EXPOSE ${tenTimes('D')}`]],
  ['STOPSIGNAL', ['FROM base', ...GROWN, `STOPSIGNAL ${tenTimes('D')}`]],
  ['COPY', ['FROM base', ...GROWN, `COPY a /${tenTimes('D')}`]],
  ['COPY', ['FROM base', ...GROWN, `COPY ${tenTimes('D')} /b`]],
  ['COPY', ['FROM base', ...GROWN, `COPY --chown=${tenTimes('D')} a /b`]],
  ['ADD', ['FROM base', ...GROWN, `ADD a /${tenTimes('D')}`]],
  ['ARG', [...GROWN, `ARG E=${tenTimes('D')}`, 'FROM base']],
  // The value of an ARG before the first stage, in a stage that declares its name.
  ['ENV', [...GROWN, 'FROM base', 'ARG D', `ENV X=${tenTimes('D')}`]],
  // Words of which one is chosen as the build runs.
  ['ENV', ['FROM base', ...GROWN, `ENV X=\${NONE:-${tenTimes('D')}}`]],
  ['ENV', ['FROM base', ...GROWN, `ENV X=\${A:+${tenTimes('D')}}`]],
  ['ENV', ['FROM base', ...GROWN, `ENV E=$D$D`, `ENV X=${'${E:-a}'.repeat(2)}`]],
  // A stage goes on with the variables of the one that it names.
  ['ENV', ['FROM base AS one', `ENV A=${'a'.repeat(9000)}`, 'FROM one', 'ENV B=$A$A$A$A']],
])('%s is refused where its variables make it longer than a value may be', ([name, lines]) => {
  expect(problemOf(lines)).toMatch(new RegExp(`^line \\d+: ${name} .*\\d+ bytes`));
});

test('many values, each within its bound, are refused once an image would have too many bytes', () => {
  const big = `ENV A=${'a'.repeat(20_000)}`;
  const labels = Array.from({ length: 14 }, (_, at) => `LABEL l${at}=$A`);
  expect(problemOf(['FROM base', big, ...labels])).toMatch(/^line 1\d: LABEL .*262144 bytes/);
  const folders = Array.from({ length: 14 }, () => 'WORKDIR $A');
  expect(problemOf(['FROM base', big, ...folders])).toMatch(/^line \d+: WORKDIR .*32768/);
});

test('values that replace each other stay in the history of an image, which has a bound as well', () => {
  const again = Array.from({ length: 60 }, () => 'ENV B=$A');
  expect(problemOf(['FROM base', `ENV A=${'a'.repeat(20_000)}`, ...again])).toMatch(/^line \d+: ENV .*history/);
  const runs = Array.from({ length: 60 }, () => 'RUN true');
  expect(problemOf(['FROM base', `ARG A=${'a'.repeat(20_000)}`, ...runs])).toMatch(/^line \d+: RUN .*history/);
});

test('usual Dockerfiles are not refused: paths that grow, long commands, ports by variables', () => {
  const paths = Array.from({ length: 40 }, (_, at) => `ENV PATH=/opt/tool-${at}/bin:$PATH`);
  const commands = Array.from({ length: 100 }, () => `RUN echo ${'x'.repeat(2000)}`);
  expect(problemOf(['ARG V=3', 'FROM base', 'ARG V', ...paths, ...commands, 'ENV PORT=8080', 'EXPOSE $PORT/tcp'])).toBe(
    '',
  );
  expect(problemOf(['FROM base', 'EXPOSE 80 443/tcp 8000-8009', 'VOLUME /data /other'])).toBe('');
});

test.for<[string]>([
  ['EXPOSE 1-65535/tcp'],
  ['EXPOSE 1000-1064'],
  [`EXPOSE ${Array.from({ length: 65 }, (_, at) => 1000 + at).join(' ')}`],
  ['ENV P=1-65535\nEXPOSE $P'],
  ['ENV P=-6\nEXPOSE 1${P}5535'],
  ['ENV A=1 B=65535\nEXPOSE $A-$B'],
  ['ENV P="1 2 3"\nEXPOSE $P'],
  ['EXPOSE ${P:-1-65535}'],
  ['EXPOSE 1-60\nEXPOSE 61-70'],
  ['EXPOSE 1-65535:1-65535'],
])('more ports than an image may have are refused: %s', ([lines]) => {
  expect(problemOf(['FROM base', lines])).toMatch(/^line \d+: EXPOSE .*(?:64 ports|variable)/);
});

test('more volumes than an image may have are refused', () => {
  const lines = Array.from({ length: 9 }, (_, at) => `VOLUME /a${at} /b${at}`);
  expect(problemOf(['FROM base', ...lines])).toMatch(/^line 10: VOLUME .*16 volumes/);
});

test("with the base's variables, and those that every step gets, more is known", () => {
  const read = readSteps(['FROM base', 'ENV B=$A$A', 'EXPOSE $P']);
  if (read.kind === 'problem') throw new Error(read.problem);
  const { instructions, sources } = read;
  const bases = (env: readonly string[]) => new Map([['base', env]]);
  expect(expansionProblem(instructions, sources, { bases: bases(['A=a']) })).toBeUndefined();
  expect(expansionProblem(instructions, sources, { bases: bases([`A=${'a'.repeat(20_000)}`]) })?.at).toBe(1);
  expect(expansionProblem(instructions, sources, { bases: bases(['P=1-9']) })?.at).toBe(2);
  expect(expansionProblem(instructions, sources, { variables: { A: 'a'.repeat(20_000) } })?.at).toBe(1);
});

test('a file of very many instructions or variables is counted in no time worth a wait', () => {
  expect(problemOf(['FROM base', ...Array.from({ length: 25_000 }, (_, at) => `ENV a${at}=1`)])).toMatch(/512 instr/);
  const pairs = Array.from({ length: 5000 }, (_, at) => `a${at}=1`).join(' ');
  expect(problemOf(['FROM base AS s', `ENV ${pairs}`, ...Array.from({ length: 500 }, () => 'FROM s')])).toBe('');
});

// The Dockerfile that the engine gets.
import { describe, expect, test } from 'vitest';
import { assemble, forEngine, programOf, readOrder } from '#agent/builds/assemble.ts';
import type { Base, Known } from '#agent/builds/assemble.ts';
import { takenLabel, wrongLabel } from '#agent/builds/own-labels.ts';

function order(...texts: string[]) {
  const read = readOrder(texts.map((text) => ({ text, title: text.startsWith('CMD') ? 'a title' : '' })));
  if (read.kind === 'problem') throw new Error(read.problem);
  return read.steps;
}
const base = (id: string): Base => ({ id, architecture: 'amd64' });
const KNOWN: Known = {
  bases: new Map([
    ['one:1', base('sha256:aa')],
    ['other:2', base('sha256:bb')],
  ]),
  stages: ['sha256:s0'],
};
function linesOf(...texts: string[]): readonly string[] {
  const instructions = forEngine(order(...texts), KNOWN, ['/bin/bash', '-ec']);
  return assemble(instructions, [], { labels: {}, args: [] })
    .dockerfile.split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .filter((line) => line !== 'LABEL');
}

test('images and stages go by their ids, and every stage gets labels, certificates and variables first', () => {
  const steps = order(
    'FROM --platform=linux/amd64 one:1 AS b',
    'CMD x',
    'FROM b',
    'COPY --from=other:2 /a /b',
    'COPY --from=b /a /b',
  );
  const { dockerfile, titles } = assemble(
    forEngine(steps, KNOWN, ['/bin/sh', '-c']),
    steps.map(({ title }) => title),
    {
      labels: { one: 'm', two: 'w"s' },
      args: ['PIP_CERT'],
      certificates: { from: '.ca', to: '/ca' },
    },
  );
  const ours = ['LABEL one="m" two="w\\"s"', String.raw`COPY ["\".ca\"","\"/ca\""]`, 'ARG PIP_CERT'];
  expect(dockerfile.trimEnd().split('\n')).toEqual([
    'FROM sha256:aa',
    ...ours,
    'CMD ["/bin/sh","-c","x"]',
    'FROM sha256:s0',
    ...ours,
    String.raw`COPY --from=sha256:bb ["\"/a\"","\"/b\""]`,
    String.raw`COPY --from=sha256:s0 ["\"/a\"","\"/b\""]`,
  ]);
  const [o, n] = [false, true];
  expect(titles.map((title) => title === undefined)).toEqual([o, n, n, n, o, o, n, n, n, o, o]);
  expect(titles[4]).toBe('a title');
});

describe('a command without a list', () => {
  test('is a list with the shell of its image or of the Dockerfile', () => {
    expect(
      linesOf(
        'CMD a',
        'SHELL ["/bin/ash", "-c"]',
        'CMD b',
        'ENTRYPOINT c "$@"',
        'HEALTHCHECK --retries=2 CMD d << e',
        'CMD ["f"]',
      ),
    ).toEqual([
      'CMD ["/bin/bash","-ec","a"]',
      'SHELL ["/bin/ash","-c"]',
      'CMD ["/bin/ash","-c","b"]',
      String.raw`ENTRYPOINT ["/bin/ash","-c","c \"$@\""]`,
      String.raw`HEALTHCHECK --retries=2 CMD ["/bin/ash","-c","d \u003c\u003c e"]`,
      'CMD ["f"]',
    ]);
    expect(programOf({ form: 'shell', text: 'a "b"' }, ['/bin/bash', '-c'])).toEqual(['/bin/bash', '-c', 'a "b"']);
    expect(programOf({ form: 'shell', text: 'a' }, [])).toEqual(['/bin/sh', '-c', 'a']);
    expect(programOf({ form: 'exec', list: ['a'] }, ['/bin/bash'])).toEqual(['a']);
  });

  test('has plain characters alone', () => {
    expect(linesOf('CMD echo à\u00A0--from=X \\')).toEqual([
      String.raw`CMD ["/bin/bash","-ec","echo \u00e0\u00a0--from=X \\"]`,
    ]);
  });
});

test('a name that no image has goes to no engine, and neither does another platform', () => {
  expect(() => linesOf('FROM gone:1')).toThrow('the build has no image for FROM gone:1');
  expect(() => linesOf('FROM one:1', 'COPY --from=gone:1 a b')).toThrow('the build has no image for COPY');
  expect(linesOf('FROM scratch', 'COPY a b')[0]).toBe('FROM scratch');
  for (const good of ['linux', 'amd64', 'linux/x86_64', 'linux/amd64/v2'])
    expect(linesOf(`FROM --platform=${good} one:1`)).toEqual(['FROM sha256:aa']);
  for (const other of ['linux/arm64', 'arm64', 'windows/amd64'])
    expect(() => linesOf(`FROM --platform=${other} one:1`)).toThrow('leave --platform out');
});

test('instructions that go on after another image begin with it', () => {
  const [, ...rest] = forEngine(order('FROM one:1', 'CMD x'), KNOWN, ['/bin/sh', '-c']);
  expect(assemble(rest, ['t'], { labels: { a: 'b' }, args: [], onto: 'sha256:cc' })).toEqual({
    dockerfile: 'FROM sha256:cc\nLABEL a="b"\nCMD ["/bin/sh","-c","x"]\n',
    titles: [undefined, undefined, 't'],
  });
});

test('an order with a line that no build may have is refused as a whole', () => {
  expect(() => order('FROM one', 'ONBUILD RUN x')).toThrow('ONBUILD');
  expect(() => order('FROM one\nRUN x')).toThrow('several lines');
  expect(() => order('FROM one', 'COPY --from=3 a b')).toThrow('no stage before');
  expect(() => order()).toThrow('no steps');
});

test('an image has the labels of ours that its build gave it, and no others', () => {
  const meant = { 'io.longshore.build': 'm', 'io.longshore.build.workspace': 'w', 'io.longshore.build.step': '' };
  const key = { 'io.longshore.build.step': 'a'.repeat(64) };
  const setUp = { 'io.longshore.base': '1', 'io.longshore.base.ca': '2', maintainer: 'x' };
  expect(wrongLabel({ ...meant, ...setUp }, meant, false)).toBeUndefined();
  expect(wrongLabel({ ...meant, ...key }, meant, true)).toBeUndefined();
  expect(wrongLabel({ ...meant, ...key }, meant, false)).toBe('io.longshore.build.step');
  expect(wrongLabel(meant, meant, true)).toBe('io.longshore.build.step');
  expect(wrongLabel({ ...meant, 'io.longshore.gpus': 'x' }, meant, false)).toBe('io.longshore.gpus');
  expect(wrongLabel({ ...meant, 'IO.longshore.gpus': 'x' }, meant, false)).toBe('IO.longshore.gpus');
  expect(wrongLabel({ ...meant, 'io.longshore.build.workspace': 'v' }, meant, false)).toBe(
    'io.longshore.build.workspace',
  );
  expect(wrongLabel({}, meant, false)).toBe('io.longshore.build');
  expect([takenLabel(setUp), takenLabel({ ...setUp, 'io.longshore.new': '' })]).toEqual([
    undefined,
    'io.longshore.new',
  ]);
});

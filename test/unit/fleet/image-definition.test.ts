// Image definitions: what is refused, what a build runs, and by which name the image goes.
import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { imageNameOf, readDefinition } from '../../../scheduler/fleet/builds/definition.ts';
import type { Definition, ImageRequest } from '../../../scheduler/fleet/builds/definition.ts';
import { NO_IMAGE } from '../../helpers/image-request.ts';

const read = (fields: Partial<ImageRequest>) => readDefinition({ ...NO_IMAGE, ...fields });
function built(fields: Partial<ImageRequest>): Definition {
  const found = read(fields);
  if (found.kind !== 'build') throw new Error(JSON.stringify(found));
  return found.definition;
}
const texts = (fields: Partial<ImageRequest>): readonly string[] => built(fields).steps.map(({ text }) => text);

test('a definition that adds nothing is an image that exists', () => {
  expect(read({})).toEqual({ kind: 'as_is', image: 'longshore.internal/base:python3' });
  expect(read({ existingImageUri: 'ghcr.io/a/b:1', pythonVersion: 'python3.11' })).toEqual({
    kind: 'as_is',
    image: 'ghcr.io/a/b:1',
  });
});

test('packages, variables, system packages and commands become steps, in that order', () => {
  const steps = texts({
    envVars: ['A=b "c" $d \\e'],
    systemPackages: ['git', 'libgl1'],
    pythonPackages: ['six==1.17.0', 'torch --index-url https://x/y', `it's; python_version < "3.9"`],
    commands: ['echo one\necho "two"'],
  });
  expect(steps[0]).toBe('FROM longshore.internal/base');
  expect(steps[1]).toBe('ENV A="b \\"c\\" \\$d \\\\e"');
  expect(steps[2]).toContain('apt-get install -y --no-install-recommends \\"$@\\" git libgl1');
  expect(steps[3]).toContain('venv --system-site-packages');
  expect(steps[4]).toBe('ENV PATH="/opt/longshore/venv/bin:$PATH"');
  const [, , command = ''] = JSON.parse(steps[5]?.slice(4) ?? '[]') as string[];
  expect(command).toContain(
    `printf '%s\\n' 'six==1.17.0' 'torch' '--index-url https://x/y' 'it'\\''s; python_version < "3.9"' | install "$@" -r /dev/stdin`,
  );
  expect(steps[6]).toBe('RUN ["/bin/sh","-c","echo one\\necho \\"two\\""]');
  expect(steps.every((step) => !step.includes('\n'))).toBe(true);
});

test('steps of clients keep their order, and neighbouring packages are one step', () => {
  const steps = built({
    buildSteps: [
      { type: 'pip', command: 'a' },
      { type: 'pip', command: 'b' },
      { type: 'shell', command: 'c' },
      { type: 'pip', command: 'd' },
    ],
  }).steps;
  expect(steps.map(({ title }) => title).filter((title) => title.startsWith('RUN'))).toEqual([
    'RUN prepare Python for packages',
    'RUN pip install a b',
    'RUN c',
    'RUN pip install d',
  ]);
});

test('packages with a number are a layer of their own, and constraints bound the packages of their layer', () => {
  const { steps } = built({
    pythonPackages: ['torch', 'constraint: numpy<3'],
    buildSteps: [
      { type: 'pip', command: 'a', layer: 1 },
      { type: 'pip', command: 'b', layer: 1 },
      { type: 'pip', command: 'c', layer: 2 },
    ],
  });
  const installs = steps.filter(({ title }) => title.startsWith('RUN pip install'));
  expect(installs.map(({ title }) => title)).toEqual([
    'RUN pip install torch (constraints: 1)',
    'RUN pip install a b',
    'RUN pip install c',
  ]);
  expect(installs.map(({ text }) => text.includes('numpy<3'))).toEqual([true, false, false]);
  expect(installs.every(({ text }) => text.includes('pip config list'))).toBe(true);
});

test('micromamba brings its own Python, and its packages come from the channels that are named', () => {
  const { pythonVersion, steps } = built({
    pythonVersion: 'micromamba3.12',
    pythonPackages: ['six'],
    buildSteps: [
      { type: 'micromamba', command: 'numpy' },
      { type: 'micromamba', command: '-c bioconda' },
      { type: 'micromamba', command: "it's" },
    ],
  });
  expect(pythonVersion).toBe('python3');
  expect(steps.map(({ title, text }) => title || text)).toEqual([
    'FROM the base image',
    'RUN get micromamba',
    'RUN micromamba create python=3.12 pip',
    'ENV MAMBA_ROOT_PREFIX="/opt/longshore/conda" PATH="/opt/longshore/conda/bin:$PATH"',
    'RUN prepare Python for packages',
    'ENV PATH="/opt/longshore/venv/bin:$PATH"',
    'RUN pip install six',
    "RUN micromamba install numpy -c bioconda it's",
  ]);
  const [, , command = ''] = JSON.parse(steps.at(-1)?.text.slice(4) ?? '[]') as string[];
  expect(command).toContain(`-c 'bioconda' `);
  expect(command).toContain(`'numpy' 'it'\\''s'`);
  expect(built({ pythonVersion: 'micromamba3.11' }).steps).toHaveLength(4);
});

test('packages run apart, and with a GPU every added command does', () => {
  const apart = (gpu: string) =>
    built({ gpu, dockerfile: 'FROM img\nRUN b', pythonPackages: ['six'], commands: ['c'] })
      .steps.filter((step) => step.apart)
      .map(({ title }) => title);
  expect(apart('')).toEqual(['RUN pip install six']);
  expect(apart('H100')).toEqual(['RUN prepare Python for packages', 'RUN pip install six', 'RUN c']);
  const workspaceId = newId() as WorkspaceId;
  const name = (gpu: string) => imageNameOf(workspaceId, built({ gpu, commands: ['c'] }));
  expect(new Set([name(''), name('H100'), name('H100,A100')]).size).toBe(3);
  expect(built({ gpu: ' H100, A100 ', commands: ['c'] }).gpu).toEqual(['H100', 'A100']);
});

test('a base image is named as it is, and its steps run as root', () => {
  expect(texts({ existingImageUri: 'pytorch/pytorch:2', commands: ['x'] }).slice(0, 2)).toEqual([
    'FROM pytorch/pytorch:2',
    'USER 0',
  ]);
});

test('a Dockerfile comes first, and what is added comes behind it', () => {
  const definition = built({ dockerfile: 'FROM img:1\nCOPY . /x', buildCtxObject: 'o', commands: ['y'] });
  expect(definition.steps.map(({ text }) => text).slice(0, 2)).toEqual([
    'FROM img:1',
    String.raw`COPY ["\".\"","\"/x\""]`,
  ]);
  expect(definition.steps.map(({ title }) => title).slice(0, 2)).toEqual(['FROM img:1', 'COPY . /x']);
  expect(definition).toMatchObject({ contextObjectId: 'o', bases: ['img:1'] });
});

test.for<[string, Partial<ImageRequest>]>([
  ['secrets: a build gets none', { secrets: ['TOKEN'], commands: ['x'] }],
  ['pythonVersion must be', { pythonVersion: 'python2.7' }],
  ['pythonVersion must be', { pythonVersion: 'python3.99' }],
  ['pythonVersion must be', { pythonVersion: 'micromamba3.13' }],
  ['buildSteps[0] needs micromamba', { buildSteps: [{ type: 'micromamba', command: 'a' }] }],
  ['existingImageCreds', { existingImageCreds: { username: 'a' } }],
  ['existingImageUri', { existingImageUri: 'a b', commands: ['x'] }],
  [
    'existingImageUri: longshore.internal/x is not a base',
    { existingImageUri: 'longshore.internal/x', commands: ['x'] },
  ],
  ['dockerfile: longshore.internal/x is not a base', { dockerfile: 'FROM img\nCOPY --from=longshore.internal/x a b' }],
  ['dockerfile: longshore.internal/base is not a base', { dockerfile: 'FROM longshore.internal/base' }],
  ['dockerfile: line 2:', { dockerfile: 'FROM img\nNO_IMAGE x' }],
  ['dockerfile and existingImageUri', { dockerfile: 'FROM img', existingImageUri: 'image' }],
  ['buildCtxObject needs a dockerfile', { buildCtxObject: 'x' }],
  ['envVars[0]: ENV has the character U+0007', { envVars: ['A=\u0007'] }],
  ['existingImageUri names the image "68cd7c11f0de", which could be the id', { existingImageUri: '68cd7c11f0de' }],
  ['dockerfile: line 2: COPY names the image "68c", which', { dockerfile: 'FROM img\nCOPY --from=68c a b' }],
  ['envVars[0]', { envVars: ['NO_IMAGE'] }],
  ['envVars[1]', { envVars: ['A=', 'B=a\nb'] }],
  ['systemPackages[0]', { systemPackages: ['git; rm'] }],
  ['pythonPackages has an empty entry', { pythonPackages: [' '] }],
  ['several lines', { pythonPackages: ['a\nb'] }],
  ['buildSteps[0] layer', { buildSteps: [{ type: 'pip', command: 'x', layer: 'a' }] }],
  ['buildSteps[0]', { buildSteps: [{ type: 'mamba', command: 'x' }] }],
  ['commands must have at most', { commands: Array.from({ length: 1001 }, () => 'x') }],
  ['the image has more than', { commands: Array.from({ length: 300 }, () => 'x') }],
])('refused: %s', ([text, fields]) => {
  const found = read(fields);
  expect(found.kind === 'refused' ? found.errMsg : found.kind).toContain(text);
});

test('the name follows from the workspace and the definition', () => {
  const [one, other] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
  const name = imageNameOf(one, built({ pythonPackages: ['a'] }));
  expect(name).toMatch(/^longshore\.internal\/[0-9a-f]{32}$/);
  expect(imageNameOf(one, built({ pythonPackages: ['a'], pythonVersion: 'python3' }))).toBe(name);
  expect(imageNameOf(other, built({ pythonPackages: ['a'] }))).not.toBe(name);
  expect(imageNameOf(one, built({ pythonPackages: ['a', 'b'] }))).not.toBe(name);
  expect(imageNameOf(one, built({ pythonPackages: ['a'], pythonVersion: '3.12' }))).not.toBe(name);
});

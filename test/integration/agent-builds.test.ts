// Builds of an agent on the real engine: attacks that an order, a base image or a finished image can carry, and one
// Dockerfile as people write them, which must give the same image as the engine alone.
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BUILD_LABEL, BUILD_STEP_LABEL, BUILD_WORKSPACE_LABEL, builtImageName } from '#shared/domain/built-images.ts';
import { decodeEvent } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import { AppError } from '#shared/errors.ts';
import { createLog } from '#shared/log.ts';
import { readDefinition } from '#scheduler/fleet/builds/definition.ts';
import { Builder } from '../../agent/builds/builder.ts';
import type { BuilderParts } from '../../agent/builds/builder.ts';
import { StepsApart } from '../../agent/builds/steps-apart.ts';
import { GpuDrivers } from '../../agent/containers/cdi.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { tarOf } from '../../agent/containers/tar.ts';
import { NO_IMAGE } from '../helpers/image-request.ts';
import { docker, tempDirectory } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';

const MACHINE = randomBytes(4).toString('hex');
const log = createLog({ name: 'agent', level: 'silent' });
const runtime = dockerRuntime(process.env['DOCKER_HOST']);
const directory = tempDirectory('builds');
const made = new Set<string>();
let engine: TestDocker;
let base: string;

beforeAll(async () => {
  engine = await docker();
  base = engine.baseImage;
  await mkdir(join(directory.path, 'data'));
  await writeFile(join(directory.path, 'data/file'), 'from the context\n');
  await writeFile(join(directory.path, 'a b'), 'with a space\n');
  const archive = tarOf([{ name: 'unpacked', text: 'x' }], undefined);
  await writeFile(join(directory.path, 'data/archive'), Buffer.concat(await Readable.from(archive).toArray()));
});
afterAll(async () => {
  for (const image of made)
    await engine.client
      .getImage(image)
      .remove({ force: true })
      .catch(() => undefined);
  await runtime.pruneImages(`${BUILD_LABEL}=${MACHINE}`, 0);
  directory.remove();
});

/** An image of the engine alone. @returns its id */
async function engineImage(dockerfile: string, name: string): Promise<string> {
  const texts = [{ name: 'Dockerfile', text: dockerfile }];
  const stream = await engine.client.buildImage(Readable.from(tarOf(texts, directory.path), { objectMode: false }), {
    t: name,
    networkmode: 'none',
  });
  const text = (await Readable.from(stream as Readable).toArray()).map(String).join('');
  const facts = await runtime.image(name);
  if (facts === undefined) throw new Error(text);
  made.add(name);
  return facts.id;
}

/** The surroundings of a build on its machine: the engine is real, and no step has a network. */
const parts = (over: Partial<BuilderParts> = {}): BuilderParts => ({
  runtime,
  images: {
    ensure: async (reference) => {
      const facts = await runtime.image(reference);
      if (facts === undefined) throw new AppError('image_error', `cannot pull image ${reference}`);
      if (facts.builtFor !== '' && facts.builtFor !== 'attacker')
        throw new AppError('image_error', `image ${reference} was built for another workspace`);
      return { id: facts.id, was: 'present' };
    },
  },
  archives: { acquire: () => Promise.resolve(directory.path), release: () => undefined },
  pauseContainers: {
    takeForBuild: () => Promise.resolve({ network: 'none' }),
    release: () => undefined,
  } as unknown as BuilderParts['pauseContainers'],
  stepsApart: new StepsApart({ runtime, gpuDrivers: new GpuDrivers(runtime, log), machineId: () => MACHINE, log }),
  countVolumes: (folders) => Promise.resolve(new Map(folders.map((folder) => [folder, 0]))),
  packages: { isKept: false } as unknown as BuilderParts['packages'],
  gpus: {
    takeForBuild: () => ({ kind: 'absent' }),
    beforeLease: () => Promise.resolve(),
    freeForBuild: () => [],
    holdForBuild: () => undefined,
    releaseFromBuild: () => Promise.resolve(),
  },
  baseImageOf: () => base,
  machineId: () => MACHINE,
  isDiskFull: () => false,
  limits: {
    atOnce: 1,
    memoryBytes: 512 * 1024 ** 2,
    cpuMillicores: 1000,
    pids: 500,
    diskBytes: 1024 ** 3,
    timeMs: 60_000,
  },
  variables: {},
  caBundle: undefined,
  log,
  ...over,
});

/** Carries an order out, as it came from a scheduler. */
async function ordered(texts: readonly string[], over: Partial<BuilderParts> = {}) {
  const link = new PassThrough();
  const output: string[] = [];
  link.on('data', (data: Buffer) => output.push(data.toString()));
  const image = builtImageName(randomBytes(16).toString('hex'));
  const order = {
    streamId: randomBytes(8).toString('hex'),
    image,
    workspaceId: 'attacker',
    pythonVersion: 'python3',
    steps: texts.map((text) => ({ text, title: '', apart: false })),
    context: { objectId: 'o', sha256: '0'.repeat(64), size: '1' },
    gpus: [],
    noCache: false,
    push: null,
  };
  made.add(image);
  const build = {
    id: order.streamId,
    workspaceId: order.workspaceId,
    order,
    link,
    abort: new AbortController(),
    orderedAtMs: performance.now(),
  };
  const last: BuildEvent = await new Builder(parts(over))
    .build(build as unknown as Parameters<Builder['build']>[0])
    .catch((error: unknown) => ({ failed: (error as Error).message, step: '' }));
  const events = output
    .join('')
    .split('\n')
    .flatMap((line) => decodeEvent(line) ?? []);
  const text = events.flatMap((event) => ('text' in event ? [event.text] : [])).join('\n');
  return { image, last, text, failed: 'failed' in last ? last.failed : '' };
}

describe('an order of a build', () => {
  test(
    'takes nothing from an image of another workspace, whatever its flags look like',
    { timeout: 60_000 },
    async () => {
      const secret = randomBytes(8).toString('hex');
      const victim = await engineImage(
        `FROM ${base}\nLABEL ${BUILD_WORKSPACE_LABEL}=victim\nRUN echo ${secret} > /secret.txt`,
        `ls-victim-${MACHINE}`,
      );
      const short = victim.replace('sha256:', '').slice(0, 12);
      const attacks = [
        `COPY --chown=0:gà--from=${short} /secret.txt /stolen`,
        `COPY --chown=0:g\u0085--from=${short} /secret.txt /stolen`,
        `COPY --chown=0:g\u00A0--from=${short} /secret.txt /stolen`,
        `COPY --from=${short} /secret.txt /stolen`,
        `COPY --from=sha256:${short} /secret.txt /stolen`,
        `COPY --from=${victim} /secret.txt /stolen`,
        `COPY --from=ls-victim-${MACHINE} /secret.txt /stolen`,
        `COPY "--from=${short}" /secret.txt /stolen`,
        `COPY \\--from=${short} /secret.txt /stolen`,
      ];
      for (const attack of attacks) {
        const { last, text } = await ordered([
          `FROM ${base}`,
          String.raw`RUN printf 'g\303\203:x:0:\ng\302:x:0:\n' >> /etc/group`,
          attack,
          'RUN cat /stolen',
        ]);
        expect([attack, text.includes(secret), 'built' in last]).toEqual([attack, false, false]);
      }
    },
  );

  test('has the engine fetch nothing', { timeout: 60_000 }, async () => {
    const asked: string[] = [];
    const server = createServer((request, response) => {
      asked.push(request.url ?? '');
      response.end('the page');
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const url = `http://127.0.0.1:${port}`;
    try {
      for (const steps of [
        [`ADD ${url}/word /x`],
        [`ADD ["${url}/list", "/x"]`],
        [`ARG U=${url}/arg`, 'ADD $U /x'],
        [`ENV U=${url}/env`, 'ADD ["${U}", "/x"]'],
        [`ADD h"ttp"://127.0.0.1:${port}/quoted /x`],
        [`ADD ht\\tp://127.0.0.1:${port}/escaped /x`],
        [`ARG H=htt`, `ADD \${H}p://127.0.0.1:${port}/part /x`],
        [`ONBUILD ADD ${url}/trigger /x`],
        [`COPY ${url}/copy /x`],
      ]) {
        const { last, text } = await ordered([`FROM ${base}`, ...steps, 'RUN cat /x']);
        expect([steps, 'built' in last, text.includes('the page')]).toEqual([steps, false, false]);
      }
      expect(asked).toEqual([]);
    } finally {
      server.close();
    }
  });

  test('gives its image no label of ours', { timeout: 60_000 }, async () => {
    for (const steps of [
      [`ARG E=e`, 'LABEL a=b\u0085io.longshor${E}.build.workspace=victim'],
      [`LABEL a=b\u00A0io.longshor"e".gpus=GPU-1`],
      ['LABEL "io.longshore.managed"=1'],
      [`ARG N=io.longshore.machine`, 'LABEL $N x'],
    ]) {
      const { image, failed } = await ordered([`FROM ${base}`, ...steps]);
      expect([steps, failed]).toEqual([steps, expect.stringMatching(/^the order of the build cannot be read: LABEL /)]);
      expect(await runtime.image(image)).toBeUndefined();
    }
  });
});

describe('a base', () => {
  test('that ADDs an archive copies it: the engine would unpack it without a bound', async () => {
    const { failed, text } = await ordered([`FROM ${base}`, 'ADD data/archive /x/', 'RUN ls /x']);
    expect(failed).toBe('');
    expect(text).toContain('archive');
    expect(text).not.toContain('unpacked');
  });

  test.for(['ADD http://127.0.0.1:9/x /x', 'LABEL io.longshore.gpus=GPU-1', 'RUN true', 'COPY data /x'])(
    'that would have a build run %j is refused',
    async (trigger) => {
      const name = `ls-onbuild-${MACHINE}`;
      await engineImage(`FROM ${base}\nONBUILD ${trigger}`, name);
      const { failed } = await ordered([`FROM ${name}`, 'RUN true']);
      expect(failed).toContain(`image ${name} has ONBUILD instructions (${trigger.slice(0, 60)}), which no build runs`);
    },
  );

  test('with a label of ours is refused', async () => {
    const name = `ls-labelled-${MACHINE}`;
    await engineImage(`FROM ${base}\nLABEL io.longshore.anything=1`, name);
    expect((await ordered([`FROM ${name}`, 'RUN true'])).failed).toContain('io.longshore.anything');
  });
});

/**
 * Loads an image as a tenant would make it for a registry: its configuration claims to be the layer of an image that
 * was built here, and it has a file of its own.
 * @param layer - of the claimed configuration
 */
async function poisoned(layer: string, name: string, parent: string): Promise<void> {
  const { ContainerConfig, Config, Architecture } = (await engine.client.getImage(layer).inspect()) as unknown as {
    readonly ContainerConfig?: object;
    readonly Config: object;
    readonly Architecture: string;
  };
  const tarText = async (files: readonly { readonly name: string; readonly text: string }[]): Promise<string> =>
    Buffer.concat(await Readable.from(tarOf(files, undefined)).toArray()).toString('latin1');
  const files = await tarText([{ name: 'poison', text: 'of another tenant' }]);
  const config = {
    architecture: Architecture,
    os: 'linux',
    created: '2100-01-01T00:00:00Z',
    config: Config,
    container_config: ContainerConfig ?? Config,
    ...(parent === '' ? {} : { parent }),
    rootfs: { type: 'layers', diff_ids: [`sha256:${createHash('sha256').update(files, 'latin1').digest('hex')}`] },
  };
  const manifest = [{ Config: 'config.json', RepoTags: [`${name}:latest`], Layers: ['layer.tar'] }];
  const archive = await tarText([
    { name: 'config.json', text: JSON.stringify(config) },
    { name: 'layer.tar', text: files },
    { name: 'manifest.json', text: JSON.stringify(manifest) },
  ]);
  made.add(name);
  const answer = (await engine.client.loadImage(Readable.from([Buffer.from(archive, 'latin1')]))) as Readable;
  expect((await answer.toArray()).map(String).join('')).toContain(name);
}

/** The first layer of a build on an image, by its id. */
async function firstLayer(image: string): Promise<string> {
  const history = (await engine.client.getImage(image).history()) as { Id: string; CreatedBy: string }[];
  const first = history.findLast(({ CreatedBy }) => CreatedBy.includes(BUILD_WORKSPACE_LABEL));
  if (first === undefined || first.Id === '<missing>') throw new Error(JSON.stringify(history));
  return first.Id;
}

/** Paths of the files in an image. */
async function filesOf(image: string): Promise<string> {
  const container = await engine.client.createContainer({ Image: image, Cmd: ['/none'] });
  try {
    const files = (await container.export()) as Readable;
    return Buffer.concat(await files.toArray()).toString('latin1');
  } finally {
    await container.remove({ force: true });
  }
}

test.each(['scratch', 'an image'])(
  'no layer of a build on %s comes from an image of a registry that claims to be that layer',
  { timeout: 60_000 },
  async (kind) => {
    const from = kind === 'scratch' ? 'scratch' : base;
    const parent = kind === 'scratch' ? '' : ((await runtime.image(base))?.id ?? '');
    const steps = [`FROM ${from}`, 'COPY data/file /file', 'CMD ["/file"]'];
    const honest = await ordered(steps);
    expect(honest.failed).toBe('');
    await poisoned(await firstLayer(honest.image), `ls-poisoned-${kind.slice(0, 2)}-${MACHINE}`, parent);
    const { image, failed } = await ordered(steps);
    expect(failed).toBe('');
    const files = await filesOf(image);
    expect([files.includes('from the context'), files.includes('of another tenant')]).toEqual([true, false]);
  },
);

test('an image with other labels than its build meant gets no name, and is removed', async () => {
  const forged = {
    [BUILD_LABEL]: MACHINE,
    [BUILD_WORKSPACE_LABEL]: 'victim',
    [BUILD_STEP_LABEL]: '',
  };
  const labels = Object.entries(forged).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const text = [{ name: 'Dockerfile', text: `FROM ${base}\nLABEL ${labels.join(' ')} mark=${MACHINE}\n` }];
  let imageId = '';
  const { image, failed } = await ordered([`FROM ${base}`], {
    runtime: {
      ...runtime,
      // An engine that reads another Dockerfile than it got.
      build: async (_context, options) => {
        const result = await runtime.build(Readable.from(tarOf(text, undefined), { objectMode: false }), options);
        if (result.kind === 'built') ({ imageId } = result);
        return result;
      },
    },
  });
  expect(failed).toBe(`the image has another label ${BUILD_WORKSPACE_LABEL} than its build gave it: it was removed`);
  expect(imageId).not.toBe('');
  expect([await runtime.image(image), await runtime.image(imageId)]).toEqual([undefined, undefined]);
});

test(
  'a Dockerfile with all that people write gives the image that the engine makes of it',
  { timeout: 120_000 },
  async () => {
    const dockerfile = [
      '# A comment, and ARG before FROM.',
      'ARG UNUSED=1',
      `FROM --platform=linux/${(await runtime.imageConfig(base))?.architecture} ${base} AS Build`,
      'ARG VERSION=1.2 OTHER="two words"',
      'ENV OLD form of  a "value" \\',
      '  over lines',
      'WORKDIR /work dir',
      'COPY data/file "./in/" ',
      'COPY ["a b", "/spaced/"]',
      'RUN echo $VERSION \\',
      '  # why this is done \\',
      '',
      '  && echo "$OTHER" > /other && cat "/spaced/a b" in/file',
      `FROM ${base} AS fed`,
      'SHELL ["/bin/sh", "-ec"]',
      `FROM ${base}`,
      'MAINTAINER Jörg <j@example.com>',
      'ARG VERSION=${UNSET:-3}',
      'LABEL "com.example.vendor"="ACME Incorporated" version="1 $VERSION" \\',
      '      quoted=\'$VERSION "x"\' escaped=a\\ b',
      'ENV A=1 B="x $A" C=\'$A\' PATH=/extra:$PATH',
      'COPY --from=build --chown=nobody:0 /other /work* /copied/',
      'COPY --from=0 /spaced /spaced',
      `COPY --from=${base} /etc/passwd /etc/${'${A:+passwd}'}.copy`,
      'ADD data ./data/',
      'USER nobody:0',
      'WORKDIR relative',
      'EXPOSE 80 443/tcp 7000-7002/udp',
      'VOLUME ["/data", "/more data"]',
      'STOPSIGNAL SIGINT',
      'SHELL ["/bin/sh", "-ec"]',
      'HEALTHCHECK --interval=30s --timeout=3s --start-period=1s --retries=2 CMD ["true"]',
      'ENTRYPOINT ["/bin/sh", "-c", "exec \\"$@\\"", "--"]',
      'CMD echo "$A" && ls << EOF',
      'RUN ls -ln /copied /copied/in /etc/passwd.copy && id && pwd && echo "é $B $C" && [ "$A" ] && true',
    ].join('\n');
    const name = `ls-rich-${MACHINE}`;
    await engineImage(dockerfile, name);
    const read = readDefinition({ ...NO_IMAGE, dockerfile, buildCtxObject: 'o' });
    if (read.kind !== 'build') throw new Error(JSON.stringify(read));
    const { image, failed, text } = await ordered(read.definition.steps.map((step) => step.text));
    expect(failed).toBe('');
    expect(text).toContain('é x  $A');
    expect(text).toMatch(/65534 +0 .* other/);
    const configOf = async (one: string): Promise<unknown> => {
      const { Config } = await engine.client.getImage(one).inspect();
      const { Labels, ...config } = Config as typeof Config & { readonly Hostname?: unknown; readonly Image?: unknown };
      const own = Object.entries(Labels).filter(([key]) => !key.startsWith(BUILD_LABEL));
      // A name without a value takes a step's GPUs out of the image. A container of it has no such variable.
      const env = config.Env.filter((entry) => entry !== 'NVIDIA_VISIBLE_DEVICES');
      return { ...config, Env: env, Labels: Object.fromEntries(own), Image: '' };
    };
    expect(await configOf(image)).toEqual(await configOf(name));
  },
);

// Bounds of a build's steps, on the real engine: processes, capabilities, bytes, and who runs a step at all.
import { Duplex } from 'node:stream';
import type { Socket } from 'node:net';
import { describe, expect } from 'vitest';
import { BUILD_LABEL } from '#shared/domain/built-images.ts';
import { createLog } from '#shared/log.ts';
import { isRecord } from '#shared/json.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import { Builder } from '#agent/builds/builder.ts';
import type { BuildLimits, BuilderParts } from '#agent/builds/builder.ts';
import { Packages } from '#agent/builds/packages.ts';
import { StepsApart } from '#agent/builds/steps-apart.ts';
import { GpuDrivers } from '#agent/containers/cdi.ts';
import { countVolumesByContainer } from '#agent/containers/helpers.ts';
import { dockerRuntime } from '#agent/containers/engine/docker.ts';
import { PauseContainers } from '#agent/containers/pause-containers.ts';
import { test as base } from '../helpers/services.ts';

const MIB = 1024 ** 2;
const log = createLog({ name: 'test', level: 'silent' });

interface Outcome {
  readonly text: string;
  readonly last: BuildEvent;
}

interface Builds {
  readonly machineId: string;
  /** Builds the lines of a Dockerfile. */
  readonly build: (lines: readonly string[], limits?: Partial<BuildLimits>) => Promise<Outcome>;
}

const test = base.extend('builds', async ({ docker }, { onCleanup }): Promise<Builds> => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const machineId = docker.label.replaceAll('.', '-');
  const network = await docker.client.createNetwork({ Name: `ls-test-${machineId}`, Labels: docker.labels });
  const { IPAM } = (await network.inspect()) as { IPAM: { Config: { Gateway: string; Subnet: string }[] } };
  runtime.ensureNetwork = async () => ({
    bridge: '',
    gateways: IPAM.Config.map(({ Gateway }) => Gateway),
    subnets: IPAM.Config.map(({ Subnet }) => Subnet),
  });
  const pauseContainers = new PauseContainers({
    runtime,
    log,
    network: `ls-test-${machineId}`,
    size: 0,
    labels: () => docker.labels,
    addresses: () => ({ own: [], nameServers: [] }),
    openAddresses: [],
    closedRanges: [],
  });
  await pauseContainers.open([]);
  onCleanup(async () => {
    await pauseContainers.close();
    await network.remove();
    const label = [`${BUILD_LABEL}=${machineId}`];
    for (let left = await docker.client.listImages({ filters: { label } }); left.length > 0;) {
      for (const { Id } of left) await docker.client.getImage(Id).remove({ force: true });
      left = await docker.client.listImages({ filters: { label } });
    }
  });
  const parts = (limits: Partial<BuildLimits>): BuilderParts => ({
    runtime,
    images: {
      ensure: async (reference) => {
        const found = await runtime.image(reference);
        if (found === undefined) throw new Error(`no image ${reference}`);
        return { id: found.id, was: 'present' };
      },
    },
    archives: { acquire: () => Promise.reject(new Error('no context')), release: () => undefined },
    pauseContainers,
    stepsApart: new StepsApart({ runtime, gpuDrivers: new GpuDrivers(runtime, log), machineId: () => machineId, log }),
    packages: new Packages({
      directory: '/nowhere',
      mostBytes: 0,
      sizes: async () => new Map(),
      empty: async () => undefined,
      log,
    }),
    gpus: {
      beforeLease: () => Promise.resolve(),
      freeForBuild: () => [],
      takeForBuild: () => ({ kind: 'absent' }),
      holdForBuild: () => undefined,
      releaseFromBuild: async () => undefined,
    },
    baseImageOf: () => docker.baseImage,
    machineId: () => machineId,
    countVolumes: (folders) => countVolumesByContainer(runtime, folders, docker.labels),
    isDiskFull: () => false,
    limits: {
      atOnce: 1,
      memoryBytes: 512 * MIB,
      cpuMillicores: 1000,
      pids: 500,
      diskBytes: 1024 * MIB,
      timeMs: 100_000,
      ...limits,
    },
    variables: {},
    caBundle: undefined,
    log,
  });
  let count = 0;
  return {
    machineId,
    build: async (lines, limits = {}) => {
      const events: BuildEvent[] = [];
      let rest = '';
      const link = new Duplex({
        read: () => undefined,
        write: (chunk: Buffer, _encoding, done) => {
          rest += chunk.toString();
          const whole = rest.split('\n');
          rest = whole.pop() ?? '';
          events.push(...whole.map((line) => JSON.parse(line) as BuildEvent));
          done();
        },
      });
      count += 1;
      const last = await new Builder(parts(limits)).build({
        id: `${machineId}-${count}`,
        workspaceId: 'ws-1',
        order: {
          streamId: String(count),
          workspaceId: 'ws-1',
          image: `longshore.internal/${String(count).padStart(4, '0')}${machineId
            .replaceAll(/[^0-9a-f]/g, '')
            .padEnd(28, '0')
            .slice(0, 28)}`,
          pythonVersion: 'python3.11',
          steps: lines.map((text) => ({ text, title: '', apart: false })),
          context: null,
          gpus: [],
          noCache: false,
          push: null,
        },
        link: link as unknown as Socket,
        abort: new AbortController(),
        orderedAtMs: 0,
      });
      return { text: events.map((event) => (isRecord(event) && 'text' in event ? event.text : '')).join('\n'), last };
    },
  };
});

const OWN_LIMIT = 'cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null || true';

test('a step has a bound on processes, which it cannot raise, and no new privileges', async ({ builds, docker }) => {
  const { text, last } = await builds.build([
    `FROM ${docker.baseImage} AS first`,
    `RUN echo "first=$(${OWN_LIMIT})"`,
    `FROM ${docker.baseImage}`,
    `RUN for file in /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max; do echo max > $file; done 2>/dev/null; echo "shell=$(${OWN_LIMIT})"`,
    `RUN ["/bin/sh", "-c", "echo exec=$(${OWN_LIMIT})"]`,
    'SHELL ["/bin/sh", "-ec"]',
    `RUN echo "own=$(${OWN_LIMIT})"; grep -E 'NoNewPrivs|CapBnd' /proc/self/status`,
  ]);
  expect(last).toHaveProperty('built');
  for (const name of ['first', 'shell', 'exec', 'own']) expect(text).toContain(`${name}=500\n`);
  expect(text).toMatch(/NoNewPrivs:\s+1/);
  expect(text).toMatch(/CapBnd:\s+00000000a80425fb/);
});

test('a step that forks without an end fails by itself; the engine, and a build beside it, go on', async ({
  builds,
  docker,
}) => {
  const forks = [
    'import os, time',
    'made = 0',
    'try:',
    '  while made < 400:',
    '    if os.fork() == 0: time.sleep(60); os._exit(0)',
    '    made += 1',
    'except OSError as error: print(f"made {made}: {error.strerror}", flush=True); os._exit(9)',
  ];
  const script = JSON.stringify(['python3', '-c', forks.join('\n')]);
  const beside = builds.build([`FROM ${docker.baseImage}`, 'RUN sleep 1; (true) && echo beside']);
  const { text, last } = await builds.build([`FROM ${docker.baseImage}`, `RUN ${script}`], { pids: 60 });
  expect(last).toMatchObject({ failed: expect.stringMatching(/exit code 9/) as string });
  expect(text).toMatch(/made 5\d: Resource temporarily unavailable/);
  expect((await beside).text).toContain('beside');
  await docker.client.ping();
  const left = await docker.client.listContainers({ all: true, filters: { name: [`ls-step-${builds.machineId}`] } });
  expect(left).toEqual([]);
});

test('no base brings a step of its own past the bound', async ({ builds, docker }) => {
  const container = await docker.run({ Entrypoint: ['true'], Cmd: [] });
  const named = `ls-test-onbuild-${builds.machineId}`;
  await container.commit({ repo: named, changes: ['ONBUILD RUN echo escaped'].join('\n') });
  try {
    await expect(builds.build([`FROM ${named}`, 'RUN true'])).rejects.toThrow(/ONBUILD/);
  } finally {
    await docker.client.getImage(named).remove({ force: true });
  }
});

test('steps mean what they mean to the engine: stages, variables, shells, users, folders', async ({
  builds,
  docker,
}) => {
  const { text, last } = await builds.build([
    'ARG GLOBAL=from-the-top',
    `FROM ${docker.baseImage} AS One`,
    'ARG GLOBAL',
    'ENV SEEN=env',
    'ARG NAME=${SEEN}-"a b"-${GLOBAL:-none}',
    'ARG SEEN=hidden',
    'ARG UNSET',
    'ENV KEPT=${NAME}',
    'RUN echo "[$GLOBAL|$NAME|$SEEN|${UNSET-unset}|$KEPT]" | tee /made',
    'FROM one',
    'RUN echo "<${NAME-gone}|$KEPT>"',
    `FROM ${docker.baseImage}`,
    'COPY --from=0 /made /copied/',
    'COPY --from=ONE /made /again',
    'WORKDIR /copied',
    'USER 1234:1234',
    'SHELL ["/bin/sh", "-xc"]',
    'RUN echo "$(id -u) $(pwd) $(cat made)"',
    'ENTRYPOINT ["/entry"]',
    'USER 0',
    'RUN ["python3", "-c", "print(\'exec form\')"]',
    'CMD ["a"]',
  ]);
  expect(last).toHaveProperty('built');
  expect(text).toContain('[from-the-top|env-a b-from-the-top|env|unset|env-a b-from-the-top]');
  expect(text).toContain('<gone|env-a b-from-the-top>');
  expect(text).toContain('1234 /copied [from-the-top|');
  expect(text).toContain('+ id -u');
  expect(text).toContain('exec form');
  const { built } = last as { readonly built: string };
  const { Config } = (await docker.client.getImage(built).inspect()) as unknown as {
    Config: { Entrypoint: string[]; Cmd: string[]; Env: string[]; User: string };
  };
  expect(Config).toMatchObject({ Entrypoint: ['/entry'], Cmd: ['a'], User: '0' });
  expect(Config.Env.join(' ')).not.toMatch(/NAME=|GLOBAL=/);
  const missing = await builds.build(['FROM scratch', 'RUN echo never']);
  expect(missing.last).toMatchObject({ failed: expect.stringMatching(/^step 2 of 2 failed[^]*\/bin\/sh/) as string });
});

describe('a build that writes more than it may ends', () => {
  const limits = { diskBytes: 20 * MIB };
  const why = { failed: 'the steps wrote more than 20 MiB' };

  test('also by volumes of its image, and short steps', async ({ builds, docker }) => {
    const slow = 'RUN head -c 30000000 /dev/zero > /data/x; sleep 60';
    expect((await builds.build([`FROM ${docker.baseImage}`, 'VOLUME /data', slow], limits)).last).toMatchObject(why);
    const short = 'RUN head -c 15000000 /dev/zero > /data/x';
    const twice = [`FROM ${docker.baseImage}`, 'VOLUME /data', short, `${short}1`];
    expect((await builds.build(twice, limits)).last).toMatchObject(why);
  });

  test('also by files that are copied again and again', async ({ builds, docker }) => {
    const made = [
      `FROM ${docker.baseImage} AS made`,
      'RUN head -c 9000000 /dev/urandom > /x',
      `FROM ${docker.baseImage}`,
    ];
    const copies = [1, 2].map((at) => `COPY --from=made /x /x${at}`);
    expect((await builds.build([...made, ...copies], limits)).last).toMatchObject(why);
  });
});

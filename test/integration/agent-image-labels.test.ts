// Labels of an image that are Longshore's own names: nobody believes them, whoever made the image.
import { expect } from 'vitest';
import { BUILD_STEP_LABEL, BUILD_WORKSPACE_LABEL } from '#shared/domain/built-images.ts';
import { dockerRuntime } from '#agent/containers/engine/docker.ts';
import { PAUSE_IMAGE } from '#agent/containers/pause-image.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import { test } from '../helpers/services.ts';

const HOSTILE = {
  ...Object.fromEntries(Object.values(LABELS).map((label) => [label, 'GPU-1111'])),
  [BUILD_WORKSPACE_LABEL]: 'ws-victim',
  [BUILD_STEP_LABEL]: 'a'.repeat(64),
  'io.longshore.later': '1',
  theirs: 'stays',
};

test('no container of an image has what its labels claim, and no image belongs to whom they name', async ({
  docker,
}) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const image = `registry.example.com/ls-test-labels-${docker.label.replace('.', '-')}`;
  const source = await docker.run({ Image: PAUSE_IMAGE, Entrypoint: ['sh', '-c', ':'], Cmd: [] });
  const changes = Object.entries(HOSTILE).map(([name, value]) => `LABEL ${name}=${value}`);
  await source.commit({ repo: image, changes: changes.join('\n') });
  try {
    const facts = await runtime.image(image);
    expect(facts?.builtFor).toBe('');
    const own = { ...docker.labels, [LABELS.machine]: 'm-1' };
    for (const named of [image, facts?.id ?? '']) {
      const dockerId = await runtime.create({
        name: `c-labels-${docker.label.replace('.', '-')}`,
        image: named,
        entrypoint: ['sleep', '600'],
        workingDir: '/',
        env: [],
        labels: own,
        mounts: [],
        network: 'none',
        memoryBytes: 32 * 1024 ** 2,
        cpuMillicores: 100,
      });
      try {
        await runtime.start(dockerId);
        const [listed] = await runtime.list(docker.labels);
        const inspected = await runtime.inspect(dockerId);
        for (const found of [listed, inspected]) {
          expect(found?.gpuUuids).toEqual([]);
          const labels = Object.entries(found?.labels ?? {}).filter(([name]) => name.startsWith('io.longshore.'));
          expect(Object.fromEntries(labels)).toEqual(own);
          expect(found?.labels['theirs']).toBe('stays');
        }
        expect(await runtime.list({ [LABELS.managed]: 'GPU-1111' })).toEqual([]);
      } finally {
        await runtime.remove(dockerId);
      }
    }
  } finally {
    await docker.removeOwn();
    await docker.client.getImage(image).remove({ force: true });
  }
});

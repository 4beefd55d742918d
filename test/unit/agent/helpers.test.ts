import { expect, test } from 'vitest';
import { emptyByContainer } from '../../../agent/containers/helpers.ts';
import { PAUSE_IMAGE } from '../../../agent/containers/pause-image.ts';
import type { ContainerRuntime, CreateContainer } from '../../../agent/containers/runtime.ts';

test('a helper that passes the permissions of files runs our own image, without a network, and never a public one', async () => {
  const made: CreateContainer[] = [];
  const runtime = {
    image: async () => ({ id: 'sha256:1', digests: [], isLocal: true, bytes: 1, builtFor: '' }),
    runOnce: async (spec: CreateContainer) => {
      made.push(spec);
      return 0;
    },
  } satisfies Partial<ContainerRuntime>;
  await emptyByContainer(runtime as unknown as ContainerRuntime, '/x', {});
  expect(made).toMatchObject([{ image: PAUSE_IMAGE, network: 'none', capabilities: ['DAC_OVERRIDE', 'FOWNER'] }]);
});

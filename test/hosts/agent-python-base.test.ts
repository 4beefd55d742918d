// The Python of supervisors: made once however many ask, tried before anybody uses it, and removed with its base image.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { createLog } from '#shared/log.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import { PythonBase } from '../../agent/containers/python-base.ts';
import { installRunner, pythonSource } from '../../agent/containers/runner-files.ts';
import { LABELS } from '../../agent/containers/runtime.ts';
import { test } from '../helpers/services.ts';

test('a base is made once, made again where it is damaged, and removed when the base image changes', async ({
  docker,
}) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const dir = await mkdtemp(join(tmpdir(), 'lsb-'));
  const labels = { ...docker.labels, [LABELS.machine]: randomBytes(4).toString('hex') };
  const idOf = async (reference: string): Promise<string> => (await runtime.image(reference))?.id ?? '';
  let image = { reference: docker.baseImage, id: await idOf(docker.baseImage) };
  const runnerDir = await installRunner(pythonSource(), dir);
  const log = createLog({ name: 'test', level: 'silent' });
  const make = (): PythonBase =>
    new PythonBase({ runtime, image: () => Promise.resolve(image), runnerDir, labels: () => labels, log });
  const volumes = (): Promise<string[]> => runtime.listVolumes(labels);
  const inVolume = async (name: string, command: string): Promise<void> => {
    const container = await docker.run({
      Entrypoint: ['sh', '-c', command],
      Cmd: [],
      HostConfig: { Mounts: [{ Type: 'volume', Source: name, Target: '/base' }] },
    });
    expect(await container.wait()).toMatchObject({ StatusCode: 0 });
    await container.remove();
  };
  const committed = `longshore-test-${randomBytes(4).toString('hex')}`;
  try {
    const base = make();
    const [first, ...others] = await Promise.all([base.mount(), base.mount(), base.mount()]);
    expect(others).toEqual([first, first]);
    const [name = ''] = await volumes();
    expect(await volumes()).toEqual([first.volume?.name]);
    const { CreatedAt } = (await docker.client.getVolume(name).inspect()) as { CreatedAt?: string };

    // Another agent process tries what is there, and takes it.
    expect(await make().mount()).toEqual(first);
    expect(await docker.client.getVolume(name).inspect()).toMatchObject({ CreatedAt });

    // A copy whose making was cut off, or that somebody damaged, is made again.
    await inVolume(name, 'rm /base/complete /base/lib/libc.so.6');
    expect(await make().mount()).toEqual(first);
    await inVolume(name, 'test -f /base/complete -a -f /base/lib/libc.so.6');

    const source = await docker.run({ Entrypoint: ['sleep', '60'], Cmd: [] });
    await source.commit({ repo: committed, tag: '1' });
    await docker.removeOwn();
    image = { reference: `${committed}:1`, id: await idOf(`${committed}:1`) };
    const second = await base.mount();
    expect(second.volume?.name).not.toBe(name);
    expect(await volumes()).toEqual([second.volume?.name]);

    // An image without Python leaves nothing, and the next try is a new one.
    image = { reference: PAUSE_IMAGE, id: await idOf(PAUSE_IMAGE) };
    for (let tries = 0; tries < 2; tries += 1)
      await expect(base.mount()).rejects.toThrow(/python3|no pod or sandbox starts here/);
    expect(await volumes()).toEqual([second.volume?.name]);
  } finally {
    for (const name of await volumes()) await runtime.removeVolume(name);
    await docker.client
      .getImage(`${committed}:1`)
      .remove({ force: true })
      .catch(() => undefined);
    await rm(dir, { recursive: true, force: true });
  }
});

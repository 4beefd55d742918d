// An image with Node: the Node of these tests, put into the base image. Kept by its tag, so that only the first run on
// an engine pays for it.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { basename, dirname } from 'node:path';
import type { TestDocker } from './docker.ts';

const REPOSITORY = 'longshore-test-node';

/** The image's reference. */
export async function nodeImage({ client, baseImage, labels }: TestDocker): Promise<string> {
  const base = await client.getImage(baseImage).inspect();
  const tag = createHash('sha256').update(`${base.Id} ${process.version}`).digest('hex').slice(0, 12);
  const reference = `${REPOSITORY}:${tag}`;
  if ((await client.listImages({ filters: { reference: [reference] } })).length > 0) return reference;
  const container = await client.createContainer({ Image: baseImage, Cmd: ['true'], Labels: { ...labels } });
  try {
    const tar = spawn('tar', ['-C', dirname(process.execPath), '-cf', '-', basename(process.execPath)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await container.putArchive(tar.stdout, { path: '/usr/bin' });
    await container.commit({ repo: REPOSITORY, tag });
    return reference;
  } finally {
    await container.remove({ force: true });
  }
}

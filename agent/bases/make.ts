// Program of set-up: makes the base image of a Python version, `node agent/bases/make.ts 3.11`. Progress goes to
// standard error, and the image's reference to standard output.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { madeBaseImage } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import { createLog } from '#shared/log.ts';
import { dockerRuntime } from '../containers/engine/docker.ts';
import { readReleases } from './apt.ts';
import { BaseImages } from './base-images.ts';

const [version = ''] = process.argv.slice(2);
const workDir = await mkdtemp(join(tmpdir(), 'longshore-base-'));
try {
  const bases = new BaseImages({
    runtime: dockerRuntime(process.env['DOCKER_HOST']),
    workDir,
    labels: () => ({}),
    tell: () => undefined,
    releases: readReleases,
    isUsed: true,
    log: createLog({ name: 'bases', destination: { write: () => undefined } }),
  });
  await bases.make(version, (text) => process.stderr.write(`${text}\n`));
  process.stdout.write(`${madeBaseImage(version)}\n`);
} catch (error) {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = 1;
} finally {
  await rm(workDir, { recursive: true, force: true });
}

// The image of the scheduler, built from a release on a small Debian: it serves as a user without rights.
import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ROOT } from '../helpers/platform.ts';
import { findProgram, freePort, startProgram } from '../helpers/programs.ts';
import { docker, tempDirectory, waitFor } from '../helpers/services.ts';

/** Tag that scripts/setup/systemd-image.mjs sets. */
const BASE = /^longshore-test-systemd:/;
const BUILD: string = join(ROOT, 'scripts/build/release.mjs');
const { writeRelease } = (await import(BUILD)) as { writeRelease: (directory: string) => Promise<void> };

const work = tempDirectory('image');
afterAll(() => work.remove());

test('is built from a release, serves without being root, and is healthy', { timeout: 300_000 }, async () => {
  const engine = await docker();
  const images = await engine.client.listImages();
  const base = images.flatMap(({ RepoTags: tags }) => tags ?? []).find((tag) => BASE.test(tag));
  if (base === undefined) throw new Error('the image with systemd is missing: node scripts/setup.mjs --hosts');
  const context = join(work.path, 'release');
  await writeRelease(context);
  copyFileSync(join(ROOT, 'deploy/docker/Dockerfile'), join(context, 'Dockerfile'));
  const tag = `longshore-test-scheduler:${process.pid}`;
  const tar = spawn('tar', ['-cf', '-', '-C', context, '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const answer = await engine.client.buildImage(tar.stdout, {
    t: tag,
    buildargs: { BASE: base },
    labels: engine.labels,
  });
  const said = await new Promise<string>((resolve, reject) => {
    engine.client.modem.followProgress(answer, (error, output: unknown[] | null) =>
      error === null ? resolve(JSON.stringify(output)) : reject(error),
    );
  });
  expect(said).toContain('Successfully built');
  mkdirSync(join(work.path, 'redis'));
  const port = await freePort();
  const redis = await startProgram(findProgram('redis-server') ?? '', [
    '--port',
    String(port),
    '--dir',
    join(work.path, 'redis'),
    '--save',
    '',
  ]);
  try {
    const http = await freePort();
    const container = await engine.run({
      Image: tag,
      Env: [
        `LONGSHORE_HTTP_ADDRESS=127.0.0.1:${http}`,
        'LONGSHORE_AGENT_ADDRESS=127.0.0.1:0',
        `REDIS_URL=redis://127.0.0.1:${port}`,
      ],
      HostConfig: {
        NetworkMode: 'host',
        ReadonlyRootfs: true,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        Tmpfs: { '/tmp': '' },
      },
    });
    await waitFor(
      async () => (await container.inspect()).State.Health?.Status === 'healthy',
      'the container is healthy',
      120_000,
    );
    expect(await (await fetch(`http://127.0.0.1:${http}/api/v1/health`)).json()).toMatchObject({ status: 'ok' });
    const { State: state } = await container.inspect();
    expect(execFileSync('ps', ['-o', 'uid=', '-p', String(state.Pid)], { encoding: 'utf8' }).trim()).toBe('64100');
    await container.stop({ t: 100 });
    expect((await container.inspect()).State.ExitCode).toBe(0);
    await engine.removeOwn();
  } finally {
    await redis.end();
    await engine.client.getImage(tag).remove({ force: true });
    await engine.cleanUp();
  }
});

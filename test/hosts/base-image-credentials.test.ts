// An image of a registry with a password, as the base of images that Longshore builds: with the credentials of its
// workspace, with a wrong password, and for a workspace without credentials on a machine that has the image.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { nameWithDigest } from '#shared/domain/guarded-images.ts';
import { buildImage } from '../helpers/images.ts';
import { jsonOf, Platform } from '../helpers/platform.ts';
import type { RealRegistry } from '../helpers/registry.ts';
import { realRegistry, REGISTRY_PASSWORD, REGISTRY_USER } from '../helpers/registry.ts';
import { docker, runProgram, tempDirectory } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';

interface Owner {
  readonly token: string;
  readonly workspaceId: string;
}

const storage = tempDirectory('storage');
let engine: TestDocker;
let open: RealRegistry;
let locked: RealRegistry;
let platform: Platform;
let mine: Owner;
let theirs: Owner;

beforeAll(async () => {
  engine = await docker();
  [open, locked] = await Promise.all([realRegistry(storage.path), realRegistry(storage.path, { password: true })]);
  platform = new Platform(engine);
  await platform.start();
  mine = { token: platform.token, workspaceId: platform.workspaceId };
  theirs = await aWorkspace('theirs');
}, 120_000);
afterAll(async () => {
  await (platform as Platform | undefined)?.stop();
  await Promise.all([open.stop(), locked.stop()]);
  for (const { RepoTags, RepoDigests } of await engine.client.listImages())
    for (const name of [...(RepoTags ?? []), ...(RepoDigests ?? [])])
      if ([open.host, locked.host].some((host) => name.startsWith(`${host}/`)))
        await engine.client
          .getImage(name)
          .remove()
          .catch(() => undefined);
  storage.remove();
}, 60_000);

async function aWorkspace(name: string): Promise<Owner> {
  const made = jsonOf<{ token: string; external_id: string }>(
    await platform.call('/api/v1/workspace', { body: { name } }),
  );
  return { token: made.token, workspaceId: made.external_id };
}

/** Makes the calls of `run` as another workspace. */
async function as<Result>({ token, workspaceId }: Owner, run: () => Promise<Result>): Promise<Result> {
  Object.assign(platform, { token, workspaceId });
  try {
    return await run();
  } finally {
    Object.assign(platform, mine);
  }
}

/** Pushes an image that no other test has. @returns its name in the registry with the password */
async function push(name: string): Promise<string> {
  // The image gets the container's labels, and no base of a build may bring one of ours.
  const container = await engine.client.createContainer({ Image: engine.baseImage });
  const repo = `${open.host}/team/${name}`;
  await container.commit({ repo, tag: '1', changes: `LABEL note=${randomUUID()}` });
  await container.remove();
  await runProgram('docker', ['push', '-q', `${repo}:1`]);
  await runProgram('docker', ['rmi', `${repo}:1`]);
  return `${locked.host}/team/${name}:1`;
}

/** `longshore registry set`. */
async function credentials(owner: Owner, password: string): Promise<void> {
  const name = 'LONGSHORE_REGISTRY_TEST';
  const value = JSON.stringify({ registry: locked.host, username: REGISTRY_USER, password, repositories: ['team/*'] });
  const path = `/api/v1/secret/${owner.workspaceId}`;
  const { token } = owner;
  const changed = await platform.call(`${path}/${name}`, { method: 'PUT', body: { value }, token });
  if (changed.status === 200) return;
  const made = await platform.call(path, { body: { name, value }, token });
  expect(made.status, made.text).toBeLessThan(300);
}

const build = (base: string): Promise<{ imageId: string; text: string }> =>
  buildImage(platform, {
    pythonVersion: 'python3.11',
    existingImageUri: base,
    commands: ['mkdir /built', 'echo hello > /built/file', `echo ${randomUUID()} > /built/own`],
  });

const refusal = (of: Promise<unknown>): Promise<string> =>
  of.then(
    () => {
      throw new Error('it was taken');
    },
    (error: unknown) => String(error),
  );

const app = (imageId: string): Parameters<Platform['deploy']>[0] => ({
  app: 'packages.py',
  handler: 'file',
  name: `app-${randomUUID().slice(0, 8)}`,
  imageId,
});

test('a wrong password is an error that names the registry, for a build and for a deployment', async () => {
  const base = await push('wrong');
  await credentials(mine, 'not-the-password');
  for (const said of [await refusal(build(base)), await refusal(platform.deploy(app(base)))]) {
    expect(said).toContain(locked.host);
    expect(said).toMatch(/\(unauthorized\)/);
    expect(said).toContain('longshore registry set');
    expect(said).not.toContain('not-the-password');
  }
}, 120_000);

test('with its credentials a workspace builds on the image; another workspace gets it nowhere, though the machine has it', async () => {
  const base = await push('right');
  await credentials(mine, REGISTRY_PASSWORD);
  const { imageId } = await build(base);
  const deployment = await platform.deploy(app(imageId));
  expect(jsonOf(await platform.invoke(deployment))).toEqual({ file: 'hello' });

  const pinned = (await engine.client.listImages())
    .flatMap((one) => [...(one.RepoTags ?? []), ...(one.RepoDigests ?? [])].map(nameWithDigest))
    .find((name) => name.startsWith(`${locked.host}/team/right@`));
  expect(pinned).toBeDefined();
  for (const image of [base, pinned ?? '']) {
    for (const attempt of [() => build(image), () => platform.deploy(app(image))]) {
      const said = await as(theirs, () => refusal(attempt()));
      expect(said).toContain(image);
      expect(said).toMatch(/\(unauthorized\)/);
    }
  }
  // The built image itself is the workspace's own, too.
  expect(await as(theirs, () => refusal(platform.deploy(app(imageId))))).toContain(imageId);

  // The password is in no log.
  for (const log of [platform.scheduler.log(), platform.agent.log()]) expect(log).not.toContain(REGISTRY_PASSWORD);
}, 180_000);

test('a workspace with a wrong password of its own does not get an image that the machine has', async () => {
  const base = await push('both');
  await credentials(mine, REGISTRY_PASSWORD);
  await build(base);
  await credentials(theirs, 'not-the-password');
  expect(await as(theirs, () => refusal(build(base)))).toMatch(/\(unauthorized\)/);
  await credentials(theirs, REGISTRY_PASSWORD);
  expect((await as(theirs, () => build(base))).imageId).not.toBe('');
}, 180_000);

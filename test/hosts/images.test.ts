// An image from a registry that asks for a password. The reference
// is resolved at the deployment, and the password is found nowhere.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { jsonOf, Platform } from '../helpers/platform.ts';
import type { RealRegistry } from '../helpers/registry.ts';
import { nameWithDigest, recordName } from '#shared/domain/guarded-images.ts';
import { digestOf } from '#shared/domain/image-reference.ts';
import { FakeRegistry, realRegistry, REGISTRY_PASSWORD, REGISTRY_USER } from '../helpers/registry.ts';
import { docker, runProgram, tempDirectory, test, waitFor } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';

const storage = tempDirectory('storage');
const made: string[] = [];
const fake = new FakeRegistry();
let engine: TestDocker;
let open: RealRegistry;
let locked: RealRegistry;
let platform: Platform;
let configFile: string;

const auths = (): string =>
  JSON.stringify({
    auths: { [locked.host]: { auth: Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString('base64') } },
  });

beforeAll(async () => {
  engine = await docker();
  [open, locked] = await Promise.all([realRegistry(storage.path), realRegistry(storage.path, { password: true })]);
  await fake.start('127.0.0.1');
  configFile = join(storage.path, 'config.json');
  writeFileSync(configFile, auths());
  platform = new Platform(engine, { LONGSHORE_REGISTRY_CONFIG: configFile });
  await platform.start();
});
afterAll(async () => {
  await (platform as Platform | undefined)?.stop();
  await Promise.all([open.stop(), locked.stop()]);
  fake.stop();
  for (const { RepoTags, RepoDigests } of await engine.client.listImages())
    for (const name of [...(RepoTags ?? []), ...(RepoDigests ?? [])])
      if (made.some((host) => name.startsWith(`${host}/`)))
        await engine.client
          .getImage(name)
          .remove()
          .catch(() => undefined);
  storage.remove();
});

/** Pushes the base image, with one label that makes it another one each time, under that name. */
async function push(name: string, note: string): Promise<void> {
  made.push(open.host, locked.host);
  const container = await engine.client.createContainer({ Image: engine.baseImage, Labels: { ...engine.labels } });
  const tag = `${open.host}/${name}`;
  await container.commit({ repo: `${open.host}/${name.split(':')[0] ?? ''}`, tag: '1', changes: `LABEL note=${note}` });
  await container.remove();
  await runProgram('docker', ['push', '-q', tag]);
  await runProgram('docker', ['rmi', tag]);
}

function filesBelow(path: string): readonly string[] {
  return readdirSync(path, { withFileTypes: true }).flatMap((entry) => {
    const full = join(path, entry.name);
    return entry.isDirectory() ? filesBelow(full) : entry.isFile() ? [full] : [];
  });
}

/** Contents of the small files below a path; read again when a file was renamed meanwhile, as an agent's journal is. */
const textsBelow = (path: string): Promise<readonly string[]> =>
  waitFor(() => {
    try {
      const small = filesBelow(path).filter((one) => statSync(one).size < 1_000_000);
      return small.map((one) => readFileSync(one, 'latin1'));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }, `the files below ${path} are read`);

describe('an image in a registry', () => {
  test('is pinned when it is deployed, pulled ahead with the credentials of the scheduler, and served from', async () => {
    await push('app:1', 'first');
    const image = `${locked.host}/app:1`;
    const deployment = await platform
      .deploy({ app: 'failing.py', handler: 'hello', name: 'pinned', imageId: image })
      .catch((error: unknown) => {
        throw new Error(platform.agent.log().slice(-2000), { cause: error });
      });
    // The deployment has had no call yet.
    const pinned = await waitFor(
      async () =>
        (await engine.client.listImages())
          .flatMap((one) => [...(one.RepoTags ?? []), ...(one.RepoDigests ?? [])].map(nameWithDigest))
          .find((name) => name.startsWith(`${locked.host}/app@`)),
      'the image is pulled ahead',
      20_000,
    );
    await push('app:1', 'second');
    expect((await platform.invoke(deployment)).status).toBe(200);
    const [container] = await platform.containers(deployment);
    const facts = await engine.client.getContainer(container?.Id ?? '').inspect();
    expect(facts.Config.Labels['io.longshore.image']).toBe(pinned);
    expect(facts.Image).toBe((await engine.client.getImage(recordName(pinned, digestOf(pinned))).inspect()).Id);
    expect(facts.Config.Labels['note']).toBe('first');

    // The password is in the operator's file alone.
    const secret = [REGISTRY_PASSWORD, Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString('base64')];
    const texts = [
      JSON.stringify(facts),
      platform.scheduler.log(),
      platform.agent.log(),
      ...(await textsBelow(join(platform.dataDir, 'agent'))),
    ];
    for (const text of texts) for (const one of secret) expect(text).not.toContain(one);
    const explained = await platform.call(
      `/api/v1/explain/${platform.workspaceId}/${container?.Labels['io.longshore.container'] ?? ''}`,
    );
    expect(explained.status).toBe(200);
  });

  test('that it does not have, or does not give, is a deploy refused with the reason', async () => {
    const refusal = async (imageId: string): Promise<string> => {
      try {
        await platform.deploy({ app: 'failing.py', handler: 'hello', name: 'refused', imageId });
      } catch (error) {
        return String(error);
      }
      throw new Error('it was deployed');
    };
    expect(await refusal(`${locked.host}/app:2`)).toMatch(
      /image \S+\/app:2: .*manifest unknown.* \(not_found\); check the name and the tag/,
    );
    fake.credentials = 'somebody:else';
    expect(await refusal(fake.add('private').reference)).toMatch(
      /\(unauthorized\); give the workspace credentials for that repository/,
    );
    const listed = jsonOf<{ deployments: readonly { name: string }[] }>(
      await platform.call('/api/v1/gateway/deployments'),
    );
    expect(listed.deployments.some(({ name }) => name === 'refused')).toBe(false);
  });
});

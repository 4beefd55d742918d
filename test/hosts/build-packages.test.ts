// Packages of builds: kept for the workspace and no other, from an index and a channel of this test; and the bounds of
// builds, each of them broken.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test as base } from 'vitest';
import { Builder } from '../helpers/builder.ts';
import { PackageIndex } from '../helpers/package-index.ts';
import { Platform, jsonOf } from '../helpers/platform.ts';
import { docker, waitFor } from '../helpers/services.ts';

const WHEEL = '/files/tinypkg-1.0-py3-none-any.whl';

interface Story {
  readonly builder: Builder;
  readonly index: PackageIndex;
  /** A token of another workspace. */
  readonly theirs: string;
  /** Starts the agent again with further settings. */
  readonly withSettings: (settings: Readonly<Record<string, string>>) => Promise<void>;
}

const test = base.extend('story', { scope: 'file' }, async ({}, { onCleanup }): Promise<Story> => {
  const index = await PackageIndex.start();
  let settings: Readonly<Record<string, string>> = {};
  const platform = new Platform(await docker(), (daemon) =>
    daemon === 'agent' ? { ...index.settings, LONGSHORE_AGENT_BUILD_DISK_MIB: '64', ...settings } : {},
  );
  onCleanup(async () => {
    index.stop();
    await platform.stop();
  });
  await platform.start();
  const made = await platform.call('/api/v1/workspace', { body: { name: 'theirs' } });
  const builder = new Builder(platform);
  return {
    builder,
    index,
    theirs: jsonOf<{ token: string }>(made).token,
    withSettings: async (more) => {
      settings = more;
      await platform.agent.stop();
      await platform.agent.start();
      // The scheduler may still know the machine as it was.
      await waitFor(
        async () =>
          !(await builder.build({ commands: [`echo ${Math.random()}`] })).last.msg.includes('can build images'),
        'the machine builds',
        30_000,
      );
    },
  };
});

/** Bytes of files below the agent's folder of packages; not a number while it is being emptied. */
function keptBytes({ platform }: Builder): number {
  const folder = join(platform.dataDir, 'agent', 'packages');
  if (!existsSync(folder)) return 0;
  try {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    return names
      .map((name) => statSync(join(folder, name)))
      .reduce((sum, one) => sum + (one.isFile() ? one.size : 0), 0);
  } catch (error) {
    // The folder is being emptied: nobody knows, until the next look.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return Number.NaN;
    throw error;
  }
}

describe('packages that a build downloaded', () => {
  test('serve the next builds of the workspace, and are not in the image', { timeout: 170_000 }, async ({ story }) => {
    const { builder, index } = story;
    const look = 'find /var/cache/longshore -type f | wc -l; python3 -c "import tinypkg; print(tinypkg.VALUE)"';
    const definition = { pythonPackages: ['tinypkg==1.0'], commands: [look, 'env'] };
    const first = await builder.build(definition);
    expect(first.last.msg).toBe('');
    expect(first.text).toMatch(/^0\n42$/m);
    // Variables of the step that had them are in no later one.
    expect(first.text).not.toContain('LONGSHORE_PACKAGES');
    expect(index.countOf(WHEEL)).toBe(1);
    expect(keptBytes(builder)).toBeGreaterThan(0);

    // Another list of packages: its layer alone is made again.
    const again = await builder.build({ ...definition, pythonPackages: ['tinypkg', 'tinypkg==1.0'] });
    expect(again.last.success).toBe(true);
    expect(again.text).toContain('Successfully installed tinypkg-1.0');
    expect(index.countOf(WHEEL)).toBe(1);
  });

  test('of a conda channel are kept, too, and another workspace gets none', { timeout: 170_000 }, async ({ story }) => {
    const { builder, index, theirs } = story;
    const definition = (last: string) => ({
      pythonVersion: 'micromamba3.11',
      buildSteps: [
        { type: 'micromamba', command: 'numpy' },
        { type: 'micromamba', command: `-c ${index.url}/channel/named` },
        { type: 'shell', command: last },
      ],
    });
    const first = await builder.build(definition('cat /opt/longshore/conda/numpy; echo; command -v python3'));
    expect(first.last.msg).toBe('');
    expect(first.text).toContain('Step 5/6: RUN micromamba install numpy -c ');
    expect(first.text).toContain('downloading numpy');
    expect(first.text).toContain('/channel/named/numpy');
    expect(first.text).toContain('/opt/longshore/conda/bin/python3');
    const again = await builder.build({ ...definition('true'), forceRebuild: true });
    expect(again.last.success).toBe(true);
    expect(index.countOf('/channel/named/numpy')).toBe(1);
    expect(index.countOf('/channel/python=3.11')).toBe(1);
    expect(index.countOf('/micromamba-64')).toBe(2);

    const other = await builder.build(definition('true'), theirs);
    expect(other.last.success).toBe(true);
    expect(index.countOf('/channel/named/numpy')).toBe(2);
    expect(readdirSync(join(builder.platform.dataDir, 'agent', 'packages'))).toHaveLength(2);
  });
});

describe('bounds', () => {
  test('the steps of a build write so many bytes, packages among them', { timeout: 150_000 }, async ({ story }) => {
    const { builder, withSettings } = story;
    const why = 'the steps wrote more than 64 MiB';
    const written = await builder.build({ commands: ['head -c 200000000 /dev/zero > /big; sleep 60'] });
    expect(written.last).toMatchObject({ success: false, msg: why });
    await withSettings({ LONGSHORE_AGENT_PACKAGES_MIB: '100' });
    const downloaded = await builder.build({
      pythonVersion: 'micromamba3.11',
      buildSteps: [{ type: 'micromamba', command: 'big' }],
    });
    expect(downloaded.last).toMatchObject({ success: false, msg: why });
    // Beyond half of the bound of all, the folder is emptied. The other workspace's stays.
    await waitFor(() => keptBytes(builder) < 1_000_000 && keptBytes(builder) > 0, 'the large folder is empty', 30_000);
  });

  test(
    'a workspace has so many builds at once, and its machine leaves room for others',
    { timeout: 170_000 },
    async ({ story }) => {
      const { builder, theirs } = story;
      const ends: string[] = [];
      const slow = (name: string, token?: string) =>
        builder.build({ commands: [`echo at ${name}; sleep 4`] }, token).then(({ last, text }) => {
          ends.push(last.success ? name : last.msg);
          return text;
        });
      const four = [0, 1, 2, 3].map((at) => slow(`own-${at}`));
      const { client } = builder.platform.engine;
      const running = async (): Promise<number> =>
        (await client.listContainers()).filter(({ Command }) => Command.includes('echo at own-')).length;
      await waitFor(async () => (await running()) > 0, 'a build runs');
      // All four have their rows once each said where it is built.
      await waitFor(async () => {
        const list = jsonOf<{ data: { state: string }[] }>(
          await builder.platform.call(`/api/v1/image/${builder.platform.workspaceId}`),
        );
        return list.data.filter(({ state }) => state === 'BUILDING').length === 4;
      }, 'four builds of the workspace');
      const fifth = await builder.build({ commands: ['echo fifth'] });
      expect(fifth.last).toMatchObject({ success: false, msg: expect.stringContaining('4 builds at once') as string });
      expect(await running()).toBe(1);
      await slow('theirs', theirs);
      const texts = await Promise.all(four);
      expect(ends.indexOf('theirs')).toBeLessThan(3);
      expect(ends.toSorted()).toEqual(['own-0', 'own-1', 'own-2', 'own-3', 'theirs']);
      expect(texts.filter((text) => text.includes('waits for other builds of this machine'))).toHaveLength(3);
    },
  );

  test('a build takes so long', { timeout: 120_000 }, async ({ story }) => {
    const { builder, withSettings } = story;
    await withSettings({ LONGSHORE_AGENT_BUILD_MINUTES: '0.2' });
    const { last } = await builder.build({ commands: ['sleep 60'] });
    expect(last).toMatchObject({ success: false, msg: 'the build took longer than 0.2 minutes' });
  });
});

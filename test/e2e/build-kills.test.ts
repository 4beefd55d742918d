// Builds that are cut off at any moment, by kill -9 of the agent, of the scheduler and of the step itself.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { test as base } from 'vitest';
import { VICTIMS, buildKillRound } from '../helpers/build-kills.ts';
import { Builder } from '../helpers/builder.ts';
import { PackageIndex } from '../helpers/package-index.ts';
import { Platform } from '../helpers/platform.ts';
import { docker } from '../helpers/services.ts';

const test = base.extend('builder', { scope: 'file' }, async ({}, { onCleanup }): Promise<Builder> => {
  const index = await PackageIndex.start();
  const platform = new Platform(await docker(), (daemon) => (daemon === 'agent' ? index.settings : {}));
  onCleanup(async () => {
    index.stop();
    await platform.stop();
  });
  await platform.start();
  return new Builder(platform);
});
/** The build takes about this long on an idle machine. */
const BUILD_MS = 8000;

for (const victim of VICTIMS)
  test(
    `a build whose ${victim} is killed leaves nothing, and can be begun again`,
    { timeout: 175_000 },
    async ({ builder }) => {
      await buildKillRound(builder, victim, Math.random() * BUILD_MS);
    },
  );

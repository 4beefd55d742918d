// Stories of a misbehaving provider on a real Postgres, whose connections work side by side: the same stories as in
// test/hosts/provisioned-machines.test.ts, and ten times as many.
import { afterAll, beforeAll, test } from 'vitest';
import { openInstallation } from '#scheduler/workspaces/identity/installation.ts';
import { sealer, tellStory } from '../helpers/provisioning-story.ts';
import { aDb } from '../integration/store-fixture.ts';
import type { OpenedDb } from '../integration/store-fixture.ts';

const SEEDS = Number(process.env['LS_PROVISIONING_SEEDS'] ?? 200);

let opened: OpenedDb;
beforeAll(async () => {
  opened = await aDb('postgres');
  await openInstallation(opened.db, sealer);
});
afterAll(() => opened.stop());

test.for(Array.from({ length: SEEDS }, (_, index) => index + 1))(
  'story %i on Postgres: at rest nothing is leaked, and nothing doubled',
  { timeout: 180_000 },
  async (seed) => {
    await tellStory(opened.db, seed);
  },
);

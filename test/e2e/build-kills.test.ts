// Builds that are cut off at any moment, by kill -9 of the agent, of the scheduler and of the step itself.
import { BUILD_MS, VICTIMS, buildKillRound, test } from '../helpers/build-kills.ts';

for (const victim of VICTIMS)
  test(
    `a build whose ${victim} is killed leaves nothing, and can be begun again`,
    { timeout: 175_000 },
    async ({ builder }) => {
      await buildKillRound(builder, victim, Math.random() * BUILD_MS);
    },
  );

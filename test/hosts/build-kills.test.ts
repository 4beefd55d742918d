// More rounds of builds that are cut off by kill -9 of the agent, of the scheduler and of the step itself.
import { BUILD_MS, VICTIMS, buildKillRound, test } from '../helpers/build-kills.ts';

const ROUNDS = 5;

for (const victim of VICTIMS)
  for (let round = 0; round < ROUNDS; round += 1)
    test(
      `round ${round + 1}: a build whose ${victim} is killed leaves nothing, and can be begun again`,
      { timeout: 240_000 },
      async ({ builder }) => {
        // Each round has its part of the build.
        await buildKillRound(builder, victim, ((round + Math.random()) * BUILD_MS) / ROUNDS);
      },
    );

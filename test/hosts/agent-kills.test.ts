// A few kill rounds of the agent, as `npm run chaos -- --kill agent` runs hundreds.
import { test } from 'vitest';
import { whyNoHosts } from '../helpers/hosts/network.ts';
import { KILL_TEST_MS, killsAreSurvived } from '../helpers/kill-rounds.ts';

test.skipIf(whyNoHosts !== undefined)(
  'kill -9 of the agent while containers start and stop: none is there twice or left over, no GPU is with two, nobody else’s is touched, no task is lost',
  { timeout: KILL_TEST_MS },
  () => killsAreSurvived({ stores: 'embedded', kind: 'kill agent' }, 6),
);

test.skipIf(whyNoHosts !== undefined)(
  'kill -9 of the agent while interruptible containers end for another workspace: no task is lost, and none uses a retry for it',
  { timeout: KILL_TEST_MS },
  () => killsAreSurvived({ stores: 'embedded', kind: 'kill agent', preempts: true }, 12),
);

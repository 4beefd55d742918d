/** `node scripts/setup.mjs [--tests]`: installs and starts what Longshore (and its tests) need; safe to repeat. */
import { main, stepLog } from './setup/log.mjs';
import { setUp } from './setup/profiles.mjs';
import { endChildrenOnSignals } from './setup/run.mjs';

endChildrenOnSignals();
await main(async () => {
  const log = stepLog();
  const { baseImage } = await setUp(process.argv.includes('--tests') ? 'test' : 'start', log);
  log.say(`- all set: Docker answers, the base image is ${baseImage}`);
});

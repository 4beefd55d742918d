/**
 * `node scripts/setup.mjs [--tests|--hosts]`: installs and starts the needs of
 * Longshore, of its tests, or of its tests on simulated hosts; safe to repeat.
 */
import { baseImageTemplate, DEFAULT_PYTHON } from './setup/base-image.mjs';
import { main, stepLog } from './setup/log.mjs';
import { setUp } from './setup/profiles.mjs';
import { endChildrenOnSignals } from './setup/run.mjs';

endChildrenOnSignals();
await main(async () => {
  const log = stepLog();
  const asked = (name) => process.argv.includes(`--${name}`);
  const { baseImage } = await setUp(asked('hosts') ? 'hosts' : asked('tests') ? 'test' : 'start', log);
  log.say(`- all set: Docker answers, the base image is ${baseImage}`);
  // `npm start` passes these settings on by itself; an agent started by hand needs them in its environment.
  const template = baseImageTemplate(baseImage);
  const version = /:(3\.\d+)/.exec(baseImage)?.[1] ?? DEFAULT_PYTHON;
  if (template.startsWith('longshore-')) {
    log.say(
      `  an agent on this machine needs: export LONGSHORE_BASE_IMAGE='${template}' LONGSHORE_DEFAULT_PYTHON=${version}`,
    );
  }
});

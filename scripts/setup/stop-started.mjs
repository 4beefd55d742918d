/** `node scripts/setup/stop-started.mjs [--quiet]`: ends only the Docker Engine that set-up started by hand. */
import { stopStartedEngine } from './engine.mjs';
import { main, SetupError } from './log.mjs';

await main(async () => {
  const outcome = await stopStartedEngine();
  if (outcome === 'still_running')
    throw new SetupError('The Docker Engine that set-up started did not stop within 30 s.');
  if (!process.argv.includes('--quiet')) process.stderr.write(`- the Docker Engine that set-up started: ${outcome}\n`);
});

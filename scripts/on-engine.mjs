/**
 * `LS_TEST_ENGINE=<folder> npm run on-engine -- <command>`: runs a command, such
 * as `npm run bench`, on the Docker Engine whose programs are in that folder.
 */
import { SetupError, main } from './setup/log.mjs';
import { namedEngine, runOnEngine } from './setup/named-engine.mjs';

await main(async () => {
  const folder = namedEngine();
  if (folder === undefined)
    throw new SetupError('Set LS_TEST_ENGINE to a folder with the programs of a Docker Engine.');
  const command = process.argv.slice(2);
  if (command.length === 0) throw new SetupError('Name the command: npm run on-engine -- npm run bench');
  return runOnEngine(folder, command);
});

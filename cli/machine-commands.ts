// Sentences of commands that the npm package does not have, because they run on the machines of an installation.
import { CliError } from './errors.ts';

const AGENT =
  'it runs on a machine that has an agent, as /opt/longshore/current/bin/longshore; the line that `longshore machine create` prints installs one';
const OTHERS =
  "it runs on the scheduler's machine: `npm start` in a checkout of Longshore, or bin/longshore of a release";

/**
 * Stands in for a command.
 * @param command - the name of its module
 * @throws CliError, which says where the command is
 */
export function onMachines(command: string): never {
  throw new CliError(
    `this command line is the package for callers and has no such command: ${command === 'agent' ? AGENT : OTHERS}`,
  );
}

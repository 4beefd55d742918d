// The headings below which `longshore --help` lists commands. Commands that are not named here come last.
import type { Command } from 'commander';

const GROUPS: Readonly<Record<string, readonly string[]>> = {
  'Begin:': ['up', 'login', 'logout', 'init', 'context', 'console', 'completion', 'version'],
  'Apps:': ['serve', 'deploy', 'run', 'prepare', 'invoke', 'deployment', 'image', 'model', 'stack'],
  'Look:': ['status', 'top', 'explain', 'waiting', 'alerts', 'logs', 'events', 'metrics', 'usage', 'task', 'container'],
  'Data:': ['volume', 'secret', 'map', 'queue', 'webhook', 'registry'],
  'Machines:': ['machine', 'enrol-token', 'worker', 'pool', 'provider'],
  'Access:': ['token', 'workspace', 'share', 'credit', 'audit', 'key', 'settings', 'record'],
  'Services:': ['scheduler', 'agent', 'mounts'],
  'Try out:': ['simulate', 'trace'],
};

/** Puts the commands of the program below their headings, in the order above. */
export function groupCommands(program: Command): void {
  const names = Object.values(GROUPS).flat();
  for (const [heading, members] of Object.entries(GROUPS)) {
    for (const command of program.commands) if (members.includes(command.name())) command.helpGroup(heading);
  }
  const placeOf = (command: Command): number => {
    const at = names.indexOf(command.name());
    return at === -1 ? names.length : at;
  };
  (program.commands as Command[]).sort((a, b) => placeOf(a) - placeOf(b));
}

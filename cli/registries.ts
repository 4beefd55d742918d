// The command tree's part for image registries, credentials and the managed one: names,
// flags and help. Each command's module is loaded when it runs.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { RegistrySetFlags } from './flags.ts';
import { command, examples } from './program-parts.ts';

export function addRegistryCommands(program: Command, invocation: () => Invocation): void {
  const registry = command(
    program,
    'registry',
    'Keep credentials that images are pulled with; run the registry of built images',
  );
  examples(command(registry, 'list', 'List credentials, without their passwords'), 'registry list').action(async () => {
    const { runRegistryList } = await import('./commands/registry.ts');
    await runRegistryList(invocation());
  });
  examples(
    command(registry, 'set', 'Make or change credentials; the password is read from stdin')
      .argument('<registry>', 'its host, such as ghcr.io')
      .requiredOption('--username <name>', 'who pulls')
      .requiredOption('--repositories <list>', 'what they are for: team/app, team/* (everything below) or *')
      .option('--name <name>', 'when there are several for one registry')
      .option('--file <file>', 'read the password from a file instead'),
    "registry set ghcr.io --username robot --repositories 'team/*' < token.txt",
  ).action(async (host: string, flags: RegistrySetFlags) => {
    const { runRegistrySet } = await import('./commands/registry.ts');
    await runRegistrySet(host, flags, invocation());
  });
  examples(
    command(registry, 'serve', 'Run the registry that holds built images (settings come from the environment)'),
    'registry serve',
  ).action(async () => {
    const { runRegistryServe } = await import('./commands/registry-serve.ts');
    await runRegistryServe(process.env);
  });
  examples(
    command(registry, 'delete', 'Delete credentials, by their registry or name').argument(
      '<registry>',
      'as `registry list` shows it',
    ),
    'registry delete ghcr.io',
  ).action(async (host: string) => {
    const { runRegistryDelete } = await import('./commands/registry.ts');
    await runRegistryDelete(host, invocation());
  });
}

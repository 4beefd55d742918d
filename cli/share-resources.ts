// The command tree's part for shares of machines.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import { command, examples } from './program-parts.ts';

export function addShare(program: Command, invocation: () => Invocation): void {
  const share = command(program, 'share', 'Look at how workspaces share machines');
  examples(
    command(share, 'list', 'List what workspaces hold of each GPU model beside what would be fair').option(
      '--market <market>',
      'a GPU model, or cpu',
    ),
    'share list',
    'share list --market H100',
  ).action(async (flags: { readonly market?: string }) => {
    const { runShareList } = await import('./commands/share.ts');
    await runShareList(flags, invocation());
  });
  examples(
    command(share, 'reservations', 'List machines that are kept for containers which need much (administrator)'),
    'share reservations',
  ).action(async () => {
    const { runShareReservations } = await import('./commands/share.ts');
    await runShareReservations(invocation());
  });
}

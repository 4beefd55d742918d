// The command tree's part for shares of machines.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import { command, examples } from './program-parts.ts';

export function addAlerts(program: Command, invocation: () => Invocation): void {
  examples(
    command(program, 'alerts', 'List what the scheduler knows to be wrong by itself, and what to do (administrator)'),
    'alerts',
    'alerts --json',
  ).action(async () => {
    const { runAlerts } = await import('./commands/alerts.ts');
    await runAlerts(invocation());
  });
}

export function addWaiting(program: Command, invocation: () => Invocation): void {
  examples(
    command(program, 'waiting', 'List containers that wait for a machine, by deployment, with why and what would help'),
    'waiting',
    'waiting --json',
  ).action(async () => {
    const { runWaiting } = await import('./commands/waiting-list.ts');
    await runWaiting(invocation());
  });
}

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

// The command tree's part for series of metrics. Names, flags and help are here; the module is loaded when it runs.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { MetricFlags } from './flags.ts';
import { command, examples } from './program-parts.ts';

export function addMetrics(program: Command, invocation: () => Invocation): void {
  const metrics = command(program, 'metrics', 'Show what containers and machines used over time');
  const ranged = (of: Command): Command =>
    of
      .option('--since <duration>', 'begin, so long ago, such as 90s, 30m, 6h or 8d', '1h')
      .option('--interval <duration>', 'length of a row, from 5s; at most 1000 rows (else one that gives some dozens)');
  examples(
    ranged(
      command(metrics, 'stub', 'Use of the containers of a deployment or stub').argument(
        '<stub>',
        "a deployment's name, name and version (hello/v3) or id, or a stub's id",
      ),
    ),
    'metrics stub hello',
    'metrics stub hello/v3 --since 6h --interval 5m --json',
  ).action(async (reference: string, flags: MetricFlags) => {
    const { runStubMetrics } = await import('./commands/metrics.ts');
    await runStubMetrics(reference, flags, invocation());
  });
  examples(
    ranged(command(metrics, 'workspace', 'Use of all containers of the workspace'))
      .option('--kind <kind>', 'only containers of this kind, such as endpoint')
      .option('--app <id>', 'only containers of this app'),
    'metrics workspace',
    'metrics workspace --kind taskqueue --since 8d --interval 1h',
  ).action(async (flags: MetricFlags) => {
    const { runWorkspaceMetrics } = await import('./commands/metrics.ts');
    await runWorkspaceMetrics(flags, invocation());
  });
  examples(
    ranged(
      command(
        metrics,
        'pool',
        "Machines, use and cost of pools: the workspace's own, or all for an administrator",
      ).argument('[pool]', 'only this one'),
    ),
    'metrics pool gpu',
    'metrics pool --since 8d --interval 1h --json',
  ).action(async (pool: string | undefined, flags: MetricFlags) => {
    const { runPoolMetrics } = await import('./commands/metrics.ts');
    await runPoolMetrics(pool, flags, invocation());
  });
}

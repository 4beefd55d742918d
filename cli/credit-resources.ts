// The command tree's part for credits and usage of models. Names, flags and help are here; the commands' module is
// loaded when one runs.
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { CreditGrantFlags, UsageFlags } from './flags.ts';
import { command, examples } from './program-parts.ts';

const WORKSPACE = 'its id or name';

/** Reads an amount in the installation's currency as integer micro-units, without floating point. */
export function microsIn(text: string): number {
  const [, whole = '', part = ''] = /^(\d{1,9})(?:\.(\d{1,6}))?$/.exec(text) ?? [];
  if (whole === '') throw new InvalidArgumentError('must be an amount such as 25 or 0.5, with at most 6 decimals.');
  return Number(whole) * 1_000_000 + Number(part.padEnd(6, '0'));
}

const limitIn = (text: string): number | null => (text === 'none' ? null : microsIn(text));

export function addCredit(program: Command, invocation: () => Invocation): void {
  const credit = command(program, 'credit', 'Show credits for models; grant and bound them (administrators)');
  examples(
    command(credit, 'show', 'Show balance, mode and spend limit').argument(
      '[workspace]',
      `${WORKSPACE} (else the token's own)`,
    ),
    'credit show',
    'credit show team-a --json',
  ).action(async (reference: string | undefined) => {
    const { runCreditShow } = await import('./commands/credit.ts');
    await runCreditShow(reference, invocation());
  });
  examples(
    command(credit, 'grant', 'Add to the balance of a workspace')
      .argument('<workspace>', WORKSPACE)
      .argument('<amount>', "in the installation's currency, such as 25 or 0.5", microsIn)
      .option('--take', 'take the amount back instead')
      .option('--key <key>', 'the same key again grants nothing, so that a script may repeat itself')
      .option('--note <text>', 'for people'),
    'credit grant team-a 25',
    'credit grant team-a 25 --key invoice-2030-01 --note "January"',
    'credit grant team-a 5 --take',
  ).action(async (reference: string, micros: number, flags: CreditGrantFlags) => {
    const { runCreditGrant } = await import('./commands/credit.ts');
    await runCreditGrant(reference, micros, flags, invocation());
  });
  examples(
    command(credit, 'mode', 'Say whether a workspace pays before or after')
      .argument('<workspace>', WORKSPACE)
      .argument('<mode>', 'prepaid: what the balance does not cover is refused; postpaid'),
    'credit mode team-a prepaid',
  ).action(async (reference: string, mode: string) => {
    const { runCreditMode } = await import('./commands/credit.ts');
    await runCreditMode(reference, mode, invocation());
  });
  examples(
    command(credit, 'limit', 'Bound what a workspace spends in a calendar month')
      .argument('<workspace>', WORKSPACE)
      .argument('<amount>', "in the installation's currency, or none", limitIn),
    'credit limit team-a 100',
    'credit limit team-a none',
  ).action(async (reference: string, micros: number | null) => {
    const { runCreditLimit } = await import('./commands/credit.ts');
    await runCreditLimit(reference, micros, invocation());
  });
}

export function addUsage(program: Command, invocation: () => Invocation): void {
  examples(
    command(program, 'usage', 'Show requests to models, their tokens and costs')
      .option('--workspace <workspace>', `${WORKSPACE} (administrators; else the token's own)`)
      .option('--from <time>', 'a day or a time (else the begin of the month)')
      .option('--to <time>', 'a day or a time, exclusive (else now)')
      .option(
        '--by <groups>',
        'rows for each day, model, token, app, deployment and gpu_model: any of them, with commas',
        'day',
      ),
    'usage',
    'usage --by model,token --from 2030-01-01 --to 2030-02-01',
    'usage --by deployment,gpu_model',
    'usage --workspace team-a --json',
  ).action(async (flags: UsageFlags) => {
    const { runUsage } = await import('./commands/credit.ts');
    await runUsage(flags, invocation());
  });
}

// Pieces of the command tree that more than one file of it uses.
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import { LABELS_PATTERN, LABELS_WORDS } from '#shared/domain/labels.ts';
import { MIRROR_PATTERN, MIRROR_WORDS } from '#shared/domain/registry-mirror.ts';
import { pathOf, wordsOf } from './command-tree.ts';
import { REMARKS } from './remarks.ts';

/** The option of commands that read an app file. */
export const ROOT_OPTION = [
  '--root <dir>',
  "the folder that is packed, and from which modules are imported (else the file's own)",
] as const;

/** Adds a subcommand with its remarks; a usage mistake points at its own help. */
export function command(parent: Command, name: string, description: string): Command {
  const made = parent.command(name).description(description);
  const remarks = REMARKS[wordsOf(made)];
  if (remarks !== undefined)
    made.addHelpText('after', () => {
      const width = made.configureOutput().getOutHelpWidth?.() ?? 80;
      return `\n${made.createHelp().boxWrap(remarks.join('\n'), width)}`;
    });
  return made.showHelpAfterError(`(${pathOf(made)} --help shows what there is)`);
}

/** A flag's or argument's whole number. @throws InvalidArgumentError, which names the flag */
export function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('must be a whole number.');
  return Number(text);
}

/** The head start of a task in its queue. */
export function headStart(text: string): number {
  const seconds = /^[+-]?\d{1,4}$/.test(text) ? Number(text) : NaN;
  if (!(Math.abs(seconds) <= 3600)) throw new InvalidArgumentError('must be whole seconds from -3600 to 3600.');
  return seconds;
}

/** A number of things, from 1 to 1000. */
export function countFromOne(text: string): number {
  const count = wholeNumber(text);
  if (count < 1 || count > 1000) throw new InvalidArgumentError('must be a whole number from 1 to 1000.');
  return count;
}

/** Parses `--limit` of a list: from 1 to the most that the scheduler returns. */
export const listLimit = countFromOne;

/** Parses a number in a range, or the word `default`. */
export const numberOrDefault =
  (from: number, to: number, kind: 'number' | 'whole number' = 'number') =>
  (text: string): number | 'default' => {
    if (text === 'default') return text;
    const value = /^\d{1,9}(\.\d{1,6})?$/.test(text) ? Number(text) : NaN;
    if (!(value >= from && value <= to) || (kind === 'whole number' && !Number.isInteger(value)))
      throw new InvalidArgumentError(`must be a ${kind} from ${from} to ${to}, or default.`);
    return value;
  };

/** A name such as that of a provider or a GPU model, or the word `default`. */
export function nameOrDefault(text: string): string {
  if (text === '' || !/^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$/.test(text))
    throw new InvalidArgumentError(
      'must be a name of at most 63 letters, digits, dots, dashes, plus signs and underscores, or default.',
    );
  return text;
}

/** A registry and its mirror, or the word `default`. */
export function mirrorOrDefault(text: string): string {
  if (text !== 'default' && !new RegExp(MIRROR_PATTERN).test(text))
    throw new InvalidArgumentError(`must be ${MIRROR_WORDS}, or default.`);
  return text;
}

/** Labels in one text, or the word `default`. */
export function labelsOrDefault(text: string): string {
  if (text !== 'default' && !new RegExp(LABELS_PATTERN).test(text))
    throw new InvalidArgumentError(`must be ${LABELS_WORDS}, or default.`);
  return text;
}

/** As {@link yesOrNo}, or the word `default`. */
export function yesNoOrDefault(text: string): boolean | 'default' {
  if (text === 'default') return text;
  const said = yesOrNoIn(text);
  if (said === undefined) throw new InvalidArgumentError('must be yes, no or default.');
  return said;
}

/** Parses `yes`, `no` and the like. */
export function yesOrNo(text: string): boolean {
  const said = yesOrNoIn(text);
  if (said === undefined) throw new InvalidArgumentError('must be yes or no.');
  return said;
}

const yesOrNoIn = (text: string): boolean | undefined =>
  /^(yes|true|1)$/i.test(text) ? true : /^(no|false|0)$/i.test(text) ? false : undefined;

/** Examples below the help of a command, without the program's name. */
export function examples(of: Command, ...lines: readonly string[]): Command {
  return exampleLines(of, ...lines.map((line) => `longshore ${line}`));
}

/** Examples that are whole lines of a shell. */
export function exampleLines(of: Command, ...lines: readonly string[]): Command {
  return of.addHelpText('after', `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`);
}

// Pieces of the command tree that more than one file of it uses.
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';

/** A command below another. */
export function command(parent: Command, name: string, description: string): Command {
  return parent.command(name).description(description);
}

/** A flag's or argument's whole number. @throws InvalidArgumentError, which names the flag */
export function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('must be a whole number.');
  return Number(text);
}

/** Of a list: from 1 to what lists answer at most. */
export function listLimit(text: string): number {
  const limit = wholeNumber(text);
  if (limit < 1 || limit > 1000) throw new InvalidArgumentError('must be a whole number from 1 to 1000.');
  return limit;
}

/** A number, or the word `default`. */
export function numberOrDefault(text: string): number | 'default' {
  if (text === 'default') return text;
  if (!/^\d{1,9}(\.\d{1,6})?$/.test(text)) throw new InvalidArgumentError('must be a number, or default.');
  return Number(text);
}

/** As {@link yesOrNo}, or the word `default`. */
export const yesNoOrDefault = (text: string): boolean | 'default' => (text === 'default' ? text : yesOrNo(text));

/** `yes`, `no` and their like. */
export function yesOrNo(text: string): boolean {
  if (/^(yes|true|1)$/i.test(text)) return true;
  if (/^(no|false|0)$/i.test(text)) return false;
  throw new InvalidArgumentError('must be yes or no.');
}

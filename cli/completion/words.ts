// The words that can be completed, read from the command tree: commands, options, choices, and kinds of names.
import type { Command, Option } from 'commander';
import { commandsOf, pathOf } from '../command-tree.ts';

/** Names that only the installation or the file of contexts knows. */
export const NAME_KINDS = [
  'deployments',
  'pools',
  'providers',
  'volumes',
  'maps',
  'queues',
  'contexts',
  'templates',
] as const;
export type NameKind = (typeof NAME_KINDS)[number];

/** Completes a value: names of a kind, or one of some words; undefined: paths. */
export type Value = { readonly names: NameKind } | { readonly words: readonly string[] } | undefined;

export interface CompletedOption {
  readonly flags: readonly string[];
  readonly description: string;
  readonly takesValue: boolean;
  readonly value: Value;
}

export interface CompletedCommand {
  /** Words behind the program's name: `task list`; empty: the program itself. */
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  /** Options of the command, and those of the program. */
  readonly options: readonly CompletedOption[];
  /** Completes its arguments. */
  readonly argument: Value;
}

const OPTION_NAMES: Readonly<Record<string, NameKind>> = {
  '--deployment': 'deployments',
  '--pool': 'pools',
  '--provider': 'providers',
  '--context': 'contexts',
  '--template': 'templates',
};

/** Kinds of the first argument; a pattern is for the whole path. */
const ARGUMENT_NAMES: readonly (readonly [RegExp, NameKind])[] = [
  [/^deployment \w+$|^(?:invoke|logs|explain|metrics stub)$/, 'deployments'],
  [/^pool (?:set|show|delete)$|^metrics pool$/, 'pools'],
  [/^provider check$/, 'providers'],
  [/^volume (?:show|delete|ls|size)$/, 'volumes'],
  [/^map (?:show|get|set|delete|clear)$/, 'maps'],
  [/^queue (?:show|peek|put|pop|clear)$/, 'queues'],
  [/^context (?:use|delete)$/, 'contexts'],
];

export function completedCommands(program: Command): readonly CompletedCommand[] {
  const global = program.options.filter((option) => !option.hidden);
  return commandsOf(program).map((command) => {
    const path = pathOf(command).split(' ').slice(1).join(' ');
    const [argument] = command.registeredArguments;
    const names = ARGUMENT_NAMES.find(([pattern]) => pattern.test(path))?.[1];
    const options = command === program ? global : [...command.options.filter((option) => !option.hidden), ...global];
    return {
      path,
      commands: command
        .createHelp()
        .visibleCommands(command)
        .filter((one) => one.name() !== 'help')
        .map((one) => ({ name: one.name(), description: one.description() })),
      options: [...options.map((option) => completed(option)), HELP],
      argument:
        argument?.argChoices !== undefined
          ? { words: argument.argChoices }
          : argument !== undefined && names !== undefined
            ? { names }
            : undefined,
    };
  });
}

const HELP: CompletedOption = {
  flags: ['-h', '--help'],
  description: 'display help for command',
  takesValue: false,
  value: undefined,
};

function completed(option: Option): CompletedOption {
  const flags = [option.short, option.long].filter((flag) => flag !== undefined);
  const names = OPTION_NAMES[option.long ?? ''];
  const isYesNo = option.flags.includes('<yes|no>');
  const words = option.argChoices ?? (isYesNo ? ['yes', 'no'] : undefined);
  return {
    flags,
    description: option.description,
    takesValue: option.required || option.optional,
    value: names === undefined ? (words === undefined ? undefined : { words }) : { names },
  };
}

// Completion for fish: a line for each command and option, shown where the command line is at its command.
import type { CompletedCommand, CompletedOption, Value } from './words.ts';

const quoted = (text: string): string => `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;

const valueOf = (value: Value): string =>
  value === undefined
    ? ''
    : 'names' in value
      ? ` -f -a '(longshore complete-names ${value.names} 2> /dev/null)'`
      : ` -f -a ${quoted(value.words.join(' '))}`;

function optionLine(path: string, option: CompletedOption): string {
  const flags = option.flags.map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`));
  const value = option.takesValue ? ` -r${valueOf(option.value)}` : '';
  return `complete -c longshore -n ${quoted(at(path))} ${flags.join(' ')}${value} -d ${quoted(option.description)}`;
}

const at = (path: string): string => `__longshore_at "${path}"`;

export function fishScript(commands: readonly CompletedCommand[]): string {
  const paths = commands.map(({ path }) => path).filter((path) => path !== '');
  const lines = commands.flatMap((one) => [
    ...one.commands.map(
      ({ name, description }) =>
        `complete -c longshore -n ${quoted(at(one.path))} -f -a ${name} -d ${quoted(description)}`,
    ),
    ...one.options.map((option) => optionLine(one.path, option)),
    ...(one.argument === undefined ? [] : [`complete -c longshore -n ${quoted(at(one.path))}${valueOf(one.argument)}`]),
  ]);
  return `# Completion of longshore for fish: longshore completion fish > ~/.config/fish/completions/longshore.fish
set -g __longshore_paths ${paths.map((path) => quoted(path)).join(' ')}

# Whether the words before the cursor call this command. Words that call none are options and their values.
function __longshore_at
    set -l path ''
    for word in (commandline -opc)[2..-1]
        set -l longer (string trim -- "$path $word")
        contains -- "$longer" $__longshore_paths; and set path $longer
    end
    test "$path" = "$argv[1]"
end

${lines.join('\n')}
`;
}

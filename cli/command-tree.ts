// Reads the command tree: every command with its path, its help as it is printed, and the examples in that help.
import type { Command } from 'commander';

/** The words that call a command: `longshore task list`. */
export const pathOf = (of: Command): string => (of.parent === null ? of.name() : `${pathOf(of.parent)} ${of.name()}`);

/** The same without the program's name, as tables of commands have it. */
export const wordsOf = (of: Command): string => pathOf(of).split(' ').slice(1).join(' ');

/** The command and all below it, in the order of their help. Hidden commands are left out, and `help` itself. */
export function commandsOf(program: Command): readonly Command[] {
  const inner = program.createHelp().visibleCommands(program);
  return [program, ...inner.filter((one) => one.name() !== 'help').flatMap((one) => commandsOf(one))];
}

/** The help of a command as it is printed. @param columns - its width; absent: as wide as where it would be printed */
export function helpOf(command: Command, columns?: number): string {
  const before = { ...command.configureOutput() };
  const written: string[] = [];
  command.configureOutput({
    writeOut: (text) => written.push(text),
    ...(columns === undefined ? {} : { getOutHelpWidth: () => columns }),
  });
  try {
    command.outputHelp();
  } finally {
    command.configureOutput(before);
  }
  return written.join('');
}

/** The example lines in the help of a command. */
export function examplesOf(command: Command): readonly string[] {
  const [, block = ''] = helpOf(command).split(/^Examples:\n/m);
  const lines = block.split('\n');
  const end = lines.findIndex((line) => !line.startsWith('  '));
  return lines.slice(0, end === -1 ? undefined : end).map((line) => line.trim());
}

const MOST_GROUP_EXAMPLES = 3;

/** Gives each command that only holds others the first examples of some of these. */
export function addGroupExamples(program: Command): void {
  for (const group of program.commands.flatMap((one) => commandsOf(one))) {
    if (group.commands.length === 0) continue;
    group.addHelpText('after', () => {
      const lines = group.commands.flatMap((inner) => examplesOf(inner).slice(0, 1)).slice(0, MOST_GROUP_EXAMPLES);
      return `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`;
    });
  }
}

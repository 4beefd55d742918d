// Every command has a description of itself and of all that it takes, and an example that the tree understands.
import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { commandsOf, examplesOf, helpOf, pathOf, wordsOf } from '#cli/command-tree.ts';
import { buildProgram } from '#cli/program.ts';
import { REMARKS } from '#cli/remarks.ts';

const program = buildProgram(() => {});
const commands = commandsOf(program).map((command) => ({ path: pathOf(command), command }));

/** Marks in a line of a shell at which another program or a redirection begins. */
const PIPE = /\s(?:[|<>]|&&)\s/;

/** The words of an example behind the program's name; undefined: a line that runs another program first. */
function calledBy(example: string): readonly string[] | undefined {
  const [call = ''] = example.split(/\s+# |\$\((?=longshore)/, 1);
  const part = call.split(PIPE).find((one) => one.trim().startsWith('longshore '));
  return part?.trim().split(/\s+/).slice(1);
}

/** The command that words call. */
function called(words: readonly string[], from: Command = program): Command {
  const [word, ...rest] = words;
  const inner = from.commands.find((one) => one.name() === word || one.aliases().includes(word ?? ''));
  return inner === undefined ? from : called(rest, inner);
}

describe.for(commands)('$path', ({ path, command }) => {
  test('has a description, and so has all that it takes', () => {
    expect(command.description()).not.toBe('');
    const bare = [
      ...command.registeredArguments.filter((one) => one.description === '').map((one) => one.name()),
      ...command.options.filter((one) => one.description === '').map((one) => one.flags),
    ];
    expect(bare).toEqual([]);
  });

  test('has no option of the name of an option of the program, which would take its value', () => {
    const own = command === program ? [] : command.options.map((one) => one.long);
    const taken = program.options.map((one) => one.long).filter((long) => own.includes(long));
    expect(taken).toEqual([]);
  });

  test('has an example in its help, which calls it', () => {
    const examples = examplesOf(command);
    expect(examples, helpOf(command)).not.toEqual([]);
    const calls = examples.map((line) => calledBy(line)).filter((words) => words !== undefined);
    const reached = calls.map((words) => pathOf(called(words)));
    const wrong = reached.filter((one) => one !== path && !one.startsWith(`${path} `));
    expect(wrong).toEqual([]);
  });

  test('shows examples with options that there are', () => {
    const unknown = examplesOf(command).flatMap((line) => {
      const words = calledBy(line) ?? [];
      const known = [...called(words).options, ...program.options].flatMap((one) => [one.short, one.long]);
      const end = words.indexOf('--');
      const own = end === -1 ? words : words.slice(0, end);
      return own.filter((word) => /^--?[a-z]/.test(word) && !known.includes(word.split('=', 1)[0]));
    });
    expect(unknown).toEqual([]);
  });

  test('has a help of 80 columns, but for its examples', () => {
    const wide = helpOf(command, 80)
      .split('\n')
      .filter((line) => line.length > 80 && !/^  (longshore|curl|echo|source) /.test(line));
    expect(wide).toEqual([]);
  });
});

test('every remark is of a command', () => {
  const known = new Set(commands.map(({ command }) => wordsOf(command)));
  expect(Object.keys(REMARKS).filter((words) => !known.has(words))).toEqual([]);
});

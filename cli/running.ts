// The command tree's part for what runs once, and what is watched. Each command's module is loaded when it runs.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { TopFlags } from './commands/top.ts';
import type { RunFlags } from './flags.ts';
import { ROOT_OPTION, command, examples } from './program-parts.ts';

const collected = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

/** Adds `run`. */
export function addRun(program: Command, invocation: () => Invocation, setExitCode: (code: number) => void): void {
  examples(
    command(program, 'run', 'Run a function or a command in a container, once; then the container is gone')
      .argument('<file:handler>', 'the function to call; with --image the command')
      .argument('[words...]', 'inputs as a JSON object; or, behind --, a command to run in its image')
      .option('--image <image>', 'run the command in a container of this image')
      .option('--arg <NAME=VALUE>', 'an input of the function, JSON or a text; may be given again', collected)
      .option('--data <json>', 'its inputs: a JSON object, @file, or - for stdin')
      .option(...ROOT_OPTION)
      .option('--gpu <model>', 'a GPU of this model, instead of what the definition says')
      .option('--cpu <cores>', 'cores, as 2 or 500m')
      .option('--memory <size>', 'memory, as 512 (MiB) or 2gi')
      .option('--pool <name>', 'on a machine of this pool')
      .option('--env <NAME=VALUE>', 'a variable; may be given again', collected)
      .option('--secret <name>', 'a secret of the workspace as a variable; may be given again', collected)
      .option('--volume <VOLUME:PATH>', 'a volume of the workspace at a path; may be given again', collected)
      .option('-t, --terminal', 'a terminal for the command, for programs that a person talks to'),
    'run app.py:work --arg n=3 --arg name=Ada',
    'run app.py:work \'{"n": 3}\' --gpu H100',
    'run app.py:work -- python3 -m pip list',
    'run --image python:3.12-slim -- python3 -c "print(6 * 7)"',
    'run --image ubuntu:24.04 --volume models:/models -t -- bash',
  ).action(async (target: string, words: string[], flags: RunFlags) => {
    const { runOnce } = await import('./commands/run-once.ts');
    setExitCode(await runOnce(target, { words, isCommand: hasDashes(program) }, flags, invocation()));
  });
}

/** Whether `--` stands in the command line, which Commander leaves out of the words. */
const hasDashes = (program: Command): boolean =>
  (program as Command & { readonly rawArgs: readonly string[] }).rawArgs.includes('--');

/** Adds `top`. */
export function addTop(program: Command, invocation: () => Invocation): void {
  examples(
    command(program, 'top', 'Show machines, queues and containers, again every two seconds; q leaves').option(
      '--once',
      'print them once, as also where no terminal is',
    ),
    'top',
    'top --once --json',
  ).action(async (flags: TopFlags) => {
    const { runTop } = await import('./commands/top.ts');
    await runTop(flags, invocation());
  });
}

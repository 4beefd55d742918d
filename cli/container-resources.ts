// The command tree's part for work in containers. Each command's module is loaded when it runs.
import { Option } from 'commander';
import type { Command } from 'commander';
import type { ExecFlags } from './commands/container-exec.ts';
import type { Invocation } from './commands/run.ts';
import { command, examples } from './program-parts.ts';

const ID = ['<id>', 'its id, or the last characters of it as lists and logs show them'] as const;

export function addContainerPrograms(
  container: Command,
  invocation: () => Invocation,
  setExitCode: (code: number) => void,
): void {
  examples(
    command(container, 'exec', 'Run a program in a container, with its input, output and exit code')
      .argument(...ID)
      .argument('<command...>', 'the program and its arguments, behind --')
      .option('--cwd <dir>', 'directory in the container')
      .option('--env <NAME=VALUE>', 'a variable; may be given again', collected)
      .option('--no-terminal', 'no terminal for the program, also at a terminal')
      .showHelpAfterError(
        "(the program's own options go behind --: longshore container exec ID -- ls -l; longshore container exec --help shows what there is)",
      ),
    'container exec 1f2e3d4c -- ls -l /mnt/code',
    'container exec 1f2e3d4c --env LEVEL=debug -- python3',
    'container exec 1f2e3d4c --no-terminal -- sh -c "cat > /tmp/data" < data',
  ).action(async (id: string, words: string[], flags: ExecFlags) => {
    const { runContainerExec } = await import('./commands/container-exec.ts');
    setExitCode(await runContainerExec(id, words, flags, invocation()));
  });
  examples(
    command(container, 'shell', 'Open a shell in a container; a lost connection is made again').argument(...ID),
    'container shell 1f2e3d4c',
  ).action(async (id: string) => {
    const { runContainerShell } = await import('./commands/container-exec.ts');
    setExitCode(await runContainerShell(id, invocation()));
  });
  examples(
    command(container, 'attach', 'Print the output of a container, to its end').argument(...ID),
    'container attach 1f2e3d4c',
  ).action(async (id: string) => {
    const { runContainerAttach } = await import('./commands/container-exec.ts');
    setExitCode(await runContainerAttach(id, invocation()));
  });
  examples(
    command(container, 'cp', 'Copy a file or folder into a container, or out of it; - is stdin or stdout')
      .argument('<from>', 'a path here, or CONTAINER:PATH')
      .argument('<to>', 'likewise')
      .addOption(new Option('-r, --recursive', 'folders are copied in any case').hideHelp()),
    'container cp model.bin 1f2e3d4c:/tmp/',
    'container cp 1f2e3d4c:/mnt/code/results ./results',
    'container cp 1f2e3d4c:/etc/os-release -',
  ).action(async (from: string, to: string) => {
    const { runContainerCopy } = await import('./commands/container-cp.ts');
    await runContainerCopy(from, to, invocation());
  });
  examples(
    command(container, 'port-forward', 'Lead ports of this machine to ports of a container, until Ctrl-C')
      .argument(...ID)
      .argument('<ports...>', 'LOCAL:REMOTE, or one port for both; 0 for LOCAL takes a free one'),
    'container port-forward 1f2e3d4c 8080:80 5432',
  ).action(async (id: string, ports: string[]) => {
    const { runContainerForward } = await import('./commands/container-forward.ts');
    setExitCode(await runContainerForward(id, ports, invocation()));
  });
}

const collected = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

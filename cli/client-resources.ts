// The command tree's part for the program itself: its version, where it is logged in, and apps to begin with. Each
// command's module is loaded when it runs.
import { Argument } from 'commander';
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { NameKind } from './completion/words.ts';
import type { ConsoleFlags, InitFlags } from './flags.ts';
import { command, examples } from './program-parts.ts';

export function addClientCommands(program: Command, invocation: () => Invocation): void {
  examples(
    command(program, 'init', 'Begin an app: copy a template into a folder')
      .argument('[folder]', "the app's folder and name (else this folder); files that are there stay")
      .option('--template <name>', 'what to begin with', 'hello')
      .option('--list', 'list the templates instead'),
    'init shop',
    'init shop --template fastapi',
    'init --list',
  ).action(async (folder: string | undefined, flags: InitFlags) => {
    const { runInit } = await import('./commands/init.ts');
    await runInit(folder, flags, invocation());
  });
  examples(
    command(
      program,
      'login',
      'Keep the address and the token of an installation, for the commands that follow',
    ).argument('[url]', 'the installation (else --url, LONGSHORE_URL or the current context)'),
    'login https://longshore.example.com',
    'login https://longshore.example.com --context prod < token.txt',
  ).action(async (url: string | undefined) => {
    const { runLogin } = await import('./commands/login.ts');
    await runLogin(url, invocation());
  });
  examples(
    command(program, 'logout', 'Forget the current context, or that of --context, with its token'),
    'logout',
    'logout --context prod',
  ).action(async () => {
    const { runLogout } = await import('./commands/login.ts');
    await runLogout(invocation());
  });
  examples(
    command(program, 'console', 'Open the web console: prints a link that signs a browser in, once').option(
      '--no-open',
      'print the link, and open no browser',
    ),
    'console',
    'console --no-open',
  ).action(async (flags: ConsoleFlags) => {
    const { runConsole } = await import('./commands/console.ts');
    await runConsole(flags, invocation());
  });
  command(program, 'completion', 'Print the script that completes commands, options and names in a shell')
    .addArgument(new Argument('<shell>', 'bash, zsh or fish').choices(['bash', 'zsh', 'fish']))
    .addHelpText(
      'after',
      '\nExamples:\n  source <(longshore completion bash)     # in ~/.bashrc\n  longshore completion zsh > "${fpath[1]}/_longshore"\n  longshore completion fish > ~/.config/fish/completions/longshore.fish',
    )
    .action(async (shell: 'bash' | 'zsh' | 'fish') => {
      const { runCompletion } = await import('./commands/completion.ts');
      runCompletion(shell, program);
    });
  program
    .command('complete-names', { hidden: true })
    .description('Print names, one a line, for the scripts of completion')
    .argument('<kind>', 'such as deployments')
    .action(async (kind: NameKind) => {
      const { runNames } = await import('./commands/completion.ts');
      await runNames(kind, invocation());
    });
  examples(
    command(program, 'version', 'Print the version of this program, and that of the scheduler if it answers'),
    'version',
    'version --json',
  ).action(async () => {
    const { runVersion } = await import('./commands/version.ts');
    await runVersion(invocation());
  });
}

// The command tree: names, flags and help. Each command's module is loaded when it runs, so that
// `longshore --help` and short commands start fast. Every command with a result takes --json.
import { Command, CommanderError, Help, InvalidArgumentError, Option } from 'commander';
import { StartupError, messageOf } from '#shared/errors.ts';
import { shellWord } from '#shared/shell-word.ts';
import { ownVersion } from '#shared/version.ts';
import { addClientCommands } from './client-resources.ts';
import { allowColours } from './colours.ts';
import { addGroupExamples, pathOf } from './command-tree.ts';
import type { GlobalOptions } from './context.ts';
import { CliError } from './errors.ts';
import { EXIT } from './exit-codes.ts';
import { aliasIn, commandWords, guessIn, guessOf } from './guessed-commands.ts';
import type { DeployFlags, EventsFlags, InvokeFlags, LogsFlags, ServeFlags, UpFlags } from './flags.ts';
import { groupCommands } from './help-groups.ts';
import { note, print, printError } from './print.ts';
import { command, exampleLines, examples, headStart, ROOT_OPTION, wholeNumber } from './program-parts.ts';
import { addResourceCommands } from './resources.ts';
import { addRun, addTop } from './running.ts';

/** Commands that shut down in their own way, whether or not anybody reads their output. */
const DAEMONS = new Set(['up', 'scheduler', 'agent', 'mounts', 'serve']);

/** A join token as an argument, or as the value of a flag. */
const JOIN_TOKEN = /(^|=)(lsj1|lse1)\./;

/**
 * Runs one command line; resolves with the exit code.
 * @param goOnUnread - lets a daemon go on without a reader of its output
 */
export async function runProgram(argv: readonly string[], goOnUnread: () => void = () => {}): Promise<number> {
  if (argv.some((text) => JOIN_TOKEN.test(text))) {
    printError(
      'a join token does not belong on a command line, where every user of this machine can read it: put it into a file and name that by LONGSHORE_JOIN_TOKEN_FILE (or set LONGSHORE_JOIN_TOKEN), and take a new one with `longshore machine create`, since this one was seen',
    );
    return 2;
  }
  if (asksForVersion(argv)) {
    print(ownVersion());
    return 0;
  }
  allowColours(argv);
  let exitCode = 0;
  const program = buildProgram((code) => {
    exitCode = code;
  });
  program.hook('preAction', (_, action) => {
    if (DAEMONS.has(action.name())) goOnUnread();
  });
  const { unknown, index, at } = commandWords(program, argv, WITH_VALUE);
  const alias = unknown === undefined ? undefined : aliasIn(at, unknown);
  if (alias !== undefined) return await runProgram(argv.with(index, alias.name()), goOnUnread);
  const guess = unknown === undefined ? undefined : at === program ? guessOf(unknown) : guessIn(at, unknown);
  // The guess knows better than a likeness of letters, by which `show` is near to `stop`.
  if (guess !== undefined) at.showSuggestionAfterError(false);
  try {
    await program.parseAsync(unknown === undefined ? [...argv] : argv.filter((word) => !HELP.has(word)), {
      from: 'user',
    });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      const hint = error.code === 'commander.unknownCommand' ? guess : usageHint(error.code, at, argv);
      if (hint !== undefined) note(`what to use: ${hint}`);
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    }
    if (error instanceof CliError || error instanceof StartupError) {
      printError(error.message);
      return error.exitCode;
    }
    printError(`unexpected failure: ${messageOf(error)}`);
    if (error instanceof Error && error.stack !== undefined) note(error.stack);
    return 1;
  }
}

/** The cure of habits from other programs: `invoke hello name=Ada`, `container exec -it ID`. */
function usageHint(code: string, at: Command, argv: readonly string[]): string | undefined {
  if (code === 'commander.excessArguments' && at.name() === 'invoke')
    return 'the input is one JSON object, `longshore invoke hello --data \'{"name": "Ada"}\'`';
  if (code === 'commander.excessArguments' && at.name() === 'deploy')
    return 'a handler stands behind its file, as in `longshore deploy app.py:handler`';
  if (code === 'commander.excessArguments' && pathOf(at) === 'longshore volume ls') {
    const [volume = '', path = ''] = argv.slice(argv.indexOf('ls') + 1).filter((word) => !word.startsWith('-'));
    return `\`longshore volume ls ${shellWord(`${volume}${volume.endsWith(':') ? '' : ':'}${path}`)}\``;
  }
  if (code === 'commander.missingArgument' && at.name() === 'explain')
    return 'the name of a deployment, as in `longshore explain hello`, or the id of a task or container; `longshore status` and `longshore task list` show them';
  if (code === 'commander.unknownOption' && at.name() === 'run')
    return 'a command stands behind --, as in `longshore run --image IMAGE -- python3 -c "print(6 * 7)"`';
  if (code === 'commander.unknownOption' && at.name() === 'exec' && argv.some((word) => /^-[it]{1,2}$/.test(word)))
    return 'input and terminal are passed on without an option; `longshore container shell ID` opens a shell';
  return undefined;
}

const HELP: ReadonlySet<string> = new Set(['--help', '-h']);

/** Options of the program that are followed by a value. */
const WITH_VALUE: ReadonlySet<string> = new Set(['--url', '--token', '--context', '--ca-file']);

/**
 * Whether `--version` stands before any command. Commander takes an option of the program behind a command too, where
 * `invoke` has a `--version` of its own.
 */
function asksForVersion(argv: readonly string[]): boolean {
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at] ?? '';
    if (word === '--version' || word === '-V') return true;
    if (!word.startsWith('--')) return false;
    if (WITH_VALUE.has(word)) at += 1;
  }
  return false;
}

/** Help shows the option that {@link asksForVersion} reads. */
function withVersionOption(this: Help, of: Command): Option[] {
  const options = Help.prototype.visibleOptions.call(this, of);
  return of.parent === null ? [new Option('-V, --version', 'print the version of this program'), ...options] : options;
}

/** The list of all commands has names alone, so that its sentences fit beside them in 80 columns. */
function subcommandTerm(this: Help, of: Command): string {
  return of.parent?.parent === null ? of.name() : Help.prototype.subcommandTerm.call(this, of);
}

/** Builds the tree; commands with an exit code of their own report it through `setExitCode`. */
export function buildProgram(setExitCode: (code: number) => void): Command {
  const program = new Command('longshore')
    .description('Serverless functions and models on machines you own.')
    .option('--url <url>', 'the installation to talk to (else LONGSHORE_URL, else the context file)')
    .option('--token <token>', 'the token to use (better: LONGSHORE_TOKEN, which no process list shows)')
    .option('--context <name>', 'a context of the context file')
    .option(
      '--ca-file <path>',
      'PEM file of what signed the certificate of an https URL (else LONGSHORE_CA_BUNDLE, else the context)',
    )
    .option('--json', 'print the result as JSON')
    .option('--no-color', 'print without colours on a terminal, too, as with NO_COLOR=1')
    .configureHelp({ showGlobalOptions: true, visibleOptions: withVersionOption, subcommandTerm })
    .exitOverride()
    .configureOutput({ writeOut: (text) => print(text.trimEnd()), writeErr: (text) => note(text.trimEnd()) })
    .showHelpAfterError('(longshore --help shows what there is)')
    .addHelpText(
      'after',
      '\nExamples:\n  longshore up\n  longshore init shop\n  longshore deploy app.py:handler\n  longshore invoke hello --data \'{"name": "you"}\'\n  longshore logs hello --follow',
    );

  command(program, 'up', 'Start Redis, a scheduler and an agent on this machine, and stay in the foreground')
    .option('--data-dir <directory>', 'where everything is kept (else LONGSHORE_DATA_DIR)')
    .option('--port <port>', 'HTTP port on 127.0.0.1; 0 picks one (else LONGSHORE_HTTP_ADDRESS)', portNumber)
    .option('--agent-port <port>', "agents' port on 127.0.0.1; 0 picks one (else LONGSHORE_AGENT_ADDRESS)", portNumber)
    .option('--registry', 'start a registry for built images, too, so that other machines get them')
    .option('--example <file:handler>', 'when ready, deploy this (unless nothing changed), call it, print the answer')
    .option('--example-data <json>', 'the input of that call', '{}')
    .option('--first-run', 'print the token and the next commands too')
    .addHelpText('after', '\nExamples:\n  longshore up\n  longshore up --port 0 --data-dir /srv/longshore')
    .action(async (options: UpFlags) => {
      const { runUp } = await import('./commands/up.ts');
      setExitCode(await runUp({ ...globals(program), ...options }, process.env));
    });

  examples(
    command(program, 'scheduler', 'Run the scheduler in the foreground (settings come from the environment)'),
    'scheduler',
  ).action(async () => {
    const { runSchedulerCommand } = await import('./commands/scheduler.ts');
    setExitCode(await runSchedulerCommand(process.env));
  });

  examples(
    command(
      program,
      'mounts',
      'Run the mount helper in the foreground, as root: it mounts buckets for the agent of this machine',
    ),
    'mounts',
  ).action(async () => {
    const { runMountsCommand } = await import('./commands/mounts.ts');
    setExitCode(await runMountsCommand(process.env));
  });

  const agent = examples(
    command(program, 'agent', "Run this machine's agent in the foreground (settings come from the environment)"),
    'agent',
    'agent check',
  ).action(async () => {
    const { runAgentCommand } = await import('./commands/agent.ts');
    setExitCode(await runAgentCommand(process.env));
  });
  command(agent, 'check', 'Look at everything this machine needs to take work, and say what to do about what it lacks')
    .addHelpText('after', '\nExamples:\n  longshore agent check\n  longshore agent check --json')
    .action(async () => {
      const { runAgentCheck } = await import('./commands/agent.ts');
      setExitCode(await runAgentCheck(globals(program).json === true, process.env));
    });

  command(
    agent,
    'check-gpu',
    'Try the GPUs of this machine: driver, toolkit, MIG, health, and containers that get them',
  )
    .argument('[image]', 'what the containers run (else LONGSHORE_BASE_IMAGE); needs `sleep` and a C library')
    .option('--reload', 'run `systemctl daemon-reload` too, and see that containers keep their GPUs', false)
    .option('--report <file>', 'write the report there, as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  longshore agent check-gpu\n  longshore agent check-gpu --reload --report /root/gpu-7.json',
    )
    .action(async (image: string | undefined, options: { readonly reload: boolean; readonly report?: string }) => {
      const { runGpuCheck } = await import('./commands/agent.ts');
      const { reload, report } = options;
      setExitCode(await runGpuCheck({ image, reload, report, json: globals(program).json === true }, process.env));
    });

  command(program, 'deploy', 'Deploy handlers and pods of Python files as new versions')
    .argument('<file[:handler]>', 'a handler, a file with all its handlers, or a folder with all its app files')
    .option('--name <name>', "the deployment's name (else the handler's)")
    .option(...ROOT_OPTION)
    .option('--now', 'calls of the name reach the new version at once, whether it is ready or not')
    .option('--dry-run', 'look for what is wrong, print what would be deployed, and change nothing')
    .addHelpText(
      'after',
      '\nExamples:\n  longshore deploy app.py                  # all its handlers\n  longshore deploy app.py:predict --name predictor\n  longshore deploy src/app.py --root .     # an app whose modules say `from src.models import …`',
    )
    .action(async (target: string, options: DeployFlags) => {
      const { runDeploy } = await import('./commands/deploy.ts');
      setExitCode(await runDeploy(target, options, globals(program), process.env));
    });

  command(program, 'serve', 'Run a handler in a container that loads what you save, until Ctrl-C')
    .argument('<file[:handler]>', 'the file, and the handler when it defines several')
    .option(...ROOT_OPTION)
    .option('--gpu <name>', "a GPU for this session, in place of the definition's")
    .addHelpText(
      'after',
      '\nExamples:\n  longshore serve app.py\n  longshore serve app.py:predict --gpu T4\n  longshore serve src/app.py --root .',
    )
    .action(async (target: string, options: ServeFlags) => {
      const { runServe } = await import('./commands/serve.ts');
      setExitCode(await runServe(target, options, globals(program), process.env));
    });

  command(program, 'prepare', 'Make a handler of a Python file ready to be called, without a deployment')
    .argument('<file[:handler]>', 'the file, and the handler when it defines several; -: a definition on stdin')
    .option(...ROOT_OPTION)
    .addHelpText('after', '\nExamples:\n  longshore prepare train.py:train\n  longshore prepare train.py --json')
    .action(async (target: string, options: { readonly root?: string }) => {
      const { runPrepare } = await import('./commands/deploy.ts');
      await runPrepare(target, options, globals(program), process.env);
    });

  command(program, 'invoke', 'Call a deployment and print its answer')
    .argument('<name>', 'a deployment: its name, or its name and version (hello/v3)')
    .option('-d, --data <json>', 'the input: a JSON object, @file, or - for stdin', '{}')
    .option('--version <n>', 'a version (else the latest)', wholeNumber)
    .option('--kind <kind>', 'its kind, such as taskqueue, where several share the name (else an endpoint comes first)')
    .option('--timeout <seconds>', 'how long to wait for the answer', wholeNumber, 1200)
    .option('--key <key>', 'the key of its flow control, such as a customer')
    .option('--priority <seconds>', 'its head start in the queue, from -3600 to 3600', headStart)
    .option('--idempotency-key <key>', 'sent again within 24 hours, the same key gives the same task and its answer')
    .addHelpText(
      'after',
      '\nExamples:\n  longshore invoke hello --data \'{"name": "you"}\'\n  echo \'{"name": "you"}\' | longshore invoke hello --data - --version 2',
    )
    .action(async (name: string, options: InvokeFlags) => {
      const { runInvoke } = await import('./commands/invoke.ts');
      setExitCode(await runInvoke(name, options, globals(program), process.env));
    });

  command(program, 'logs', 'Print what handlers wrote')
    .argument('[name]', 'a deployment: its name, name and version (hello/v3), or id (else all of the workspace)')
    .option('--container <id>', 'of one container')
    .option('--task <id>', 'of one task')
    .option('--since <time>', 'from then on: 10m, 2h, 7d, or a time')
    .option('-f, --follow', 'go on printing what comes')
    .option('--grep <text>', 'only lines that have this text')
    .option('--limit <n>', 'how many of the newest lines (else 100; with --since, 10000)', wholeNumber)
    .addHelpText(
      'after',
      '\nExamples:\n  longshore logs hello --follow\n  longshore logs hello --since 10m\n  longshore logs --task 5f0c…',
    )
    .action(async (name: string | undefined, options: LogsFlags) => {
      const { runLogs } = await import('./commands/logs.ts');
      await runLogs(name, options, globals(program), process.env);
    });

  command(program, 'events', 'Print what happened in the workspace')
    .option('--type <kinds>', 'of these kinds, with commas between them; task.* means all that begin so')
    .option('--task <id>', 'of one task')
    .option('--container <id>', 'of one container')
    .option('--stub <id>', 'of one stub')
    .option('--app <id>', 'of one app')
    .option('-f, --follow', 'go on printing what comes')
    .option('--limit <n>', 'how many of the newest events', wholeNumber, 50)
    .addHelpText(
      'after',
      '\nExamples:\n  longshore events --type task.updated,stub.* --follow\n  longshore events --json',
    )
    .action(async (options: EventsFlags) => {
      const { runEvents } = await import('./commands/events.ts');
      await runEvents(options, globals(program), process.env);
    });

  examples(
    command(program, 'status', 'Show the scheduler, its machines, deployments and containers'),
    'status',
    'status --json',
  ).action(async () => {
    const { runStatus } = await import('./commands/status.ts');
    setExitCode(await runStatus(globals(program), process.env));
  });

  command(program, 'explain', 'Say why a task, a container or a deployment is as it is, and what it waits for')
    .argument('<what>', "a task's, container's or deployment's id, or a deployment's name (hello, hello/v3)")
    .addHelpText('after', '\nExamples:\n  longshore explain hello\n  longshore explain 5f0c… --json')
    .action(async (reference: string) => {
      const { runExplain } = await import('./commands/explain.ts');
      await runExplain(reference, { options: globals(program), env: process.env });
    });

  addRun(program, () => ({ options: globals(program), env: process.env }), setExitCode);
  addTop(program, () => ({ options: globals(program), env: process.env }));
  addResourceCommands(program, () => ({ options: globals(program), env: process.env }), setExitCode);

  addClientCommands(program, () => ({ options: globals(program), env: process.env }));

  const context = command(program, 'context', 'Show and choose the installation that commands talk to');
  examples(
    command(context, 'show', 'Print the URL, token and workspace that commands would use'),
    'context show --json',
  ).action(async () => {
    const { runContextShow } = await import('./commands/context.ts');
    await runContextShow(globals(program), process.env);
  });
  exampleLines(
    command(context, 'token', 'Print the token alone, for other programs'),
    'curl -H "Authorization: Bearer $(longshore context token)" https://longshore.example.com/endpoint/hello',
  ).action(async () => {
    const { runContextToken } = await import('./commands/context.ts');
    await runContextToken(globals(program), process.env);
  });
  examples(command(context, 'list', 'List the stored contexts'), 'context list').action(async () => {
    const { runContextList } = await import('./commands/context.ts');
    await runContextList(globals(program), process.env);
  });
  examples(
    command(context, 'use', 'Make a stored context the current one').argument('<name>', CONTEXT_NAME),
    'context use local',
    'context use prod --ca-file ca.pem',
  ).action(async (name: string) => {
    const { runContextUse } = await import('./commands/context.ts');
    await runContextUse(name, globals(program), process.env);
  });
  examples(
    command(context, 'delete', 'Forget a stored context and its token; the installation stays as it is').argument(
      '<name>',
      CONTEXT_NAME,
    ),
    'context delete local-2',
  ).action(async (name: string) => {
    const { runContextDelete } = await import('./commands/context.ts');
    await runContextDelete(name, globals(program), process.env);
  });
  addGroupExamples(program);
  groupCommands(program);
  return program;
}

const CONTEXT_NAME = 'as `context list` shows it';

function globals(program: Command): GlobalOptions {
  return program.opts<GlobalOptions>();
}

function portNumber(text: string): number {
  const port = wholeNumber(text);
  if (port > 65_535) throw new InvalidArgumentError('must be a port from 0 to 65535.');
  return port;
}

// The command tree's part for workspaces, tokens, keys, secrets and stacks. Names, flags and help are here; each
// command's module is loaded when it runs.
import type { Command } from 'commander';
import { shellWord } from '#shared/shell-word.ts';
import type { Invocation } from './commands/run.ts';
import { usageError } from './errors.ts';
import type {
  AuditFlags,
  OfWorkspace,
  SecretSetFlags,
  StackChangeFlags,
  TokenCreateFlags,
  TokenUpdateFlags,
  TokenVerbFlags,
  WorkspaceDeleteFlags,
  WorkspaceLimitsFlags,
  WorkspaceShareFlags,
} from './flags.ts';
import { command, examples, listLimit } from './program-parts.ts';

export function addWorkspace(program: Command, invocation: () => Invocation): void {
  const workspace = command(
    program,
    'workspace',
    "Make, list and delete workspaces (the administrator's); look at limits and shares",
  );
  examples(
    command(workspace, 'create', 'Make a workspace; prints its token, once').argument(
      '<name>',
      'a name that no workspace has',
    ),
    'workspace create team-a',
  ).action(async (name: string) => {
    const { runWorkspaceCreate } = await import('./commands/workspace.ts');
    await runWorkspaceCreate(name, invocation());
  });
  addWorkspaceLimits(workspace, invocation);
  addWorkspaceShare(workspace, invocation);
  examples(command(workspace, 'list', 'List the workspaces'), 'workspace list').action(async () => {
    const { runWorkspaceList } = await import('./commands/workspace.ts');
    await runWorkspaceList(invocation());
  });
  examples(
    command(workspace, 'delete', 'Delete a workspace with all that it owns')
      .argument('<workspace>', 'its id or name')
      .option('--dry-run', 'print what would go, or how far it is, and change nothing')
      .option('--yes', 'do not ask'),
    'workspace delete team-a --dry-run',
    'workspace delete team-a',
    'workspace delete team-a --yes --json',
  ).action(async (reference: string, flags: WorkspaceDeleteFlags) => {
    const { runWorkspaceDelete } = await import('./commands/workspace-delete.ts');
    await runWorkspaceDelete(reference, flags, invocation());
  });
}

function addWorkspaceLimits(workspace: Command, invocation: () => Invocation): void {
  examples(
    command(workspace, 'limits', 'Show what a workspace may have, and has; an administrator changes it with --set')
      .argument('[workspace]', "its id or name (else the token's own)")
      .option('--set <limit=value...>', 'such as concurrency.gpu_limit=4; `default` as value puts a limit back'),
    'workspace limits',
    'workspace limits team-a --set concurrency.gpu_limit=4 stub.max_replicas=default',
  ).action(async (reference: string | undefined, flags: WorkspaceLimitsFlags) => {
    const { runWorkspaceLimits } = await import('./commands/workspace-limits.ts');
    await runWorkspaceLimits(reference, flags, invocation());
  });
}

function addWorkspaceShare(workspace: Command, invocation: () => Invocation): void {
  examples(
    command(workspace, 'share', 'Show how a workspace shares machines with others; an administrator changes it')
      .argument('[workspace]', "its id or name (else the token's own)")
      .option('--weight <number>', 'twice the weight is twice as much of what is shared; `default`: 1')
      .option(
        '--guarantee <market=number...>',
        'GPUs of a model, or cores of `cpu`, that it gets first; `none` as value',
      )
      .option('--limit <market=number...>', 'most that it may hold at once; `none` as value')
      .option('--clear', 'put all of it back to the default'),
    'workspace share',
    'workspace share research --weight 2 --guarantee H100=16 --limit H100=32',
    'workspace share research --limit H100=none',
  ).action(async (reference: string | undefined, flags: WorkspaceShareFlags) => {
    const { runWorkspaceShare } = await import('./commands/workspace-share.ts');
    await runWorkspaceShare(reference, flags, invocation());
  });
}

const EXPIRES = ['--expires <time>', 'when it ends: 90d, 12h, 2030-01-31, or never'] as const;
const SCOPE = [
  '--scope <scope...>',
  'invoke (calls deployments, reads the tasks that it put), read (reads), or all',
] as const;
const OF_WORKSPACE = ['--workspace <name>', "of another workspace, by name or id; an administrator's"] as const;
const APP = ['--app <app>', 'the only app for which it counts, by name or id; all: any'] as const;

const TOKEN_ID = 'as `token list` shows it';

export function addToken(program: Command, invocation: () => Invocation): void {
  const token = command(program, 'token', "Look at the workspace's tokens; make, switch and delete them");
  examples(
    command(token, 'list', 'List tokens, without their keys').option(...OF_WORKSPACE),
    'token list',
    'token list --workspace team-a',
  ).action(async (flags: OfWorkspace) => {
    const { runTokenList } = await import('./commands/token.ts');
    await runTokenList(flags, invocation());
  });
  examples(
    command(token, 'create', 'Make a token; its key is printed alone on stdout, once')
      .option(
        '--type <type>',
        'workspace, or workspace_restricted (calls and looks); an administrator: admin',
        'workspace',
      )
      .option('--once', 'good for one use')
      .option('--name <name>', 'for people')
      .option(...EXPIRES)
      .option(...SCOPE)
      .option(...APP)
      .option(...OF_WORKSPACE),
    'token create > key.txt',
    'token create --name ci --scope invoke --app shop --expires 90d',
    'token create --name shop-front --scope invoke   # for a caller',
    'token create --workspace team-a > key.txt   # an administrator, for a team that lost its own',
  ).action(async (flags: TokenCreateFlags) => {
    const { runTokenCreate } = await import('./commands/token.ts');
    await runTokenCreate(flags, invocation());
  });
  examples(
    command(token, 'update', 'Name or limit a token, at once and everywhere')
      .argument('<id>', TOKEN_ID)
      .option('--name <name>', 'for people')
      .option(...EXPIRES)
      .option(...SCOPE)
      .option(...APP)
      .option(...OF_WORKSPACE),
    'token update 5f0c… --name dashboard --scope read',
    'token update 5f0c… --expires never',
  ).action(async (id: string, flags: TokenUpdateFlags) => {
    const { runTokenUpdate } = await import('./commands/token.ts');
    await runTokenUpdate(id, flags, invocation());
  });
  examples(
    command(token, 'toggle', 'Switch a token off, at once and everywhere, or on again')
      .argument('<id>', TOKEN_ID)
      .option('--force', 'also when it is the token of this command'),
    'token toggle 5f0c…',
  ).action(async (id: string, flags: TokenVerbFlags) => {
    const { runTokenToggle } = await import('./commands/token.ts');
    await runTokenToggle(id, flags, invocation());
  });
  examples(
    command(token, 'delete', 'Delete a token, at once and everywhere')
      .argument('<id>', TOKEN_ID)
      .option('--force', 'also when it is the token of this command')
      .option(...OF_WORKSPACE),
    'token delete 5f0c…',
  ).action(async (id: string, flags: TokenVerbFlags) => {
    const { runTokenDelete } = await import('./commands/token.ts');
    await runTokenDelete(id, flags, invocation());
  });
}

export function addAudit(program: Command, invocation: () => Invocation): void {
  examples(
    command(program, 'audit', 'Print who changed what, and from where (administrators and primary tokens)')
      .option('--since <time>', 'from then on: 30m, 24h, 7d, or a time')
      .option('-f, --follow', 'go on printing what comes')
      .option('--limit <n>', 'how many of the newest entries', listLimit, 200),
    'audit --since 24h',
    'audit -f --json',
  ).action(async (flags: AuditFlags) => {
    const { runAudit } = await import('./commands/audit.ts');
    await runAudit(flags, invocation());
  });
}

export function addKey(program: Command, invocation: () => Invocation): void {
  const key = command(program, 'key', "The keys that tokens are signed with (the administrator's)");
  examples(command(key, 'list', 'List them, and how many tokens each has signed'), 'key list').action(async () => {
    const { runKeyList } = await import('./commands/key.ts');
    await runKeyList(invocation());
  });
  examples(
    command(key, 'rotate', 'Make a newer key, which signs from now on; tokens that others signed stay good'),
    'key rotate',
  ).action(async () => {
    const { runKeyRotate } = await import('./commands/key.ts');
    await runKeyRotate(invocation());
  });
  examples(
    command(key, 'retire', 'End a key: every token that it signed is refused from now on, everywhere').argument(
      '<id>',
      'as `key list` shows it',
    ),
    'key retire first',
  ).action(async (id: string) => {
    const { runKeyRetire } = await import('./commands/key.ts');
    await runKeyRetire(id, invocation());
  });
}

export function addSettings(program: Command, invocation: () => Invocation): void {
  const settings = command(program, 'settings', "Settings that change while schedulers run (the administrator's)");
  examples(command(settings, 'list', 'List them, with their values and sources'), 'settings list').action(async () => {
    const { runSettingsList } = await import('./commands/settings.ts');
    await runSettingsList(invocation());
  });
  const name = ['<name>', 'as `settings list` shows it'] as const;
  examples(
    command(settings, 'set', 'Change one on every scheduler; it wins over the environment')
      .argument(...name)
      .argument('<value>', 'of webhook_allow: networks, with commas between them'),
    'settings set webhook_allow 10.1.0.0/16,127.0.0.1',
  ).action(async (setting: string, value: string) => {
    const { runSettingsSet } = await import('./commands/settings.ts');
    await runSettingsSet(setting, value, invocation());
  });
  examples(
    command(settings, 'reset', 'Go back to what the environment says').argument(...name),
    'settings reset webhook_allow',
  ).action(async (setting: string) => {
    const { runSettingsReset } = await import('./commands/settings.ts');
    await runSettingsReset(setting, invocation());
  });
}

export function addSecret(program: Command, invocation: () => Invocation): void {
  const secret = command(program, 'secret', 'Keep values that containers get as variables; nobody can read them back');
  examples(command(secret, 'list', 'List secrets, without their values'), 'secret list').action(async () => {
    const { runSecretList } = await import('./commands/secret.ts');
    await runSecretList(invocation());
  });
  examples(
    command(secret, 'set', 'Make a secret, or change its value, which is read from stdin')
      .argument('<name>', 'the name by which apps ask for it')
      .option('--file <file>', 'read the value from a file instead')
      // Commander would print what stands too much, and that is the value.
      .allowExcessArguments(),
    'secret set API_KEY < key.txt',
    'secret set API_KEY --file key.txt',
  ).action(async (name: string, flags: SecretSetFlags, { args }: Command) => {
    if (args.length > 1)
      throw usageError(
        `the value comes from stdin or a file, because everybody on this machine can read a command line: \`longshore secret set ${shellWord(name)} < FILE\`, \`--file FILE\`, or without either on a terminal, which asks for it`,
      );
    const { runSecretSet } = await import('./commands/secret.ts');
    await runSecretSet(name, flags, invocation());
  });
  examples(
    command(secret, 'delete', 'Delete a secret; containers that need it cannot start any more').argument(
      '<name>',
      'as `secret list` shows it',
    ),
    'secret delete API_KEY',
  ).action(async (name: string) => {
    const { runSecretDelete } = await import('./commands/secret.ts');
    await runSecretDelete(name, invocation());
  });
}

const NAMES = '<names...>';

export function addStack(program: Command, invocation: () => Invocation): void {
  const stack = command(program, 'stack', 'Group apps under a name; the apps themselves stay as they are');
  examples(command(stack, 'list', 'List stacks with their apps, the last changed first'), 'stack list').action(
    async () => {
      const { runStackList } = await import('./commands/stack.ts');
      await runStackList(invocation());
    },
  );
  examples(
    command(stack, 'create', 'Make a stack')
      .argument('<name>', 'a name that no stack has')
      .option(`--app ${NAMES}`, 'names of its apps'),
    'stack create shop --app checkout search',
  ).action(async (name: string, flags: { readonly app?: readonly string[] }) => {
    const { runStackCreate } = await import('./commands/stack.ts');
    await runStackCreate(name, flags, invocation());
  });
  examples(
    command(stack, 'update', 'Rename a stack or change its apps')
      .argument('<stack>', 'its name or id')
      .option('--name <name>', 'the new name')
      .option(`--app ${NAMES}`, 'names of all its apps from now on')
      .option(`--add ${NAMES}`, 'names of apps to add')
      .option(`--remove ${NAMES}`, 'names of apps to take out'),
    'stack update shop --add mailer --remove search',
    'stack update shop --name store --app checkout',
  ).action(async (reference: string, flags: StackChangeFlags) => {
    const { runStackUpdate } = await import('./commands/stack.ts');
    await runStackUpdate(reference, flags, invocation());
  });
  examples(
    command(stack, 'delete', 'Delete a stack; its apps stay as they are').argument('<stack>', 'its name or id'),
    'stack delete shop',
  ).action(async (reference: string) => {
    const { runStackDelete } = await import('./commands/stack.ts');
    await runStackDelete(reference, invocation());
  });
}

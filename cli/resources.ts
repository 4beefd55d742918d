// The command tree's part for things a scheduler keeps: tasks, deployments, containers, machines, workers, pools,
// workspaces, tokens, secrets. Names, flags and help are here; each command's module is loaded when it runs.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type {
  DeploymentListFlags,
  DeploymentVerbFlags,
  DrainFlags,
  PoolFlags,
  SecretSetFlags,
  TaskListFlags,
  TokenCreateFlags,
  TokenVerbFlags,
  WorkspaceLimitsFlags,
} from './flags.ts';
import {
  command,
  examples,
  listLimit,
  numberOrDefault,
  wholeNumber,
  yesNoOrDefault,
  yesOrNo,
} from './program-parts.ts';
import { addRegistryCommands } from './registries.ts';

/** Adds them to the tree; `invocation` gives the global flags as they were parsed. */
export function addResourceCommands(program: Command, invocation: () => Invocation): void {
  addTask(program, invocation);
  addDeployment(program, invocation);
  addContainer(program, invocation);
  addMachine(program, invocation);
  addWorker(program, invocation);
  addPool(program, invocation);
  addWorkspace(program, invocation);
  addToken(program, invocation);
  addKey(program, invocation);
  addSecret(program, invocation);
  addRegistryCommands(program, invocation);
}

function addTask(program: Command, invocation: () => Invocation): void {
  const task = command(program, 'task', 'Look at tasks and stop them');
  examples(
    command(task, 'list', 'List the newest tasks')
      .option('--status <status>', 'only these, such as RUNNING or PENDING,RETRY')
      .option('--deployment <deployment>', 'of a deployment: its name, name and version (hello/v3), or id')
      .option('--container <id>', 'of one container')
      .option('--limit <n>', 'how many at most', listLimit, 100),
    'task list --status RUNNING',
    'task list --deployment hello --limit 10 --json',
  ).action(async (flags: TaskListFlags) => {
    const { runTaskList } = await import('./commands/task.ts');
    await runTaskList(flags, invocation());
  });
  examples(command(task, 'get', 'Show one task, with its result').argument('<id>'), 'task get 5f0c… --json').action(
    async (id: string) => {
      const { runTaskGet } = await import('./commands/task.ts');
      await runTaskGet(id, invocation());
    },
  );
  examples(
    command(task, 'stop', 'Cancel tasks, waiting or running').argument('<id...>'),
    'task stop 5f0c…',
    "task stop $(longshore task list --status PENDING --json | jq -r '.[].id')",
  ).action(async (ids: string[]) => {
    const { runTaskStop } = await import('./commands/task.ts');
    await runTaskStop(ids, invocation());
  });
}

const DEPLOYMENT = '<deployment>';
const DEPLOYMENT_HELP = 'a name (its latest version), a name and version (hello/v3), or an id';

function addDeployment(program: Command, invocation: () => Invocation): void {
  const deployment = command(program, 'deployment', 'Look at deployments; start, stop, scale and delete them');
  examples(
    command(deployment, 'list', 'List deployments, the newest first')
      .option('--name <text>', 'only those whose name contains this')
      .option('--active <yes|no>', 'only those that may run, or only those that are stopped', yesOrNo)
      .option('--limit <n>', 'how many at most', listLimit, 1000),
    'deployment list',
    'deployment list --name hello --active yes --json',
  ).action(async (flags: DeploymentListFlags) => {
    const { runDeploymentList } = await import('./commands/deployment.ts');
    await runDeploymentList(flags, invocation());
  });
  for (const [verb, what, all] of [
    ['start', 'Let a stopped deployment run again', 'deployment start hello'],
    [
      'stop',
      'Stop a deployment: its containers end now, its URL answers no more, its queued tasks wait',
      'deployment stop hello --all-versions',
    ],
    [
      'delete',
      'Delete a deployment: as stop, and its queued tasks are cancelled; its version number is never used again',
      'deployment delete hello --all-versions',
    ],
  ] as const) {
    examples(
      command(deployment, verb, what)
        .argument(DEPLOYMENT, DEPLOYMENT_HELP)
        .option('--all-versions', 'every version of the name'),
      `deployment ${verb} hello/v3`,
      all,
    ).action(async (reference: string, flags: DeploymentVerbFlags) => {
      const { runDeploymentVerb } = await import('./commands/deployment.ts');
      await runDeploymentVerb(verb, reference, flags, invocation());
    });
  }
  examples(
    command(deployment, 'scale', 'Keep exactly so many containers; 0 stops them and lets the queue decide again')
      .argument(DEPLOYMENT, DEPLOYMENT_HELP)
      .argument('<containers>', 'how many', wholeNumber),
    'deployment scale hello 2',
    'deployment scale hello/v3 0',
  ).action(async (reference: string, containers: number) => {
    const { runDeploymentScale } = await import('./commands/deployment.ts');
    await runDeploymentScale(reference, containers, invocation());
  });
}

function addContainer(program: Command, invocation: () => Invocation): void {
  const container = command(program, 'container', 'Look at containers and stop them');
  examples(command(container, 'list', 'List the containers there are now'), 'container list').action(async () => {
    const { runContainerList } = await import('./commands/container.ts');
    await runContainerList(invocation());
  });
  examples(
    command(container, 'stop', 'Stop a container; its deployment may start another').argument(
      '<id>',
      'its id, or the last characters of it as lists and logs show them',
    ),
    'container stop 1f2e3d4c',
  ).action(async (id: string) => {
    const { runContainerStop } = await import('./commands/container.ts');
    await runContainerStop(id, invocation());
  });
}

function addMachine(program: Command, invocation: () => Invocation): void {
  const machine = command(program, 'machine', 'Admit machines, look at them, delete them');
  examples(
    command(
      machine,
      'create',
      'Admit a machine to a pool; prints its token, once, and the line that runs its agent',
    ).option('--pool <name>', 'the pool, made when it is missing', 'default'),
    'machine create',
    'machine create --pool gpu --json',
  ).action(async (flags: { readonly pool: string }) => {
    const { runMachineCreate } = await import('./commands/machine.ts');
    await runMachineCreate(flags.pool, invocation());
  });
  examples(
    command(
      machine,
      'upgrade',
      "Print the line that brings a machine's agent to the release that the scheduler gives out",
    ),
    'machine upgrade',
  ).action(async () => {
    const { runMachineUpgrade } = await import('./commands/machine.ts');
    await runMachineUpgrade(invocation());
  });
  examples(
    command(machine, 'list', 'List machines, present or not').option('--pool <name>', 'of one pool'),
    'machine list --pool gpu',
  ).action(async (flags: { readonly pool?: string }) => {
    const { runMachineList } = await import('./commands/machine.ts');
    await runMachineList(flags.pool, invocation());
  });
  examples(
    command(machine, 'show', 'Show one machine, and what its host is made of').argument('<id>'),
    'machine show 1f2e3d4c',
  ).action(async (id: string) => {
    const { runMachineShow } = await import('./commands/machine-show.ts');
    await runMachineShow(id, invocation());
  });
  examples(
    command(machine, 'delete', 'Delete a machine that never came, is lost, or was drained')
      .argument('<id>')
      .option('--force', 'in any state: stop everything there, forget it a minute later'),
    'machine delete 1f2e3d4c',
  ).action(async (id: string, flags: { readonly force?: boolean }) => {
    const { runMachineDelete } = await import('./commands/machine.ts');
    await runMachineDelete(id, flags, invocation());
  });
}

function addWorker(program: Command, invocation: () => Invocation): void {
  const worker = command(program, 'worker', 'Look at what machines offer; take them out of service and back');
  examples(command(worker, 'list', 'List workers, one for each machine, and what is free'), 'worker list').action(
    async () => {
      const { runWorkerList } = await import('./commands/worker.ts');
      await runWorkerList(invocation());
    },
  );
  for (const [verb, what] of [
    ['cordon', 'Place nothing new on a worker; what runs there goes on'],
    ['uncordon', 'Place containers on a worker again'],
  ] as const) {
    examples(
      command(worker, verb, what).argument('<id>', "the worker's id, which is its machine's"),
      `worker ${verb} 1f2e3d4c`,
    ).action(async (id: string) => {
      const { runWorkerVerb } = await import('./commands/worker.ts');
      await runWorkerVerb(verb, id, invocation());
    });
  }
  examples(
    command(worker, 'drain', 'Cordon a worker and have its containers leave: before maintenance')
      .argument('<id>', "the worker's id, which is its machine's")
      .option('--deadline <seconds>', 'what runs then is handed back and stopped; 0: now', wholeNumber)
      .option('--wait', 'show how it goes, until nothing is left'),
    'worker drain 1f2e3d4c --wait',
    'worker drain 1f2e3d4c --deadline 600',
  ).action(async (id: string, flags: DrainFlags) => {
    const { runWorkerDrain } = await import('./commands/worker.ts');
    await runWorkerDrain(id, flags, invocation());
  });
}

function addPool(program: Command, invocation: () => Invocation): void {
  const pool = command(program, 'pool', 'Make, look at, set and delete pools of machines');
  examples(
    poolSettings(command(pool, 'create', 'Make a pool (creating a machine in it does, too)').argument('<name>')),
    'pool create gpu',
    'pool create build --cpu-overcommit 4 --requires-pool-selector yes',
  ).action(async (name: string, flags: PoolFlags) => {
    const { runPoolCreate } = await import('./commands/pool.ts');
    await runPoolCreate(name, flags, invocation());
  });
  examples(
    poolSettings(
      command(
        pool,
        'set',
        'Change settings of a pool: for what is placed from now on; what runs stays. `default` puts one back',
      ).argument('<name>'),
    ),
    'pool set gpu --cpu-work-on-gpu-machines yes --reserved-memory-mib 8192',
    'pool set gpu --cpu-overcommit default',
  ).action(async (name: string, flags: PoolFlags) => {
    const { runPoolSet } = await import('./commands/pool.ts');
    await runPoolSet(name, flags, invocation());
  });
  examples(
    command(pool, 'show', 'Show how a pool is set').argument('<name>'),
    'pool show gpu',
    'pool show gpu --json',
  ).action(async (name: string) => {
    const { runPoolShow } = await import('./commands/pool.ts');
    await runPoolShow(name, invocation());
  });
  examples(command(pool, 'delete', 'Delete a pool that has no machines').argument('<name>'), 'pool delete gpu').action(
    async (name: string) => {
      const { runPoolDelete } = await import('./commands/pool.ts');
      await runPoolDelete(name, invocation());
    },
  );
  examples(command(pool, 'list', 'List pools and what is free in them'), 'pool list').action(async () => {
    const { runPoolList } = await import('./commands/pool.ts');
    await runPoolList(invocation());
  });
}

/** A flag for each setting, named and bounded as it is in the interface: a test holds them equal. */
function poolSettings(of: Command): Command {
  return of
    .option(
      '--cpu-overcommit <n>',
      'offer the cores of each machine so many times over, 1 to 64',
      numberOrDefault(1, 64),
    )
    .option(
      '--cpu-work-on-gpu-machines <yes|no>',
      'machines with GPUs take work without one, too; unless said, as LONGSHORE_CPU_WORK_ON_GPU_POOLS says',
      yesNoOrDefault,
    )
    .option('--requires-pool-selector <yes|no>', 'place only what names this pool', yesNoOrDefault)
    .option('--priority <n>', 'fill pools of a higher one first, 0 to 1000', numberOrDefault(0, 1000, 'whole number'))
    .option(
      '--reserved-cpu-cores <n>',
      'cores of each machine that stay for its host; unless said, a tenth, at most one',
      numberOrDefault(0, 1024),
    )
    .option(
      '--reserved-memory-mib <n>',
      'memory of each machine that stays for its host; unless said, 5 %',
      numberOrDefault(0, 16_777_216, 'whole number'),
    );
}

function addWorkspace(program: Command, invocation: () => Invocation): void {
  const workspace = command(program, 'workspace', "Make and list workspaces (the administrator's); look at limits");
  examples(
    command(workspace, 'create', 'Make a workspace; prints its token, once').argument('<name>'),
    'workspace create team-a',
  ).action(async (name: string) => {
    const { runWorkspaceCreate } = await import('./commands/workspace.ts');
    await runWorkspaceCreate(name, invocation());
  });
  addWorkspaceLimits(workspace, invocation);
  examples(command(workspace, 'list', 'List the workspaces'), 'workspace list').action(async () => {
    const { runWorkspaceList } = await import('./commands/workspace.ts');
    await runWorkspaceList(invocation());
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

function addToken(program: Command, invocation: () => Invocation): void {
  const token = command(program, 'token', "Look at the workspace's tokens; make, switch and delete them");
  examples(command(token, 'list', 'List tokens, without their keys'), 'token list').action(async () => {
    const { runTokenList } = await import('./commands/token.ts');
    await runTokenList(invocation());
  });
  examples(
    command(token, 'create', 'Make a token; its key is printed alone on stdout, once')
      .option(
        '--type <type>',
        'workspace, or workspace_restricted (deploys, calls and looks; see docs/cli.md); an administrator: admin',
        'workspace',
      )
      .option('--once', 'good for one use'),
    'token create > key.txt',
    'token create --type workspace_restricted --once',
  ).action(async (flags: TokenCreateFlags) => {
    const { runTokenCreate } = await import('./commands/token.ts');
    await runTokenCreate(flags, invocation());
  });
  examples(
    command(token, 'toggle', 'Switch a token off, at once and everywhere, or on again')
      .argument('<id>')
      .option('--force', 'also when it is the token of this command'),
    'token toggle 5f0c…',
  ).action(async (id: string, flags: TokenVerbFlags) => {
    const { runTokenToggle } = await import('./commands/token.ts');
    await runTokenToggle(id, flags, invocation());
  });
  examples(
    command(token, 'delete', 'Delete a token, at once and everywhere')
      .argument('<id>')
      .option('--force', 'also when it is the token of this command'),
    'token delete 5f0c…',
  ).action(async (id: string, flags: TokenVerbFlags) => {
    const { runTokenDelete } = await import('./commands/token.ts');
    await runTokenDelete(id, flags, invocation());
  });
}

function addKey(program: Command, invocation: () => Invocation): void {
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
    command(key, 'retire', 'End a key: every token that it signed is refused from now on, everywhere').argument('<id>'),
    'key retire first',
  ).action(async (id: string) => {
    const { runKeyRetire } = await import('./commands/key.ts');
    await runKeyRetire(id, invocation());
  });
}

function addSecret(program: Command, invocation: () => Invocation): void {
  const secret = command(program, 'secret', 'Keep values that containers get as variables; nobody can read them back');
  examples(command(secret, 'list', 'List secrets, without their values'), 'secret list').action(async () => {
    const { runSecretList } = await import('./commands/secret.ts');
    await runSecretList(invocation());
  });
  examples(
    command(secret, 'set', 'Make a secret, or change its value, which is read from stdin')
      .argument('<name>')
      .option('--file <file>', 'read the value from a file instead'),
    'secret set API_KEY < key.txt',
    'secret set API_KEY --file key.txt',
  ).action(async (name: string, flags: SecretSetFlags) => {
    const { runSecretSet } = await import('./commands/secret.ts');
    await runSecretSet(name, flags, invocation());
  });
  examples(
    command(secret, 'delete', 'Delete a secret; containers that need it cannot start any more').argument('<name>'),
    'secret delete API_KEY',
  ).action(async (name: string) => {
    const { runSecretDelete } = await import('./commands/secret.ts');
    await runSecretDelete(name, invocation());
  });
}

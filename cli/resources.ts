// The command tree's part for things a scheduler keeps: tasks, deployments and containers here, the others beside this
// file. Names, flags and help are here; each command's module is loaded when it runs.
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { TaskWatchFlags } from './commands/task-watch.ts';
import type {
  ContainerListFlags,
  DeploymentDeleteFlags,
  DeploymentRollbackFlags,
  DeploymentHealthFlags,
  DeploymentListFlags,
  DeploymentVerbFlags,
  TaskDeadFlags,
  TaskDeadListFlags,
  TaskGetFlags,
  TaskListFlags,
  TaskRedriveFlags,
  TaskRerunFlags,
} from './flags.ts';
import { command, examples, listLimit, wholeNumber, yesOrNo } from './program-parts.ts';
import { addContainerPrograms } from './container-resources.ts';
import { addCredit, addUsage } from './credit-resources.ts';
import { addImageCommands } from './images.ts';
import { addRegistryCommands } from './registries.ts';
import { addAlerts, addShare, addWaiting } from './share-resources.ts';
import { addRecord, addSimulate, addTrace } from './simulation-resources.ts';
import { addEnrolToken, addMachine, addPool, addProvider, addWorker } from './machine-resources.ts';
import { addMetrics } from './metric-resources.ts';
import { addModel } from './model-resources.ts';
import { addMap, addQueue } from './shared-resources.ts';
import { addVolume } from './volume-resources.ts';
import { addWebhook } from './webhook-resources.ts';
import { addAudit, addKey, addSecret, addSettings, addStack, addToken, addWorkspace } from './workspace-resources.ts';

/** Adds them to the tree; `invocation` gives the global flags as they were parsed. */
export function addResourceCommands(
  program: Command,
  invocation: () => Invocation,
  setExitCode: (code: number) => void,
): void {
  addTask(program, invocation, setExitCode);
  addDeployment(program, invocation);
  addContainerPrograms(addContainer(program, invocation), invocation, setExitCode);
  addMachine(program, invocation);
  addEnrolToken(program, invocation);
  addWorker(program, invocation);
  addPool(program, invocation);
  addProvider(program, invocation, setExitCode);
  addWorkspace(program, invocation);
  addShare(program, invocation);
  addWaiting(program, invocation);
  addAlerts(program, invocation);
  addToken(program, invocation);
  addAudit(program, invocation);
  addCredit(program, invocation);
  addUsage(program, invocation);
  addKey(program, invocation);
  addSettings(program, invocation);
  addRecord(program, invocation);
  addSimulate(program, invocation, setExitCode);
  addTrace(program, invocation);
  addSecret(program, invocation);
  addMap(program, invocation);
  addQueue(program, invocation);
  addWebhook(program, invocation);
  addModel(program, invocation);
  addStack(program, invocation);
  addImageCommands(program, invocation);
  addVolume(program, invocation);
  addRegistryCommands(program, invocation);
  addMetrics(program, invocation);
}

const TASK_ID = 'its id, or the beginning or end of it, as `task list` shows it';

function addTask(program: Command, invocation: () => Invocation, setExitCode: (code: number) => void): void {
  const task = command(program, 'task', 'Look at tasks, stop them, and run them again');
  examples(
    command(task, 'list', 'List the newest tasks')
      .option('--status <status>', 'only these, such as RUNNING or PENDING,RETRY; failed means ERROR,TIMEOUT,EXPIRED')
      .option('--deployment <deployment>', 'of a deployment: its name, name and version (hello/v3), or id')
      .option('--container <id>', 'of one container')
      .option('--since <time>', 'created from then on: 10m, 2h, 7d, or a time')
      .option('--limit <n>', 'how many at most', listLimit, 100),
    'task list --status RUNNING',
    'task list --deployment hello --status failed --since 1h',
    'task list --deployment hello --limit 10 --json',
  ).action(async (flags: TaskListFlags) => {
    const { runTaskList } = await import('./commands/task.ts');
    await runTaskList(flags, invocation());
  });
  examples(
    command(task, 'get', 'Show one task: its handler, input, attempts and result')
      .argument('<id>', TASK_ID)
      .option('--input', 'print its input alone, byte by byte'),
    'task get 5f0c… --json',
    'task get 5f0c… --input > input.json',
  ).action(async (id: string, flags: TaskGetFlags) => {
    const { runTaskGet } = await import('./commands/task.ts');
    await runTaskGet(id, flags, invocation());
  });
  examples(
    command(task, 'stop', 'Cancel tasks, waiting or running').argument(
      '<id...>',
      'ids of tasks, or the beginning or end of each, as `task list` shows them',
    ),
    'task stop 5f0c…',
    "task stop $(longshore task list --status PENDING --json | jq -r '.[].id')",
  ).action(async (ids: string[]) => {
    const { runTaskStop } = await import('./commands/task.ts');
    await runTaskStop(ids, invocation());
  });
  examples(
    command(task, 'rerun', 'Run tasks again with the inputs that they had, on the version that serves now')
      .argument('[id...]', 'ids of tasks, or the beginning or end of each, as `task list` shows them')
      .option('--deployment <deployment>', 'tasks of a deployment: its name, name and version, or id')
      .option('--status <status>', 'only these (with --deployment: failed when absent)')
      .option('--since <time>', 'created from then on: 10m, 2h, 7d, or a time')
      .option('--limit <n>', 'how many of the newest at most', listLimit, 100)
      .option('--yes', 'do not ask before many'),
    'task rerun 5f0c…',
    'task rerun --deployment hello --status failed --since 1h',
  ).action(async (ids: string[], flags: TaskRerunFlags) => {
    const { runTaskRerun } = await import('./commands/task-rerun.ts');
    await runTaskRerun(ids, flags, invocation());
  });
  addDead(task, invocation);
  examples(
    command(task, 'watch', "Follow a task to its end, or a deployment's tasks as they change")
      .argument('[id]', 'a task')
      .option('--deployment <deployment>', 'all tasks of a deployment: its name, name and version, or id'),
    'task watch 5f0c…',
    'task watch --deployment hello',
  ).action(async (id: string | undefined, flags: TaskWatchFlags) => {
    const { runTaskWatch } = await import('./commands/task-watch.ts');
    setExitCode(await runTaskWatch(id, flags, invocation()));
  });
}

/** @throws InvalidArgumentError, which names the flag */
function ratePerSecond(text: string): number {
  const [, count = '', unit = ''] = /^([1-9][0-9]{0,5})\/([sm])$/.exec(text) ?? [];
  if (count === '') throw new InvalidArgumentError('must be tasks a second or a minute, such as 10/s or 30/m.');
  return Number(count) / (unit === 's' ? 1 : 60);
}

function addDead(task: Command, invocation: () => Invocation): void {
  const dead = command(task, 'dead', 'Look at tasks that failed for good; redrive or drop them');
  const ids = ['[id...]', 'ids of dead tasks, as `task dead list` shows them'] as const;
  const all = ['--all', 'all dead tasks (with --deployment: of it)'] as const;
  const of = ['--deployment <deployment>', 'of a deployment: its name, name and version, or id'] as const;
  examples(
    command(dead, 'list', 'List dead tasks, those that ended last first')
      .option(...of)
      .option('--limit <n>', 'how many at most', listLimit, 100),
    'task dead list',
    'task dead list --deployment resize --json',
  ).action(async (flags: TaskDeadListFlags) => {
    const { runTaskDeadList } = await import('./commands/task-dead.ts');
    await runTaskDeadList(flags, invocation());
  });
  examples(
    command(dead, 'show', 'Show a dead task: its input, attempts and error').argument('<id>', TASK_ID),
    'task dead show 5f0c…',
  ).action(async (id: string) => {
    const { runTaskGet } = await import('./commands/task.ts');
    await runTaskGet(id, {}, invocation());
  });
  examples(
    command(
      dead,
      'redrive',
      'Redrive dead tasks, each once: new tasks with their inputs, on the version that serves now',
    )
      .argument(...ids)
      .option(...all)
      .option(...of)
      .option('--rate <n/s>', 'how many a second at most: 10/s, or 30/m', ratePerSecond)
      .option('--yes', 'do not ask before all'),
    'task dead redrive 5f0c…',
    'task dead redrive --all --deployment resize --rate 10/s',
  ).action(async (given: string[], flags: TaskRedriveFlags) => {
    const { runTaskRedrive } = await import('./commands/task-dead.ts');
    await runTaskRedrive(given, flags, invocation());
  });
  examples(
    command(dead, 'drop', 'Drop dead tasks: they are listed as dead no more, and stay tasks')
      .argument(...ids)
      .option(...all)
      .option(...of)
      .option('--yes', 'do not ask before all'),
    'task dead drop 5f0c…',
    'task dead drop --all --deployment resize',
  ).action(async (given: string[], flags: TaskDeadFlags) => {
    const { runTaskDrop } = await import('./commands/task-dead.ts');
    await runTaskDrop(given, flags, invocation());
  });
}

const DEPLOYMENT = '<deployment>';
const DEPLOYMENT_HELP = 'a name (the version that serves it), a name and version (hello/v3), or an id';

function addDeployment(program: Command, invocation: () => Invocation): void {
  const deployment = command(
    program,
    'deployment',
    'Look at deployments; compare, start, stop, scale, roll back and delete them',
  );
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
  examples(
    command(deployment, 'health', 'Say how each deployment is and why, the worst first')
      .option('--state <states>', 'only these, such as FAILING,DEGRADED')
      .option('--name <text>', 'only those whose name contains this')
      .option('--limit <n>', 'how many at most', listLimit, 1000),
    'deployment health',
    'deployment health --state FAILING,DEGRADED --json',
  ).action(async (flags: DeploymentHealthFlags) => {
    const { runDeploymentHealth } = await import('./commands/deployment-health.ts');
    await runDeploymentHealth(flags, invocation());
  });
  examples(
    command(deployment, 'show', 'Show a deployment: its state, addresses, handler and settings').argument(
      DEPLOYMENT,
      DEPLOYMENT_HELP,
    ),
    'deployment show hello',
    'deployment show hello/v3 --json',
  ).action(async (reference: string) => {
    const { runDeploymentShow } = await import('./commands/deployment-show.ts');
    await runDeploymentShow(reference, invocation());
  });
  for (const [verb, what, all] of [
    ['start', 'Let a stopped deployment run again', 'deployment start hello'],
    [
      'stop',
      'Stop a deployment: its containers end now, its URL answers no more, its queued tasks wait',
      'deployment stop hello --all-versions',
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
    command(
      deployment,
      'delete',
      'Delete a deployment with all its versions, or one version: as stop, and its queued tasks are cancelled',
    )
      .argument(DEPLOYMENT, 'a name (all its versions), a name and version (hello/v3), or the id of a version')
      .option('--version <n>', 'this version alone', wholeNumber)
      .option('--yes', 'do not ask'),
    'deployment delete hello',
    'deployment delete hello/v3',
  ).action(async (reference: string, flags: DeploymentDeleteFlags) => {
    const { runDeploymentDelete } = await import('./commands/deployment-delete.ts');
    await runDeploymentDelete(reference, flags, invocation());
  });
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
  examples(
    command(deployment, 'rollback', 'Let calls of a name reach an older version again, at once')
      .argument('<name>', 'a name; its kind in front where several share it (taskqueue/hello)')
      .argument('[version]', 'such as v2 (else the version that served before)')
      .option('--yes', 'do not ask where the version did not start'),
    'deployment rollback hello',
    'deployment rollback hello v2',
  ).action(async (name: string, version: string | undefined, flags: DeploymentRollbackFlags) => {
    const { runDeploymentRollback } = await import('./commands/deployment-rollback.ts');
    await runDeploymentRollback(name, version, flags, invocation());
  });
  const queue = command(deployment, 'queue', 'Look at the queue of a deployment; pause, resume or bound it');
  examples(
    command(queue, 'show', 'Show its settings, and the keys of its flow control: tasks of each that run and that wait')
      .argument(DEPLOYMENT, DEPLOYMENT_HELP)
      .option('--limit <n>', 'how many keys at most', listLimit, 100),
    'deployment queue show bill',
    'deployment queue show bill/v3 --json',
  ).action(async (reference: string, flags: { readonly limit: number }) => {
    const { runQueueShow } = await import('./commands/deployment-queue.ts');
    await runQueueShow(reference, flags, invocation());
  });
  examples(
    command(queue, 'pause', 'Begin nothing of the queue, whatever version; tasks are accepted and wait').argument(
      DEPLOYMENT,
      DEPLOYMENT_HELP,
    ),
    'deployment queue pause bill',
  ).action(async (reference: string) => {
    const { runQueueChange } = await import('./commands/deployment-queue.ts');
    await runQueueChange(reference, { paused: true }, 'its queue is paused', invocation());
  });
  examples(
    command(queue, 'resume', 'Let a paused queue go on').argument(DEPLOYMENT, DEPLOYMENT_HELP),
    'deployment queue resume bill',
  ).action(async (reference: string) => {
    const { runQueueChange } = await import('./commands/deployment-queue.ts');
    await runQueueChange(reference, { paused: false }, 'its queue goes on', invocation());
  });
  examples(
    command(queue, 'limit', 'Let at most so many tasks of the queue run at a time, whatever version')
      .argument(DEPLOYMENT, DEPLOYMENT_HELP)
      .argument('<tasks>', 'how many; 0: any number', wholeNumber),
    'deployment queue limit bill 5',
    'deployment queue limit bill 0',
  ).action(async (reference: string, tasks: number) => {
    const { runQueueChange } = await import('./commands/deployment-queue.ts');
    const says = tasks === 0 ? 'any number of its tasks run at a time' : `at most ${tasks} of its tasks run at a time`;
    await runQueueChange(reference, { limit: tasks }, says, invocation());
  });
  examples(
    command(deployment, 'diff', 'Compare two versions of a name: configuration, image and files')
      .argument('<name>', 'a name; its kind in front where several share it (taskqueue/hello)')
      .argument('[from]', 'such as v2 (else the one before the other, or the one that serves)')
      .argument('[to]', 'such as v3 (else the one that serves, or a newer one that does not)'),
    'deployment diff hello',
    'deployment diff hello v2 v3',
  ).action(async (name: string, from: string | undefined, to: string | undefined) => {
    const { runDeploymentDiff } = await import('./commands/deployment-diff.ts');
    await runDeploymentDiff(name, { from, to }, invocation());
  });
}

function addContainer(program: Command, invocation: () => Invocation): Command {
  const container = command(program, 'container', 'Look at containers, work in them and stop them');
  examples(
    command(container, 'list', 'List the containers there are now')
      .option('--ended', 'those that ended, with the reason of each')
      .option('--limit <n>', 'how many ended ones at most', listLimit, 20),
    'container list',
    'container list --ended',
  ).action(async (flags: ContainerListFlags) => {
    const { runContainerList } = await import('./commands/container.ts');
    await runContainerList(flags, invocation());
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
  examples(
    command(container, 'preempt', 'Have a container leave, as for one of another workspace (administrator)')
      .argument('<id>', 'its id, or the last characters of it as lists and logs show them')
      .option('--end-calls', 'stop it after the notice, with the calls that it has still'),
    'container preempt 1f2e3d4c',
    'container preempt 1f2e3d4c --end-calls',
  ).action(async (id: string, flags: { readonly endCalls?: boolean }) => {
    const { runContainerPreempt } = await import('./commands/container.ts');
    await runContainerPreempt(id, flags, invocation());
  });
  return container;
}

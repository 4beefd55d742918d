/**
 * Sentences in the help of commands, below their arguments and options, by the command's words. `docs/commands.md` has
 * them, too; a path such as `docs/serve.md` is a link there. Facts about a single command are written here alone.
 */
export const REMARKS: Readonly<Record<string, readonly string[]>> = {
  up: ['What it starts again, what it leaves running, and where output goes: docs/cli.md#longshore-up.'],
  login: [
    'The token is read from stdin, and asked for on a terminal. It is tried before it is kept, in the file of contexts, which only you can read.',
    '--context names the context, else its host does; --ca-file is kept with it. A context of the same address and workspace gets the new token. Another workspace gets a context of its own.',
  ],
  logout: ['The token stays good elsewhere: `token delete` ends it.'],
  console: [
    'The link counts once and for 10 minutes. The browser gets a session with the rights of the token of this command: docs/console.md.',
  ],
  init: [
    'Templates are the folders of examples/. Where a template has a single deployment, that gets the name of the folder. When a file with the name of a new one is there, nothing is written.',
  ],
  'context show': ['With --json: {url, token, workspaceId}.'],
  'context use': ['With --ca-file it keeps what its https URL is trusted by: docs/https.md.'],
  'context delete': ['The next `longshore up` of that installation writes another context.'],
  completion: [
    'Names of deployments, pools, volumes, maps, queues, contexts and templates are asked for while you type, for a second at most.',
  ],
  version: ['The scheduler has 3 s to answer. `longshore --version` prints the version of the program alone.'],
  scheduler: ['One daemon, as a service runs it. Settings: docs/settings.md.'],
  agent: ['One daemon, as a service runs it. Settings: docs/settings.md.'],
  mounts: ['One daemon, as a service runs it. What it mounts, and for whom: docs/volumes.md#the-mount-helper.'],
  'agent check': [
    'Exits with 1 when a check failed. Starts nothing, and disturbs no agent that runs.',
    'With sudo it also takes the settings of an installed agent, from /etc/longshore-agent/agent.env.',
  ],
  'agent check-gpu': [
    'Exits with 0 when this machine serves its GPUs, 1 when a check failed, 4 when it has no GPU, 130 when it was interrupted. Starts containers, on GPUs that nobody uses.',
    '--reload is refused while other containers have GPUs here. docs/gpus.md#the-acceptance-test-of-a-host has the checks.',
    'With sudo it also takes the settings of an installed agent, from /etc/longshore-agent/agent.env.',
  ],
  deploy: [
    'Reads the definitions with the local python3, 3.8 or newer. Packs the folder of the file, and uploads the archive unless the installation has these bytes. What is packed: docs/cli.md#what-is-packed.',
    'Where a handler is known to be refused (its name, a missing secret, a value beyond a limit), nothing of its file is changed. Every problem is told. A build or a start that fails later hinders no other handler. Exits with 1 when one failed. In a folder each file is packed with its own folder. Files that the ignore file of the folder names are no apps.',
    'Where an older version has a ready container, calls of the name go on to it until the new one is ready. The command waits for that: docs/rollouts.md.',
    '--dry-run shows the version that each handler would be, with its resources, scaling, volumes, secrets, image and files. It names missing secrets, GPU models and pools that nothing has, values beyond a limit, and wrong images. Exits with 1 when something is wrong; warnings alone give 0.',
  ],
  serve: [
    'Prints how to call it, what it writes with the end of the task id, and each reload. Only changed files travel, and only code reloads. docs/serve.md has the rest.',
    'Exits with 130 after Ctrl-C, and with 0 when another signal ends it.',
  ],
  prepare: [
    'Prints the path to call. A Python program does this by itself when it calls a function that is not deployed, or makes a Pod or a Sandbox: docs/python.md#without-a-deployment.',
  ],
  run: [
    'A function runs as its file is now, in one try, without a deployment. Output goes to stderr and the result to stdout. Exits with 1 when it failed. Handlers of endpoints, task queues and schedules can be run, too.',
    "A command has this terminal's input and output, and its exit code is that of this command. Ctrl-C reaches the command, a second one leaves it, and its container goes with it. It needs an unrestricted token. When this program is killed, the container ends within two minutes.",
    '--env, --secret and --volume add to what the definition says; the other options replace it.',
  ],
  top: ['A workspace token shows its own machines, if it has any, its queues and containers.'],
  invoke: [
    'Kinds are endpoint, taskqueue, function, schedule and asgi. With asgi the data go to the root of the application; curl reaches the rest of it, and the ports of a pod: docs/pods.md.',
    'A call that takes long says on stderr what it waits for. An error status prints its text and where to look next, and exits with 1. A lost connection exits with 5; the call may still complete: `task list --deployment NAME`.',
    'JSON and other text end with a line end, which is added where the answer has none. Other bytes are printed as they came.',
    'The same --idempotency-key gives the answer of the first call: docs/idempotency.md.',
  ],
  logs: [
    'Oldest first; times are UTC, with the date where a line is not of today. The last characters of a container id do, while it runs or is one of the newest ten thousand of the workspace.',
    '--since takes a span before now, or a time: UTC, unless it names its zone. At most 100000 lines are printed.',
  ],
  events: [
    'Oldest first; times are UTC. --follow dials again when the scheduler was away. Kinds and fields: docs/events.md.',
  ],
  status: ['Exits with 1 while the scheduler is not ready.'],
  explain: [
    'Names the numbers behind the wanted containers, the machines that refused and why, what it waits for and until when, and what to do. The name of a sandbox or pod without a deployment means its newest container. With --json: all numbers, and the last 20 decisions.',
    'A machine: longshore machine show ID',
  ],
  'metrics stub': ['A row for each interval, with bars on a terminal. The numbers: docs/metrics-api.md.'],
  'metrics workspace': ['A row for each interval, with bars on a terminal. The numbers: docs/metrics-api.md.'],
  'metrics pool': ['A row for each interval, with bars on a terminal. The numbers: docs/metrics-api.md.'],
  'task get': ['How long inputs are kept, and why one may be missing: docs/tasks.md#inputs.'],
  'task rerun': [
    'Each is a new task, whose record names the old one (rerun_of). A filter leaves out tasks with a rerun that completed or is open. Tasks whose input or deployment is gone are named and skipped; the exit code is then 1. More than 5 are asked about. Rules: docs/tasks.md#run-again.',
  ],
  'task dead redrive': [
    'Each dead task is redriven once: a new task stands for it (redriven_from). Those that are refused stay dead and are named; the exit code is then 1. docs/tasks.md#dead-tasks.',
  ],
  'task stop': ['Ends at the first that cannot be stopped, and names it.'],
  'task watch': [
    'The exit code is that of the end of the task: 0 COMPLETE, 1 ERROR, 124 TIMEOUT or EXPIRED, 125 CANCELLED; 130 after Ctrl-C.',
    'The tasks of a deployment are a table on a terminal, drawn again and again (q leaves), elsewhere a line for each change.',
  ],
  'deployment list': ['SERVES: whether calls of the name reach the version.'],
  'deployment stop': ['Queued tasks wait until their time is over. Other versions go on, and are named.'],
  'deployment delete': [
    'A name alone means all its versions. On a terminal it asks first; without one, several versions need --yes.',
    'Behind the deletion of the version that serves, calls reach the newest other one that has served, and none whose rollout failed. The name can be deployed again, and gets the next version.',
  ],
  'deployment rollback': ['What becomes of a rollout that is under way: docs/rollouts.md#roll-back.'],
  'container preempt': [
    'It takes no more tasks. Tasks of queues have the notice (`reclaim_notice`), and run again elsewhere without a retry. Calls go on to their end.',
  ],
  'container stop': ['The container gets TERM now, and KILL after 30 s.'],
  'container exec': [
    "Exits with the program's code; 127: there is no such program, 126: it cannot be run. At a terminal the program gets one.",
    'A lost connection is made again for 5 minutes, and shows what was missed. Input that is no terminal is sent again from the first byte that did not arrive; Ctrl-C meanwhile gives up.',
  ],
  'container shell': ['Programs of the shell are hung up when its window is closed.'],
  'container attach': ['Exits with the code of the command in the container.'],
  'container cp': ['Folders need `tar` here. A target that is a folder, or ends in a slash, gets the copy inside.'],
  'machine create': [
    'The token is for one machine, within 30 minutes. With --json the line is `installLine`. The steps on the host: docs/machines.md.',
  ],
  'machine upgrade': ['Containers of the machine go on. How a pool is upgraded: docs/packages.md#upgrade-a-pool.'],
  'machine show': ['Network devices, disks, NUMA nodes, virtualization and file systems of the host.'],
  'machine delete': ['--force is for an administrator.'],
  'enrol-token create': ['How hosts use it: docs/enrolment.md.'],
  'provider list': ['What the columns mean: docs/providers.md#look-at-providers.'],
  'provider check': [
    'Exits with 1 when the provider cannot be relied on. The fields: docs/providers.md#look-at-providers.',
  ],
  'worker drain': [
    'Each container leaves after its replacement is ready: docs/machines.md#how-a-drain-goes. A machine that never joined is refused.',
  ],
  'pool create': ['Each setting may be `default`. What they mean: docs/pools.md.'],
  'pool set': ['Each setting may be `default`. What they mean: docs/pools.md.'],
  'pool list': [
    'An administrator sees the shared pools, a workspace its own; settings are shown where they are not the default.',
  ],
  'token create': ['What each type and limit allows: docs/tokens.md.'],
  'token update': ['What each limit allows: docs/tokens.md.'],
  'secret set': [
    'On a terminal the value is asked for, and not shown. An app that names the secret, secrets=["API_KEY"], gets it as a variable.',
  ],
  'stack list': ['Stacks are for people, and for programs that draw them.'],
  'model add': ['Fields and backends: docs/models.md.'],
  'webhook create': ['Kinds, messages and signatures: docs/webhooks.md.'],
  'webhook test': ['Exits with 1 when it was not delivered.'],
  'webhook redeliver': ['Exits with 1 when it was not delivered.'],
  map: ['These are the maps of `Map` in Python programs: docs/python.md#map-queue-and-signal.'],
  'map get': [
    'JSON is printed as it was set. A value that Python pickled is told with its size, and its bytes go to a file or a pipe.',
  ],
  'map set': ['A text has quotes of its own: \'"ready"\'. Python gets the value as JSON.'],
  queue: [
    'These are the queues of `Queue` in Python programs: docs/python.md#map-queue-and-signal. Calls of a task queue are tasks: `task list` and `top` show them.',
  ],
  'queue peek': ['Exits with 4 where the queue is empty. Pickled values are as those of `map get`.'],
  'queue pop': [
    'Exits with 4 where the queue is empty. Pickled values are as those of `map get`; on a terminal they stay in the queue.',
  ],
  'registry set': ['Credentials are secrets named LONGSHORE_REGISTRY_…, which no container gets.'],
  'volume create': ['What the drivers are for: docs/volumes.md#drivers.'],
  'volume delete': [
    'On a terminal it asks first; without one, a volume that has files needs --yes. The files cannot be brought back.',
  ],
  'volume cp': [
    'The entries of a source folder come into the target itself. A file comes into a target that is a folder, or ends with a slash.',
    'What was cut off goes on when the same command runs again. Every file is verified by its sha256. Exits with 1 when files could not be copied, and names them.',
  ],
  audit: ['Newest last. With --json: the events.'],
  'key retire': ['First give people new tokens (`token create`; `--type admin` for yourself), and look at `key list`.'],
  'workspace delete': [
    'Asks for the name, unless --yes. From the answer on no token of it counts. Audit lines and the ledger stay: docs/removal.md.',
    'With --json: {id, name, state, deleting_at, hold, refusal, deployments, containers, volumes, volume_bytes, objects, object_bytes, images, secrets, models, machines}.',
  ],
  'workspace limits': [
    'A change counts at once, everywhere. A lowered limit stops no running container: new containers above it wait, or are refused. docs/limits.md#quotas-of-a-workspace has them.',
  ],
  'workspace share': [
    'A change counts at once, everywhere, for containers that are placed from then on: none that runs is stopped. docs/sharing.md has an example.',
  ],
  'credit mode': ['How requests are counted and held: docs/credits.md.'],
};

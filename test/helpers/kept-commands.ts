// Commands whose output is kept in files, with the tests that compare them, and commands that have no output to keep.
// LISTS: cli-golden.test.ts. VERBS: cli-golden-verbs.test.ts.

/** Commands that list things, by their words; `admin`: those of the administrator. */
export const LISTS: Readonly<Record<string, 'own' | 'admin'>> = {
  'container list': 'own',
  'context list': 'own',
  'deployment health': 'own',
  'deployment list': 'own',
  'image list': 'own',
  'key list': 'admin',
  'machine list': 'admin',
  'model list': 'own',
  'model show chat': 'own',
  'pool list': 'admin',
  'pool show held-1': 'admin',
  'provider list': 'admin',
  'registry list': 'own',
  'secret list': 'own',
  'settings list': 'admin',
  'share list --market B200': 'admin',
  'share reservations': 'admin',
  'stack list': 'own',
  status: 'own',
  'task list': 'own',
  'token list': 'own',
  'volume list': 'own',
  'map list': 'own',
  'queue list': 'own',
  'volume show models': 'own',
  'webhook list': 'own',
  'worker list': 'admin',
  'workspace limits': 'own',
  'workspace list': 'admin',
  'workspace share': 'own',
};

/**
 * Commands whose output is kept, in the order in which the test runs them: a later one may need what an earlier one
 * made. `{name}` stands for an id or a path of the test.
 */
export interface Verb {
  readonly by?: 'own' | 'admin' | 'other';
  /** The command for the text, and the command for `--json`. */
  readonly text: string;
  readonly json: string;
  /** With `--json` it prints a line for each thing. */
  readonly lines?: boolean;
  /** Exit code, unless 0. */
  readonly code?: number;
  /** Part of the text that may come only after a while. */
  readonly waits?: RegExp;
}

/** The same command twice. */
const twice = (words: string, more: Omit<Verb, 'text' | 'json'> = {}): Verb => ({ text: words, json: words, ...more });
/** A command for each of two things, whose names have `text` and `json` in place of `*`. */
const each = (words: string, more: Omit<Verb, 'text' | 'json'> = {}): Verb => ({
  text: words.replaceAll('*', 'text'),
  json: words.replaceAll('*', 'json'),
  ...more,
});

export const VERBS: Readonly<Record<string, Verb>> = {
  login: each('login --context local-* --token {own_token}'),
  'context show': twice('context show'),
  'context token': twice('context token'),
  'context use': each('context use other-*'),
  'context delete': each('context delete third-*'),
  logout: each('logout --context spare-*'),
  version: twice('version'),
  init: each('init {*_folder}'),
  deploy: each('deploy {*_app}'),
  prepare: each('prepare {*_app}'),
  top: twice('top --once', { waits: /PENDING[^]*RUNNING/ }),
  logs: twice('logs', { lines: true, waits: /hello/ }),
  events: twice('events --type stub.deploy --limit 1', { lines: true }),
  audit: twice('audit --limit 1', { waits: /greeter-json/ }),
  'metrics stub': twice('metrics stub shop-text'),
  'metrics workspace': twice('metrics workspace', { by: 'other' }),
  'task get': twice('task get {text_task}'),
  'task stop': each('task stop {*_task}'),
  'task watch': each('task watch {*_task}', { lines: true, code: 125 }),
  explain: twice('explain {text_task}'),
  'metrics pool': twice('metrics pool nowhere', { by: 'admin' }),
  invoke: twice('invoke held-1 --data {"name":"Ada"}'),
  'image build': twice('image build {text_app}'),
  'image show': twice('image show {text_image}'),
  'image delete': each('image delete {*_image}'),
  'deployment start': each('deployment start shop-*'),
  'deployment stop': each('deployment stop shop-*'),
  'deployment scale': each('deployment scale shop-* 2'),
  'deployment show': twice('deployment show shop-text/v2'),
  'deployment diff': twice('deployment diff shop-text v1 v2'),
  'deployment rollback': each('deployment rollback shop-* v1'),
  'deployment delete': each('deployment delete shop-* --yes'),
  'container stop': each('container stop {*_container}'),
  'volume create': each('volume create volume-*'),
  'volume show': twice('volume show volume-text'),
  'volume delete': each('volume delete volume-*'),
  'secret set': each('secret set KEY_* --file {*_file}'),
  'secret delete': each('secret delete KEY_*'),
  'map set': each('map set seen * {"n":1.0}'),
  'map show': twice('map show seen'),
  'map get': twice('map get seen text'),
  'map delete': each('map delete seen *'),
  'map clear': each('map clear visits-* --yes'),
  'queue put': each('queue put pages-* {"n":1.0}'),
  'queue show': twice('queue show pages-text'),
  'queue peek': twice('queue peek pages-text'),
  'queue pop': each('queue pop pages-*'),
  'queue clear': each('queue clear visits-* --yes'),
  'registry set': each('registry set *.example.com --username robot --repositories team/* --file {*_file}'),
  'registry delete': each('registry delete *.example.com'),
  'stack create': each('stack create stack-* --app shop'),
  'stack update': each('stack update stack-* --remove shop'),
  'stack delete': each('stack delete stack-*'),
  'model add': each('model add chat-* --type chat --deployment shop-* --kind pod --port 8000 --context-length 8192'),
  'model remove': each('model remove chat-*'),
  'webhook create': each('webhook create {receiver}* --events task.updated'),
  'webhook update': each('webhook update {*_hook} --description *'),
  'webhook rotate': each('webhook rotate {*_hook}'),
  'webhook test': each('webhook test {*_hook}'),
  'webhook deliveries': each('webhook deliveries {*_hook}'),
  'webhook redeliver': each('webhook redeliver {*_hook} {*_delivery}'),
  'webhook delete': each('webhook delete {*_hook}'),
  'token create': each('token create --name *'),
  'token update': each('token update {*_token} --name *'),
  'token toggle': each('token toggle {*_token}'),
  'token delete': each('token delete {*_token}'),
  'machine create': twice('machine create --pool spare', { by: 'admin' }),
  'machine show': twice('machine show {text_machine}', { by: 'admin' }),
  'machine label': each('machine label {*_machine} zone=a', { by: 'admin' }),
  'machine delete': each('machine delete {*_machine}', { by: 'admin' }),
  'enrol-token create': each('enrol-token create group-* --pool spare', { by: 'admin' }),
  'enrol-token list': twice('enrol-token list', { by: 'admin' }),
  'enrol-token revoke': each('enrol-token revoke group-*', { by: 'admin' }),
  'worker cordon': twice('worker cordon {worker}', { by: 'admin' }),
  'worker uncordon': twice('worker uncordon {worker}', { by: 'admin' }),
  'worker drain': twice('worker drain {worker} --deadline 0', { by: 'admin', waits: /is drained/ }),
  // In a container of a machine that takes nothing else.
  run: twice('run {text_app}:greet --arg name=Ada --pool runs'),
  'pool create': each('pool create pool-* --priority 3', { by: 'admin' }),
  'pool set': each('pool set pool-* --priority default', { by: 'admin' }),
  'pool show': twice('pool show pool-text', { by: 'admin' }),
  'pool delete': each('pool delete pool-*', { by: 'admin' }),
  'provider check': twice('provider check cloud', { by: 'admin' }),
  'workspace create': each('workspace create team-*', { by: 'admin' }),
  'workspace delete': each('workspace delete team-* --yes', { by: 'admin' }),
  'credit grant': each('credit grant {other_workspace} 5 --key invoice-*', { by: 'admin' }),
  'credit mode': twice('credit mode {other_workspace} prepaid', { by: 'admin' }),
  'credit limit': twice('credit limit {other_workspace} 100', { by: 'admin' }),
  'credit show': twice('credit show', { by: 'other' }),
  usage: twice('usage --by model,token', { by: 'other', waits: /acme\/measured/ }),
  'machine upgrade': twice('machine upgrade', { by: 'admin' }),
  'settings set': twice('settings set webhook_allow 127.0.0.1', { by: 'admin' }),
  'settings reset': twice('settings reset webhook_allow', { by: 'admin' }),
  'key rotate': twice('key rotate', { by: 'admin' }),
  // Keys that signed nothing.
  'key retire': each('key retire {*_key}', { by: 'admin' }),
};

/** Commands whose output another test keeps, beside what it tests. */
export const KEPT_BY: Readonly<Record<string, string>> = {
  completion: 'test/unit/cli/commands-page.test.ts',
  'container attach': 'test/integration/cli-containers.test.ts',
  'container cp': 'test/integration/cli-containers.test.ts',
  'container exec': 'test/integration/cli-containers.test.ts',
  'container port-forward': 'test/integration/cli-containers.test.ts',
  'volume cp': 'test/hosts/volumes.test.ts',
  'volume ls': 'test/hosts/volumes.test.ts',
  'volume mv': 'test/hosts/volumes.test.ts',
  'volume rm': 'test/hosts/volumes.test.ts',
  'volume size': 'test/hosts/volumes.test.ts',
};

/** Commands that print nothing that could stay the same, and where they are tested. */
export const NOT_KEPT: Readonly<Record<string, string>> = {
  agent: 'a daemon, which prints its log: test/hosts/agent-start.test.ts',
  'agent check': 'facts of the machine: test/unit/agent/preflight.test.ts',
  'agent check-gpu': 'facts of the machine: test/unit/agent/gpu-check.test.ts',
  console: 'another link each time: test/integration/console.test.ts',
  'container shell': 'the screen of a terminal: test/integration/cli-containers.test.ts',
  'container preempt': 'needs a container that is ready: test/integration/preemptions.test.ts',
  'machine gpu list': 'needs a machine with GPUs: test/unit/operations/machine-gpus.test.ts',
  'machine gpu exclude': 'needs a machine with GPUs: test/unit/operations/machine-gpus.test.ts',
  'machine gpu return': 'needs a machine with GPUs: test/unit/operations/machine-gpus.test.ts',
  'machine gpu reset': 'needs a machine with GPUs: test/unit/operations/machine-gpus.test.ts',
  'machine gpu forget': 'needs a machine with GPUs: test/unit/operations/machine-gpus.test.ts',
  alerts: 'what is wrong depends on the machine of the test: test/integration/alerts.test.ts',
  waiting: 'what waits depends on other outputs: test/integration/waiting.test.ts',
  'task rerun': 'starts tasks, which other outputs would count: test/integration/task-inputs.test.ts',
  'deployment queue show': 'needs tasks with keys: test/integration/flow-routes.test.ts',
  'deployment queue pause': 'changes queues of other outputs: test/integration/flow-routes.test.ts',
  'deployment queue resume': 'changes queues of other outputs: test/integration/flow-routes.test.ts',
  'deployment queue limit': 'changes queues of other outputs: test/integration/flow-routes.test.ts',
  'task dead list': 'needs dead tasks: test/integration/cli-dead-letters.test.ts',
  'task dead show': 'needs dead tasks: test/integration/cli-dead-letters.test.ts',
  'task dead redrive': 'starts tasks, which other outputs would count: test/integration/cli-dead-letters.test.ts',
  'task dead drop': 'needs dead tasks: test/integration/cli-dead-letters.test.ts',
  mounts: 'a daemon, which prints its log: test/hosts/mounts.test.ts',
  'registry serve': 'a daemon, which prints its log: test/hosts/registry-installation.test.ts',
  'record list': 'paths and times of the test: test/integration/recording-routes.test.ts',
  'record start': 'paths and times of the test: test/integration/recording-routes.test.ts',
  'record stop': 'paths and times of the test: test/integration/recording-routes.test.ts',
  simulate: 'needs a recording: test/integration/recordings.test.ts',
  'trace generate': 'paths of the test: test/integration/simulate.test.ts',
  scheduler: 'a daemon, which prints its log: test/e2e/up.test.ts',
  serve: 'goes on until Ctrl-C, and shows what comes: test/hosts/serve.test.ts',
  up: 'goes on until Ctrl-C, and shows facts of the machine: test/e2e/up.test.ts',
};

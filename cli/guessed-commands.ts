// Commands that newcomers guess, and what they are looking for. Commander refuses them; this adds the place to look.
import type { Command } from 'commander';
import { pathOf, wordsOf } from './command-tree.ts';

const DEPLOYED = '`longshore deploy app.py` deploys what a file defines, `longshore deployment list` shows it';
const SANDBOXES =
  'programs make sandboxes (docs/pods.md); `longshore container list` shows them, `longshore run --image IMAGE -- COMMAND` runs a command in a container of its own';
const CONTAINERS = 'longshore container list';
const ON_CONTAINER = (verb: string): string => `\`longshore container ${verb} ID\`; \`${CONTAINERS}\` shows the ids`;
const ON_DEPLOYMENT = (verb: string): string => `\`longshore deployment ${verb} NAME\``;
const ON_WORKER = (verb: string): string => `\`longshore worker ${verb} ID\`; \`longshore worker list\` shows the ids`;

const GUESSES: Readonly<Record<string, string>> = {
  app: DEPLOYED,
  apps: DEPLOYED,
  attach: ON_CONTAINER('attach'),
  backup: 'docs/backup.md says what to keep',
  build: '`longshore image build app.py`',
  cancel: '`longshore task stop ID`; `longshore task list` shows the ids',
  config: '`longshore context show`; settings of an installation are in docs/settings.md',
  cordon: ON_WORKER('cordon'),
  cp: '`longshore container cp` for files of a container, `longshore volume cp` for those of a volume',
  dashboard: '`longshore top`; the page of the API is at URL/docs',
  doctor: '`longshore status` for the installation, `longshore agent check` for this machine',
  down: 'Ctrl-C in the terminal of `longshore up` stops it',
  drain: ON_WORKER('drain'),
  delete: `${ON_DEPLOYMENT('delete')}; volumes, secrets and images have a delete of their own`,
  dict: '`longshore map list` shows maps, which programs share',
  endpoint: DEPLOYED,
  endpoints: DEPLOYED,
  exec: ON_CONTAINER('exec'),
  function: DEPLOYED,
  functions: DEPLOYED,
  gpu: '`longshore machine list` shows GPUs, `longshore agent check-gpu` tries those of this machine',
  health:
    '`longshore status` for the installation, `longshore explain NAME` for a deployment, `longshore agent check` for this machine',
  join: '`longshore machine create` prints the line that joins a machine',
  kill: ON_CONTAINER('stop'),
  limits: '`longshore workspace limits`',
  list: '`longshore deployment list`, `longshore container list`, `longshore task list`',
  ls: '`longshore deployment list`, `longshore container list`, `longshore task list`',
  pod: DEPLOYED,
  pods: DEPLOYED,
  ps: '`longshore container list`',
  queues: '`longshore top` shows queues of calls, `longshore queue list` those that programs share',
  restore: 'docs/backup.md says how',
  restart: `${ON_DEPLOYMENT('stop')}, then ${ON_DEPLOYMENT('start')}; \`longshore deploy app.py\` starts a new version beside the old one`,
  rm: `${ON_DEPLOYMENT('delete')}; volumes, secrets and images have a delete of their own`,
  rollback: ON_DEPLOYMENT('rollback'),
  sandbox: SANDBOXES,
  sandboxes: SANDBOXES,
  scale: '`longshore deployment scale NAME CONTAINERS`',
  schedule: DEPLOYED,
  shell: ON_CONTAINER('shell'),
  start: `\`longshore up\` starts an installation, ${ON_DEPLOYMENT('start')} a deployment`,
  stop: `${ON_DEPLOYMENT('stop')}, \`longshore task stop ID\`, \`longshore container stop ID\``,
  taskqueue: '`longshore task list` shows tasks, `longshore top` shows queues',
  uninstall: 'docs/removal.md says how',
  upgrade: '`longshore machine upgrade` for machines; docs/upgrades.md has the rest',
  whoami: '`longshore context show`',
};

/** Where to look instead of a command that does not exist; undefined: nobody guesses it. */
export function guessOf(word: string): string | undefined {
  return Object.hasOwn(GUESSES, word.toLowerCase()) ? GUESSES[word.toLowerCase()] : undefined;
}

/** Verbs that mean the same: groups of commands have one of them, and newcomers try another. */
const SAME: readonly (readonly string[])[] = [
  ['show', 'get', 'describe', 'inspect', 'view', 'info'],
  ['list', 'ls', 'ps'],
  ['delete', 'rm', 'remove', 'destroy', 'revoke'],
  ['create', 'add', 'new', 'make', 'set', 'put'],
  ['stop', 'cancel', 'kill', 'abort'],
  ['start', 'resume'],
  ['update', 'edit', 'change'],
  ['watch', 'follow', 'wait'],
  ['use', 'switch', 'select'],
  ['mv', 'move', 'rename'],
  ['cp', 'copy', 'upload', 'download'],
  ['exec', 'run'],
];

/** Commands outside of a group that do what its missing verb says. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  'container logs': '`longshore logs --container ID`',
  'container show': '`longshore explain ID`',
  'container start': 'deployments start containers; `longshore run` starts one for a single command',
  'deployment create': '`longshore deploy app.py`',
  'deployment invoke': '`longshore invoke NAME`',
  'deployment logs': '`longshore logs NAME`',
  'deployment update': '`longshore deploy app.py` makes a new version',
  'task create': '`longshore invoke NAME`',
  'task logs': '`longshore logs --task ID`',
  'map keys': '`longshore map show NAME`',
  'queue delete': '`longshore queue clear NAME` deletes all items, `longshore queue pop NAME` takes the oldest',
  'queue push': '`longshore queue put NAME VALUE`',
  'queue take': '`longshore queue pop NAME`',
  'secret show': 'a secret is read by containers alone, as a variable; `longshore secret list` shows the names',
  'volume cat': '`longshore volume cp NAME:PATH FILE` copies it here, to be read',
  'volume upload': '`longshore volume cp FILE NAME:PATH`',
  'worker show': '`longshore machine show ID`',
};

/** Rows whose verbs run as one another, because they differ in nothing but the word. */
const ALIASES: ReadonlySet<string> = new Set(['show', 'list', 'delete']);

/** The command of a group that the verb is another word for; undefined: there is none, or there are several. */
export function aliasIn(group: Command, word: string): Command | undefined {
  const same = SAME.find((verbs) => verbs.includes(word));
  if (same === undefined || !ALIASES.has(same[0] ?? '')) return undefined;
  const [known, ...others] = group.commands.filter((one) => same.includes(one.name()));
  return others.length === 0 ? known : undefined;
}

/** The name in a group, or the place elsewhere, of a verb that the group lacks; undefined: nobody guesses it. */
export function guessIn(group: Command, word: string): string | undefined {
  const same = SAME.find((verbs) => verbs.includes(word)) ?? [word];
  const known = group.commands.find((one) => same.includes(one.name()));
  if (known !== undefined) return `\`${pathOf(known)}\``;
  const name = wordsOf(group);
  const elsewhere = same.find((verb) => Object.hasOwn(ELSEWHERE, `${name} ${verb}`));
  if (elsewhere !== undefined) return ELSEWHERE[`${name} ${elsewhere}`];
  const canList = same[0] === 'show' && group.commands.some((one) => one.name() === 'list');
  return canList ? `\`${pathOf(group)} list\`, with --json for all fields` : undefined;
}

/** Words of a command line that are read as commands, and the rest. */
export interface CommandWords {
  /** The first word that is no command where one must stand; undefined: each is known. */
  readonly unknown: string | undefined;
  /** Place of that word in the command line. */
  readonly index: number;
  /** Where the word stands: the program, or a group of commands. */
  readonly at: Command;
}

/**
 * Finds the word that names no command. Commander looks for `--help` before it looks at such a word, and prints the
 * help of the command above with success.
 * @param withValue - options of the program that take a value
 */
export function commandWords(program: Command, argv: readonly string[], withValue: ReadonlySet<string>): CommandWords {
  let at = program;
  for (let index = 0; index < argv.length; index += 1) {
    const word = argv[index] ?? '';
    if (word === '--') break;
    if (word.startsWith('-')) {
      if (withValue.has(word)) index += 1;
      continue;
    }
    const inner = at.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (inner === undefined) return { unknown: word === 'help' ? undefined : word, index, at };
    at = inner;
    if (at.commands.length === 0) break;
  }
  return { unknown: undefined, index: argv.length, at };
}

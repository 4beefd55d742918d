/**
 * Removes simulated hosts when the pipe at its standard input ends, because their test is done,
 * was interrupted or was killed. The keeper is a process of its own, so that a test's end cannot
 * end it too. The first line names the hosts to remove; everything is found by name, and nothing
 * needs to be intact. The keeper prints what it could not remove on its standard output.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, rmSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Names of one set of hosts. */
export interface HostsNames {
  /** Directory of all files of the hosts. */
  readonly directory: string;
  readonly bridge: string;
  /** Network namespaces and parents of control groups begin with it. */
  readonly prefix: string;
  /** Their net, such as `198.18.7.0/24`, where it was let out of this machine. */
  readonly outward?: string;
}

/** Rules of the packet filter, without what adds or removes them. */
export const filterRules = ({ bridge, outward }: HostsNames): readonly (readonly string[])[] => [
  // An engine in this namespace has bridged frames dropped.
  ['FORWARD', '-i', bridge, '-o', bridge, '-j', 'ACCEPT'],
  ...(outward === undefined
    ? []
    : [
        ['FORWARD', '-i', bridge, '-j', 'ACCEPT'],
        ['FORWARD', '-o', bridge, '-j', 'ACCEPT'],
        ['POSTROUTING', '-t', 'nat', '-s', outward, '!', '-o', bridge, '-j', 'MASQUERADE'],
      ]),
];

const CGROUPS = '/sys/fs/cgroup';
const ROUNDS = 50;
const PAUSE_MS = 100;

if (process.argv[1] === import.meta.filename) await keep();

async function keep(): Promise<void> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
  let names: HostsNames | undefined;
  for await (const line of createInterface({ input: process.stdin })) names ??= JSON.parse(line) as HostsNames;
  if (names === undefined) return;
  const left = await takeAway(names);
  if (left.length > 0) process.stdout.write(`${left.join('\n')}\n`);
}

/** @returns what is still there */
async function takeAway(names: HostsNames): Promise<readonly string[]> {
  const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  for (let round = 0; round < ROUNDS && endProcesses(names) > 0; round += 1) await pause();
  for (const mount of mountsBelow(names.directory)) run('umount', '-l', mount);
  for (const name of namespaces(names)) run('ip', 'netns', 'del', name);
  run('ip', 'link', 'del', names.bridge);
  for (const rule of filterRules(names)) run('iptables', '-w', '-D', ...rule);
  rmSync(names.directory, { recursive: true, force: true, maxRetries: 5, retryDelay: PAUSE_MS });
  for (let round = 0; round < ROUNDS && cgroupsOf(names).some((path) => !removeCgroup(path)); round += 1) await pause();
  return [
    ...processesOf(names).map((pid) => `process ${pid} (${commandOf(pid)})`),
    ...namespaces(names).map((name) => `namespace ${name}`),
    ...cgroupsOf(names).map((path) => `control group ${path}`),
  ];
}

/**
 * Sends KILL to all processes of these hosts: engines, shims,
 * agents, containers, frozen ones too. @returns their number
 */
function endProcesses(names: HostsNames): number {
  for (const parent of cgroupsOf(names).filter((path) => path.startsWith(join(CGROUPS, 'freezer'))))
    for (const path of treeOf(parent)) tryTo(() => writeFileSync(join(path, 'freezer.state'), 'THAWED'));
  const found = processesOf(names);
  for (const pid of found) tryTo(() => process.kill(pid, 'SIGKILL'));
  return found.length;
}

function processesOf(names: HostsNames): readonly number[] {
  const inside = new Set<number>();
  for (const parent of cgroupsOf(names))
    for (const path of treeOf(parent))
      for (const pid of textOf(join(path, 'cgroup.procs')).split('\n')) if (pid !== '') inside.add(Number(pid));
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const command = textOf(`/proc/${entry}/cmdline`);
    // A zombie has no command line: the process has ended.
    if (command === '') inside.delete(pid);
    else if (command.includes(names.directory) || textOf(`/proc/${entry}/environ`).includes(names.directory))
      inside.add(pid);
  }
  return [...inside];
}

function mountsBelow(directory: string): readonly string[] {
  const mounts = textOf('/proc/mounts')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '');
  return mounts.filter((path) => path.startsWith(`${directory}/`)).toReversed();
}

function namespaces({ prefix }: HostsNames): readonly string[] {
  return entriesOf('/run/netns').filter((name) => name.startsWith(prefix));
}

/** The parents of these hosts' groups, in every hierarchy. */
function cgroupsOf({ prefix }: HostsNames): readonly string[] {
  return entriesOf(CGROUPS).flatMap((hierarchy) =>
    entriesOf(join(CGROUPS, hierarchy))
      .filter((name) => name.startsWith(prefix))
      .map((name) => join(CGROUPS, hierarchy, name)),
  );
}

/** The group and all below it, the deepest first. */
function treeOf(path: string): readonly string[] {
  const below = entriesOf(path, true).flatMap((name) => treeOf(join(path, name)));
  return [...below, path];
}

function removeCgroup(path: string): boolean {
  for (const one of treeOf(path)) tryTo(() => rmdirSync(one));
  return entriesOf(path).length === 0;
}

const commandOf = (pid: number): string => textOf(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').slice(0, 100);

function entriesOf(path: string, foldersOnly = false): readonly string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => !foldersOnly || entry.isDirectory())
      .map((entry) => entry.name);
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function run(program: string, ...args: readonly string[]): void {
  tryTo(() => execFileSync(program, args, { stdio: 'ignore', timeout: 10_000 }));
}

/** Ignores failures, because some things are gone already; the end of the program reports those that stay. */
function tryTo(work: () => void): void {
  try {
    work();
  } catch {
    // see above
  }
}

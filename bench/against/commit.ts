// Another commit of this repository as a release: checked out into a worktree of
// its own, built by its own scripts. The worktree goes away with the workplace.
import { execFile } from 'node:child_process';
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { UsageError } from '../options.ts';
import { releaseIn } from '../release.ts';
import type { AgentProcess, Release } from '../release.ts';
import type { Workplace } from '../workplace.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const GIT_MS = 60_000;
const INSTALL_MS = 600_000;
const BUILD_MS = 180_000;
const OUTPUT_BYTES = 16 * 1024 ** 2;
const runFile = promisify(execFile);

export interface BuiltCommit {
  /** Abbreviated hash, as git prints it. */
  readonly name: string;
  readonly release: Release;
}

/**
 * @param text - a commit, branch or tag, as `git rev-parse` reads it
 * @param option - the option that gave it
 * @returns the full hash of the commit
 * @throws UsageError when the repository has no such commit
 */
export async function resolveCommit(text: string, option = '--against'): Promise<string> {
  try {
    return (await git(ROOT, 'rev-parse', '--verify', '--quiet', '--end-of-options', `${text}^{commit}`)).trim();
  } catch (error) {
    throw new UsageError(`${option}: this repository has no commit ${JSON.stringify(text)}`, { cause: error });
  }
}

/** Builds a release of the commit below the workplace. @throws Error with the last lines of the failed step */
export async function buildCommit(place: Workplace, hash: string): Promise<BuiltCommit> {
  const tree = join(place.directory, 'base');
  await git(ROOT, 'worktree', 'add', '--quiet', '--detach', tree, hash);
  place.later(async () => void (await git(ROOT, 'worktree', 'remove', '--force', tree)));
  await installPackages(tree, place);
  // The pinned Node stands first on the PATH of the caller.
  await run('node', ['scripts/build.mjs', '--unpacked'], { cwd: tree, timeout: BUILD_MS, signal: place.signal });
  const address = pathToFileURL(join(tree, 'shared', 'agent-process.ts')).href;
  const agent = (await import(address)) as AgentProcess;
  const name = (await git(ROOT, 'rev-parse', '--short', hash)).trim();
  return { name, release: releaseIn(join(tree, 'dist', 'longshore'), agent) };
}

/** Packages of the same lock file are copied from this checkout; others are installed. */
async function installPackages(tree: string, place: Workplace): Promise<void> {
  const lock = (root: string): Promise<string> => readFile(join(root, 'package-lock.json'), 'utf8');
  if ((await lock(tree)) === (await lock(ROOT))) {
    const packages = join(tree, 'node_modules');
    await cp(join(ROOT, 'node_modules'), packages, {
      recursive: true,
      verbatimSymlinks: true,
      filter: (source) => !source.startsWith(join(ROOT, 'node_modules', '.cache')),
    });
    return;
  }
  await run('npm', ['ci', '--no-audit', '--no-fund'], { cwd: tree, timeout: INSTALL_MS, signal: place.signal });
}

export const git = (cwd: string, ...args: string[]): Promise<string> => run('git', args, { cwd, timeout: GIT_MS });

interface RunOptions {
  readonly cwd: string;
  readonly timeout: number;
  readonly signal?: AbortSignal;
}

async function run(command: string, args: readonly string[], options: RunOptions): Promise<string> {
  try {
    const { stdout } = await runFile(command, [...args], { ...options, encoding: 'utf8', maxBuffer: OUTPUT_BYTES });
    return stdout;
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
    const last = output.trimEnd().split('\n').slice(-8).join('\n');
    throw new Error(`${command} ${args.join(' ')} failed${last === '' ? '' : `:\n${last}`}`, { cause: error });
  }
}

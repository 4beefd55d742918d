// The commit of the newest release, at which an upgrade starts unless it is told another.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { git } from '../against/commit.ts';
import { UsageError } from '../options.ts';

const HEADING = /^## \d+\.\d+\.\d+ - \d{4}-\d\d-\d\d$/m;

/**
 * The last commit that wrote the heading of the newest release in the changelog, such as `## 0.1.0 - 2026-11-30`. A
 * tag would not travel with every copy of the repository.
 * @param root - the checkout
 * @returns the full hash
 * @throws UsageError when the changelog has no release, or the history does not reach back to it
 */
export async function releasedCommit(root: string): Promise<string> {
  const heading = HEADING.exec(await readFile(join(root, 'CHANGELOG.md'), 'utf8'))?.[0];
  if (heading === undefined) throw new UsageError('--from: CHANGELOG.md has no release, so name a commit');
  // The oldest commit of a shallow copy seems to have written every line.
  const isShallow = (await git(root, 'rev-parse', '--is-shallow-repository')).trim() === 'true';
  const line = `^${heading.replaceAll('.', '[.]')}$`;
  const found = isShallow ? '' : await git(root, 'log', '-1', '--format=%H', `-G${line}`, '--', 'CHANGELOG.md');
  if (found !== '') return found.trim();
  throw new UsageError(`--from: no commit here wrote ${JSON.stringify(heading)} into CHANGELOG.md, so name a commit`);
}

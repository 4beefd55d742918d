import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { releasedCommit } from '../../../bench/upgrade/released.ts';

const UNRELEASED = '# Changelog\n\n## Unreleased\n';
const FIRST = '\n## 0.1.0 - 2026-11-30\n';
const SECOND = '\n## 0.2.0 - 2027-01-15\n';

let root: string;

const git = (...args: readonly string[]): string =>
  execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd: root,
    encoding: 'utf8',
    stdio: 'pipe',
  }).trim();

/** @returns the hash of a commit with this changelog */
function commit(changelog: string): string {
  writeFileSync(join(root, 'CHANGELOG.md'), changelog);
  git('add', '.');
  git('commit', '--quiet', '--message', 'a change');
  return git('rev-parse', 'HEAD');
}

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'ls-released-'));
  git('init', '--quiet');
});
afterEach(() => rmSync(root, { recursive: true }));

describe('an upgrade without a commit starts at', () => {
  test('the commit that wrote the heading of the newest release', async () => {
    commit(UNRELEASED);
    const first = commit(`${UNRELEASED}${FIRST}`);
    commit(`${UNRELEASED}\n- a change\n${FIRST}\n- a corrected line\n`);
    expect(await releasedCommit(root)).toBe(first);
    const second = commit(`${UNRELEASED}${SECOND}${FIRST}`);
    commit(`${UNRELEASED}\n- another change\n${SECOND}${FIRST}`);
    expect(await releasedCommit(root)).toBe(second);
  });

  test('nothing, and says so, where there is no release', async () => {
    commit(UNRELEASED);
    await expect(releasedCommit(root)).rejects.toThrow('--from: CHANGELOG.md has no release, so name a commit');
  });

  test('nothing, and says so, where the release is not in the history', async () => {
    commit(UNRELEASED);
    writeFileSync(join(root, 'CHANGELOG.md'), `${UNRELEASED}${FIRST}`);
    await expect(releasedCommit(root)).rejects.toThrow('no commit here wrote "## 0.1.0 - 2026-11-30"');
    commit(`${UNRELEASED}${FIRST}`);
    const copy = join(root, 'copy');
    git('clone', '--quiet', '--depth', '1', `file://${root}`, copy);
    await expect(releasedCommit(copy)).rejects.toThrow('no commit here wrote "## 0.1.0 - 2026-11-30"');
  });
});

/** Runs the tests of the Python module, by pytest, in several processes at once. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { repositoryRoot } from './paths.mjs';
import { pythonOfTests } from './python-tests.mjs';
import { runVisibly } from './vitest-run.mjs';

/** Processes of pytest. Most tests wait for programs: alone, one process took three times as long as it computed. */
const PARTS = 4;
/** Code with which pytest ends when it found no tests. */
const NO_TESTS = 5;

/**
 * @param {{ env: NodeJS.ProcessEnv, filters: readonly string[], timeoutMs: number }} options - `filters`: of paths of
 *   vitest files; with any, no Python test runs
 * @returns {Promise<{ passed: number, failed: number, skipped: string[], problems: string[] }>}
 */
export async function runPytest({ env, filters, timeoutMs }) {
  const total = { passed: 0, failed: 0, skipped: [], problems: [] };
  const folder = join(repositoryRoot, 'python');
  if (!existsSync(join(folder, 'tests')) || filters.length > 0) return total;
  const args = ['-m', 'pytest', '-q', '-rs', '--color=no', '-p', 'no:cacheprovider'];
  const runs = deal(testFiles(folder), PARTS).map((paths) =>
    runVisibly(pythonOfTests(), [...args, ...paths], {
      env: { ...env, PYTHONDONTWRITEBYTECODE: '1' },
      cwd: folder,
      timeoutMs,
      capture: true,
      atEnd: true,
    }),
  );
  for (const outcome of (await Promise.all(runs)).map(outcomeOf)) {
    total.passed += outcome.passed;
    total.failed += outcome.failed;
    total.skipped.push(...outcome.skipped);
    total.problems.push(...outcome.problems);
  }
  return total;
}

/** Test files as pytest finds them, with their sizes. */
function testFiles(folder) {
  return readdirSync(join(folder, 'tests'), { recursive: true, encoding: 'utf8' })
    .filter((name) => /(^|\/)(test_[^/]*|[^/]*_test)\.py$/.test(name))
    .map((name) => ({ path: join('tests', name), bytes: statSync(join(folder, 'tests', name)).size }));
}

/**
 * Deals the files into parts of about the same size, the largest first.
 * @param {readonly { path: string, bytes: number }[]} files
 * @returns {string[][]} paths of each part; no part is empty
 */
function deal(files, count) {
  const parts = Array.from({ length: count }, () => ({ bytes: 0, paths: [] }));
  for (const file of files.toSorted((a, b) => b.bytes - a.bytes || a.path.localeCompare(b.path))) {
    const lightest = parts.reduce((least, part) => (part.bytes < least.bytes ? part : least));
    lightest.bytes += file.bytes;
    lightest.paths.push(file.path);
  }
  return parts.map(({ paths }) => paths).filter((paths) => paths.length > 0);
}

/** Counts in the closing line of pytest; a process that ended otherwise is a problem. */
function outcomeOf({ code, late, output }) {
  const closing = output.trimEnd().split('\n').at(-1) ?? '';
  const count = (word) => Number(new RegExp(`(\\d+) ${word}`).exec(closing)?.[1] ?? 0);
  const outcome = {
    passed: count('passed'),
    failed: count('failed') + count('errors?'),
    skipped: output
      .split('\n')
      .filter((line) => line.startsWith('SKIPPED'))
      .map((line) => `python: ${line}`),
    problems: late ? ['python: not done in time'] : [],
  };
  if (code !== 0 && code !== NO_TESTS && outcome.failed === 0 && !late)
    outcome.problems.push(`python: pytest exited with ${code}`);
  outcome.failed += outcome.problems.length;
  return outcome;
}

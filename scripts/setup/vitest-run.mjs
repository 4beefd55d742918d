/** One vitest project, run to its end within a bound; its outcome read from vitest's own report. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repositoryRoot } from './paths.mjs';

/** @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();

/** Passes a signal on to the tests that run now. */
export function signalTests(signal) {
  for (const child of running) child.kill(signal);
}

/**
 * Runs a command on our output, ends it at the bound.
 * @returns {Promise<{ code: number, late: boolean, output: string }>} `output`: only with `capture`, its end
 */
export function runVisibly(command, args, { env, cwd = repositoryRoot, timeoutMs, capture = false }) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, cwd, stdio: ['ignore', capture ? 'pipe' : 'inherit', 'inherit'] });
    running.add(child);
    let output = '';
    child.stdout?.on('data', (chunk) => {
      process.stdout.write(chunk);
      output = (output + chunk).slice(-256 * 1024);
    });
    let late = false;
    const timers = [
      setTimeout(() => {
        late = true;
        child.kill('SIGTERM');
      }, timeoutMs),
      setTimeout(() => child.kill('SIGKILL'), timeoutMs + 15_000),
    ];
    const end = (code) => {
      timers.forEach(clearTimeout);
      running.delete(child);
      resolve({ code, late, output });
    };
    child.once('error', (error) => {
      process.stderr.write(`${command}: ${error.message}\n`);
      end(127);
    });
    child.once('close', (code) => end(code ?? 1));
  });
}

/**
 * @param {string} project
 * @param {{ node: string, env: NodeJS.ProcessEnv, filters: readonly string[], directory: string, timeoutMs: number }} options
 * @returns {Promise<{ passed: number, failed: number, skipped: string[], problems: string[] }>}
 */
export async function runProject(project, { node, env, filters, directory, timeoutMs }) {
  const report = join(directory, `${project}.json`);
  const vitest = join(repositoryRoot, 'node_modules', 'vitest', 'vitest.mjs');
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const { code, late } = await runVisibly(
    node,
    [vitest, 'run', '--project', project, '--passWithNoTests', ...reporters, ...filters],
    { env, timeoutMs },
  );
  const outcome = existsSync(report)
    ? outcomeOf(JSON.parse(readFileSync(report, 'utf8')))
    : { passed: 0, failed: 0, skipped: [], problems: [] };
  if (late) outcome.problems.push(`${project}: not done within ${Math.round(timeoutMs / 1000)} s and was ended`);
  else if (!existsSync(report)) outcome.problems.push(`${project}: vitest exited with ${code} and wrote no report`);
  else if (code !== 0 && outcome.failed === 0)
    outcome.problems.push(`${project}: vitest exited with ${code} though no test failed; its output above says why`);
  outcome.failed += outcome.problems.length;
  return outcome;
}

/** Tests by outcome; a file that could not even be loaded is one failure. */
function outcomeOf(report) {
  const outcome = { passed: 0, failed: 0, skipped: [], problems: [] };
  for (const file of report.testResults ?? []) {
    let failedHere = 0;
    for (const test of file.assertionResults ?? []) {
      if (test.status === 'passed') outcome.passed += 1;
      else if (test.status === 'failed') failedHere += 1;
      else outcome.skipped.push(`${file.name.replace(`${repositoryRoot}/`, '')}: ${test.fullName}`);
    }
    outcome.failed += file.status === 'failed' ? Math.max(failedHere, 1) : failedHere;
  }
  return outcome;
}

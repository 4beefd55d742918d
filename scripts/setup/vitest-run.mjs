/** Runs one vitest project to its end within a time bound, and reads the outcome from vitest's own report. */
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
 * @param {{ env: NodeJS.ProcessEnv, cwd?: string, timeoutMs: number, capture?: boolean, atEnd?: boolean }} options -
 *   `atEnd`: what is captured is shown when the command has ended, so that commands at once do not mix their lines
 * @returns {Promise<{ code: number, late: boolean, output: string }>} `output`: only with `capture`, its end
 */
export function runVisibly(command, args, options) {
  const { env, cwd = repositoryRoot, timeoutMs, capture = false, atEnd = false } = options;
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, cwd, stdio: ['ignore', capture ? 'pipe' : 'inherit', 'inherit'] });
    running.add(child);
    let output = '';
    child.stdout?.on('data', (chunk) => {
      if (!atEnd) process.stdout.write(chunk);
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
      if (atEnd) process.stdout.write(output);
      resolve({ code, late, output });
    };
    child.once('error', (error) => {
      process.stderr.write(`${command}: ${error.message}\n`);
      end(127);
    });
    child.once('close', (code) => end(code ?? 1));
  });
}

/** A run with more failed files than these has a cause of its own, so none is repeated. */
const REPEATED_FILES = 3;
/** Minimum spare time for a repeat, beside the time the file took: a run that is cut off leaves things behind. */
const REPEAT_SPARE_MS = 30_000;

/**
 * Runs a project. A file with a failed test runs a second time, alone. A test that
 * fails again is a failure. A test that then passes counts as passed and is named in
 * `unsteady`: a test that needs a quiet machine is a fault, though not this change's.
 * @param {string} project
 * @param {{
 *   node: string, env: NodeJS.ProcessEnv, filters: readonly string[], directory: string, timeoutMs: number,
 * }} options
 * @returns {Promise<{ passed: number, failed: number, skipped: string[], problems: string[], unsteady: string[] }>}
 */
export async function runProject(project, options) {
  const untilMs = Date.now() + options.timeoutMs;
  const first = await runOnce(project, project, options);
  const { failures, ...outcome } = first;
  const files = [...new Set(failures.map(({ file }) => file))];
  const tookMs = failures.reduce((most, failure) => Math.max(most, failure.fileMs), 0) * files.length;
  const again =
    files.length > 0 &&
    files.length <= REPEATED_FILES &&
    outcome.problems.length === 0 &&
    Date.now() + tookMs + REPEAT_SPARE_MS < untilMs;
  const second = again
    ? await runOnce(project, `${project}-again`, {
        ...options,
        filters: files,
        timeoutMs: Math.max(untilMs - Date.now(), 1000),
      })
    : first;
  const isBroken = ({ file, name }) =>
    second.problems.length > 0 || second.failures.some((other) => other.file === file && other.name === name);
  const broken = again ? [...new Set([...failures.filter(isBroken), ...second.failures])] : failures;
  const steady = again ? failures.filter((failure) => !isBroken(failure)) : [];
  const names = new Map(broken.map((failure) => [lineOf(failure), failure]));
  outcome.passed += steady.length;
  outcome.failed = names.size + outcome.problems.length;
  outcome.problems.push(...[...names.keys()].map((line) => `failed: ${line}`));
  return { ...outcome, unsteady: steady.map(lineOf) };
}

const lineOf = ({ file, name, message }) => `${file}: ${name}${message === '' ? '' : ` (${message})`}`;

async function runOnce(project, name, { node, env, filters, directory, timeoutMs }) {
  const report = join(directory, `${name}.json`);
  const vitest = join(repositoryRoot, 'node_modules', 'vitest', 'vitest.mjs');
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const { code, late } = await runVisibly(
    node,
    [vitest, 'run', '--project', project, '--passWithNoTests', ...reporters, ...filters],
    { env, timeoutMs },
  );
  const outcome = existsSync(report)
    ? outcomeOf(JSON.parse(readFileSync(report, 'utf8')))
    : { passed: 0, skipped: [], problems: [], failures: [] };
  if (late) outcome.problems.push(`${project}: not done within ${Math.round(timeoutMs / 1000)} s and was ended`);
  else if (!existsSync(report)) outcome.problems.push(`${project}: vitest exited with ${code} and wrote no report`);
  else if (code !== 0 && outcome.failures.length === 0)
    outcome.problems.push(`${project}: vitest exited with ${code} though no test failed; its output above says why`);
  return outcome;
}

/** Tests by outcome; a file that could not even be loaded is one failure. */
function outcomeOf(report) {
  const outcome = { passed: 0, skipped: [], problems: [], failures: [] };
  for (const { name: path, status, message, startTime, endTime, assertionResults = [] } of report.testResults ?? []) {
    const fileMs = endTime - startTime;
    const file = path.replace(`${repositoryRoot}/`, '');
    const failed = assertionResults.filter((test) => test.status === 'failed');
    for (const test of assertionResults) {
      if (test.status === 'passed') outcome.passed += 1;
      else if (test.status !== 'failed') outcome.skipped.push(`${file}: ${test.fullName}`);
    }
    for (const test of failed)
      outcome.failures.push({ file, fileMs, name: test.fullName, message: firstLine(test.failureMessages?.[0]) });
    if (status === 'failed' && failed.length === 0)
      outcome.failures.push({ file, fileMs, name: 'the whole file', message: firstLine(message) });
  }
  return outcome;
}

const firstLine = (text) =>
  String(text ?? '')
    .split('\n', 1)[0]
    .slice(0, 300);

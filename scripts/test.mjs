/**
 * `npm test`: sets up the tests' needs, then runs unit, Python, integration and e2e tests, in turn and within a
 * bound. The run lists skipped tests, checks that nothing is left behind, and closes with `N passed, N failed`.
 * `npm test -- <filter>` runs the vitest files whose path contains the filter.
 * `npm run hosts` runs, in the same way, tests that take longer than `npm test`
 * may; `npm run hosts -- attacks` runs the files whose names begin so.
 * With LS_TEST_ENGINE, a folder with the programs of a Docker
 * Engine, everything runs on that engine (setup/named-engine.mjs).
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { baseImageTemplate } from './setup/base-image.mjs';
import { labelledThings, removeLeftovers } from './setup/leftovers.mjs';
import { main, stepLog } from './setup/log.mjs';
import { engineLine, namedEngine, runOnEngine } from './setup/named-engine.mjs';
import { nodeBinary, pinnedEnv } from './setup/paths.mjs';
import { setUp } from './setup/profiles.mjs';
import { runPytest } from './setup/pytest-run.mjs';
import { endChildrenOnSignals } from './setup/run.mjs';
import { testParent } from './setup/test-directory.mjs';
import { runProject, signalTests } from './setup/vitest-run.mjs';

/** Time that all tests together should take, set-up apart, also on a slow machine. A longer run says so. */
const GOAL_MS = 14.5 * 60_000;
/** Bound on that time: a run that takes longer hangs. */
const BOUND_MS = 22 * 60_000;
/** The bound for the tests that `npm test` leaves out: they climb stop ladders to the end, file after file. */
const HOSTS_BOUND_MS = 120 * 60_000;

await main(async () => {
  const engine = namedEngine();
  return engine === undefined ? runTests() : runOnEngine(engine, [process.execPath, ...process.argv.slice(1)]);
});

async function runTests() {
  const signalsBack = endChildrenOnSignals();
  const onHosts = process.argv[2] === '--hosts';
  const { baseImage } = await setUp(onHosts ? 'hosts' : 'test', stepLog());
  signalsBack();
  process.stderr.write(`${await engineLine()}\n`);
  /** @type {string[]} */
  const interruptions = [];
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.on(signal, () => {
      interruptions.push(signal);
      signalTests(signal);
    });
  }
  const asked = process.argv.slice(onHosts ? 3 : 2);
  const filters = onHosts ? (asked.length === 0 ? [''] : asked).map((name) => `test/hosts/${name}`) : asked;
  const parts = onHosts ? ['hosts'] : ['unit', 'python', 'integration', 'e2e'];
  const runId = `run-${randomBytes(4).toString('hex')}`;
  // The directory is short, because socket paths end at 107 bytes,
  // and open, because Postgres runs as a user of its own.
  const directory = mkdtempSync(join(onHosts ? tmpdir() : testParent(), 'ls-'));
  chmodSync(directory, 0o755);
  const env = {
    ...pinnedEnv(),
    TMPDIR: directory,
    LS_TEST_RUN: runId,
    // A third of a start's processor time goes into reading and compiling sources, the same ones for every daemon.
    NODE_COMPILE_CACHE: join(directory, 'compiled'),
    LS_TEST_BASE_IMAGE: baseImage,
    LONGSHORE_BASE_IMAGE: process.env.LONGSHORE_BASE_IMAGE || baseImageTemplate(baseImage),
  };
  const before = await labelledThings();
  const beganMs = Date.now();
  const untilMs = beganMs + (onHosts ? HOSTS_BOUND_MS : BOUND_MS);
  const total = { passed: 0, failed: 0, skipped: [], problems: [], unsteady: [] };
  const add = (outcome) => {
    for (const key of ['passed', 'failed']) total[key] += outcome[key];
    for (const key of ['skipped', 'problems', 'unsteady']) total[key].push(...(outcome[key] ?? []));
  };
  const left = () => Math.max(untilMs - Date.now(), 1000);
  try {
    const options = { node: nodeBinary() ?? process.execPath, env, filters, directory };
    const run = (part) =>
      part === 'python'
        ? runPytest({ env, filters, timeoutMs: left() })
        : runProject(part, { ...options, timeoutMs: left() });
    // The Python tests mostly wait: they run beside the unit tests.
    const first = parts.filter((part) => part === 'unit' || part === 'python');
    for (const together of [first, ...parts.filter((part) => !first.includes(part)).map((part) => [part])]) {
      if (interruptions.length > 0) break;
      for (const outcome of await Promise.all(together.map(run))) add(outcome);
    }
    const leftovers = await removeLeftovers({ before, runId, directory, alone: process.env.CI !== undefined });
    if (leftovers.length > 0) {
      total.failed += 1;
      total.problems.push(`left behind by the tests: ${leftovers.join('; ')}`);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
  }
  const tookMs = Date.now() - beganMs;
  if (!onHosts && tookMs > GOAL_MS)
    process.stdout.write(`\nthese tests took ${minutes(tookMs)}; they should take ${minutes(GOAL_MS)} at most\n`);
  if (total.passed + total.failed === 0) total.problems.push('no test ran');
  if (interruptions.length > 0) total.problems.push(`interrupted by ${interruptions.join(', ')}`);
  return report(total);
}

function minutes(ms) {
  return `${(ms / 60_000).toFixed(1)} minutes`;
}

function report({ passed, failed, skipped, problems, unsteady }) {
  const lines = [
    ...skipped.map((name) => `skipped: ${name}`),
    ...unsteady.map((text) => `UNSTEADY, failed once and passed when run again: ${text}`),
    ...problems.map((text) => `problem: ${text}`),
  ];
  const tail = skipped.length > 0 ? `, ${skipped.length} skipped` : '';
  process.stdout.write(`\n${lines.map((line) => `${line}\n`).join('')}${passed} passed, ${failed} failed${tail}\n`);
  return failed > 0 || problems.length > 0 || passed === 0 ? 1 : 0;
}

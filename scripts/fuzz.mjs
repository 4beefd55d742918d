// `npm run fuzz -- --requests 40000 [--seed N]`: random requests from docs/openapi.json against
// a real scheduler with embedded stores (test/integration/fuzz.test.ts, which runs 500 of them
// in `npm test`). From 20000 requests on, memory growth over the later half is judged.
// `npm run fuzz -- --schemathesis [--examples N]`: the same file given to
// schemathesis, which `npm run fuzz -- --install` or the first use installs.
// `npm run fuzz -- --dockerfile [--inputs N] [--seed N]`: Dockerfiles against Docker's own parsers
// (test/tools/dockerfile/fuzz.ts). Needs Go.
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { nodeBinary, pinnedEnv, repositoryRoot, stateDir } from './setup/paths.mjs';

const SCHEMATHESIS = '4.32.5';

const { values } = parseArgs({
  options: {
    requests: { type: 'string' },
    seed: { type: 'string' },
    schemathesis: { type: 'boolean', default: false },
    install: { type: 'boolean', default: false },
    examples: { type: 'string', default: '20' },
    dockerfile: { type: 'boolean', default: false },
    inputs: { type: 'string', default: '200000' },
  },
});
for (const name of ['requests', 'seed', 'examples', 'inputs']) {
  if (values[name] !== undefined && !/^[1-9][0-9]{0,8}$/.test(values[name])) {
    process.stderr.write(`--${name} must be a whole number above 0\n`);
    process.exit(2);
  }
}

/** Runs a command; a failure ends this program. */
function run(command, args, env = {}) {
  const { status, error } = spawnSync(command, args, {
    cwd: repositoryRoot,
    stdio: 'inherit',
    env: { ...pinnedEnv(), ...env },
  });
  if (error) process.stderr.write(`${command}: ${error.message}\n`);
  if (status !== 0) process.exit(status ?? 1);
}

/**
 * A Python environment per version, beside set-up's state; an interrupted installation starts anew.
 * @returns the path of the program
 */
function schemathesis() {
  const environment = join(stateDir(), `schemathesis-${SCHEMATHESIS}`);
  const program = join(environment, 'bin', 'schemathesis');
  const complete = join(environment, 'complete');
  if (existsSync(complete)) return program;
  process.stderr.write(`installing schemathesis ${SCHEMATHESIS} into ${environment}\n`);
  rmSync(environment, { recursive: true, force: true });
  run('python3', ['-m', 'venv', environment]);
  run(join(environment, 'bin', 'python'), [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    `schemathesis==${SCHEMATHESIS}`,
  ]);
  writeFileSync(complete, '');
  return program;
}

if (values.dockerfile) {
  const seed = values.seed ?? String(randomInt(1, 2 ** 31));
  const file = join(repositoryRoot, 'test/tools/dockerfile/fuzz.ts');
  run(nodeBinary() ?? process.execPath, [file, '--inputs', values.inputs, '--seed', seed]);
  process.exit(0);
}
const program = values.schemathesis || values.install ? schemathesis() : undefined;
if (values.install) process.exit(0);
const vitest = join(repositoryRoot, 'node_modules', '.bin', 'vitest');
const file = 'test/integration/fuzz.test.ts';
run(nodeBinary() ?? process.execPath, [vitest, 'run', '--project', 'integration', file], {
  LS_FUZZ_REQUESTS: values.requests ?? (values.schemathesis ? '500' : '40000'),
  LS_FUZZ_SEED: values.seed ?? String(randomInt(1, 2 ** 31)),
  ...(program === undefined ? {} : { LS_FUZZ_SCHEMATHESIS: program, LS_FUZZ_EXAMPLES: values.examples }),
});

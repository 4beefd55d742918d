// `npm run fuzz -- --requests 20000 [--seed N]`: requests made up from docs/openapi.json against a real scheduler with embedded stores (test/integration/fuzz.test.ts, of which `npm test` has 500).
// `npm run fuzz -- --schemathesis [--examples N]`: the same file given to schemathesis, in a Python environment of its own below node_modules/.cache.
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const SCHEMATHESIS = 'schemathesis==4.32.5';
const root = resolve(fileURLToPath(new URL('..', import.meta.url)));

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '20000' },
    seed: { type: 'string' },
    schemathesis: { type: 'boolean', default: false },
    examples: { type: 'string', default: '20' },
  },
});
for (const name of ['requests', 'seed', 'examples']) {
  if (values[name] !== undefined && !/^[1-9][0-9]{0,8}$/.test(values[name])) {
    process.stderr.write(`--${name} must be a whole number above 0\n`);
    process.exit(2);
  }
}

/** Ends this program when that one fails. */
function run(command, args, env = {}) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } });
  if (error) process.stderr.write(`${command}: ${error.message}\n`);
  if (status !== 0) process.exit(status ?? 1);
}

/** @returns its program; installed once */
function schemathesis() {
  const environment = join(root, 'node_modules', '.cache', 'schemathesis');
  const program = join(environment, 'bin', 'schemathesis');
  if (!existsSync(program)) {
    run('python3', ['-m', 'venv', environment]);
    run(join(environment, 'bin', 'pip'), ['install', '--quiet', SCHEMATHESIS]);
  }
  return program;
}

const vitest = join(root, 'node_modules', '.bin', 'vitest');
const file = 'test/integration/fuzz.test.ts';
run(process.execPath, [vitest, 'run', '--project', 'integration', file], {
  LS_FUZZ_REQUESTS: values.requests,
  LS_FUZZ_SEED: values.seed ?? String(randomInt(1, 2 ** 31)),
  ...(values.schemathesis ? { LS_FUZZ_SCHEMATHESIS: schemathesis(), LS_FUZZ_EXAMPLES: values.examples } : {}),
});

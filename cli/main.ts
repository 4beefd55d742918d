// The `longshore` program: reads the command line, runs one command, and turns a failure into a sentence and
// an exit code (exit-codes.ts). bin/longshore.mjs runs it, and `longshore up` for its children.
import { existsSync } from 'node:fs';
import { enableCompileCache, flushCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

/** A daemon that is killed writes nothing at its end. */
const FLUSH_AFTER_MS = 5_000;

// A compile cache, for checkouts: each of their many files would be compiled at every start (a release has few
// files). The cache lies beside the packages, because anybody who can write there can change the program itself.
const modules = fileURLToPath(new URL('../node_modules', import.meta.url));
if (import.meta.url.endsWith('.ts') && existsSync(modules)) {
  enableCompileCache(`${modules}/.cache/longshore`);
  setTimeout(flushCompileCache, FLUSH_AFTER_MS).unref();
}

const [{ runProgram }, { endWithReader }] = await Promise.all([import('./program.ts'), import('./print.ts')]);
process.exitCode = await runProgram(process.argv.slice(2), endWithReader());

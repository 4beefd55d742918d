// The `longshore` program: reads the command line, runs one command, turns what went wrong into a sentence and an exit code (1; 2 for a
// command line that makes no sense). Run by bin/longshore.mjs and, for its children, by `longshore up`.
import { existsSync } from 'node:fs';
import { enableCompileCache, flushCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

/** A daemon that is killed writes nothing at its end. */
const FLUSH_AFTER_MS = 5_000;

// In a checkout, where each of many files would be compiled at every start (a release is a few). Beside the packages: whoever may write there may change the program itself.
const modules = fileURLToPath(new URL('../node_modules', import.meta.url));
if (import.meta.url.endsWith('.ts') && existsSync(modules)) {
  enableCompileCache(`${modules}/.cache/longshore`);
  setTimeout(flushCompileCache, FLUSH_AFTER_MS).unref();
}

const { runProgram } = await import('./program.ts');
process.exitCode = await runProgram(process.argv.slice(2));

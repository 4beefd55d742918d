// The `longshore` program: reads the command line, runs one command, turns what went wrong into a sentence and an exit code (1; 2 for a
// command line that makes no sense). Run by bin/longshore.mjs and, for its children, by `longshore up`.
import { runProgram } from './program.ts';

process.exitCode = await runProgram(process.argv.slice(2));

/** The mount helper as the program that a release's unit runs. A failure ends it with a sentence and an exit code. */
import { StartupError } from '#shared/errors.ts';
import { runMounts } from './process.ts';

try {
  await runMounts(process.env);
} catch (error) {
  if (!(error instanceof StartupError)) throw error;
  process.stderr.write(`longshore-mounts: ${error.message}\n`);
  process.exitCode = error.exitCode;
}

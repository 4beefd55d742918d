/**
 * Prepares the empty database that a first start of a scheduler copies (`scheduler/stores/store/template.ts`). The
 * engine takes seconds of a processor to make it, so the work runs beside other steps of set-up.
 */
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { nodeBinary, repositoryRoot } from './paths.mjs';
import { run } from './run.mjs';

const TIMEOUT_MS = 120_000;
/** A look at the database that is there, and no step that a person wants to see. */
const SHORT_MS = 1_000;

/**
 * Begins at once. A scheduler starts without a prepared database, only later, so a failure is told and ends nothing.
 * @returns a function that waits for the end, as a step of the log that it is given where it has to wait
 */
export function beginDatabase() {
  const work = prepareDatabase().then(
    () => undefined,
    (error) => `- no prepared database, so a first start takes longer: ${error.message}`,
  );
  return async (log) => {
    const isLong = await Promise.race([work.then(() => false), setTimeout(SHORT_MS, true, { ref: false })]);
    const problem = isLong ? await log.step('preparing an empty database', () => work) : await work;
    if (problem !== undefined) log.say(problem);
  };
}

/** @throws SetupError with the end of the program's output */
export function prepareDatabase() {
  const program = join(repositoryRoot, 'scheduler', 'stores', 'store', 'make-template.ts');
  return run(nodeBinary() ?? process.execPath, [program], { timeoutMs: TIMEOUT_MS });
}

// Shows a step of a start to the person at the terminal.
import { note } from '../print.ts';

const STILL_EVERY_MS = 2_000;

/**
 * Prints the start of a step, a line every two seconds while the step runs,
 * and the time it took. A failed step prints nothing more: its error does.
 * @param logPath - the file with the step's output, for a person who waits
 */
export async function shownStep<T>(what: string, logPath: string, work: () => Promise<T>): Promise<T> {
  const starting = `- starting ${what === 'Redis' ? what : `the ${what}`} ...`;
  note(starting);
  const startedMs = performance.now();
  const seconds = (digits: number): string => ((performance.now() - startedMs) / 1000).toFixed(digits);
  const timer = setInterval(
    () => note(`${starting} still at it after ${seconds(0)} s (its output: ${logPath})`),
    STILL_EVERY_MS,
  );
  try {
    const result = await work();
    note(`- ${what} is ready (${seconds(1)} s)`);
    return result;
  } finally {
    clearInterval(timer);
  }
}

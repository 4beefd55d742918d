// A step of a start, as a person at the terminal follows it.
import { note } from '../print.ts';

const STILL_EVERY_MS = 10_000;

/**
 * Says what begins, every ten seconds that it goes on, and how long it took. One that fails says nothing more: the error does.
 * @param logPath - where its output is, for who waits
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

/** Prints set-up's progress: a line per step, and a sign of life for long steps. */

/** A sentence for the person, with its cure; printed without a stack, and the program exits with 1. */
export class SetupError extends Error {}

const say = (line) => process.stderr.write(`${line}\n`);

/**
 * A printer of steps. On a terminal the line of the running step counts its seconds. Elsewhere lines
 * are plain, with a short one every ten seconds while a step runs, so that a log shows progress.
 * @returns {{ say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> }}
 */
export function stepLog() {
  const terminal = process.stderr.isTTY === true;
  return {
    say,
    async step(title, work) {
      const startedMs = Date.now();
      const seconds = () => ((Date.now() - startedMs) / 1000).toFixed(1);
      if (!terminal) say(`- ${title} ...`);
      const timer = terminal
        ? setInterval(
            () => process.stderr.write(`\r- ${short(title)} ... ${Math.floor((Date.now() - startedMs) / 1000)} s`),
            1000,
          )
        : setInterval(() => say(`  still at it after ${Math.floor((Date.now() - startedMs) / 1000)} s`), 10_000);
      if (terminal) process.stderr.write(`- ${short(title)} ...`);
      const end = terminal ? '\r' : '';
      try {
        const result = await work();
        say(`${end}- ${title}: done (${seconds()} s)`);
        return result;
      } catch (error) {
        say(`${end}- ${title}: failed after ${seconds()} s`);
        throw error;
      } finally {
        clearInterval(timer);
      }
    },
  };
}

/** A wrapped line cannot be overwritten: each second would print it again. */
function short(title) {
  const room = (process.stderr.columns || 80) - '-  ... 1000 s '.length;
  return title.length > room ? `${title.slice(0, Math.max(room, 10) - 1)}…` : title;
}

/** Runs a program's main function: a SetupError becomes its sentence, anything else its stack; both exit with 1. */
export async function main(work) {
  try {
    process.exitCode = (await work()) ?? 0;
  } catch (error) {
    say(error instanceof SetupError ? `\n${error.message}` : `\n${error?.stack ?? error}`);
    process.exitCode = 1;
  }
}
